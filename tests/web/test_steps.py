"""A price step bins the page's ladder only: quoted prices stay exact."""

import pytest

from web.browser import CHROMIUM, Page
from web.by_hand import count_drawings, send
from web.scripted import GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
STEP = 100
QUOTES = """(() => {
  const text = (name) => document.querySelector(name).textContent;
  const number = (name) => Number(text(name).replaceAll(",", ""));
  return {
    top: number(".bids .price"), bid: number(".best-bid"), ask: number(".best-ask"),
    mid: number(".mid"), spread: text(".spread"), history: text(".history-text"),
    crossed: document.querySelector(".crossed").checkVisibility(),
  };
})()"""


def exact(market: Market) -> tuple[float, float]:
    """The best bid and ask of the last update, before binning."""
    fill = market.delivered["BTC/USDT"]["data"]["fill"]
    return fill["sell"][0]["worst"], fill["buy"][0]["worst"]


async def test_with_a_step_every_quote_is_that_of_the_exact_books(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#step={STEP}&key={GOOD_KEY}")
    await page.until("document.querySelector('.bids .price')?.textContent.trim()")
    await count_drawings(page, market)
    await send(page, market)
    bid, ask = exact(market)
    mid = (bid + ask) / 2
    shown = await page.run(QUOTES)
    assert shown["top"] % STEP == 0
    assert (shown["bid"], shown["ask"]) == (bid, ask)
    assert shown["mid"] == pytest.approx(mid, abs=0.001)
    assert shown["spread"].startswith(f"spread {ask - bid:.1f} (")
    assert f"mid {mid:,.2f}"[:-1] in shown["history"]
    await page.run("document.querySelector('.bids tr').click()")
    assert "at least" in (read := await page.run("document.querySelector('.readout').textContent"))
    assert "average" not in read
    assert page.complaints == []


async def test_a_crossing_within_one_step_is_shown_with_its_pair(
    page: Page, address: str, market: Market
) -> None:
    market.crossed = True
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelectorAll('.pairs li').length")
    await page.run(
        "(() => { const s = document.querySelector('.group'); s.value = '100';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    await page.until("document.querySelector('.bids .price').textContent.trim().endsWith('00')")
    assert await page.run("document.querySelectorAll('.pairs li').length") == 1
    shown = await page.run(QUOTES)
    assert shown["crossed"]
    assert shown["spread"].startswith("spread -")
