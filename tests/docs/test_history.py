"""The SQL of docs/guides/history.md, on the history of random books."""

import asyncio
import os

import pytest

from archive.world import NAMES, closed_hours
from docs.examples import blocks, kinds
from onebook.archive.folder import HistoryFolder
from onebook.archive.reader import books_at

duckdb = pytest.importorskip("duckdb", reason="duckdb, which reads the files, is not installed")
PAGE = "guides/history.md"
QUESTIONS = (
    "spread", "leader", "crossings", "depth", "cost", "health", "changes", "coverage", "uptime",
)  # fmt: skip


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Two closed hours, with some minutes of changes."""
    return asyncio.run(closed_hours(tmp_path_factory.mktemp("history"), 3))


def answers(world, name):
    (query,) = blocks(PAGE, "sql", name)
    before = os.getcwd()
    os.chdir(world.root)
    try:
        return duckdb.sql(query).fetchall()
    finally:
        os.chdir(before)


def test_every_question_is_run():
    assert {name for language, name in kinds(PAGE) if language == "sql"} == set(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_has_an_answer(history, name):
    rows = answers(history, name)
    assert rows
    if name != "coverage":
        assert {row[0] for row in rows} == set(NAMES)


def test_what_five_cost_is_what_the_book_says(history):
    """Equal to the levels that the library rebuilds for the same keyframe."""
    rows = answers(history, "cost")
    compared = 0
    for exchange, received, cost in rows:
        at_us = round(received.timestamp() * 1_000_000)
        past = books_at(HistoryFolder(history.root), "BTC/USDT", at_us, (exchange,))
        for book in past.books:
            left, total = 5.0, 0.0
            for price, amount in book.core.top(500)[1]:
                taken = min(left, float(amount))
                left, total = left - taken, total + taken * float(price)
            assert cost == pytest.approx(total)
            compared += book.core.top(1)[1] != []
    assert compared
