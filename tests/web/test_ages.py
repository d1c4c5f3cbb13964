"""Ages of best prices: by the exchange's clock if its times are known, never by ours."""

import re

import pytest

from web.browser import CHROMIUM, Page
from web.in_node import needs_node, run
from web.scripted import EXCHANGES, GOOD_KEY, Market

AGE = "document.querySelector('.price-age').textContent"
BOOK = {
    "bids": [{"shares": [["okx", 1], ["kraken", 2]]}, {"shares": [["xt", 1]]}],
    "asks": [{"shares": [["binance", 1]]}],
    "ages": {"okx": 10, "kraken": 40, "binance": 5, "xt": 9_000},
}
ASKED = """
  const ages = new PriceAges();
  const answer = (value) => ({ then: (known) => known(value) }); // at once
  const said = [];
  for (const [at, times] of given.answers) ages.follow(at, () => answer({ times }));
  for (const at of given.at) said.push(ages.text(given.book, 100, at));
  ages.clear();
  return [...said, ages.text(given.book, 0, given.at[0])];
"""


def times(**sent: tuple[int | None, int | None, int | None]) -> dict:
    """Send times of the best prices by exchange clock, with the clock's offset and error."""
    received = 10_000_000
    return {
        "exchanges": {
            name: {"top": {"exchange": at, "received": received}, "offset": offset, "error": error}
            for name, (at, offset, error) in sent.items()
        }
    }


async def said(answers: list, at: list[int], book: dict | None = None) -> list[str]:
    given = {"answers": answers, "at": at, "book": book or BOOK}
    found: list[str] = await run("ages.js", "PriceAges", ASKED, given)
    return found


KNOWN = {
    "okx": (9_950_000, 0, 0),  # 50 ms
    "kraken": (10_990_000, -1_000_000, 200),  # 10 ms, by a clock that is a second ahead
    "binance": (9_000_000, 800_000, 5),  # 200 ms, by one that is behind
}


@needs_node
async def test_the_oldest_of_the_best_prices_counts_by_its_own_clock():
    # okx 10 + 50, kraken 40 + 10, binance 5 + 200 ms; and 100 ms since the update.
    assert await said([[0, times(**KNOWN)]], [1]) == ["305 ms old", "≥ 40 ms old"]


@needs_node
async def test_a_time_that_is_not_sent_is_not_replaced_by_ours():
    for unknown in ((None, 0, 0), (9_950_000, None, None)):
        found = await said([[0, times(**{**KNOWN, "okx": unknown})]], [1])
        assert found[0] == "≥ 305 ms old", "binance's"
    without = {name: each for name, each in KNOWN.items() if name != "kraken"}
    assert (await said([[0, times(**without)]], [1]))[0] == "≥ 305 ms old"
    without = {name: each for name, each in KNOWN.items() if name != "binance"}
    assert (await said([[0, times(**without)]], [1]))[0] == "≥ 160 ms old"
    assert (await said([], [1]))[0] == "≥ 140 ms old"


@needs_node
async def test_an_offset_of_unknown_error_gives_a_lower_bound():
    found = await said([[0, times(**{**KNOWN, "okx": (9_950_000, 0, None)})]], [1])
    assert found[0] == "≥ 305 ms old"


@needs_node
async def test_times_are_requested_every_ten_seconds_and_used_for_a_minute():
    slower = times(**{**KNOWN, "binance": (8_000_000, 800_000, 5)})
    early = [[0, times(**KNOWN)], [9_999, slower]]
    assert (await said(early, [9_999, 59_999, 60_000]))[:3] == [
        "305 ms old", "305 ms old", "≥ 140 ms old"
    ]  # fmt: skip
    assert (await said([[0, times(**KNOWN)], [10_000, slower]], [10_001]))[0] == "1.3 s old"


@needs_node
async def test_without_the_age_of_an_exchange_nothing_is_said():
    book = {**BOOK, "ages": {"okx": 10, "binance": 5}}
    assert (await said([[0, times(**KNOWN)]], [1], book))[0] == ""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_the_page_asks_for_the_times_and_says_the_age(
    page: Page, address: str, market: Market
) -> None:
    market.transit_ms = dict.fromkeys(EXCHANGES, 5_000.0)
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(f"/^\\d\\.\\d s old$/.test({AGE})")
    shown = re.search(r"[\d.]+", await page.run(AGE))
    assert shown is not None
    assert float(shown[0]) >= 5
    (asked,) = [each for each in market.heard if each["type"] == "get_aggregated_orderbook"]
    assert (asked["depth"], asked["times"], asked["fill"]) == (1, True, None)
    assert page.complaints == []


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_of_an_exchange_without_times_the_page_says_a_lower_bound(
    page: Page, address: str, market: Market
) -> None:
    market.transit_ms = dict.fromkeys(EXCHANGES)
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(f"/^≥ .+ old$/.test({AGE})")
