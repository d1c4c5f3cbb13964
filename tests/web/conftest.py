"""The scripted market, the pages served over it, and a browser."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from web.browser import Page, browser
from web.scripted import Market, make_app, serving


@pytest.fixture
async def market() -> Market:
    return Market()


@pytest.fixture
async def address(market: Market) -> AsyncIterator[str]:
    async with serving(make_app(market)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with browser(tmp_path / "profile") as page:
        yield page
