"""The depth chart by distance from the mid: how far it reaches, how many books are known there."""

import pytest

from web.browser import CHROMIUM, Page, resize
from web.scripted import GOOD_KEY, Market
from web.test_panels import text

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
DRAWN = "document.querySelector('.depth canvas') !== null"
SAID = text(".depth-text")

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
    await page.open(address + "/")
    dear, cheap = await page.run(REACHING)
    assert [group for _, group, _, _ in dear] == ["0.5", "5", "5", "10", "50", "50"]
    assert cheap[0][1] == "0.0000000001"
    for wanted, _, depth, reach in dear + cheap:
        assert depth <= 500
        assert reach >= (24 if wanted == "all" else float(wanted))
        assert depth > 80, "enough for a line"


def requests(market: Market) -> list[dict]:
    return [each for each in market.heard if each["type"] == "get_aggregated_orderbook"]


async def test_a_range_is_requested_once_a_second_and_leaves_the_ladder_as_it_is(
    page: Page, address: str, market: Market
) -> None:
    await page.open("about:blank")
    await resize(page, 1366, 768, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}&range=2")
    await page.until(DRAWN)
    first = requests(market)[0]
    assert (first["group"], first["coverage"], first["split"]) == ("10", True, False)
    await page.run("document.querySelector('.range input[value=\"0.1\"]').click()")
    while requests(market)[-1]["group"] != "0.5":
        await page.until("Number(document.querySelector('.rate').textContent) > 0")
    assert "range=0.1" in await page.run("location.hash")
    subscribed = [each for each in market.heard if each["type"] == "subscribe_aggregated"]
    assert len(subscribed) == 1
    assert "group" not in subscribed[0]
    count = len(requests(market))
    begin_ms = await page.run("performance.now()")
    while len(requests(market)) < count + 3:
        await page.until("Number(document.querySelector('.rate').textContent) > 0")
    assert await page.run("performance.now()") - begin_ms >= 1_900
    assert page.complaints == []


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
    known = "Known as far as −0.5 %: 1 of 3 books; +0.5 %: 3 of 3 books."
    await page.until(f"{SAID} === '{known}'")
    await page.run("document.querySelector('.range input[value=\"5\"]').click()")
    await page.until(f"{SAID} === 'Known as far as −5 %: 1 of 3 books; +5 %: 2 of 3 books.'")
