"""The pages by keyboard, screen reader and contrast (WCAG 2.2, level AA), in Chromium."""

from itertools import pairwise

import pytest

from onebook.exchanges import NAMES as ALL
from web.browser import CHROMIUM, Page, resize
from web.scripted import GOOD_KEY, Market, status

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# Ratios are of what is visible: a colour through its opacity on the grounds that may be behind it.
CONTRAST = """(() => {
  const rgba = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], below) =>
    [r, g, b].map((each, at) => each * a + below[at] * (1 - a));
  const lightness = (colour) => colour.slice(0, 3).map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const ratio = (one, other) => {
    const [low, high] = [lightness(one), lightness(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  // Of the parent first: computed once for all that is in it.
  const inherited = (root, of) => {
    const known = new Map([[null, root]]);
    const found = (one) => {
      if (!known.has(one)) known.set(one, of(getComputedStyle(one), found(one.parentElement)));
      return known.get(one);
    };
    return found;
  };
  const ground = inherited([255, 255, 255],
    ({ backgroundColor }, below) => over(rgba(backgroundColor), below));
  const opacity = inherited(1, (style, above) => style.opacity * above);
  const bar = (one) => one.closest(".asks tr, .bids tr")?.querySelector(".reach");
  const barColour = (one) => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = getComputedStyle(one).getPropertyValue("--bar");
    const found = rgba(getComputedStyle(probe).color);
    probe.remove();
    return found;
  };
  const faults = [];
  const judge = (what, colour, element, least) => {
    const behind = [ground(element), ...(bar(element) ? [barColour(bar(element))] : [])];
    const found = Math.min(...behind.map((each) => ratio(over(colour, each), each)));
    if (found >= least) return;
    faults.push(`${what} ${element.className || element.tagName}: ${found.toFixed(2)}`);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest(".unseen, option, noscript")) continue;
    const style = getComputedStyle(element);
    const [r, g, b, a] = rgba(style.color);
    const shown = a * opacity(element);
    if (shown === 0) continue;
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    judge("text", [r, g, b, shown], element, large ? 3 : 4.5);
    count += 1;
  }
  const edged =
    "button:not(.pick, .remove), select, input:not([type=checkbox], [type=radio])";
  for (const element of document.querySelectorAll(edged)) {
    if (!element.checkVisibility({ opacityProperty: true })) continue;
    const { borderTopColor, backgroundColor } = getComputedStyle(element);
    const edge = rgba(borderTopColor)[3] ? borderTopColor : backgroundColor;
    judge("edge", rgba(edge), element.parentElement, 3);
  }
  return { count, faults: [...new Set(faults)] };
})()"""

# What a stop of the keyboard shows and hears: its place in the document, and whether it is seen.
STOP = """(() => {
  const one = document.activeElement;
  if (one === document.body) return null;
  const { outlineStyle } = getComputedStyle(one.matches(".range input") ? one.parentElement : one);
  const { top, bottom } = one.getBoundingClientRect();
  window.places ??= new Map([...document.querySelectorAll("*")].map((each, at) => [each, at]));
  return { at: places.get(one), what: one.outerHTML.slice(0, 90),
    ring: outlineStyle !== "none", seen: bottom > 0 && top < innerHeight };
})()"""

STOPS_MAX = 400
# How many there are: what can be focused, behind no modal dialog; radio buttons are one stop.
STOPS = """(() => {
  const all = "a[href], button, input:not([type=radio]), input:checked, select, summary,"
    + "[tabindex='0']";
  const root = document.querySelector("dialog:modal") ?? document;
  // Chromium also stops at the drawer itself where its content is longer than the screen.
  const drawer = document.querySelector("dialog[open]");
  return [...root.querySelectorAll(all)]
    .filter((one) => one.checkVisibility() && !one.disabled).length
    + (drawer && drawer.scrollHeight > drawer.clientHeight ? 1 : 0);
})()"""
LIVE = "[...document.querySelectorAll('[aria-live], [role=status], [role=alert]')]"


async def names(page: Page) -> list[tuple[str, str]]:
    """Role and name of every focusable element, as a screen reader sees them."""
    tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    return [
        (each["role"]["value"], each.get("name", {}).get("value", ""))
        for each in tree
        if not each["ignored"]
        and any(one["name"] == "focusable" and one["value"]["value"] for one in each["properties"])
    ]


async def show(page: Page, address: str, market: Market) -> None:
    """Two symbols with every card open: all exchange states, a crossing, a size too big."""
    market.names = market.listed = list(ALL)
    market.crossed, market.fills = True, False
    await page.go(f"{address}/#key={GOOD_KEY}&symbol=BTC/USDT&symbol=ETH/USDT")
    await page.until("document.querySelectorAll('.pairs li').length > 1")
    await market.set_stale("kraken", "gap: a message is missing")
    await market.publish(status("BTC/USDT", "okx", "offline", "connection lost"))
    await market.publish(status("BTC/USDT", "gate", "syncing", "waiting for the snapshot"))
    await page.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    await page.until("document.querySelector('.quote-list input') !== null")
    for state in ("stale", "offline", "syncing"):
        await page.until(f"document.querySelector('.members .state[data-state={state}]') !== null")


async def readable(page: Page) -> None:
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await page.call("Emulation.setEmulatedMedia", features=[feature])
        found = await page.run(CONTRAST)
        assert found["count"] > 5
        assert found["faults"] == [], scheme


@pytest.mark.parametrize("width", [pytest.param(320, marks=pytest.mark.soak), 1366])
async def test_text_and_edges_have_contrast_in_light_and_dark(
    page: Page, address: str, market: Market, width: int
) -> None:
    await page.open("about:blank")
    await resize(page, width)
    await page.go(f"{address}/")
    await readable(page)
    await show(page, address, market)
    await readable(page)
    await page.run("document.querySelector('#settings').click()")
    await page.run("document.querySelector('.pick').click()")
    await readable(page)
    await page.run("document.documentElement.dataset.sides = 'green'")
    await readable(page)
    market.frozen = True
    await page.until("document.querySelector('.panel').dataset.live === 'no'")
    await readable(page)
    for path in ("/docs", "/docs/tutorial", "/docs/reference/errors"):
        await page.go(address + path)
        await readable(page)


async def stops_of(page: Page) -> list[dict]:
    """The focused elements, key press by key press, until the first one returns."""
    await page.run("document.activeElement.blur()")
    stops: list[dict] = []
    for _ in range(STOPS_MAX):
        for kind in ("rawKeyDown", "keyUp"):
            await page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                            windowsVirtualKeyCode=9)  # fmt: skip
        stop = await page.run(STOP)
        if stop is None:  # the browser's own controls
            continue
        if stops and stop["at"] == stops[0]["at"]:
            break
        stops.append(stop)
    return stops


@pytest.mark.parametrize(
    ("width", "drawer"),
    [
        (320, True),
        (1366, False),
        pytest.param(320, False, marks=pytest.mark.soak),
        pytest.param(1366, True, marks=pytest.mark.soak),
    ],
)
async def test_the_keyboard_reaches_everything_in_order_and_is_seen(
    page: Page, address: str, market: Market, width: int, drawer: bool
) -> None:
    await page.open("about:blank")
    await resize(page, width, mobile=False)
    await show(page, address, market)
    if drawer:
        await page.run("document.querySelector('#settings').click()")
    everything = await page.run(STOPS)  # before the focus leaves the quotes, which closes them
    stops = await stops_of(page)
    places = [each["at"] for each in stops]
    first = places.index(min(places))
    assert len(places) == len(set(places)), "no stop comes twice: nothing holds the focus"
    assert places[first:] + places[:first] == sorted(places)
    assert [each["what"] for each in stops if not (each["ring"] and each["seen"])] == []
    reached = await names(page)
    assert [role for role, name in reached if not name and role != "RootWebArea"] == []
    roles = {role for role, _ in reached}
    assert (
        {"combobox", "checkbox", "button"} <= roles if drawer else {"combobox", "button"} <= roles
    )
    assert len(places) == everything > 20, "and nothing is left out"


async def test_headings_landmarks_and_heads_of_tables(
    page: Page, address: str, market: Market
) -> None:
    async def checked() -> None:
        levels = await page.run(
            "[...document.querySelectorAll('h1, h2, h3, h4')]"
            ".filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]))"
        )
        assert levels.count(1) == 1
        assert [each for each in pairwise(levels) if each[1] > each[0] + 1] == []
        unnamed = "(one) => !one.textContent && one.checkVisibility()"
        assert await page.run(f"[...document.querySelectorAll('th')].some({unnamed})") is False

    await page.open(f"{address}/")
    await checked()
    await show(page, address, market)
    await checked()
    for path in ("/docs", "/docs/tutorial", "/docs/guides/library"):
        await page.go(address + path)
        await checked()


async def test_updates_are_not_spoken(page: Page, address: str, market: Market) -> None:
    await page.open("about:blank")
    await show(page, address, market)
    await page.until(f"document.querySelector('#link').dataset.state === 'live' && {LIVE}.length")
    await page.run(
        "window.spoken = 0; const seen = new MutationObserver((all) => (spoken += all.length));"
        f"{LIVE}.forEach((one) => seen.observe(one, {{ subtree: true, childList: true,"
        " characterData: true }))"
    )
    sent = market.updates
    await page.run(
        "window.drawn = 0; new MutationObserver(() => drawn += 1)"
        ".observe(document.querySelector('.bids'), { subtree: true, characterData: true })"
    )
    await page.until("drawn > 10")
    assert market.updates > sent
    assert await page.run("spoken") == 0


async def test_a_wide_table_of_the_docs_is_scrolled_by_keyboard_where_it_is_cut(
    page: Page, address: str
) -> None:
    cut = """[...document.querySelectorAll('.wide')].filter((one) =>
      one.checkVisibility() && one.scrollWidth > one.clientWidth)"""
    stops = "document.querySelectorAll('.wide[tabindex=\"0\"]').length"
    await page.open("about:blank")
    await resize(page, 320)
    await page.go(f"{address}/docs")
    await page.until(f"{cut}.length > 5 && {stops} === {cut}.length")
    await resize(page, 1600, mobile=False)
    await page.until(f"{stops} === {cut}.length && {cut}.length < 5")


async def test_no_name_in_the_first_column_of_a_table_of_the_docs_is_broken(
    page: Page, address: str
) -> None:
    """A wide table is scrolled; a narrow column of types read `depo sits`."""
    await page.open("about:blank")
    await resize(page, 390)
    await page.go(f"{address}/docs")
    broken = """[...document.querySelectorAll('.wide td:first-child > code')].filter((one) =>
      one.checkVisibility() && /^\\w+$/.test(one.textContent) && one.getClientRects().length > 1)
      .map((one) => one.textContent)"""
    assert await page.run(broken) == []


async def test_the_contents_of_the_docs_open_with_a_finger(page: Page, address: str) -> None:
    """WCAG 2.2, 2.5.8: a target has 24 pixels."""
    await page.open("about:blank")
    await resize(page, 320)
    await page.go(f"{address}/docs/tutorial")
    height = "document.querySelector('.contents summary').getBoundingClientRect().height"
    assert await page.run(height) >= 24


async def test_the_contents_of_the_docs_can_be_skipped(page: Page, address: str) -> None:
    await page.open(f"{address}/docs/tutorial")
    for kind in ("rawKeyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                        windowsVirtualKeyCode=9)  # fmt: skip
    assert await page.run("document.activeElement.className") == "skip"
    await page.until("document.activeElement.getBoundingClientRect().top >= 0")
    await page.run("document.activeElement.click()")
    await page.until("document.activeElement.tagName === 'MAIN'")


async def test_with_the_colours_of_the_user_a_picked_colour_is_still_seen(
    page: Page, address: str
) -> None:
    forced = [{"name": "forced-colors", "value": "active"}]
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.call("Emulation.setEmulatedMedia", features=forced)
    square = "document.querySelector('.pick')"
    await page.until(f"!!{square}")
    await page.run("document.querySelector('#settings').click()")
    place = await page.run(
        f"(({{x, y, width, height}}) => ({{x, y, width, height, scale: 1}}))"
        f"({square}.getBoundingClientRect())"
    )
    seen = []
    for _ in range(2):
        await page.run(f"{square}.click()")
        seen.append(await page.call("Page.captureScreenshot", format="png", clip=place))
    assert seen[0] != seen[1]
