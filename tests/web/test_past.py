"""Back in time on the page: a real gateway with recorder and REST API, over minutes of history."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI

from gateway.rig import SYMBOL, Node, gateway, settled
from onebook.api import create_app
from onebook.archive.recorder import HistoryRecorder
from onebook.web import pages
from web.browser import CHROMIUM, Chromium, Page, resize
from web.scripted import services_of, site

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

AXE = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"
RUN = """axe.run({ resultTypes: ["violations"] }).then(({ violations }) =>
  violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 120)}`))"""
FIRST_S, GAP_S, SECOND_S = 40, 30, 90  # recorded, not recorded, recorded until now
LOST_S = (20, 40)  # of the second run, in which okx was stale
ESCAPE = """document.activeElement.dispatchEvent(
  new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }))"""
PANEL = "document.querySelector('.panel').dataset"
SPOKEN = "document.querySelector('.past-slider').getAttribute('aria-valuetext')"
STATES = "[...document.querySelectorAll('.members .state')].map((one) => one.textContent)"
OKX = "[...document.querySelectorAll('.members tr')].find((row) => row.dataset.exchange === 'okx')"


def text(selector: str) -> str:
    return f"document.querySelector('{selector}').textContent"


def price(second: int) -> int:
    """The best bid of a second of the second run, which rises."""
    return 1_000 + second


def move(node: Node, second: int) -> None:
    """Let the best bid of okx and binance rise, each second."""
    bid, ask = str(price(second)), str(price(second) + 2)
    for name in ("okx", "binance"):
        if name == "okx" and LOST_S[0] < second < LOST_S[1]:
            continue
        if name == "okx" and second == LOST_S[0]:
            node.lose("okx")
            continue
        node.snapshot(name, [(bid, "1"), ("900", "5")], [(ask, "2"), ("1300", "5")])


@asynccontextmanager
async def recorder_of(node: Node, folder: Path) -> AsyncIterator[HistoryRecorder]:
    async with HistoryRecorder(
        node.books, folder / "history", keep_days=10, keep_bytes=1 << 40, clock=node.clock
    ) as recorder:
        yield recorder


async def record(node: Node, seconds: int, *, moves: bool) -> list[float]:
    """Record as many seconds or a little more; return the middle of each, in Unix seconds."""
    found = []
    for second in range(seconds):
        move(node, second if moves else 0)
        node.clock.put_forward(0.5)
        found.append(node.clock.wall_us() / 1e6)
        node.clock.put_forward(0.5)
    return found


def app_of(node: Node) -> FastAPI:
    """The REST API of a node, and the pages."""
    parts = {"accounts": node.accounts, "recorded": node.gateway.recorded, "clock": node.clock}
    app = create_app(services_of(**parts))
    app.include_router(pages(site()))
    return app


@asynccontextmanager
async def recorded(folder: Path) -> AsyncIterator[tuple[Node, str, list[float]]]:
    """A node with a history, the address of its page, and the recorded seconds after a gap."""
    async with gateway(folder, history=folder / "history", app_of=app_of) as node:
        node.clock.wall_step_s = -(FIRST_S + GAP_S + SECOND_S)
        async with recorder_of(node, folder):
            await record(node, FIRST_S, moves=False)
        node.clock.put_forward(GAP_S)
        async with recorder_of(node, folder) as recorder:
            seconds = await record(node, SECOND_S, moves=True)
            await recorder.flush()
            yield node, f"http://127.0.0.1:{node.port}/#key={await node.key()}", seconds


async def choose(page: Page, at_s: float) -> None:
    """Move the slider to a time."""
    await page.run(f"""(() => {{
      const one = document.querySelector('.past-slider');
      one.value = {round(at_s)};
      one.dispatchEvent(new Event('input', {{ bubbles: true }}));
    }})()""")


async def begin(page: Page, url: str) -> None:
    await page.go(url)
    await page.until(f"{PANEL}.live === 'yes'")
    await page.run("document.querySelector('.back').click()")
    await page.until(f"{text('.past-time')}.includes(':') && {text('.mid')} !== '—'")


async def test_the_page_goes_back_in_time_and_plays_into_the_present(
    page: Page, tmp_path: Path
) -> None:
    async with recorded(tmp_path) as (node, url, seconds):
        await page.open("about:blank")
        await resize(page, 1366, 900, mobile=False)
        await begin(page, url)
        assert await page.run(f"[{PANEL}.live, {PANEL}.past]") == ["past", "yes"]
        assert await page.run("document.activeElement.className") == "past-slider"
        assert "recorded from 3 exchanges" in await page.run(SPOKEN)
        # Nothing is subscribed, so nothing live can be shown.
        await settled(lambda: not any(node.market.wanted.values()))

        # okx was stale, and says why; the price is that of its second.
        await choose(page, seconds[30])
        await page.until(f"/gap/.test(({OKX})?.textContent)")
        bid = f"Number({text('.best-bid')}.replace(',', ''))"
        await page.until(f"Math.abs({bid} - {price(30)}) <= 2")
        await page.until(f"{text('.live-count')} === '1 of 3'")
        # The minutes before: bids and asks over time, up to this moment and not beyond it.
        label = "document.querySelector('.heat-map').getAttribute('aria-label')"
        await page.until(f"/ before .*: the mid went from /.test({label})")
        await page.until(f"{text('.history-text')}.includes('mid')")
        await page.until(
            f"{text('.depth-text')} && document.querySelector('.depth canvas') !== null"
        )

        # What was not recorded is said, and no book is shown.
        await choose(page, seconds[0] - GAP_S / 2)
        sentence = "recorded then: it is recorded until .* and again from .* on"
        await page.until(f"/^Nothing of BTC.USDT is {sentence}.$/.test({text('.past-said')})")
        assert await page.run(f"[{text('.history-text')}, {text('.heat-text')}]") == ["", ""]
        hidden = "(({ scrollHeight: all, clientHeight }) => all - clientHeight)"
        for width in (390, 1366):
            await resize(page, width)
            assert await page.run(f"{hidden}(document.querySelector('.past-said'))") == 0
        said = f"[{text('.past-time')}, {text('.best-bid')}, {text('.spread')}]"
        assert await page.run(said) == ["Not recorded", "—", "not recorded"]
        assert (await page.run(SPOKEN)).endswith(", not recorded")
        assert await page.run(STATES) == ["unknown"] * 3

        # A play passes through the outage and ends in the present.
        await choose(page, seconds[25])
        await page.until(f"{text('.mid')} !== '—'")
        await page.run("document.querySelector('.past-speed').value = '60'")
        await page.run("document.querySelector('.past-play').click()")
        await page.until(f"/Pause/.test({text('.past-play')})")
        await page.until(f"{PANEL}.past === 'no' && {PANEL}.live === 'yes'")
        assert await page.run(text(".past-said")) == f"{SYMBOL} is live again."
        assert await page.run(text(".past-what b")) == "Live"
        node.snapshot("okx", [("2000", "1")], [("2002", "1")])
        await page.until(f"{text('.best-bid')} === '2,000'")

        # The bar stays until it is closed.
        await page.run("document.querySelector('.past-live').click()")
        assert await page.run("document.querySelector('.past').hidden")

        # Escape returns at once, and the focus to the button.
        await page.run("document.querySelector('.back').click()")
        await page.until(f"{PANEL}.past === 'yes' && {text('.past-time')}.includes(':')")
        await page.run(ESCAPE)
        await page.until(f"{PANEL}.live === 'yes' && {text('.best-bid')} === '2,000'")
        assert await page.run("document.activeElement.classList.contains('back')")
        assert page.complaints == []


SHIFTS = """(() => {
  window.shifts = [];
  const observer = new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries()) {
      if (value >= 0.01) window.shifts.push([value, ...sources.map(({ node }) => node?.className)]);
    }
  });
  observer.observe({ type: "layout-shift" });
})()"""


@pytest.mark.parametrize("width", [390, 1366])
async def test_nothing_moves_when_a_play_reaches_the_present(
    page: Page, tmp_path: Path, width: int
) -> None:
    """A reader who does nothing keeps the place: no card moves, and the bar stays until closed."""
    async with recorded(tmp_path) as (_, url, seconds):
        await page.open("about:blank")
        await resize(page, width, 900, mobile=width < 900)
        await begin(page, url)
        await choose(page, seconds[60])
        await page.until(
            f"Math.abs(Number({text('.best-bid')}.replace(',', '')) - {price(60)}) <= 2"
        )
        cards = """['.cards', '.cost', '.heat', '.members', '.history', '.mid'].map((name) =>
          document.querySelector(name).getBoundingClientRect().top + scrollY)"""
        before = await page.run(cards)
        await page.run(SHIFTS)
        await page.run("document.querySelector('.past-speed').value = '60'")
        await page.run("document.querySelector('.past-play').click()")
        await page.until(f"{PANEL}.past === 'no' && {PANEL}.live === 'yes'")
        assert await page.run(cards) == pytest.approx(before, abs=1)
        assert await page.run("window.shifts") == []
        await page.run("document.querySelector('.past-live').click()")
        assert await page.run("document.querySelector('.past').hidden")
        assert await page.run(cards) != pytest.approx(before, abs=1), "the bar's room is free"


async def zoom(page: Page, name: str) -> None:
    """Choose how much time the heat map shows."""
    await page.run(f"document.querySelector('.zoom input[value=\"{name}\"]').click()")


async def press(page: Page, *keys: str) -> str:
    """Press keys in the heat map; return what is said about its cell."""
    for key in keys:
        await page.run(f"""document.querySelector('.heat-map').dispatchEvent(
          new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))""")
    spoken: str = await page.run(text(".heat-spoken"))
    return spoken


async def test_the_heat_map_shows_the_hour_before_a_moment_with_its_gap(
    page: Page, tmp_path: Path
) -> None:
    """A column has the book at its end: the best bid of that second, or none in the gap."""
    async with recorded(tmp_path) as (_, url, seconds):
        await page.open("about:blank")
        await resize(page, 1366, 900, mobile=False)
        await page.go(url)
        await page.until(f"{PANEL}.live === 'yes'")
        await zoom(page, "1 h")  # leaves the present
        await page.until(f"{PANEL}.past === 'yes' && {text('.past-time')}.includes(':')")
        at_s = int(seconds[-5])
        await choose(page, at_s)
        await page.until(f"/^The hour before: \\d+ books, /.test({text('.past-said')})")
        began = seconds[0] - 0.5  # the second run
        ends = [at_s, *(at_s // 30 * 30 - 30 * at - 0.001 for at in range(7))]
        assert "not recorded" not in await press(page, "End")
        missing = 0
        for end in ends:
            said = await press(page) if end == at_s else await press(page, "ArrowLeft")
            if end >= began:
                bid = re.search(r"bid ([\d,]+)", said)
                assert bid is not None, said
                assert abs(int(bid[1].replace(",", "")) - price(int(end - began))) <= 2, said
            elif end >= began - GAP_S:
                assert said.endswith("not recorded"), said
                missing += 1
            elif end >= began - GAP_S - FIRST_S:
                assert "bid 1,000" in said, said
        assert missing == 1
        label = "document.querySelector('.heat-map').getAttribute('aria-label')"
        assert "The 1 h before" in await page.run(label)
        assert "of 120 columns without a book" in await page.run(label)
        # Enter goes to the moment of the crosshair, page down back towards the present.
        await press(page, "End", "ArrowLeft", "Enter")
        value = "Number(document.querySelector('.past-slider').value)"
        assert await page.run(value) == at_s // 30 * 30
        await page.until(f"/^The hour before: /.test({text('.past-said')})")
        await zoom(page, "10 min")
        await page.until(f"/The \\d+ s before .*: the mid went from /.test({label})")
        chosen = "document.querySelector('.zoom :checked').value"
        for _ in range(4):  # at most one, two, five and ten minutes come before the hour
            assert await page.run(chosen) == "10 min"
            await press(page, "-")
            if await page.run(chosen) == "1 h":
                break
        assert await page.run(chosen) == "1 h"
        await page.run("document.querySelector('.past-live').click()")
        assert await page.run(chosen) == "10 min"
        assert page.complaints == []


async def test_without_a_history_the_page_says_so(page: Page, tmp_path: Path) -> None:
    async with gateway(tmp_path, app_of=app_of) as node:
        node.snapshot("okx")
        await page.open(f"http://127.0.0.1:{node.port}/#key={await node.key()}")
        await page.until(f"{PANEL}.live === 'yes'")
        await page.run("document.querySelector('.back').click()")
        await page.until(f"/This node has no history/.test({text('.past-said')})")
        await page.run("document.querySelector('.past-live').click()")
        await page.until(f"{PANEL}.live === 'yes'")


@pytest.mark.soak
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed")
async def test_axe_finds_no_violation_in_the_past_and_everything_fits(
    chromium: Chromium, tmp_path: Path
) -> None:
    async with recorded(tmp_path) as (_, url, seconds), chromium.page() as page:
        for width in (390, 768, 1366, 1920):
            await page.open("about:blank")
            await resize(page, width, 900, mobile=width < 900)
            await begin(page, url)
            await page.run(AXE.read_text())
            for scheme in ("light", "dark"):
                feature = {"name": "prefers-color-scheme", "value": scheme}
                await page.call("Emulation.setEmulatedMedia", features=[feature])
                assert await page.run(RUN) == [], (width, scheme)
                assert await page.run("document.documentElement.scrollWidth") <= width
                past = "document.querySelector('.past')"
                assert await page.run(f"{past}.scrollWidth <= {past}.clientWidth"), width
            # Moments that are not recorded, and those that are, have bars of one height.
            height = await page.run(f"{past}.offsetHeight")
            await choose(page, seconds[0] - GAP_S / 2)
            await page.until(f"/ and again from/.test({text('.past-said')})")
            assert await page.run(f"{past}.offsetHeight") == height
            await asyncio.sleep(0)
