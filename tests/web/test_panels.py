"""The panels of the page in Chromium: costs, crossings, read-outs, many levels, symbols.

With `ONEBOOK_PICTURES=docs/images` the picture of the page in the documentation is made anew.
"""

import base64
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from onebook.exchanges import NAMES as ALL
from web.browser import CHROMIUM, Page, happened, resize
from web.by_hand import count_drawings, send
from web.scripted import EMPTY, EXCHANGES, GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
PICTURES = os.environ.get("ONEBOOK_PICTURES")
PICTURE_BYTES_MAX = 150_000
UPDATES = 20  # of the test of smoothness
FRAME_MS = 100  # between two updates at 10 a second: what one may cost at most


def text(selector: str) -> str:
    return f"document.querySelector('{selector}').textContent"


def change(selector: str, value: str, event: str = "input") -> str:
    return (
        f"(() => {{ const one = document.querySelector('{selector}'); one.value = '{value}';"
        f" one.dispatchEvent(new Event('{event}', {{bubbles: true}})); }})()"
    )


def key(selector: str, name: str) -> str:
    event = f"new KeyboardEvent('keydown', {{key: '{name}', bubbles: true, cancelable: true}})"
    return f"document.querySelector('{selector}').dispatchEvent({event})"


def number(cell: str) -> str:
    return f"Number({text(cell)}.replaceAll(',', ''))"


def subscribed(market: Market) -> list[dict]:
    return [each for each in market.heard if each["type"] == "subscribe_aggregated"]


def routed(market: Market) -> dict:
    """The last subscription to routes."""
    return [each for each in market.viewed if each.get("view") == "cost" and "fill" in each][-1]


# What changes in the element from now on; an attribute with the class of its element.
WATCH = """(() => {{
  window.watched = [];
  const kind = ({{ type, target, attributeName }}) =>
    type === "attributes" ? `${{target.className}} ${{attributeName}}` : type;
  new MutationObserver((records) => watched.push(...records.map(kind)))
    .observe(document.querySelector("{}"),
      {{ subtree: true, childList: true, characterData: true, attributes: true }});
}})()"""

READY = "document.querySelector('.bids td')?.textContent.trim()"
AVERAGE = ".fill tbody tr:nth-child(1) td"
NET = ".fill tr:nth-child(5) td"


async def test_a_size_is_routed_by_the_service_after_the_fees_of_the_key(
    page: Page, address: str, market: Market
) -> None:
    market.fees = {"okx": "0.5", "*": "0.1"}
    market.unknown_rules = ["okx"]
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{number(NET)} > 0")
    asked = routed(market)
    assert (asked["fill"], asked["fees"]) == ({"notionals": ["10000"]}, market.fees)
    assert "after the taker fees of this key" in await page.run(text(".basis"))
    net, average = await page.run(f"[{number(NET)}, {number(AVERAGE)}]")
    assert net == pytest.approx(average * 1.003, abs=0.01), "half of it is bought on okx"
    cells = await page.run("[...document.querySelectorAll('.fill td')].map((td) => td.textContent)")
    assert cells[-4:] == ["0.250000", "0.250000", "40 ms", "40 ms"], "what lots cost, and the age"
    assert "Lots or minimum sizes of okx are not all known" in await page.run(text(".route-notes"))
    await page.run("document.querySelector('.split summary').click()")
    rows = "[...document.querySelectorAll('.split tbody tr')].map((row) => row.innerText)"
    shown = await page.until(f"{rows}.length === 2 && {rows}")
    assert [re.findall(r"\d+ %|[\d.]+ %$", row)[0] for row in shown] == ["50 %", "50 %"]
    assert sorted(row.split()[-2] for row in shown) == ["0.1", "0.5"]
    await page.run(change(".size", "2.5"))
    await page.run(change(".by", "amount", "change"))
    await page.until(f"{number('.fill tr:nth-child(6) td')} > 100000")
    assert routed(market)["fill"] == {"amounts": ["2.5"]}
    market.unplaced = 0.004
    await page.until(f"{text('.route-notes')}.includes('No lot or minimum size fits 0.00400000')")
    await page.run(change(".size", "lots"))
    assert await page.run("document.querySelector('.size').ariaInvalid") == "true"
    await page.run(change(".size", "2.5"))
    market.fills = False
    await page.until("!document.querySelector('.shortage').hidden")
    assert "buy side holds 0.629000 of 2.50000 BTC" in await page.run(text(".shortage"))
    assert "okx" in await page.run(text(".route-notes"))
    assert page.complaints == []


async def test_without_a_table_of_fees_everything_is_said_to_be_before_fees(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&prices=net")
    await page.until(f"{number(AVERAGE)} > 0")
    said = "Before fees: this key has no taker fees yet; enter them in the settings."
    assert await page.run(f"[{text('.basis')}, {text('.prices-said')}]") == [said, said]
    assert await page.run(text(NET)) == "unknown"
    assert "net" not in subscribed(market)[-1]
    assert routed(market)["fees"] == {"*": "0"}


async def test_the_fees_of_the_key_are_loaded_edited_and_saved(
    page: Page, address: str, market: Market
) -> None:
    fee = "document.querySelector('#fee-rows [name=okx]')"
    said = text("#fees-said")
    market.fees = {"okx": "0.08", "gone": "1"}
    await page.open(f"{address}/#key={GOOD_KEY}&prices=net")
    await page.until(f"{fee}?.value === '0.08' && {number(NET)} > 0")
    left = "Left out, because their fee is unknown: binance, bybit, coinbase and 2 more."
    assert await page.run(text(".prices-said")) == left
    await page.run("document.querySelector('#settings').click()")
    await page.run("document.querySelector('#fees summary').click()")
    await page.run(change("#fee-rows [name=okx]", "ten"))
    await page.run("document.querySelector('#fees-save').click()")
    assert (await page.run(said)).startswith("The fee of okx must be a number of percent")
    assert await page.run(f"document.activeElement === {fee}")
    await page.run(change("#fee-rows [name=okx]", "-0.0125"))
    await page.run(change("#fee-others", "10"))
    assert market.fees["okx"] == "0.08", "nothing is saved yet"
    await page.run("document.querySelector('#fees-save').click()")
    await page.until(f"{said} === 'Saved as the table of this key.'")
    assert market.fees == {"okx": "-0.0125", "*": "10", "gone": "1"}
    await page.until(f"{text('.prices-said')} === ''")
    assert subscribed(market)[-1]["fees"] == routed(market)["fees"] == market.fees
    await page.run(change("#fee-rows [name=okx]", "1"))
    await page.run("document.querySelector('#fees-undo').click()")
    assert await page.run(f"{fee}.value") == "-0.0125"
    assert page.complaints == []


async def test_published_fees_are_chosen_listed_and_kept_in_the_address(
    page: Page, address: str, market: Market
) -> None:
    market.fees = {"*": "0.1"}
    await page.open(f"{address}/#key={GOOD_KEY}&prices=net")
    await page.until(f"{number(NET)} > 0")
    await page.run("document.querySelector('#settings').click()")
    await page.run("document.querySelector('#fees summary').click()")
    await page.run(change("#fees-of", "published", "change"))
    await page.until("document.querySelectorAll('#stated li').length === 2")
    await page.until(f"{text('.prices-said')}.startsWith('Left out, because their fee is unknown')")
    assert subscribed(market)[-1]["fees"] == routed(market)["fees"] == "published"
    rows = "[...document.querySelectorAll('#stated li')].map((row) => row.textContent)"
    assert await page.run(rows) == [
        "kraken BTC/USDT0.26 %list of pairs, read on 2026-11-27",
        "okx BTC/USDT0.1 %page of the exchange, 2026-01-05 old",
    ]
    link = "document.querySelector('#stated a')"
    assert await page.run(f"[{link}.href, {link}.rel]") == [
        "https://okx.example/fees",
        "noreferrer",
    ]
    unknown = "Without a published fee, so left out: binance, bybit, coinbase, poloniex."
    assert await page.run(text("#stated-unknown")) == unknown
    assert not await page.run("document.querySelector('#fees-key').checkVisibility()")
    assert "the taker fees that exchanges publish" in await page.run(text(".basis"))
    await page.run("document.querySelector('.split summary').click()")
    fees = (
        "[...document.querySelectorAll('.split tbody tr')].map((row) => row.cells[5].textContent)"
    )
    assert {*await page.until(f"{fees}.length && {fees}")} <= {"0.26 %", "0.1 %", "–"}
    assert "0.26 %" in await page.run(fees)
    assert (await page.run("location.hash")).endswith("fees=published")
    await page.run("window.isOld = true; location.reload()")
    await page.until("!window.isOld && document.querySelectorAll('#stated li').length === 2")
    await page.run(change("#fees-of", "key", "change"))
    await page.until(f"{text('.prices-said')} === ''")
    assert subscribed(market)[-1]["fees"] == market.fees
    assert page.complaints == []


async def test_a_route_has_at_most_as_many_exchanges_as_chosen(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&most=3")
    await page.until(f"{number(AVERAGE)} > 0")
    assert routed(market)["fill"] == {"notionals": ["10000"], "max_exchanges": 3}
    await page.run(change(".most", "1", "change"))
    await page.until("location.hash.includes('most=1')")
    await page.until(f"{number(AVERAGE)} > 0")
    assert routed(market)["fill"]["max_exchanges"] == 1
    await page.run(change(".most", "", "change"))
    await page.until("!location.hash.includes('most')")
    await page.until(f"{number(AVERAGE)} > 0")
    assert "max_exchanges" not in routed(market)["fill"]
    assert page.complaints == []


async def test_net_prices_are_those_of_the_service_and_name_the_price_before_the_fee(
    page: Page, address: str, market: Market
) -> None:
    market.fees = {"okx": "0.5", "*": "0.1"}
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    await page.run("document.querySelector('.net').click()")
    await page.until(f"{text('th.price')} === 'Net price'")
    assert (subscribed(market)[-1]["net"], subscribed(market)[-1]["fees"]) == (True, market.fees)
    await page.until("location.hash === '#prices=net'")
    first = "document.querySelector('.bids .price').textContent"
    shown = f"[{first}, {text('.readout')}]"
    await page.run(
        "document.querySelector('.bids .price').dispatchEvent(new MouseEvent('click', "
        "{bubbles: true}))"
    )
    await page.until(f"/ at [0-9,.]+ before its fee/.test({text('.readout')})")
    price, said = await page.run(shown)
    gross = re.search(r"Here: \w+[ \d%]* at ([\d,.]+) before its fee", said)
    assert gross is not None
    fee = 0.5 if "Here: okx" in said else 0.1
    before, net = (float(each.replace(",", "").strip(".")) for each in (gross[1], price))
    assert net == pytest.approx(before * (1 - fee / 100), abs=1e-3)
    assert page.complaints == []


async def test_quotes_that_can_be_converted_are_offered_and_their_conversions_named(
    page: Page, address: str, market: Market
) -> None:
    market.quoted = ["BTC/USDC", "USDC/USDT", "BTC/EUR"]
    step = {"symbol": "USDC/USDT", "members": ["okx:USDC"], "exchanges": ["okx"]}
    step |= {"stale_exchanges": [], "bid": [0.9998, 5], "ask": [0.9999, 6]}
    market.conversions = [step | {"age_ms": 40, "reason": None}]
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    await page.run("document.querySelector('.quotes').open = true")
    names = "[...document.querySelectorAll('.quote-list input')].map((each) => each.value)"
    assert await page.until(f"{names}.length && {names}") == ["USDC"], "EUR has no conversion"
    await page.run("document.querySelector('.quote-list input').click()")
    lines = text(".conversions")
    await page.until(f"/^USDC.USDT on okx: 0.9998 to 0.9999, \\d+/.test({lines})")
    assert subscribed(market)[-1]["quotes"] == routed(market)["quotes"] == ["USDC"]
    assert await page.run(text(".quote-names")) == "USDT + USDC"
    market.conversions = [step | {"bid": None, "ask": None, "age_ms": None, "reason": "gap"}]
    await page.until(f"{lines} === 'USDC/USDT is not live (gap): without the book of okx:USDC.'")
    await page.run(key(".quote-list input", "Escape"))
    assert not await page.run("document.querySelector('.quotes').open")
    assert page.complaints == []


async def test_a_crossing_names_both_exchanges_their_ages_and_profits_and_stays_to_be_read(
    page: Page, address: str, market: Market
) -> None:
    market.fees = {"*": "0.001"}
    market.transferable = False
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{text('.crossing-text')} === 'Not crossed after fees.'")
    market.crossed = True
    await page.until(f"/^Crossed now after fees: one pair/.test({text('.crossing-text')})")
    shown = await page.run(text(".pairs li"))
    assert "Buy 0.500000 BTC on okx up to" in shown
    assert "sell on kraken down to" in shown
    assert re.search(r"\+2.50 USDT before fees, \+1.53 USDT \(0.0031 %\) after fees, for", shown)
    assert shown.endswith("; not transferable")
    await page.until("document.querySelector('.crossed').checkVisibility()")
    market.crossed = False
    await page.until(f"/Last crossed \\d+ s ago:$/.test({text('.crossing-text')})")
    assert re.search(r", ended \d+ s ago after", await page.run(text(".pairs li")))
    assert await page.run("document.querySelector('.pairs li').dataset.past") == "yes"
    await page.run(change(".profit", "0.05", "change"))
    await page.until(f"/^Not crossed by 0.05 % after fees/.test({text('.crossing-text')})")
    asked = [each for each in market.viewed if each.get("view") == "crossings" and "fees" in each]
    assert [asked[0]["crossings"], asked[-1]["crossings"]] == ["0", "0.05"]
    assert asked[-1]["on"] == "crossing"
    assert page.complaints == []


async def test_without_updates_nothing_is_said_to_be_now(
    page: Page, address: str, market: Market
) -> None:
    market.crossed = True
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(f"/^Crossed now/.test({text('.crossing-text')})")
    await page.until(f"/^now: mid/.test({text('.history-text')})")
    await page.until(f"Number({text('.rate')}) > 1")
    market.frozen = True
    said = f"{text('.age')}.match(/(\\d+) s ago/)"
    old = await page.until(f"({said} ?? [])[1]")
    await page.until(f"{said}[1] > {old}")
    await page.until(f"{text('.crossing-text')} === '—'")
    assert await page.run("document.querySelector('.pairs').childElementCount") == 0
    await page.until(f"/^[0-9]+ s ago: mid/.test({text('.history-text')})")
    market.frozen = False
    await page.until(f"/^Crossed now/.test({text('.crossing-text')})")
    await page.until(f"/^now: mid/.test({text('.history-text')})")


async def test_a_level_is_read_out_by_mouse_finger_and_keys_and_spoken_only_for_keys(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    await page.run("document.querySelector('.asks tr:last-child td').click()")
    await page.until(f"/^Buying up to .* BTC for .* USDT/.test({text('.readout')})")
    assert await page.run(text(".spoken")) == ""
    await page.run(key(".scroller", "ArrowDown"))
    spoken = await page.run(text(".spoken"))
    assert spoken.startswith("Selling down to ")
    first = await page.run(text(".best-bid"))
    await page.until(f"{text('.best-bid')} !== '{first}'")
    await page.until(f"{text('.readout')} !== `{spoken}`")
    assert await page.run(text(".spoken")) == spoken, "an update is not spoken"
    await page.run(key(".scroller", "Escape"))
    await page.until(f"/^Point at a level/.test({text('.readout')})")
    live = "[...document.querySelectorAll('.panel [aria-live], .panel [role=status]')]"
    assert await page.run(f"{live}.map((one) => one.className)") == [
        "past-said",
        "spoken unseen",
        "heat-spoken unseen",
    ]


async def test_two_hundred_levels_scroll_with_the_middle_in_sight(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&levels=200")
    await page.until(READY)
    assert subscribed(market)[-1]["depth"] == 200
    assert await page.run("document.querySelectorAll('.asks tr, .bids tr').length") == 400
    in_sight = """(() => {
      const scroller = document.querySelector('.scroller').getBoundingClientRect();
      const middle = document.querySelector('.mid').getBoundingClientRect();
      return middle.top >= scroller.top && middle.bottom <= scroller.bottom;
    })()"""
    assert await page.run(in_sight), "it opens with the middle in sight"
    for place in ("0", "scroller.scrollHeight"):
        await page.run(
            "(() => { const scroller = document.querySelector('.scroller');"
            f" scroller.dispatchEvent(new Event('wheel')); scroller.scrollTop = {place}; }})()"
        )
        await page.until(in_sight)
    last = "document.querySelector('.bids tr:last-child td')"
    worst = await page.run(f"{last}.textContent")
    await page.until(f"{last}.textContent !== '{worst}'")


async def test_every_listed_symbol_is_found_by_what_is_typed(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    options = "[...document.querySelectorAll('.options li')].map((one) => one.innerText)"
    await page.run("document.querySelector('.symbol').focus()")
    await page.until(f"{options}.length > 0")
    await page.run(change(".symbol", "eth"))
    assert await page.run(options) == ["ETH/USDT 6 exchanges", "ETH/BTC 1 exchange"]
    assert await page.run("document.querySelector('.symbol').ariaExpanded") == "true"
    for name in ("ArrowDown", "ArrowDown", "Enter"):
        await page.run(key(".symbol", name))
    await page.until(f"{text('.title')} === 'ETH/BTC'")
    await page.until(f"{text('.basis')} !== ''")
    await happened(lambda: routed(market)["symbol"] == "ETH/BTC")
    assert routed(market)["fill"] == {"notionals": ["0.1"]}, "10,000 BTC mean nothing"
    assert await page.run("document.querySelector('.options').hidden")
    await page.run(change(".symbol", "ethusdt"))
    assert (await page.run(options))[0].startswith("ETH/USDT")
    assert page.complaints == []


async def test_symbols_stand_side_by_side_and_the_address_says_what_is_shown_but_no_key(
    page: Page, address: str, market: Market
) -> None:
    await page.open("about:blank")
    await resize(page, 1366, mobile=False)
    await page.go(
        f"{address}/#key={GOOD_KEY}&symbol=BTC/USDT&size=2&by=amount&exchanges=okx,kraken"
    )
    await page.until(READY)
    await page.run("document.querySelector('#add').click()")
    titles = "[...document.querySelectorAll('.panel .title')].map((one) => one.textContent)"
    await page.until(f"{titles}.join() === 'BTC/USDT,ETH/USDT'")
    await page.until(
        "[...document.querySelectorAll('.panel .bids td:first-child')]"
        ".filter((one) => one.textContent.trim()).length >= 20"
    )
    tops = "[...document.querySelectorAll('.panel')].map((one) => one.getBoundingClientRect().top)"
    assert len(set(await page.run(tops))) == 1
    assert {each["symbol"] for each in subscribed(market)} == {"BTC/USDT", "ETH/USDT"}
    assert {tuple(each["exchanges"]) for each in subscribed(market)} == {("okx", "kraken")}
    fragment = urlsplit(await page.run("location.href")).fragment
    assert "symbol=BTC/USDT&symbol=ETH/USDT" in fragment
    assert "exchanges=okx,kraken" in fragment
    assert GOOD_KEY not in fragment
    await page.go("about:blank")
    await page.go(f"{address}/#{fragment}")  # the key is kept in this tab
    await page.until(f"{titles}.join() === 'BTC/USDT,ETH/USDT'")
    assert await page.run("document.querySelector('.size').value") == "2"
    await page.until(READY)
    await page.run("document.querySelector('.remove').click()")
    await page.until(f"{titles}.join() === 'ETH/USDT'")
    left = {"type": "unsubscribe_aggregated", "symbol": "BTC/USDT"}
    await happened(lambda: left in market.heard)
    assert page.complaints == []


STATE = """
import("/web/page/state.js").then(({ readState, writeState }) => {
  const read = (fragment) => readState(fragment, { rows: 12 });
  const odd = read("#symbol=<b>&symbol=btc/usdt&symbol=BTC/USDT&size=0&by=x&levels=9&rate=99" +
    "&exchanges=okx,<i>");
  const far = "#symbol=ETH/BTC&step=0.0001&size=1.5&by=amount&most=2&range=5" +
    "&levels=200&rate=10&fees=published&exchanges=okx";
  return [odd, writeState(read(far)) === far, writeState(read("")), read("#exchanges=").exchanges];
})
"""


async def test_an_address_is_read_with_care_and_written_as_it_was_read(
    page: Page, address: str
) -> None:
    await page.open(address + EMPTY)
    odd, same, usual, none = await page.run(STATE)
    usual_panel = {
        "symbol": "BTC/USDT",
        "group": "",
        "size": "10000",
        "by": "notional",
        "most": "",
        "range": "0.5",
        "net": False,
        "quotes": [],
        "profit": "0",
    }
    assert odd["panels"] == [usual_panel]
    assert (odd["rows"], odd["rate"], odd["exchanges"]) == (12, 5, ["okx"])
    assert (same, usual, none) == (True, "", [])


FORECAST = """
import("/web/page/usage.js").then(({ forecast }) => [
  forecast({ used: 10, limit: 50, bytesPerMs: 1, nowMs: 0, resetMs: 30 }),
  forecast({ used: 10, limit: 50, bytesPerMs: 2, nowMs: 0, resetMs: 30 }),
  forecast({ used: 60, limit: 50, bytesPerMs: 1, nowMs: 5, resetMs: 30 }),
  forecast({ used: 10, limit: 50, bytesPerMs: 0, nowMs: 0, resetMs: 30 })])
"""


SIZES = """import("/web/page/format.js").then(({ size }) =>
  [0, 999, 33741, 2 ** 20 - 1, 50 * 2 ** 30, 5000 * 2 ** 40].map((each) => size(each, 2)))"""


async def test_the_allowance_is_asked_for_only_where_it_is_opened(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    assert market.reports == 0
    await page.run("document.querySelector('#usage summary').click()")
    used = "/^10.00 GiB of 50.00 GiB used \\(20 %\\); reset in [0-9]+ days/"
    await page.until(f"{used}.test({text('#usage-text')})")
    assert market.reports == 1
    assert await page.run(SIZES) == [
        "0 B", "999 B", "32.95 KiB", "1.00 MiB", "50.00 GiB", "5,000.00 TiB",
    ]  # fmt: skip
    assert await page.run(FORECAST) == [
        {"atReset": 40, "endsMs": None},
        {"atReset": 70, "endsMs": 20},
        {"atReset": 85, "endsMs": 5},
        {"atReset": 10, "endsMs": None},
    ]


async def test_the_depth_chart_has_a_crosshair_and_a_zoom_that_outlives_updates(
    page: Page, address: str
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelector('.depth canvas') !== null")
    for _ in range(3):
        await page.run(key(".depth", "+"))
    zoomed = await page.run(text(".depth-text"))
    assert zoomed.startswith("From ")
    first = await page.run(text(".best-bid"))
    await page.until(f"{text('.best-bid')} !== '{first}'")
    assert await page.run(text(".depth-text")) == zoomed
    await page.run(key(".depth", "0"))
    assert not (await page.run(text(".depth-text"))).startswith("From ")
    await page.run(key(".depth", "ArrowRight"))
    await page.until(f"/ of (bids|asks) from the best price/.test({text('.depth-text')})")
    await page.run(key(".depth", "Escape"))
    await page.until(f"!/best price/.test({text('.depth-text')})")


SIZES_TYPED = """import("/web/page/state.js").then(({ sizeOf }) => [
  "10000", " 10,000 ", "1,234,567.5", "10 000", "1_000", ".5", "1,5", "1.000,5", "10,00", "1e3",
  "0", "0.0", "-1", "lots", "", "0.000000001", "1,", "1."].map((typed) => sizeOf(typed)))"""
SMALL = """import("/web/page/format.js").then(({ sixDigits }) =>
  [0, 1e-9, 0.00001234567, 0.5, 12.345678, 1234567.891].map((each) => sixDigits(each)))"""


async def test_a_size_is_taken_as_it_was_meant_or_not_at_all(page: Page, address: str) -> None:
    await page.open(address + EMPTY)
    assert await page.run(SIZES_TYPED) == [
        "10000", "10000", "1234567.5", "10000", "1000", "0.5", None, None, None, None, None,
        None, None, None, None, "0.000000001", None, None,
    ]  # fmt: skip
    assert await page.run(SMALL) == [
        "0",
        "0.00000000100000",
        "0.0000123457",
        "0.500000",
        "12.3457",
        "1,234,568",
    ]


async def test_the_cost_of_another_size_than_the_one_in_the_box_is_not_shown(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{number(AVERAGE)} > 0")
    await page.run(change(".size", "1,5"))
    assert await page.run(text(AVERAGE)) == "—"
    assert "such as 2.5 or 10,000" in await page.run(text(".shortage"))
    first = await page.run(text(".best-bid"))
    await page.until(f"{text('.best-bid')} !== '{first}'")
    assert await page.run(text(AVERAGE)) == "—", "an update prices the size before"
    await page.run(change(".size", "2,500"))
    assert await page.run(text(AVERAGE)) == "—"
    await page.until(f"{number(AVERAGE)} > 0")
    assert routed(market)["fill"] == {"notionals": ["2500"]}
    assert await page.run("document.querySelector('.shortage').hidden")


IMBALANCE = """
import("/web/page/book.js").then(({ readBook, imbalance }) => {
  const level = (price, amount) => ({ price, amount, exchanges: ["a"], amounts: [amount] });
  const read = (bids, asks) => readBook({ bids, asks, marketStats: {} });
  const book = read([level("102", "3"), level("100", "1")], [level("99", "2"), level("101", "1")]);
  return [imbalance(book, 1), imbalance(book, 2), imbalance(book, 25), imbalance(read([], []), 8)];
})
"""


async def test_imbalance(page: Page, address: str) -> None:
    await page.open(address + EMPTY)
    found = await page.run(IMBALANCE)
    assert found == [0.2, pytest.approx(1 / 7), pytest.approx(1 / 7), None]


async def test_imbalance_is_that_of_the_levels_that_are_shown(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&levels=8")
    await page.until(READY)
    await count_drawings(page, market)
    await send(page, market)
    book = market.delivered["BTC/USDT"]["data"]
    assert len(book["bids"]) == 25
    bids, asks = (sum(row[1] for row in book[side][:8]) for side in ("bids", "asks"))
    percent = round(100 * abs(bids - asks) / (bids + asks))
    sign = ("+" if bids > asks else "−") if percent else ""
    found = await page.run(f"[{text('.imbalance')}, {text('.imbalance-of')}]")
    assert found == [f"{sign}{percent} %", "8"]
    style = "document.querySelector('.tilt').style"
    ends = f"['--from', '--to'].map((name) => {style}.getPropertyValue(name))"
    half = percent / 2
    bar = (50, 50 + half) if bids > asks else (50 - half, 50)
    assert [float(each.rstrip("%")) for each in await page.run(ends)] == list(bar)


async def test_ten_updates_a_second_of_100_levels_and_36_exchanges_are_drawn_in_time(
    page: Page, address: str, market: Market
) -> None:
    """Measured as the page's own work, without waits for the processor."""
    market.names = market.listed = [*ALL, "bitopro", "coinex"][:36]
    market.interval_s = 0.1
    await page.open("about:blank")
    await resize(page, 1366, 900, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}&levels=100&rate=10")
    await page.until(READY)
    await page.run(WATCH.format(".bids .amount"))
    await page.call("Performance.enable", timeDomain="threadTicks")
    shown = f"Number({text('#received')})"

    async def spent() -> dict[str, float]:
        found = await page.call("Performance.getMetrics")
        return {each["name"]: each["value"] for each in found["metrics"]}

    begin, sent = await spent(), market.updates
    while market.updates < sent + UPDATES:
        before = await page.run(shown)
        await page.until(f"{shown} > {before}")
    drawn, end = await page.run("watched.length"), await spent()
    names = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
    costs_ms = {name: (end[name] - begin[name]) / drawn * 1_000 for name in names}
    print(f"{drawn} of {market.updates - sent} updates drawn, ms for each: {costs_ms}")
    assert sum(costs_ms.values()) < FRAME_MS  # how far below it differs with the machine
    assert page.complaints == []


async def test_an_update_writes_texts_and_the_lengths_of_bars_and_no_other_part_of_the_ladder(
    page: Page, address: str
) -> None:
    """New elements, classes or attributes of rows would trigger style computation."""
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    await page.until(f"Number({text('.rate')}) > 1")
    await page.run(WATCH.format(".book"))
    await page.until("watched.filter((kind) => kind === 'characterData').length > 100")
    kinds = await page.run("[...new Set(watched)]")
    assert sorted(kinds) == ["characterData", "reach style"]


WRITES = """
import("/web/page/write.js").then(({ write, mark, hide }) => {
  const element = document.createElement("p");
  const observer = new MutationObserver(() => {});
  const all = { subtree: true, childList: true, characterData: true, attributes: true };
  observer.observe(element, all);
  const changes = (act) => [act() ?? null, observer.takeRecords().map(({ type }) => type)];
  return [
    changes(() => write(element, "")),
    changes(() => write(element, 7)),
    changes(() => write(element, "7")),
    changes(() => mark(element, "data-live", "no")),
    changes(() => mark(element, "data-live", "no")),
    changes(() => hide(element, false)), changes(() => hide(element, true)),
    element.textContent, element.dataset.live, element.hidden];
})
"""


async def test_what_does_not_differ_is_not_written(page: Page, address: str) -> None:
    await page.open(address + EMPTY)
    *changes, shown, live, hidden = await page.run(WRITES)
    assert changes == [
        [True, ["childList"]],
        [True, ["characterData"]],
        [False, []],
        [None, ["attributes"]],
        [None, []],
        [None, []],
        [None, ["attributes"]],
    ]
    assert (shown, live, hidden) == ("7", "no", True)


async def test_the_picture_of_the_page(
    page: Page, address: str, market: Market, tmp_path: Path
) -> None:
    market.names = market.listed = list(EXCHANGES)
    market.fees = {"okx": "0.0008", "kraken": "0.0012", "*": "0.001"}
    market.crossed = True
    await page.open("about:blank")
    await resize(page, 1366, 960, mobile=False)
    await page.call("Emulation.setScrollbarsHidden", hidden=True)
    await page.go(f"{address}/#key={GOOD_KEY}&rate=10&prices=net")
    await page.until(READY)
    await page.until("document.querySelector('.history canvas') !== null")
    await page.until(f"Number({text('.rate')}) > {4 if PICTURES else 1}")
    await page.until("document.querySelector('.depth canvas') !== null")
    shot = await page.call("Page.captureScreenshot", format="webp", quality=70)
    picture = base64.b64decode(shot["data"])
    assert picture[8:12] == b"WEBP"
    assert len(picture) < PICTURE_BYTES_MAX
    (Path(PICTURES or tmp_path) / "page.webp").write_bytes(picture)
