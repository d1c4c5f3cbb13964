"""The first page in Chromium, against a scripted service, as users see it.

Skipped where there is no Chromium (Debian: the package `chromium`).
"""

from urllib.parse import urlsplit

import pytest

from onebook.exchanges import NAMES as ALL
from web.browser import CHROMIUM, Page, happened, resize
from web.by_hand import subscribed
from web.scripted import EMPTY, EXCHANGES, GOOD_KEY, Market, status

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


ROWS = "document.querySelectorAll('.{side} td:first-child')"
TEXTS = f"[...{ROWS}].map((cell) => Number(cell.textContent.replaceAll(',', '')))"
LIVE = "document.querySelector('#link').dataset.state === 'live'"
LADDER = f"{ROWS.format(side='bids')}[0]?.textContent.trim()"


def state_of(exchange: str) -> str:
    return f"document.querySelector('.members [data-exchange={exchange}]')?.dataset.state"


async def test_the_ladder_is_shown_live_and_nothing_foreign_is_asked_for(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LIVE)
    await page.until(LADDER)
    both = ", ".join(TEXTS.format(side=side) for side in ("bids", "asks"))
    bids, asks = await page.run(f"[{both}]")  # at once: an update may come between two looks
    assert bids == sorted(bids, reverse=True)
    assert asks == sorted(asks, reverse=True)  # the best stand beside each other
    assert bids[0] < asks[-1]
    assert len(bids) == len(asks) == 12
    first = await page.run("document.querySelector('.best-bid').textContent")
    await page.until(f"document.querySelector('.best-bid').textContent !== '{first}'")
    await page.until("document.querySelector('.depth canvas') !== null")
    await page.until("Number(document.querySelector('.rate').textContent) > 1")
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
    asked = (subscribed["mode"], subscribed["levels"], subscribed["split"])
    assert asked == ("delta", "array", True)


async def test_an_exchange_that_goes_stale_is_shown_with_its_reason(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{state_of('kraken')} === 'live'")
    assert await page.run(state_of("gate")) == "offline"
    await market.set_stale("kraken", "gap: a message is missing")
    await page.until(f"{state_of('kraken')} === 'stale'")
    text = await page.run("document.querySelector('.members [data-exchange=kraken]').textContent")
    assert "gap: a message is missing" in text
    await page.until("!/kraken/.test(document.querySelector('.book').innerText)")
    market.stale.clear()
    await page.until(f"{state_of('kraken')} === 'live'")
    assert page.complaints == []


async def test_a_choice_of_symbol_exchanges_and_step_is_subscribed(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    await page.run("document.querySelector('#exchanges input[value=okx]').click()")
    await page.until("!document.querySelector('.members [data-exchange=okx]')")
    await page.run(
        "(() => { const s = document.querySelector('.group'); s.selectedIndex = 2;"
        " s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    await page.run(
        "(() => { const s = document.querySelector('.symbol'); s.focus(); s.value = 'eth/usdt';"
        " s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    await page.until("document.querySelector('.title').textContent === 'ETH/USDT'")
    said = [m for m in market.heard if m["type"] == "subscribe_aggregated"]
    assert said[1]["exchanges"] == [name for name in EXCHANGES if name != "okx"]
    assert float(said[2]["group"]) > 0
    assert (said[3]["symbol"], "group" in said[3]) == ("ETH/USDT", False)
    assert {"type": "unsubscribe_aggregated", "symbol": "BTC/USDT"} in market.heard


async def test_an_unknown_symbol_offers_others(page: Page, address: str) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&symbol=NO/PE")
    await page.until("/None of the/.test(document.querySelector('#notice').innerText)")
    await page.run("document.querySelector('#notice button').click()")
    await page.until("document.querySelector('.title').textContent === 'BTC/USDT'")
    await page.until(LADDER)


def typed(symbol: str) -> str:
    return (
        f"(() => {{ const s = document.querySelector('.symbol'); s.focus(); s.value = '{symbol}';"
        " s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


async def test_a_refused_symbol_keeps_the_shown_one_live_and_says_why(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    await page.run(typed("no/pe"))
    await page.until("/None of the/.test(document.querySelector('#notice').innerText)")
    assert "Still showing BTC/USDT" in await page.run("document.querySelector('#notice').innerText")
    assert await page.run("document.querySelector('.symbol').value") == "BTC/USDT"
    assert not [m for m in market.heard if m["type"] == "unsubscribe_aggregated"]
    first = await page.run("document.querySelector('.best-bid').textContent")
    await page.until(f"document.querySelector('.best-bid').textContent !== '{first}'")
    assert await page.run("document.querySelector('.panel').dataset.live") == "yes"


async def test_the_old_symbol_is_left_after_the_new_one_is_accepted(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    await page.run(typed("eth/usdt"))
    await page.until("document.querySelector('.title').textContent === 'ETH/USDT'")
    await page.until(LADDER)
    said = [
        (m["type"], m["symbol"]) for m in market.heard if m["type"].endswith("subscribe_aggregated")
    ]
    assert said == [
        ("subscribe_aggregated", "BTC/USDT"),
        ("subscribe_aggregated", "ETH/USDT"),
        ("unsubscribe_aggregated", "BTC/USDT"),
    ]


async def test_a_book_without_updates_is_grey_with_its_age(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelector('.panel').dataset.live === 'yes'")
    market.frozen = True
    await page.until("document.querySelector('.panel').dataset.live === 'no'")
    colours = """['.bids .price', '.best-ask', '.figures dt'].map((one) =>
      getComputedStyle(document.querySelector(one)).color)"""
    assert len(set(await page.run(colours))) == 1
    await page.until("/No update for \\d+ s/.test(document.querySelector('.old').innerText)")
    market.frozen = False
    await page.until("document.querySelector('.panel').dataset.live === 'yes'")
    assert len(set(await page.run(colours))) == 3
    assert not await page.run("document.querySelector('.old').checkVisibility()")


async def test_without_any_exchange_nothing_is_subscribed_or_live(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    await page.until("document.querySelector('#exchanges input') !== null")
    await page.run("document.querySelectorAll('#exchanges input').forEach((box) => box.click())")
    await page.until("/Choose at least one/.test(document.querySelector('#notice').innerText)")
    await page.until("document.querySelector('.panel').dataset.live === 'no'")
    await page.until("!document.querySelector('.members [data-state=live]')")
    assert not await page.run(LADDER)
    asked = [
        each for each in market.heard if each["type"].endswith("subscribe_aggregated")
    ]  # a ping may follow
    assert asked[-1] == {"type": "unsubscribe_aggregated", "symbol": "BTC/USDT"}
    await page.run("document.querySelector('#exchanges input[value=okx]').click()")
    await page.until(LADDER)
    asked = [each for each in market.heard if each["type"].endswith("subscribe_aggregated")]
    assert asked[-1]["exchanges"] == ["okx"]


async def test_the_focus_moves_to_the_symbol_after_connecting(page: Page, address: str) -> None:
    await page.open(address + "/")
    await page.run(
        f"(() => {{ const key = document.querySelector('#key'); key.focus();"
        f" key.value = '{GOOD_KEY}'; document.querySelector('#key-form').requestSubmit(); }})()"
    )
    await page.until(LIVE)
    assert await page.run("document.activeElement.className") == "symbol"


async def test_a_restart_is_reported_once_and_its_countdown_is_not_spoken(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    for socket in list(market.sockets):
        await market.close(socket, 4200, reconnect_in_ms=60_000)
    wait = "document.querySelector('#link-wait')"
    await page.until(f"/Retrying in \\d+ s/.test({wait}.textContent)")
    assert await page.run(f"{wait}.getAttribute('aria-hidden')") == "true"
    assert await page.run(f"{wait}.closest('[role=status]') === null")
    text = await page.run("document.querySelector('#link-text').textContent")
    assert text == "The service is restarting."
    assert await page.run("document.querySelector('#notice').innerText") == ""
    assert await page.run(state_of("okx")) == "unknown"


async def test_a_reason_that_repeats_the_state_is_not_written(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{state_of('kraken')} === 'live'")
    market.stale["kraken"] = "offline"
    await market.publish(status("BTC/USDT", "kraken", "offline", "offline"))
    await page.until(f"{state_of('kraken')} === 'offline'")
    row = await page.run("document.querySelector('.members [data-exchange=kraken]').textContent")
    assert row.count("offline") == 1


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
    await page.until("document.querySelector('.panel').dataset.live === 'no'")
    await page.until(LIVE)
    await page.until("document.querySelector('.panel').dataset.live === 'yes'")


NOTICE = "document.querySelector('#notice').innerText"
SPREADS = "[...document.querySelectorAll('.spread')].map((one) => one.textContent)"
SHOWN_BIDS = (
    "[...document.querySelectorAll('.bids td:first-child')].some((one) => one.textContent.trim())"
)


async def test_a_key_that_is_revoked_ends_the_view_and_another_one_resumes_it(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    for socket in list(market.sockets):
        await socket.close(4002)
    await page.until("document.querySelector('#link').dataset.state === 'stopped'")
    assert "invalid, suspended or expired" in await page.run(
        "document.querySelector('#link').innerText"
    )
    assert await page.run("document.querySelector('#key-form').checkVisibility()")
    assert not await page.run("document.querySelector('.panel').checkVisibility()")
    assert await page.run("sessionStorage.getItem('onebook.key')") is None
    await page.run(
        f"(() => {{ document.querySelector('#key').value = '{GOOD_KEY}';"
        " document.querySelector('#key-form').requestSubmit(); })()"
    )
    await page.until("document.querySelector('.panel').dataset.live === 'yes'")
    assert page.complaints == []


async def test_a_damaged_delta_is_asked_for_again_without_a_notice(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&rate=1")
    await page.until(LADDER)
    market.delivered["BTC/USDT"]["update_number"] += 7
    await page.until(f"document.querySelector('.panel').dataset.live === 'yes' && !{NOTICE}")
    while not any(each["type"] == "resync" for each in market.heard):
        first = await page.run("document.querySelector('.best-bid').textContent")
        await page.until(f"document.querySelector('.best-bid').textContent !== '{first}'")
    first = await page.run("document.querySelector('.best-bid').textContent")
    await page.until(f"document.querySelector('.best-bid').textContent !== '{first}'")
    assert await page.run(NOTICE) == ""


@pytest.mark.parametrize("symbols", [("NO/PE", "BTC/USDT"), ("BTC/USDT", "NO/PE")])
async def test_a_refused_panel_says_that_it_has_no_book_while_others_are_accepted(
    page: Page, address: str, symbols: tuple[str, str]
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&symbol={symbols[0]}&symbol={symbols[1]}")
    await page.until(f"{SHOWN_BIDS} && {SPREADS}.includes('no book')")
    assert "None of the exchanges trades NO/PE." in await page.run(NOTICE)


async def test_what_an_address_names_that_is_no_symbol_is_said(page: Page, address: str) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}&symbol=ethusdt")
    await page.until(LADDER)
    said = "Not shown, because it is not a pair such as BTC/USDT: ethusdt."
    assert await page.run(NOTICE) == said
    await page.run(typed("eth/usdt"))
    await page.until("document.querySelector('.title').textContent === 'ETH/USDT'")
    await page.until(f"!{NOTICE}")


BLOCKED = """for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, {
    get() { throw new DOMException("Access is denied.", "SecurityError"); },
  })"""


async def test_without_storage_everything_works_until_the_tab_is_closed(
    page: Page, address: str
) -> None:
    await page.open("about:blank")
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=BLOCKED)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    await page.run(
        "(() => { const theme = document.querySelector('#theme'); theme.value = 'light';"
        " theme.dispatchEvent(new Event('change')); })()"
    )
    assert await page.run("document.documentElement.dataset.theme") == "light"
    await page.run(
        "(() => { const fee = document.querySelector('#fee-rows [name=okx]'); fee.value = '0.5';"
        " fee.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    assert page.complaints == []


# The page hears that its tab is hidden; timers of 10 s end at once.
HIDDEN = """(() => {
  const later = setTimeout;
  window.setTimeout = (act, ms, ...given) => later(act, ms === 10_000 ? 0 : ms, ...given);
  window.away = (hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  };
})()"""


async def test_a_hidden_tab_gets_an_update_a_minute_and_all_of_them_when_it_is_back(
    page: Page, address: str, market: Market
) -> None:
    await page.open("about:blank")
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=HIDDEN)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    for hidden in ("true", "false"):
        await page.run(f"away({hidden})")
        first = await page.run("document.querySelector('.best-bid').textContent")
        await page.until(f"document.querySelector('.best-bid').textContent !== '{first}'")
    await happened(lambda: len(subscribed(market)) >= 3)
    assert [each["interval_ms"] for each in subscribed(market)] == [200, 60_000, 200]
    assert await page.run("document.querySelector('.panel').dataset.live") == "yes"


FORMAT = """
import("/web/page/format.js").then((m) => [
  m.decimals([1, 0.5, 1e-7], 12), m.decimals([97310.1], 12), m.decimals([1e-20], 8),
  m.amountDecimals(0), m.amountDecimals(3.2), m.amountDecimals(123456789),
  m.amountDecimals(0.00001),
  m.groupSteps(97310.4).join(" "), m.groupSteps(0.00002).join(" "), m.groupSteps(null).length,
  m.fixed(1234.5, 2), m.ago(20), m.ago(20, false), m.ago(9000), m.ago(150000),
  m.short(2500000), m.short(0.25), m.short(1250)])
"""
PLACES = """
import("/web/page/format.js").then(({ Places }) => {
  const places = new Places();
  const asked = [[1, 0], [3, 100], [1, 200], [3, 9_000], [2, 18_999], [2, 19_000], [4, 19_001]];
  return asked.map(([needed, ms]) => places.of(needed, ms));
})
"""
BOOK = """
import("/web/page/book.js").then((m) => {
  const level = (price, amount, exchanges, amounts) => ({ price, amount, exchanges, amounts });
  const book = m.readBook({
    bids: [level("10", "2", ["a", "b"], ["1.5", "0.5"]), level("9", "1", ["b"], ["1"])],
    asks: [level("9.5", "4", ["a"], ["4"])], marketStats: {}, ages: {}, fill: {} });
  const { of } = m.shareOf(book.bids);
  return [m.depthLines(book, 10), book.bids[1].total, of("b"), m.shareOf([]).of("a")];
})
"""


async def test_numbers_and_lines(page: Page, address: str) -> None:
    await page.open(address + EMPTY)
    assert await page.run(FORMAT) == [
        7, 1, 8,
        2, 5, 0, 8,
        "0.1 0.5 1 5 10 50 100 500",
        "0.0000000001 0.0000000005 0.000000001 0.000000005 "
        "0.00000001 0.00000005 0.0000001 0.0000005",
        0,
        "1,234.50", "now", "0 s ago", "9 s ago", "2 min ago",
        "2.5M", "0.25", "1.25K",
    ]  # fmt: skip
    # The bid at 10 crosses the ask at 9.5: the chart's axis still rises.
    lines, total, share, nothing = await page.run(BOOK)
    assert lines == [[-10, -5, 0], [3, None, 2], [None, 4, None]]
    assert (total, share, nothing) == (3, 0.5, 0)


async def test_a_column_has_more_decimals_at_once_and_fewer_after_ten_seconds(
    page: Page, address: str
) -> None:
    await page.open(address + EMPTY)
    assert await page.run(PLACES) == [1, 3, 3, 3, 3, 2, 4]


@pytest.mark.parametrize("path", ["/", f"/#key={GOOD_KEY}", "/docs"])
async def test_a_page_fits_a_narrow_screen(page: Page, address: str, path: str) -> None:
    await page.open("about:blank")
    await resize(page, 320)
    await page.go(address + path)
    if GOOD_KEY in path:
        await page.until(LADDER)
    for width in (320, 390, 683):
        await resize(page, width)
        assert await page.run("document.documentElement.scrollWidth") <= width
    assert page.complaints == []


async def test_the_chart_shrinks_with_the_screen(page: Page, address: str) -> None:
    await page.open("about:blank")
    await resize(page, 844)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelector('.depth canvas') !== null")
    await resize(page, 390)
    await page.until("document.querySelector('.depth canvas').clientWidth < 390")
    assert await page.run("document.documentElement.scrollWidth") <= 390


OVERLAPS = """(() => {
  const rects = (id) => document.querySelector(id).getClientRects();
  const [mid, spread] = ['.mid', '.spread'].map(rects);
  const beside = (a, b) => a.right <= b.left || b.right <= a.left;
  const apart = (a, b) => beside(a, b) || a.bottom <= b.top || b.bottom <= a.top;
  return ![...mid].every((a) => [...spread].every((b) => apart(a, b)));
})()"""


@pytest.mark.parametrize("width", [320, pytest.param(390, marks=pytest.mark.soak)])
async def test_a_phone_names_the_exchanges_and_keeps_the_mid_clear(
    page: Page, address: str, width: int
) -> None:
    await page.open("about:blank")
    await resize(page, width)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    assert not await page.run(OVERLAPS)
    named = "[...document.querySelectorAll('.bids .who')].map((each) => each.innerText)"
    assert await page.run(f"{named}.every((each) => /^[a-z]{{2}}/.test(each))")


SHOWN = "[...document.querySelectorAll('.choice:not([hidden])')].map((one) => one.textContent)"


async def test_many_exchanges_are_found_by_name(page: Page, address: str, market: Market) -> None:
    market.listed = [*EXCHANGES, *(name for name in ALL if name not in EXCHANGES)]
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    count = len(market.listed)
    await page.until(f"document.querySelector('#ticked').textContent === '{count} of {count}'")
    await page.run("document.querySelector('#find').value = 'BIT'")
    await page.run("document.querySelector('#find').dispatchEvent(new Event('input'))")
    assert await page.run(SHOWN) == [name for name in market.listed if "bit" in name]
    await page.run("document.querySelector('#tick-none').click()")
    left = sum("bit" not in name for name in market.listed)
    assert (await page.run("document.querySelector('#ticked').textContent")).startswith(f"{left} ")


@pytest.mark.parametrize("width", [320, pytest.param(683, marks=pytest.mark.soak)])
async def test_many_exchanges_do_not_widen_a_narrow_page(
    page: Page, address: str, market: Market, width: int
) -> None:
    market.listed = list(ALL)
    await page.open("about:blank")
    await resize(page, width)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(LADDER)
    await page.until("document.querySelector('#exchanges').childElementCount > 20")
    assert await page.run("document.documentElement.scrollWidth <= innerWidth")
    await page.run("document.querySelector('#settings').click()")
    drawer = "document.querySelector('#drawer')"
    assert await page.run(f"{drawer}.scrollWidth <= {drawer}.clientWidth")
    assert await page.run("document.documentElement.scrollWidth <= innerWidth")
