"""The page on screens of every size: fit, scrolling, zoom, and stable layout."""

import pytest

from onebook.exchanges import NAMES as ALL
from web.browser import CHROMIUM, Page, resize
from web.scripted import GOOD_KEY, Market
from web.test_panels import READY, change, key, text

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


async def wheel(page: Page, selector: str, **more: int) -> None:
    """Turn the wheel by one notch over the middle of a visible element."""
    x, y = await page.run(
        f"(({{ left, top, width, height }}) => [left + width / 2, top + Math.min(height, 200) / 2])"
        f"(document.querySelector('{selector}').getBoundingClientRect())"
    )
    await page.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y,
                    deltaX=0, deltaY=-120, **more)  # fmt: skip


# The crosshair, which a mouse or a finger leaves behind, is reported before the zoom.
ZOOMED = f"({key('.depth', 'Escape')}, /^From /.test({text('.depth-text')}))"
CTRL = 2


@pytest.mark.parametrize(
    ("selector", "levels"),
    [
        pytest.param(".scroller", 8, marks=pytest.mark.soak),
        (".scroller", 200),
        (".depth", 8),
        (".members", 8),
    ],
)
async def test_a_wheel_scrolls_the_page_wherever_the_mouse_is(
    page: Page, address: str, market: Market, selector: str, levels: int
) -> None:
    market.listed = list(ALL)
    await page.open("about:blank")
    await resize(page, 1366, 600, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}&levels={levels}")
    await page.until("document.querySelector('.depth canvas') !== null")
    await page.run(f"document.querySelector('{selector}').scrollIntoView({{ block: 'end' }})")
    await page.run("scrollBy(0, 40)")
    await page.run("document.querySelector('.scroller').dispatchEvent(new Event('wheel'))")
    await page.run("document.querySelector('.scroller').scrollTop = 0")
    before = await page.run("new Promise((done) => requestAnimationFrame(() => done(scrollY)))")
    assert before > 0
    await wheel(page, selector)
    await page.until(f"scrollY < {before}")
    assert not await page.run(ZOOMED)


async def test_the_depth_chart_is_zoomed_by_a_pinch_and_by_a_wheel_that_means_it(
    page: Page, address: str
) -> None:
    await page.open("about:blank")
    await resize(page, 1366, 900, mobile=False)
    await page.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelector('.depth canvas') !== null")
    await wheel(page, ".depth", modifiers=CTRL)
    await page.until(ZOOMED)
    await page.run(key(".depth", "0"))
    await page.until(f"!{ZOOMED}")
    await page.run("document.querySelector('.depth').focus()")
    await wheel(page, ".depth")
    await page.until(ZOOMED)
    await page.run(key(".depth", "0"))
    await page.run("document.activeElement.blur()")
    x, y = await page.run(
        "(({ left, top, width }) => [left + width / 2, top + 90])"
        "(document.querySelector('.depth').getBoundingClientRect())"
    )
    for kind, apart in (("touchStart", 40), ("touchMove", 60), ("touchMove", 120)):
        fingers = [{"x": x + sign * apart / 2, "y": y, "id": sign + 1} for sign in (-1, 1)]
        await page.call("Input.dispatchTouchEvent", type=kind, touchPoints=fingers)
    await page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    await page.until(ZOOMED)
    assert await page.run("visualViewport.scale") == 1


CARDS = """JSON.stringify([...document.querySelectorAll('.card')].map((one) =>
  [one.ariaLabel, one.offsetTop, one.offsetWidth, one.offsetHeight]))"""


@pytest.mark.parametrize("width", [320, 390, pytest.param(683, marks=pytest.mark.soak), 1366])
async def test_cards_stay_where_they_are_while_numbers_come_and_markets_cross(
    page: Page, address: str, market: Market, width: int
) -> None:
    market.names = market.listed = list(ALL)
    await page.open("about:blank")
    await resize(page, width, mobile=width < 900)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(f"/^Not crossed/.test({text('.crossing-text')})")
    await page.until("document.querySelector('#exchanges').childElementCount > 20")
    before = await page.run(CARDS)
    for crossed, said in ((True, "Crossed now"), (False, "Last crossed")):
        market.crossed = crossed
        await page.until(f"/{said}/.test({text('.crossing-text')})")
        assert await page.run(CARDS) == before
    await page.run("document.querySelector('.asks tr:last-child td').click()")
    await page.until(f"/^Buying up to/.test({text('.readout')})")
    assert await page.run(CARDS) == before


IN_SIGHT = """(one) => {
  const { left, top, width, height } = one.getBoundingClientRect();
  const hit = document.elementFromPoint(left + width / 2, top + height / 2);
  return one === hit || one.contains(hit);
}"""


@pytest.mark.parametrize(
    ("width", "height"),
    [(683, 390), pytest.param(844, 390, marks=pytest.mark.soak), (390, 683)],
)
async def test_a_rotated_phone_reaches_every_control(
    page: Page, address: str, market: Market, width: int, height: int
) -> None:
    market.names = market.listed = list(ALL)
    await page.open("about:blank")
    await resize(page, width, height)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(READY)
    await page.until("document.querySelectorAll('#fee-rows input').length > 20")
    covered = f"""((root) => [...root.querySelectorAll('button, input, select, summary')]
      .filter((one) => one.checkVisibility({{ opacityProperty: true }})).filter((one) => {{
        one.scrollIntoView({{ block: 'nearest' }});
        return !({IN_SIGHT})(one);
      }}).map((one) => one.outerHTML))"""
    assert await page.run(f"{covered}(document.querySelector('main'))") == []
    await page.run("document.querySelector('#settings').click()")
    await page.run(
        "document.querySelectorAll('#drawer details').forEach((one) => (one.open = true))"
    )
    assert await page.run(f"({IN_SIGHT})(document.querySelector('#drawer-close'))")
    assert await page.run(f"{covered}(document.querySelector('#drawer'))") == []
    await page.run("document.querySelector('#drawer-close').scrollIntoView()")
    await page.run("document.querySelector('#drawer-close').click()")
    await page.run("document.querySelector('.symbol').focus()")
    await page.run("document.querySelector('.symbol').scrollIntoView({ block: 'end' })")
    await page.run(change(".symbol", "e"))
    await page.until("document.querySelectorAll('.options li').length > 1")
    assert await page.run(f"[...document.querySelectorAll('.options li')].every({IN_SIGHT})")


LEVELS = "document.querySelectorAll('.bids tr').length"


async def test_the_ladder_follows_the_height_of_the_window_unless_levels_are_chosen(
    page: Page, address: str, market: Market
) -> None:
    await page.open("about:blank")
    await resize(page, 1366, 768, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until(f"{READY} && {LEVELS} === 12")
    await resize(page, 1920, 1080, mobile=False)
    await page.until(f"{LEVELS} === 20")
    assert "levels" not in await page.run("location.hash")
    assert await page.run("document.querySelector('#rows').value") == "20"
    await page.run(change("#rows", "16", "change"))
    await page.until(f"{LEVELS} === 16")
    await resize(page, 1366, 768, mobile=False)
    await page.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
    assert await page.run(LEVELS) == 16


# The longest figures of the table of exchanges, and those that are wider than their column.
CUT_FIGURES = """[...document.querySelectorAll('.members tbody tr')].flatMap((row) =>
  ['888 ms', '8.8 %', '100 %'].filter((text, at) => {
    const box = row.querySelectorAll('.number')[at];
    box.textContent = text;
    return box.scrollWidth > box.clientWidth;
  }))"""

# Cells of a route's split that are longer than their column, which would be written over the next.
CUT_CELLS = """[...document.querySelectorAll('.split :is(th, td)')]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"""


@pytest.mark.parametrize(
    ("width", "height"),
    [
        (320, 700),
        pytest.param(390, 844, marks=pytest.mark.soak),
        pytest.param(844, 390, marks=pytest.mark.soak),
        (1366, 768),
    ],
)
async def test_everything_fits_every_screen_in_light_and_dark(
    page: Page, address: str, market: Market, width: int, height: int
) -> None:
    market.names = market.listed = list(ALL)
    market.crossed, market.fills = True, False
    await page.open("about:blank")
    await resize(page, width, height)
    await page.go(f"{address}/#key={GOOD_KEY}&symbol=BTC/USDT&symbol=ETH/USDT")
    await page.until("document.querySelectorAll('.pairs li').length > 1")
    await page.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    await page.until(f"/GiB used/.test({text('#usage-text')})")
    await page.until("document.querySelectorAll('.split tbody tr').length === 4")
    wide = """[...document.querySelectorAll('.card')].filter((card) =>
      card.scrollWidth > card.clientWidth + 1).map((card) => card.className + card.ariaLabel)"""
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await page.call("Emulation.setEmulatedMedia", features=[feature])
        assert await page.run("document.documentElement.scrollWidth") <= width
        assert await page.run(wide) == []
    assert await page.run(CUT_FIGURES) == []
    assert await page.run(CUT_CELLS) == []


# What was pushed aside so far: the browser tells an observer in a task of its own, after a frame.
SHIFTED = """new Promise((done) => {
  let sum = 0;
  const add = (list) => {
    for (const { value, hadRecentInput } of list) sum += hadRecentInput ? 0 : value;
  };
  const observer = new PerformanceObserver((list) => add(list.getEntries()));
  observer.observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => {
    add(observer.takeRecords());
    observer.disconnect();
    done(sum);
  })));
})"""
SHIFT = """(() => { document.querySelector("main").prepend(Object.assign(
  document.createElement("div"), { style: "height: 8px" })); })()"""


@pytest.mark.parametrize(
    ("path", "ready"),
    [
        (f"/#key={GOOD_KEY}", "document.querySelector('.depth canvas') !== null"),
        ("/docs", "document.querySelector('.copy') !== null"),
    ],
)
async def test_nothing_is_pushed_aside_while_a_page_loads_on_a_phone(
    page: Page, address: str, market: Market, path: str, ready: str
) -> None:
    """Cumulative layout shift: 0.1 and less is good, https://web.dev/articles/cls."""
    market.names = market.listed = list(ALL)
    await page.open("about:blank")
    await resize(page, 390, 844)
    slow = {"latency": 60, "downloadThroughput": 200_000, "uploadThroughput": 100_000}
    await page.call("Network.emulateNetworkConditions", offline=False, **slow)
    await page.call("Network.setCacheDisabled", cacheDisabled=True)
    await page.go(address + path)
    await page.until(ready)
    # What moves before the first paint is no shift.
    await page.until("performance.getEntriesByName('first-contentful-paint').length")
    shifted = await page.run(SHIFTED)
    assert shifted < 0.1
    await page.run(SHIFT)  # only now: a shift counts for as much as whatever moves with it
    await page.until(f"{SHIFTED}.then((now) => now > {shifted})")
