"""A price step bins the ladder of the page and nothing else: what is quoted stays exact."""

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
    mid: number(".mid"), spread: text(".spread"), worst: number(".fill tbody tr:nth-child(2) td"),
    slippage: parseFloat(text(".fill tbody tr:nth-child(3) td")),
    history: text(".history-text"), crossing: text(".crossing-text"),
    crossed: document.querySelector(".crossed").checkVisibility(),
    pairs: document.querySelectorAll(".pairs li").length,
  };
})()"""


def exact(market: Market) -> tuple[float, float]:
    """The best bid and ask of the last update, as they were before the step."""
    fill = market.delivered["BTC/USDT"]["data"]["fill"]
    return fill["sell"][0]["worst"], fill["buy"][0]["worst"]


async def test_with_a_step_every_quote_and_the_cost_are_those_of_the_exact_books(
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
    assert (shown["bid"], shown["ask"], shown["worst"]) == (bid, ask, ask)
    assert shown["mid"] == pytest.approx(mid, abs=0.001)
    assert shown["spread"].startswith(f"spread {ask - bid:.1f} (")
    assert shown["slippage"] == pytest.approx(100 * (ask - mid) / mid, abs=0.0001)
    assert shown["crossing"].startswith(f"Not crossed: the best ask is {ask - bid:.1f} above")
    assert f"mid {mid:,.2f}"[:-1] in shown["history"]
    await page.run("document.querySelector('.bids tr').click()")
    assert "at least" in (read := await page.run("document.querySelector('.readout').textContent"))
    assert "average" not in read
    assert page.complaints == []


async def test_a_crossing_within_one_step_is_shown_without_pairs_that_are_not_known(
    page: Page, address: str, market: Market
) -> None:
    market.crossed = True
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelectorAll('.pairs li').length")
    await page.run(
        "(() => { const s = document.querySelector('.group'); s.value = '100';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    await page.until(
        "/^Crossed now by .* Choose the step/.test("
        "document.querySelector('.crossing-text').textContent)"
    )
    shown = await page.run(QUOTES)
    assert (shown["crossed"], shown["pairs"]) == (True, 0)
    assert shown["spread"].startswith("spread -")
