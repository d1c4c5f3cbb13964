"""The first page in Chromium, against a scripted service: what a person would see.

Skipped where there is no Chromium (Debian: the package `chromium`).
"""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from web.browser import CHROMIUM, Page, browser
from web.scripted import EXCHANGES, GOOD_KEY, Market, make_app, serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture
async def market() -> Market:
    return Market()


@pytest.fixture
async def address(market: Market) -> AsyncIterator[str]:
    async with serving(make_app(market)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def page(tmp_path: Path, address: str) -> AsyncIterator[Page]:
    async with browser(tmp_path / "profile") as page:
        yield page


ROWS = "document.querySelectorAll('#{side} td:first-child')"
TEXTS = f"[...{ROWS}].map((cell) => Number(cell.textContent.replaceAll(',', '')))"
LIVE = "document.querySelector('#link').dataset.state === 'live'"
LADDER = f"{ROWS.format(side='bids')}[0]?.textContent.trim()"


def state_of(exchange: str) -> str:
    return f"document.querySelector('#members [data-exchange={exchange}]')?.dataset.state"


async def test_the_ladder_is_shown_live_and_nothing_foreign_is_asked_for(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LIVE)
    await page.until(LADDER)
    bids = await page.run(TEXTS.format(side="bids"))
    asks = await page.run(TEXTS.format(side="asks"))
    assert bids == sorted(bids, reverse=True)
    assert asks == sorted(asks, reverse=True)  # the best stand beside each other
    assert bids[0] < asks[-1]
    assert len(bids) == len(asks) == 12
    first = await page.run("document.querySelector('#best-bid').textContent")
    await page.until(f"document.querySelector('#best-bid').textContent !== '{first}'")
    await page.until("document.querySelector('#depth canvas') !== null")
    await page.until("Number(document.querySelector('#rate').textContent) > 1")
    await page.until("Number(document.querySelector('#received').textContent) > 0")
    await page.until("Number(document.querySelector('#latency').textContent) >= 0")
    assert await page.run("document.querySelectorAll('#exchanges input').length") == len(EXCHANGES)
    assert {urlsplit(url).hostname for url in page.urls} == {"127.0.0.1"}
    assert page.complaints == []
    key_in_url = await page.run("location.href")
    assert GOOD_KEY not in key_in_url
    assert all(GOOD_KEY not in url for url in page.urls[1:])
    subscribed = next(m for m in market.heard if m["type"] == "subscribe_aggregated")
    assert subscribed["exchanges"] == "all"
    assert (subscribed["levels"], subscribed["split"]) == ("array", True)


async def test_an_exchange_that_goes_stale_is_shown_with_its_reason(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{state_of('kraken')} === 'live'")
    assert await page.run(state_of("gate")) == "offline"
    await market.set_stale("kraken", "gap: a message is missing")
    await page.until(f"{state_of('kraken')} === 'stale'")
    text = await page.run("document.querySelector('#members [data-exchange=kraken]').innerText")
    assert "gap: a message is missing" in text
    await page.until("!/KRA/.test(document.querySelector('#ladder').innerText)")
    market.stale.clear()
    await page.until(f"{state_of('kraken')} === 'live'")
    assert page.complaints == []


async def test_a_choice_of_symbol_exchanges_and_step_is_subscribed(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    await page.run("document.querySelector('#exchanges input[value=okx]').click()")
    await page.until("!document.querySelector('#members [data-exchange=okx]')")
    await page.run(
        "(() => { const s = document.querySelector('#group'); s.selectedIndex = 2;"
        " s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    await page.run(
        "(() => { const s = document.querySelector('#symbol'); s.focus(); s.value = 'eth/usdt';"
        " s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    await page.until("document.querySelector('#title-symbol').textContent === 'ETH/USDT'")
    await page.until("document.querySelectorAll('#symbols option').length === 3")
    said = [m for m in market.heard if m["type"] == "subscribe_aggregated"]
    assert said[1]["exchanges"] == [name for name in EXCHANGES if name != "okx"]
    assert float(said[2]["group"]) > 0
    assert (said[3]["symbol"], "group" in said[3]) == ("ETH/USDT", False)
    assert {"type": "unsubscribe_aggregated", "symbol": "BTC/USDT"} in market.heard


async def test_an_unknown_symbol_offers_others(page: Page, address: str) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&symbol=NO/PE")
    await page.until("/None of the/.test(document.querySelector('#notice').innerText)")
    await page.run("document.querySelector('#notice button').click()")
    await page.until("document.querySelector('#title-symbol').textContent === 'BTC/USDT'")
    await page.until(LADDER)


async def test_a_wrong_key_stops_and_is_forgotten(page: Page, address: str, market: Market) -> None:
    await page.open(address + "/")
    await page.until("document.querySelector('#key-form').checkVisibility()")
    await page.run(
        "(() => { document.querySelector('#key').value = 'wrong';"
        " document.querySelector('#key-form').requestSubmit(); })()"
    )
    await page.until("document.querySelector('#link').dataset.state === 'stopped'")
    assert "not valid" in await page.run("document.querySelector('#link').innerText")
    assert await page.run("sessionStorage.getItem('onebook.key')") is None
    assert [m["type"] for m in market.heard] == ["authenticate"]


async def test_a_broken_line_dims_the_book_and_comes_back(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    for socket in list(market.sockets):
        await market.close(socket, 4200, reconnect_in_ms=300)
    await page.until("document.querySelector('#market').dataset.live === 'no'")
    await page.until(LIVE)
    await page.until("document.querySelector('#market').dataset.live === 'yes'")


AFTER_CLOSE = """
import("/web/page/connection.js").then(({ afterClose }) => [
    [4001, 0], [4002, 3], [4004, 0], [4108, 0], [4113, 9], [4129, 2], [4200, 0], [1006, 0],
    [1009, 3],
  ].map(([code, attempt]) =>
    afterClose(code, { attempt, givenMs: code === 4200 ? 7 : null, random: 0.5 })))
"""


async def test_the_close_code_rule(page: Page, address: str) -> None:
    await page.open(address + "/")
    assert await page.run(AFTER_CLOSE) == [
        {"stop": True},
        {"stop": True},
        {"stop": True},
        {"waitMs": 1_250},
        {"waitMs": 15_750},
        {"waitMs": 2_750},
        {"waitMs": 7},
        {"waitMs": 1_250},
        {"waitMs": 4_750},
    ]


FORMAT = """
import("/web/page/format.js").then((m) => [
  m.decimals([1, 0.5, 1e-7], 12), m.decimals([97310.1], 12), m.decimals([1e-20], 8),
  m.amountDecimals(0), m.amountDecimals(3.2), m.amountDecimals(123456789),
  m.amountDecimals(0.00001),
  m.groupSteps(97310.4).join(" "), m.groupSteps(0.00002).join(" "), m.groupSteps(null).length,
  m.fixed(1234.5, 2), m.ago(20), m.ago(9000), m.ago(150000)])
"""
BOOK = """
import("/web/page/book.js").then((m) => {
  const book = m.readBook({ bids: [[10, 2, [["a", 1.5], ["b", 0.5]]], [9, 1, [["b", 1]]]],
                            asks: [[9.5, 4, [["a", 4]]]], market_stats: {} });
  const { of } = m.shareOf(book.bids);
  return [m.depthLines(book), book.bids[1].total, of("b"), m.shareOf([]).of("a")];
})
"""


async def test_numbers_and_lines(page: Page, address: str) -> None:
    await page.open(address + "/")
    assert await page.run(FORMAT) == [
        7, 1, 8,
        2, 5, 0, 8,
        "0.1 0.5 1 5 10 50 100 500",
        "0.0000000001 0.0000000005 0.000000001 0.000000005 "
        "0.00000001 0.00000005 0.0000001 0.0000005",
        0,
        "1,234.50", "now", "9 s ago", "2 min ago",
    ]  # fmt: skip
    # The bid at 10 crosses the ask at 9.5: the chart's axis still rises.
    lines, total, share, nothing = await page.run(BOOK)
    assert lines == [[9, 9.5, 10], [3, None, 2], [None, 4, None]]
    assert (total, share, nothing) == (3, 0.5, 0)


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_fits_a_phone(page: Page, address: str, path: str) -> None:
    await page.open("about:blank")
    await page.call(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=740,
        deviceScaleFactor=2,
        mobile=True,
    )
    await page.go(f"{address}{path}#key={GOOD_KEY}")
    if path == "/":
        await page.until(LADDER)
    assert await page.run("document.documentElement.scrollWidth") <= 360
    assert page.complaints == []
