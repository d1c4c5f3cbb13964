"""The examples of the guide and the README run as written, on simulated exchanges."""

import ast
import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from library.place import PATIENCE_S
from onebook import BookUpdate, exchanges
from onebook.simulator import SimulatedExchanges

ROOT = Path(__file__).parents[2]
NAMES = ["binance", "okx", "kraken"]
PRINTED = 3  # lines after which an example that goes on for ever is ended


def programs(page: str) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [each for each in found if "onebook.client" not in each]


GUIDE = programs("docs/guides/library.md")
(README,) = programs("README.md")


class Run:
    """One example: its output, and its coroutine if it has one."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: list[str] = []
        self.main: Coroutine[Any, Any, None] | None = None
        self._enough = asyncio.Event()

    def print(self, *values: object) -> None:
        self.lines.append(" ".join(map(str, values)))
        if len(self.lines) >= PRINTED:
            self._enough.set()

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        self.main = main

    async def ended(self) -> None:
        """Run until it ends or has printed enough."""
        assert self.main is not None
        running = asyncio.create_task(self.main)
        enough = asyncio.create_task(self._enough.wait())
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([running, enough], return_when=asyncio.FIRST_COMPLETED)
            if "break" not in self.source and not running.done():
                running.cancel()
            enough.cancel()
            await asyncio.wait([running, enough])
        if not running.cancelled():
            running.result()

    def load(self) -> None:
        names = {"__name__": "__main__", "print": self.print}
        exec(compile(self.source, "example", "exec"), names)


async def test_every_example_prints_books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(GUIDE) == 12
    async with SimulatedExchanges(NAMES, seed=2, rate_hz=20) as sim:
        for name, exchange in sim.exchanges().items():
            monkeypatch.setitem(exchanges.EXCHANGES, name, exchange)
            sim[name].admit_all()
        for source in (README, *GUIDE):
            run = Run(source)
            with monkeypatch.context() as patch:
                patch.setattr(asyncio, "run", run.start)
                run.load()
            if run.main is not None:
                await run.ended()
            assert run.lines, source
            assert re.search(r"\d", run.lines[-1]), source
    assert not [task for task in asyncio.all_tasks() if not task.get_name().startswith("Task-")]


async def test_the_cells_of_a_notebook_share_an_open_book(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = re.findall(
        r"```python notebook\n(.*?)```", (ROOT / "docs/guides/library.md").read_text(), re.DOTALL
    )
    printed: list[object] = []
    names: dict[str, Any] = {"print": printed.append}
    async with SimulatedExchanges(NAMES, seed=2, rate_hz=20) as sim:
        for name, exchange in sim.exchanges().items():
            monkeypatch.setitem(exchanges.EXCHANGES, name, exchange)
            sim[name].admit_all()
        for cell in cells:
            code = compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)
            if running is not None:
                await running
    (update,) = printed
    assert isinstance(update, BookUpdate)
    assert update.live
    assert "not open" in repr(names["book"])
