"""The page's message after its connection ends, and its later content."""

import json

import pytest

from web.browser import CHROMIUM, Page
from web.scripted import GOOD_KEY, Market, make_app, serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

SHOWN = "document.querySelector('.bids .price')?.textContent.trim()"
SAID = "document.getElementById('link-text').textContent"
WATCH = """(() => { window.said = [];
  new MutationObserver(() => said.push(document.querySelector('.old').textContent)).observe(
    document.querySelector('.panel'), { subtree: true, childList: true, characterData: true });
  })()"""
LIVE = "document.getElementById('link').dataset.state === 'live'"


async def test_a_message_of_another_shape_is_named_and_the_page_connects_again(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(SHOWN)
    await page.run(
        "(() => { window.said = []; new MutationObserver(() => said.push("
        + SAID
        + ")).observe(document.getElementById('link-text'), { childList: true }); })()"
    )
    (socket,) = market.sockets
    delta = {"type": "aggregated_orderbook_delta", "symbol": "BTC/USDT"}
    await socket.send_text(json.dumps(delta))
    wanted = "The service sent an invalid aggregated_orderbook_delta: timestamp is missing."
    await page.until(f"said.includes('{wanted}')")
    await page.until(LIVE)
    await page.until("document.querySelector('.panel').dataset.live === 'yes'")
    assert page.complaints == []


async def test_a_service_that_is_gone_is_not_said_to_refuse_its_own_page(
    page: Page, market: Market
) -> None:
    async with serving(make_app(market)) as port:
        await page.open(f"http://127.0.0.1:{port}/#key={GOOD_KEY}")
        await page.until(SHOWN)
        await page.run(WATCH)
    wanted = f"Cannot reach 127.0.0.1:{port}."
    await page.until(f"{SAID}.startsWith('{wanted}')")
    assert await page.run(SAID) == wanted
    old = [text for text in await page.run("said") if text]
    assert old[0] == "Connection lost", "at once, while the last update is not a second old"
    assert "No update for 0 s" not in old
