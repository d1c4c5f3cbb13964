"""What an update costs the page's main thread: CPU by kind, and what a slow computer needs for it.

    PYTHONPATH=tests:bench python bench/macro/page.py --levels 100 --updates 100
    PYTHONPATH=tests:bench python bench/macro/page.py --seconds 60 --throttle 4
    PYTHONPATH=tests:bench python bench/macro/page.py --levels 100 --frames 360

A scripted service of 36 exchanges sends an update, waits until it is drawn, and sends the next, so
that each is drawn and none is queued; Chromium's trace says what its main thread did meanwhile. The
times are CPU of that thread with the trace's own cost: compare them on a quiet machine only.

With `--seconds` updates come by themselves, `--rate` a second, after ten minutes of the page's
clock have filled the heat map. A drawing is a frame: the book, the other cards and the charts have
one each. Its work is everything that the main thread did since the one before: how long its tasks
took, and the CPU in them. `--throttle` makes that thread slower
(`Emulation.setCPUThrottlingRate`). Where other programs need the machine a task takes longer than
its work, and so does a throttled one: then the CPU without a throttle, times four, says more.

With `--frames` updates come ten times a second by themselves, nothing is traced, and measured are
the time between two frames, and how many of the updates were drawn.
"""

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

from onebook.exchanges import NAMES
from web.browser import Chromium, Page, resize
from web.by_hand import count_drawings, send
from web.scripted import GOOD_KEY, TICK, Market, make_app, serving

EXCHANGES = [*NAMES, "bitopro", "coinex"][:36]
MIDDLE = 973_104  # ticks
WARM_UP = 20
ROWS = (8, 10, 12, 14, 16, 18, 20, 22, 25, 50, 100, 200)
SHARES = (1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 5, 8)  # exchanges at a level, about as in the demo
CHANGED = 0.25  # of the levels with each update, a third of them gone and new ones in their place
STEPS = (0, 0, 0, 0, 1, -1, 3, -3)  # ticks that the price moves by with an update
CATEGORIES = "devtools.timeline,disabled-by-default-devtools.timeline,blink,v8"
TASKS = "toplevel,devtools.timeline"
HEAT_S = 600  # that the heat map shows
HURRY = 20  # times faster than the clock while it is filled

# The page's clock, which may run faster.
CLOCK = """(() => {
  const real = performance.now.bind(performance);
  let [base, since, speed] = [0, 0, 1];
  performance.now = () => base + (real() - since) * speed;
  window.hurry = (times) => ([base, since, speed] = [performance.now(), real(), times]);
})()"""

FRAMES = """new Promise((done) => {
  const gaps = [];
  let drawn = 0, last = null;
  new MutationObserver(() => (drawn += 1))
    .observe(document.querySelector(".book"), { subtree: true, characterData: true });
  const frame = (now) => {
    if (last !== null) gaps.push(now - last);
    last = now;
    if (gaps.length < %d) requestAnimationFrame(frame);
    else done({ gaps, drawn });
  };
  requestAnimationFrame(frame);
})"""

KINDS = {  # by how the names of trace events begin
    "script": ("FunctionCall", "EvaluateScript", "FireAnimationFrame", "TimerFire", "EventDispatch",
               "RunMicrotasks", "v8.", "WebSocketReceive"),
    "garbage": ("MinorGC", "MajorGC", "V8.GC", "BlinkGC"),
    "style": ("UpdateLayoutTree", "Document::recalc", "Blink.Style"),
    "layout": ("Layout", "LocalFrameView::performLayout", "LocalFrameView::UpdateStyle",
               "InlineNode", "LocalFrameView::NotifyResize", "IntersectionObserver",
               "Blink.Layout"),
    "paint": ("Paint", "PrePaint", "Layerize", "Commit", "UpdateLayer", "Canvas", "Blink.",
              "LocalFrameView::RunPaint"),
}  # fmt: skip


class BusyMarket(Market):
    """A book of which each update changes a part, as those of the demo do; its price moves."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(1)
        self.names = self.listed = EXCHANGES
        self.place = MIDDLE
        self.sides: dict[tuple[int, int], dict[int, list[Any]]] = {}
        self.wide = 1  # ticks of a level's step

    def update(self, symbol: str, asked: dict[str, Any]) -> dict[str, Any]:
        self.wide = int(Decimal(asked["group"]) / TICK) if "view" in asked else 1
        if "view" not in asked:
            self.place += self.random.choice(STEPS)
        return super().update(symbol, asked)

    def levels(self, sign: int, depth: int) -> list[Any]:
        """Levels of a side by their distance in steps from zero: they stay where they are."""
        side, draw = self.sides.setdefault((sign, self.wide), {}), self.random
        best = self.place // self.wide + (sign > 0)
        for place in list(side):
            gone = sign * (place - best) < 0
            if gone or draw.random() < CHANGED:
                del side[place]
                if not gone and draw.random() < 2 / 3:
                    side[place] = self._shares()
        reach = depth if self.wide > 1 else depth * 3
        while sum(sign * (place - best) < reach for place in side) < depth * 0.8:
            side[best + sign * draw.randrange(reach)] = self._shares()
        return [
            [float(place * self.wide * TICK), round(sum(part for _, part in shares), 5), shares]
            for place, shares in sorted(side.items(), key=lambda each: sign * each[0])[:depth]
        ]

    def _shares(self) -> list[Any]:
        names = self.random.sample(self.names, self.random.choice(SHARES))
        return [[name, round(self.random.lognormvariate(-1.5, 1), 5)] for name in sorted(names)]


async def traced(
    page: Page, categories: str, act: Callable[[], Awaitable[None]]
) -> list[dict[str, Any]]:
    """The trace events of what is done meanwhile."""
    await page.call("Tracing.start", categories=categories, transferMode="ReturnAsStream")
    await act()
    await page.call("Tracing.end")
    stream = await page.trace
    text = ""
    while True:
        part = await page.call("IO.read", handle=stream)
        text += part["data"]
        if part["eof"]:
            return json.loads(text)["traceEvents"]


def main_thread(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The whole events of the thread that lays out the page, outer ones first."""
    threads = Counter((each["pid"], each["tid"]) for each in events if each["name"] == "Layout")
    place = threads.most_common(1)[0][0]
    whole = [each for each in events if each["ph"] == "X" and (each["pid"], each["tid"]) == place]
    return sorted(whole, key=lambda each: (each["ts"], -each.get("dur", 0)))


def kind_of(name: str) -> str:
    return next((kind for kind, starts in KINDS.items() if name.startswith(starts)), "other")


def summed(events: list[dict[str, Any]], updates: int) -> dict[str, dict[str, float]]:
    """CPU by kind, of each event without those nested in it; and counts. Both for one update."""
    spent: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    nested: list[tuple[float, str]] = []
    for event in events:
        while nested and nested[-1][0] <= event["ts"]:
            nested.pop()
        kind, cpu_us = kind_of(event["name"]), event.get("tdur", 0)
        begin = event["args"].get("beginData", {})
        spent[kind] += cpu_us
        if nested:
            spent[nested[-1][1]] -= cpu_us
        if event["name"] == "Layout":
            counts["layouts"] += 1
            counts["layouts forced by script"] += "script" in (outer for _, outer in nested)
            counts["objects laid out"] += begin.get("dirtyObjects", 0)
        elif event["name"] == "UpdateLayoutTree":
            counts["elements styled"] += event["args"].get("elementCount", 0)
        elif event["name"].startswith("InlineNode::ShapeText"):
            counts["texts shaped"] += 1
        elif event["name"].endswith("ProduceCanvasResource"):
            counts["canvases passed on"] += 1
        nested.append((event["ts"] + event.get("dur", 0), kind))
    spent["all"] = sum(spent.values())
    return {
        "ms": {kind: round(us / updates / 1_000, 2) for kind, us in spent.most_common()},
        "counts": {name: round(many / updates, 1) for name, many in counts.items()},
    }


def works(events: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """The work of each drawing: ms of the tasks since the one before, and of CPU in them."""
    found: list[tuple[float, float]] = []
    tasks = [each for each in events if each["name"] == "ThreadControllerImpl::RunTask"]
    drawings = iter([each["ts"] for each in events if each["name"] == "FireAnimationFrame"])
    drawing = next(drawings, None)
    lasted = spent = 0.0
    for task in tasks:
        lasted += task["dur"] / 1_000
        spent += task.get("tdur", 0) / 1_000
        if drawing is None or task["ts"] + task["dur"] < drawing:
            continue
        while drawing is not None and drawing < task["ts"] + task["dur"]:
            drawing = next(drawings, None)
        found.append((lasted, spent))
        lasted = spent = 0.0
    return found[1:]  # the first began before the trace


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    shares = {f"p{each}": ordered[each * len(ordered) // 100] for each in (50, 90, 99)}
    return {name: round(ms, 1) for name, ms in (shares | {"most": ordered[-1]}).items()}


@asynccontextmanager
async def watching(levels: int, rate: int) -> AsyncIterator[tuple[Page, BusyMarket]]:
    """The page in Chromium, showing the market."""
    market = BusyMarket()
    market.interval_s = 1 / rate
    chromium = Chromium()
    try:
        async with serving(make_app(market)) as port, chromium.page() as page:
            await page.open("about:blank")
            await page.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK)
            await resize(page, 1366, 768, mobile=False)
            await page.go(f"http://127.0.0.1:{port}/#key={GOOD_KEY}&levels={levels}&rate={rate}")
            await page.until("document.querySelector('.depth canvas') !== null")
            yield page, market
    finally:
        chromium.end()


async def measure(levels: int, rate: int, updates: int) -> dict[str, dict[str, float]]:
    async with watching(levels, rate) as (page, market):
        await count_drawings(page, market)
        for _ in range(WARM_UP):
            await send(page, market)

        async def act() -> None:
            for _ in range(updates):
                await send(page, market)

        return summed(main_thread(await traced(page, CATEGORIES, act)), updates)


async def slowly(levels: int, rate: int, seconds: float, throttle: float) -> dict[str, Any]:
    async with watching(levels, rate) as (page, market):
        market.hurry = HURRY
        await page.run(f"hurry({HURRY})")
        await asyncio.sleep(HEAT_S / HURRY)
        market.hurry = 1
        await page.run("hurry(1)")
        await page.call("Emulation.setCPUThrottlingRate", rate=throttle)
        await asyncio.sleep(2)
        before = market.updates

        async def act() -> None:
            await asyncio.sleep(seconds)

        events = main_thread(await traced(page, TASKS, act))
        found = works(events)
        return {
            "updates": market.updates - before,
            "drawings": len(found),
            "ms of tasks for a drawing": quantiles([lasted for lasted, _ in found]),
            "ms of CPU in them": quantiles([spent for _, spent in found]),
            **summed(events, len(found)),
        }


async def pace(levels: int, rate: int, frames: int) -> dict[str, float]:
    async with watching(levels, rate) as (page, market):
        await page.run(FRAMES % WARM_UP)
        before = market.updates
        found = await page.run(FRAMES % frames)
        gaps = sorted(found["gaps"])
        shares = {f"p{each} ms": gaps[each * len(gaps) // 100] for each in (50, 95, 99)}
        return {
            **{name: round(gap, 1) for name, gap in shares.items()},
            "updates sent": market.updates - before,
            "updates drawn": found["drawn"],
        }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--levels", type=int, default=14, choices=ROWS)
    options.add_argument("--rate", type=int, default=5, choices=(1, 2, 5, 10))
    options.add_argument("--updates", type=int, default=100)
    options.add_argument("--seconds", type=float, help="updates that come by themselves")
    options.add_argument("--throttle", type=float, default=1, help="of the CPU, with --seconds")
    options.add_argument("--frames", type=int, help="measure the gaps between so many frames")
    given = options.parse_args()
    work: Coroutine[Any, Any, dict[str, Any]]
    if given.frames:
        work = pace(given.levels, given.rate, given.frames)
    elif given.seconds:
        work = slowly(given.levels, given.rate, given.seconds, given.throttle)
    else:
        work = measure(given.levels, given.rate, given.updates)
    print(json.dumps(asyncio.run(work), indent=2))


if __name__ == "__main__":
    main()
