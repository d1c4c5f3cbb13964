"""The scripted market, the pages served over it, and a browser."""

from collections.abc import AsyncIterator

import pytest

from web.browser import Chromium, Page
from web.scripted import Market, make_app, serving


@pytest.fixture
async def market() -> Market:
    return Market()


@pytest.fixture
async def address(market: Market) -> AsyncIterator[str]:
    async with serving(make_app(market)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def page(chromium: Chromium) -> AsyncIterator[Page]:
    async with chromium.page() as page:
        yield page
