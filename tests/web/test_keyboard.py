"""The page by keyboard only: real key presses during updates."""

import pytest

from web.browser import CHROMIUM, Page, resize
from web.by_hand import subscribed
from web.scripted import GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "PageDown": 34, "Home": 36, "ArrowDown": 40}
FOCUSED = "document.activeElement"
SYMBOL = "document.querySelector('.symbol')"
TITLE = "document.querySelector('.title').textContent"
OPTIONS = "[...document.querySelectorAll('.options li')].map((one) => one.firstChild.data)"
TOP = "document.querySelector('.scroller').scrollTop"


async def press(page: Page, *names: str) -> None:
    for name in names:
        keyed = {"key": name, "code": name, "windowsVirtualKeyCode": CODES[name]}
        down = {"type": "keyDown", "text": "\r"} if name == "Enter" else {"type": "rawKeyDown"}
        await page.call("Input.dispatchKeyEvent", **keyed, **down)
        await page.call("Input.dispatchKeyEvent", **keyed, type="keyUp")


async def show(page: Page, address: str, fragment: str = "") -> None:
    await page.open("about:blank")
    await resize(page, 1366, 768, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}{fragment}")
    await page.until("document.querySelector('.panel').dataset.live === 'yes'")


async def search(page: Page, text: str) -> None:
    """Replace the text in the box of the first symbol."""
    await page.run(f"{SYMBOL}.focus()")
    await page.until("document.querySelectorAll('#exchanges input').length > 0")
    await press(page, "ArrowDown")
    await page.until(f"{OPTIONS}.length > 1")
    await page.run(f"{SYMBOL}.select()")
    await page.call("Input.insertText", text=text)


async def test_an_arrow_lists_symbols_where_nothing_was_typed(page: Page, address: str) -> None:
    await show(page, address)
    await search(page, "ethu")
    assert await page.run(OPTIONS) == ["ETH/USDT"]
    await press(page, "Escape", "ArrowDown")
    assert set(await page.run(OPTIONS)) >= {"BTC/USDT", "ETH/USDT", "SOL/USDT"}


async def test_escape_gives_the_symbol_that_is_shown_back(page: Page, address: str) -> None:
    await show(page, address)
    await search(page, "eth")
    await press(page, "Escape")
    assert await page.run(f"{SYMBOL}.value") == "BTC/USDT"
    await press(page, "Tab")
    assert await page.run(f"{FOCUSED}.className") == "group"
    assert await page.run("document.querySelector('#notice').hidden")


@pytest.mark.parametrize("names", [["Enter"], ["ArrowDown", "Enter"], ["ArrowDown", "Tab"]])
async def test_a_part_of_a_symbol_is_the_one_that_is_marked_or_the_first(
    page: Page, address: str, market: Market, names: list[str]
) -> None:
    await show(page, address)
    await search(page, "sol")
    await press(page, *names)
    await page.until(f"{TITLE} === 'SOL/USDT'")
    assert await page.run(f"{SYMBOL}.value") == "SOL/USDT"
    asked = [each["symbol"] for each in subscribed(market)]
    assert asked.count("SOL/USDT") == 1
    assert await page.run("document.querySelector('#notice').hidden")


async def test_a_finger_scrolls_the_symbols_and_chooses_where_it_taps(
    page: Page, address: str, market: Market
) -> None:
    await show(page, address)
    await search(page, "sol")
    place = await page.run(
        "(({x, y, width, height}) => ({x: x + width / 2, y: y + height / 2}))"
        "(document.querySelector('.options li').getBoundingClientRect())"
    )
    await page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[place])
    assert await page.run(f"!document.querySelector('.options').hidden && {FOCUSED} === {SYMBOL}")
    await page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    await page.until(f"{TITLE} === 'SOL/USDT'")


async def test_keys_scroll_the_ladder_and_updates_leave_it_there(
    page: Page, address: str, market: Market
) -> None:
    await show(page, address, "&levels=100")
    market.frozen = True
    await page.run("document.querySelector('.scroller').focus({ preventScroll: true })")
    middle = await page.run(TOP)
    await press(page, "Home")
    await page.until(f"{TOP} === 0")
    market.tick *= 2  # told apart from what is shown
    shown = await page.run("document.querySelector('.asks .price').textContent")
    market.frozen = False
    await page.until(f"document.querySelector('.asks .price').textContent !== '{shown}'")
    assert await page.run(TOP) == 0 < middle
    await press(page, "PageDown")
    await page.until(f"{TOP} > 0")


async def test_the_focus_outlives_the_notice_whose_suggestion_is_taken(
    page: Page, address: str
) -> None:
    await show(page, address, "&symbol=ETH/USDT&symbol=NO/PE")
    button = "document.querySelector('#notice button')"
    await page.until(f"!!{button}")
    await page.run(f"{button}.focus()")
    await press(page, "Enter")
    await page.until("document.querySelectorAll('.title')[1].textContent === 'BTC/USDT'")
    await page.until("document.querySelector('#notice').hidden")
    assert await page.run(f"{FOCUSED} === document.querySelectorAll('.symbol')[1]")


async def test_the_focus_of_the_allowance_moves_to_the_key_when_it_is_hidden(
    page: Page, address: str, market: Market
) -> None:
    await show(page, address)
    await page.run("document.querySelector('#settings').click()")
    await page.run("document.querySelector('#usage summary').focus()")
    await page.run("document.querySelector('#leave').click()")
    await page.until("!document.querySelector('#drawer').checkVisibility()")
    assert await page.run(f"{FOCUSED}.id") == "key"


async def test_the_symbol_is_the_first_stop(page: Page, address: str) -> None:
    await show(page, address)
    await page.run("document.activeElement.blur()")
    await press(page, "Tab")
    assert await page.run(f"{FOCUSED} === {SYMBOL}")


async def test_the_drawer_opens_and_closes_by_key_and_is_remembered_with_its_sections(
    page: Page, address: str
) -> None:
    await show(page, address)
    drawer = "document.querySelector('#drawer')"
    assert not await page.run(f"{drawer}.checkVisibility()")
    await page.run("document.querySelector('#settings').focus()")
    await press(page, "Enter")
    assert await page.run(f"{drawer}.checkVisibility() && {drawer}.contains({FOCUSED})")
    assert await page.run("document.querySelector('#settings').ariaExpanded") == "true"
    await page.run("document.querySelector('#fees summary').focus()")
    await press(page, "Enter")
    await page.until("JSON.parse(localStorage.getItem('onebook.drawer')).open.includes('fees')")
    await page.run("document.activeElement.blur()")
    await page.go("about:blank")
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{drawer}.checkVisibility() && document.querySelector('#fees').open")
    assert not await page.run(f"{drawer}.contains({FOCUSED})"), "it takes no focus by itself"
    await page.run("document.querySelector('#drawer-close').focus()")
    await press(page, "Escape")
    assert not await page.run(f"{drawer}.checkVisibility()")
    assert await page.run(f"{FOCUSED}.id") == "settings"
    await page.go("about:blank")
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelector('.panel').dataset.live === 'yes'")
    assert not await page.run(f"{drawer}.checkVisibility()")


async def test_the_drawer_covers_no_book_where_both_fit(page: Page, address: str) -> None:
    await show(page, address)
    await page.run("document.querySelector('#settings').click()")
    edges = (
        "['.panel', '#drawer'].map((one) => document.querySelector(one).getBoundingClientRect())"
    )
    assert await page.run(f"(([panel, drawer]) => panel.right <= drawer.left)({edges})")


async def test_panels_and_their_buttons_are_named_by_their_symbol(page: Page, address: str) -> None:
    await show(page, address, "&symbol=ETH/USDT&symbol=SOL/USDT")
    labels = "[...document.querySelectorAll('.panel, .remove')].map((one) => one.ariaLabel)"
    assert await page.run(labels) == ["Remove ETH/USDT", "Remove SOL/USDT", "ETH/USDT", "SOL/USDT"]


async def test_what_is_wrong_with_a_size_belongs_to_its_box(page: Page, address: str) -> None:
    await show(page, address, "&symbol=ETH/USDT&symbol=SOL/USDT")
    await page.run("[...document.querySelectorAll('.size')].at(-1).focus()")
    await page.run(f"{FOCUSED}.select()")
    await page.call("Input.insertText", text="much")
    assert await page.run(f"{FOCUSED}.ariaInvalid") == "true"
    said = f"document.getElementById({FOCUSED}.getAttribute('aria-errormessage'))"
    assert (await page.run(f"{said}.checkVisibility() && {said}.textContent")).startswith(
        "A size is"
    )
    assert await page.run(f"{said}.closest('.panel').ariaLabel") == "SOL/USDT"
