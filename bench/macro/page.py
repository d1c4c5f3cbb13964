"""What an update costs the page's main thread: CPU by kind, and counts of its work.

    PYTHONPATH=tests:bench python bench/macro/page.py --levels 100 --updates 100
    PYTHONPATH=tests:bench python bench/macro/page.py --levels 100 --frames 360

A scripted service of 36 exchanges sends an update, waits until it is drawn, and sends the next, so
that each is drawn and none is queued; Chromium's trace says what its main thread did meanwhile. The
times are CPU of that thread with the trace's own cost: compare them on a quiet machine only.

With `--frames` updates come ten times a second by themselves, nothing is traced, and measured are
the time between two frames, and how many of the updates were drawn.
"""

import argparse
import asyncio
import json
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from onebook.exchanges import NAMES
from web.browser import Page, browser, resize
from web.by_hand import count_drawings, send
from web.scripted import GOOD_KEY, TICK, Market, make_app, serving

EXCHANGES = [*NAMES, "bitopro", "coinex"][:36]
MIDDLE = Decimal("97310.4")
WARM_UP = 20
SHARES = (1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 5, 8)  # exchanges at a level, about as in the demo
CHANGED = 0.25  # of the levels with each update, a third of them gone and new ones in their place
CATEGORIES = "devtools.timeline,disabled-by-default-devtools.timeline,blink,v8"

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
    """A book of which each update changes a part, as those of the demo do."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(1)
        self.names = self.listed = EXCHANGES
        self.sides: dict[int, dict[int, list[Any]]] = {-1: {}, 1: {}}

    def levels(self, sign: int, depth: int) -> list[Any]:
        side, draw = self.sides[sign], self.random
        for place in list(side):
            if draw.random() < CHANGED:
                del side[place]
                if draw.random() < 2 / 3:
                    side[place] = self._shares()
        while len(side) < depth:
            side[draw.randint(1, depth * 3)] = self._shares()
        return [
            [float(MIDDLE + sign * place * TICK), round(sum(part for _, part in shares), 5), shares]
            for place, shares in sorted(side.items())[:depth]
        ]

    def _shares(self) -> list[Any]:
        names = self.random.sample(self.names, self.random.choice(SHARES))
        return [[name, round(self.random.lognormvariate(-1.5, 1), 5)] for name in sorted(names)]


async def traced(page: Page, act: Callable[[], Awaitable[None]]) -> list[dict[str, Any]]:
    """The trace events of what is done meanwhile."""
    await page.call("Tracing.start", categories=CATEGORIES, transferMode="ReturnAsStream")
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


@asynccontextmanager
async def watching(levels: int) -> AsyncIterator[tuple[Page, BusyMarket]]:
    """The page in Chromium, showing the market."""
    market = BusyMarket()
    with tempfile.TemporaryDirectory() as folder:
        async with serving(make_app(market)) as port, browser(Path(folder)) as page:
            await page.open("about:blank")
            await resize(page, 1366, 900, mobile=False)
            await page.go(f"http://127.0.0.1:{port}/#key={GOOD_KEY}&levels={levels}&rate=10")
            await page.until("document.querySelector('.depth canvas') !== null")
            yield page, market


async def measure(levels: int, updates: int) -> dict[str, dict[str, float]]:
    async with watching(levels) as (page, market):
        await count_drawings(page, market)
        for _ in range(WARM_UP):
            await send(page, market)

        async def act() -> None:
            for _ in range(updates):
                await send(page, market)

        return summed(main_thread(await traced(page, act)), updates)


async def pace(levels: int, frames: int) -> dict[str, float]:
    async with watching(levels) as (page, market):
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
    options.add_argument("--levels", type=int, default=100, choices=(8, 12, 25, 50, 100, 200))
    options.add_argument("--updates", type=int, default=100)
    options.add_argument("--frames", type=int, help="measure the gaps between so many frames")
    given = options.parse_args()
    work = (
        pace(given.levels, given.frames) if given.frames else measure(given.levels, given.updates)
    )
    print(json.dumps(asyncio.run(work), indent=2))


if __name__ == "__main__":
    main()
