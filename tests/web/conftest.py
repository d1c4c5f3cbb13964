"""The scripted market, the pages served over it, and a browser."""

import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from onebook.http import listening
from web.browser import Chromium, Page
from web.scripted import Market, make_app, serving


@pytest.fixture
async def market() -> Market:
    return Market()


@pytest.fixture(scope="session")
def listener() -> Iterator[socket.socket]:
    """One port for all tests of a worker: the browser has compiled its pages then."""
    with listening("127.0.0.1", 0) as found:
        yield found


@pytest.fixture
async def address(market: Market, listener: socket.socket) -> AsyncIterator[str]:
    async with serving(make_app(market), listener=listener) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def page(chromium: Chromium) -> AsyncIterator[Page]:
    async with chromium.page() as page:
        yield page
