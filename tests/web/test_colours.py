"""Attribution of levels: names and shares, and user-chosen colours of exchanges."""

import pytest

from onebook.exchanges import NAMES as ALL
from web.browser import CHROMIUM, Page, resize
from web.scripted import GOOD_KEY, Market
from web.test_panels import READY

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

HOLDERS = """import("/web/page/holders.js").then(({ holders }) => {
  const text = (shares, room) => {
    const { named, more } = holders(shares, room, () => null);
    return [...named.map((each) => each.text.trim()), ...(more ? [`+${more}`] : [])].join("; ");
  };
  const four = [["binance", 41], ["okx", 38.7], ["kraken", 20], ["xt", 0.3]];
  return [text(four, 1_000), text(four, 110), text(four, 10), text([["okx", 2]], 10), text([], 10)];
})"""


async def test_the_largest_three_are_named_with_their_share_as_far_as_there_is_room(
    page: Page, address: str
) -> None:
    await page.open(address + "/")
    assert await page.run(HOLDERS) == [
        "binance 41 %; okx 39 %; kraken 20 %; +1",
        "binance 41 %; +3",
        "b…; +3",
        "o…",
        "",
    ]


CUT = """[...document.querySelectorAll('.asks td.who, .bids td.who')]
  .filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)"""


@pytest.mark.parametrize(
    "width",
    [
        390,
        pytest.param(683, marks=pytest.mark.soak),
        1366,
        pytest.param(1920, marks=pytest.mark.soak),
    ],
)
async def test_no_name_is_cut_at_the_edge_of_its_column(
    page: Page, address: str, market: Market, width: int
) -> None:
    market.names = market.listed = list(ALL)
    await page.open("about:blank")
    await resize(page, width, 900, mobile=width < 600)
    await page.go(f"{address}/#key={GOOD_KEY}&step=5")
    await page.until(READY)
    await page.until("document.querySelectorAll('.pick').length > 20")
    assert await page.run(CUT) == []
    await page.run("document.querySelectorAll('.pick').forEach((one) => one.click())")
    await page.until("document.querySelector('.held[data-hue=yes]') !== null")
    assert await page.run(CUT) == []


PICKED = "[...document.querySelectorAll('.pick[aria-pressed=true]')].map((one) => one.value)"
SQUARES = """[...document.querySelectorAll('.members tbody tr')]
  .filter((row) => row.querySelector('.swatch').checkVisibility())
  .map((row) => row.dataset.exchange)"""


async def test_only_picked_exchanges_have_a_colour_at_most_eight_and_they_are_remembered(
    page: Page, address: str, market: Market
) -> None:
    market.names = market.listed = list(ALL)
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    await page.until("document.querySelectorAll('.pick').length > 20")
    assert await page.run(SQUARES) == []
    assert not await page.run("document.querySelector('.shares').checkVisibility()")
    await page.run("document.querySelectorAll('.pick').forEach((one) => one.click())")
    picked = await page.run(PICKED)
    assert len(picked) == 8
    assert await page.run(SQUARES) == [name for name in ALL if name in picked]
    hues = "[...document.querySelectorAll('.members .swatch')].filter((one) => !one.hidden)"
    colours = await page.run(f"{hues}.map((one) => getComputedStyle(one).backgroundColor)")
    assert len(set(colours)) == 8
    await page.run(f"document.querySelector('.pick[value={picked[0]}]').click()")
    assert await page.run("document.querySelectorAll('.pick:disabled').length") == 0
    await page.go("about:blank")
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(f"JSON.stringify({PICKED}) === JSON.stringify({picked[1:]})")


async def test_a_level_names_everyone_where_it_is_pointed_at(
    page: Page, address: str, market: Market
) -> None:
    market.names = market.listed = list(ALL)
    await page.open(f"{address}/#key={GOOD_KEY}&step=50")
    await page.until(READY)
    market.frozen = True
    await page.run("document.querySelector('.asks tr:last-child td').click()")
    said = await page.run("document.querySelector('.readout').textContent")
    row = market.delivered["BTC/USDT"]["data"]["asks"][0]
    assert "Here: " in said
    assert all(name in said for name in {name for name, _ in row[2]})


async def test_bids_are_green_and_asks_red_where_the_reader_prefers_it(
    page: Page, address: str
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    colour = "getComputedStyle(document.querySelector('.bids .price')).color"
    blue = await page.run(colour)
    await page.run(
        "(() => { const one = document.querySelector('#sides'); one.value = 'green';"
        " one.dispatchEvent(new Event('change')); })()"
    )
    assert await page.run(colour) != blue
    await page.go("about:blank")
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    assert await page.run("document.documentElement.dataset.sides") == "green"


async def test_the_link_in_the_drawer_shows_the_same_view_and_has_no_key(
    page: Page, address: str
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&symbol=ETH/USDT&step=5&exchanges=okx,kraken")
    await page.until(READY)
    await page.run("document.querySelector('.range input[value=\"2\"]').click()")
    link = await page.run("document.querySelector('#address').value")
    assert link == f"{address}/#symbol=ETH/USDT&step=5&range=2&exchanges=okx,kraken"
    assert GOOD_KEY not in link
    await page.run("document.querySelector('#copy').click()")
    await page.until("/copy it|Copied/.test(document.querySelector('#copied').textContent)")
