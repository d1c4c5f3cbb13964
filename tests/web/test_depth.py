"""The depth chart by distance from the mid: its range, and the number of known books."""

import pytest

from web.browser import CHROMIUM, Page, happened, resize
from web.by_hand import subscribed
from web.scripted import EMPTY, EXCHANGES, GOOD_KEY, Market
from web.test_panels import READY, change, text

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
DRAWN = "document.querySelector('.depth canvas') !== null"
SAID = text(".depth-text")


def viewed(market: Market) -> list[dict]:
    """The page's messages about the view of the chart."""
    return [each for each in market.viewed if each["view"] == "depth"]


REACHING = """
Promise.all([import("/web/page/depth.js"), import("/web/page/state.js")]).then(
  ([{ reaching }, { RANGES }]) => [97310.4, 0.00002].map((mid) => RANGES.map((range) => {
    const { group, depth } = reaching(range, mid);
    return [range, group, depth, 100 * Number(group) * depth / mid];
  })))
"""


async def test_the_levels_that_are_requested_reach_as_far_as_the_range(
    page: Page, address: str
) -> None:
    await page.open(address + EMPTY)
    dear, cheap = await page.run(REACHING)
    assert [group for _, group, _, _ in dear] == ["0.5", "5", "5", "10", "50", "50"]
    assert cheap[0][1] == "0.0000000001"
    for wanted, _, depth, reach in dear + cheap:
        assert depth <= 500
        assert reach >= (24 if wanted == "all" else float(wanted))
        assert depth > 80, "enough for a line"


CHANGED = """(() => {
  window.drawn = [];
  const draw = CanvasRenderingContext2D.prototype.stroke;
  CanvasRenderingContext2D.prototype.stroke = function (...path) {
    const now = performance.now();
    if (this.canvas.closest(".depth") && !(now - drawn.at(-1) < 300)) drawn.push(now);
    return draw.apply(this, path);
  };
})()"""


async def test_a_range_is_a_second_view_of_the_symbol_once_a_second(
    page: Page, address: str, market: Market
) -> None:
    await page.open("about:blank")
    await resize(page, 1366, 768, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}&range=2")
    await page.until(DRAWN)
    (first,) = viewed(market)
    assert (first["type"], first["symbol"]) == ("subscribe_aggregated", "BTC/USDT")
    asked = (first["group"], first["mode"], first["interval_ms"], first["coverage"])
    assert asked == ("10", "delta", 1_000, True)
    assert not {"split", "ages", "fill"} & set(first)
    assert len(subscribed(market)) == 1
    assert "group" not in subscribed(market)[0]
    await page.run(CHANGED)
    await page.until("drawn.length > 2")
    begin, *_, end = await page.run("drawn")
    assert end - begin > 900 * (await page.run("drawn.length") - 1)
    assert len(viewed(market)) == 1, "nothing is requested again"
    await page.run("document.querySelector('.range input[value=\"0.1\"]').click()")
    await happened(lambda: len(viewed(market)) >= 2)
    assert (viewed(market)[1]["view"], viewed(market)[1]["group"]) == (first["view"], "0.5")
    assert "range=0.1" in await page.run("location.hash")
    await page.until(f"/^Known up to|^$/.test({SAID})")
    assert len(subscribed(market)) == 1
    assert page.complaints == []


async def test_another_symbol_ends_the_view_of_the_one_before(
    page: Page, address: str, market: Market
) -> None:
    await page.open("about:blank")
    await resize(page, 1366, 768, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(DRAWN)
    await page.run(change(".symbol", "eth/usdt", "change"))
    await page.until("document.querySelector('.title').textContent === 'ETH/USDT'")
    await page.until(DRAWN)
    said = [(each["type"], each["symbol"], each["view"]) for each in viewed(market)]
    assert said == [
        ("subscribe_aggregated", "BTC/USDT", "depth"),
        ("unsubscribe_aggregated", "BTC/USDT", "depth"),
        ("subscribe_aggregated", "ETH/USDT", "depth"),
    ]
    await page.run("document.querySelector('#exchanges input[value=okx]').click()")
    await happened(lambda: len(viewed(market)) >= 4)
    assert viewed(market)[3]["exchanges"] == [name for name in EXCHANGES if name != "okx"]
    assert page.complaints == []


async def test_a_refused_view_is_explained_where_the_chart_would_be(
    page: Page, address: str, market: Market
) -> None:
    market.views = False
    await page.open("about:blank")
    await resize(page, 1366, 768, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{SAID} === 'This key may have at most 1 different view at a time.'")
    await page.until(READY)
    assert len(viewed(market)) == 1
    market.views = True
    await page.run("document.querySelector('.range input[value=\"5\"]').click()")
    await page.until(DRAWN)
    await page.until(f"!/^This key/.test({SAID})")


async def test_a_short_ladder_says_where_a_book_ends_by_the_view_of_the_chart(
    page: Page, address: str, market: Market
) -> None:
    market.horizons = {"okx": {"bids": float(market.middle) - 5, "asks": None}}
    await page.open(f"{address}/#key={GOOD_KEY}&levels=12")
    await page.until(READY)
    assert not subscribed(market)[0]["coverage"]
    await page.until("document.querySelector('.bids tr[data-bounded=yes]') !== null")
    assert await page.run("document.querySelector('.asks tr[data-bounded=yes]') === null")


HIDE = """(() => {
  Object.defineProperty(document, "hidden", { get: () => window.away, configurable: true });
  window.turn = (away) => {
    window.away = away;
    document.dispatchEvent(new Event("visibilitychange"));
  };
  const later = setTimeout;
  window.setTimeout = (act, ms, ...more) => later(act, ms >= 1_000 ? 0 : ms, ...more);
})()"""


async def test_a_hidden_tab_has_no_view_for_the_chart(
    page: Page, address: str, market: Market
) -> None:
    await page.open("about:blank")
    await resize(page, 1366, 768, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(DRAWN)
    await page.run(HIDE)
    await page.run("turn(true)")
    await happened(lambda: len(viewed(market)) >= 2)
    await page.run("turn(false)")
    await happened(lambda: len(viewed(market)) >= 3)
    assert [each["type"].split("_")[0] for each in viewed(market)] == [
        "subscribe", "unsubscribe", "subscribe",
    ]  # fmt: skip


MOVED = """
import("/web/page/depth.js").then(({ reaching }) => {
  const first = reaching("0.5", 97310.4);
  return [1, 1.02, 0.95, 1.08, 0.8].map((part) => reaching("0.5", 97310.4 * part, first) === first);
})
"""


async def test_the_mid_may_move_before_other_levels_are_needed(page: Page, address: str) -> None:
    await page.open(address + EMPTY)
    assert await page.run(MOVED) == [True, True, True, False, False]


async def test_the_chart_says_how_many_books_are_known_as_far_as_it_shows(
    page: Page, address: str, market: Market
) -> None:
    middle = float(market.middle)
    market.horizons = {
        "okx": {"bids": middle - 100, "asks": None},
        "kraken": {"bids": middle - 200, "asks": middle + 4_000},
        "bybit": {"bids": None, "asks": None},
    }
    await page.open("about:blank")
    await resize(page, 1366, 768, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}&range=0.5")
    known = "Known up to −0.5 %: 1 of 3 books; +0.5 %: 3 of 3 books."
    await page.until(f"{SAID} === '{known}'")
    await page.run("document.querySelector('.range input[value=\"5\"]').click()")
    await page.until(f"{SAID} === 'Known up to −5 %: 1 of 3 books; +5 %: 2 of 3 books.'")
