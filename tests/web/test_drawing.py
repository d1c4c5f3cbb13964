"""Browser work per update, in counts that do not depend on the machine's load."""

import re

import pytest

from web.browser import CHROMIUM, Page, resize
from web.by_hand import count_drawings, send
from web.scripted import GOOD_KEY, Market

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

DEPTH_EVERY_MS = 1_000  # the chart has a view of its own
SHOWN = "document.querySelector('.bids td')?.textContent.trim()"
# Lines of charts from now on, by the class of their card's element.
STROKES = """(() => {
  window.strokes = { depth: 0, history: 0 };
  const draw = CanvasRenderingContext2D.prototype.stroke;
  CanvasRenderingContext2D.prototype.stroke = function (...path) {
    const chart = this.canvas.closest(".depth, .history");
    if (chart) strokes[chart.className] += 1;
    return draw.apply(this, path);
  };
})()"""


async def test_the_bars_of_all_rows_are_one_canvas(
    page: Page, address: str, market: Market
) -> None:
    """Each canvas is a layer that the browser composes with every update."""
    await page.open(f"{address}/#key={GOOD_KEY}&levels=100")
    await page.until(SHOWN)
    assert await page.run("document.querySelectorAll('.ladder canvas').length") == 1


async def test_a_chart_is_drawn_only_while_it_is_in_sight(
    page: Page, address: str, market: Market
) -> None:
    await page.open("about:blank")
    await resize(page, 390, 700)
    await page.go(f"{address}/#key={GOOD_KEY}&levels=25")
    await page.until(SHOWN)
    await page.until("document.querySelector('.depth canvas') !== null")
    await count_drawings(page, market)
    await page.run("scrollTo(0, 0)")
    while market.viewed[-1]["interval_ms"] <= DEPTH_EVERY_MS:
        await send(page, market)
    await page.run(STROKES)
    said = len(market.viewed)
    begin_ms = await page.run("performance.now()")
    while await page.run("performance.now()") < begin_ms + 2 * DEPTH_EVERY_MS:
        await send(page, market)
    assert (await page.run("strokes"))["depth"] == 0
    assert len(market.viewed) == said
    await page.run("document.querySelector('.depth').scrollIntoView()")
    await page.until("strokes.depth > 0")  # the newest book, without another update
    market.frozen = False
    before = (await page.run("strokes"))["depth"]
    await page.until(f"strokes.depth > {before}")  # its own book, once a second
    assert [each["interval_ms"] for each in market.viewed[said:]] == [DEPTH_EVERY_MS]


async def test_the_book_and_the_other_cards_are_drawn_in_a_frame_each(
    page: Page, address: str, market: Market
) -> None:
    """One frame with both takes too long on a slow computer."""
    await page.open("about:blank")
    await resize(page, 1920, 1080, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelector('.depth canvas') !== null")
    await count_drawings(page, market)
    await send(page, market)
    await page.run("""(() => {
      window.frames = [];
      let frame = 0;
      const count = () => { frame += 1; requestAnimationFrame(count); };
      requestAnimationFrame(count);
      const note = (name) => frames.at(-1)?.[0] === name || frames.push([name, frame]);
      for (const [name, selector] of [["book", ".bids"], ["cards", ".history-text"]]) {
        const texts = { subtree: true, characterData: true };
        new MutationObserver(() => note(name)).observe(document.querySelector(selector), texts);
      }
    })()""")
    await send(page, market)
    (book, at), (cards, later) = await page.run("frames")
    assert (book, cards, later) == ("book", "cards", at + 1)


async def test_the_shares_of_a_level_are_drawn_in_its_row_however_it_is_scrolled(
    page: Page, address: str, market: Market
) -> None:
    await page.open("about:blank")
    await resize(page, 1366, 900, mobile=False)
    await page.go(f"{address}/#key={GOOD_KEY}&levels=200")
    await page.until(SHOWN)
    await page.until("document.querySelectorAll('.pick').length > 3")
    await page.run("document.querySelectorAll('.pick').forEach((one) => one.click())")
    await count_drawings(page, market)
    await send(page, market)
    # Of each row in sight: whether its bar has ink, and whether the gap between two rows has none.
    inked = """(() => {
      const canvas = document.querySelector('.shares'), top = canvas.getBoundingClientRect().top;
      const scale = canvas.height / canvas.clientHeight;
      const scroller = document.querySelector('.scroller').getBoundingClientRect();
      const alpha = (y) => canvas.getContext('2d')
        .getImageData(0, Math.round((y - top) * scale), 4, 1).data.filter((_, at) => at % 4 === 3)
        .some((each) => each > 0);
      const rows = [...document.querySelectorAll('.asks tr, .bids tr')]
        .map((one) => one.getBoundingClientRect())
        .filter((box) => box.top > scroller.top && box.bottom < scroller.bottom);
      return [rows.length, rows.filter((box) => alpha(box.top + box.height / 2 - 1)).length,
        rows.filter((box) => alpha(box.top + 1)).length];
    })()"""
    count, bars, gaps = await page.run(inked)
    assert count > 20
    assert (bars, gaps) == (count, 0)
    await page.run("""(() => { const one = document.querySelector('.scroller');
      one.dispatchEvent(new Event('wheel')); one.scrollTop = 100; })()""")
    await page.until(f"({inked})[0] === ({inked})[1]")
    count, bars, gaps = await page.run(inked)
    assert (bars, gaps) == (count, 0)


async def test_the_mid_that_the_history_calls_now_is_that_of_the_ladder(
    page: Page, address: str, market: Market
) -> None:
    await page.open(f"{address}/#key={GOOD_KEY}")
    await page.until("document.querySelector('.history-text')?.textContent.startsWith('now: mid')")
    await count_drawings(page, market)
    for _ in range(5):
        await send(page, market)
        mid, spread, said = await page.run(
            "['.mid', '.spread', '.history-text'].map((each) =>"
            " document.querySelector(each).textContent.replaceAll(',', ''))"
        )
        figures = re.match(r"now: mid ([\d.]+) spread ([\d.]+)", said)
        assert figures is not None, said
        assert float(figures[1]) == float(mid)
        assert float(figures[2]) == float(spread.split()[1])
