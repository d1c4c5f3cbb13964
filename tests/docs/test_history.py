"""The SQL of docs/guides/history.md, on the history of random books."""

import asyncio
import json
import os

import pytest

from archive.world import NAMES, closed_hours
from docs.examples import ROOT, blocks, kinds
from onebook.archive.folder import HistoryFolder
from onebook.archive.reader import books_at

duckdb = pytest.importorskip("duckdb", reason="duckdb, which reads the files, is not installed")
PAGE = "guides/history.md"
QUESTIONS = (
    "spread", "leader", "crossings", "depth", "cost", "imbalance", "changes", "ages", "outages",
    "uptime",
)  # fmt: skip
IN_POLARS = ("spread", "uptime")
NOTEBOOK = ROOT / "examples/history.ipynb"


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
    own = {name for language, name in kinds(PAGE) if language == "python"} - {"play"}
    assert own == set(IN_POLARS)


@pytest.mark.parametrize("name", IN_POLARS)
def test_polars_has_the_same_answer(history, name, monkeypatch):
    pytest.importorskip("polars", reason="polars, which reads the files, is not installed")
    (program,) = blocks(PAGE, "python", name)
    monkeypatch.chdir(history.root)
    names = {}
    exec(program, names)
    expected = answers(history, name)
    for ours, theirs in zip(names["answer"].rows(), expected, strict=True):
        assert ours[:2] == theirs[:2]
        assert ours[2:] == pytest.approx(theirs[2:], abs=0.002)


def test_the_cells_of_the_notebook_run_in_order(history, monkeypatch):
    monkeypatch.setenv("ONEBOOK_HISTORY", str(history.root))
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    codes = [each for each in cells if each["cell_type"] == "code"]
    assert not any(each["outputs"] for each in codes)
    names = {}
    for each in codes:
        exec("".join(each["source"]), names)
    assert names["update"].bids
    assert names["bars"].num_rows > 60
    assert sum(row[1] for row in names["spread"].fetchall()) > 60
    assert {row[0] for row in names["quality"].fetchall()} == set(NAMES)


def rebuilt(history, name):
    """Each answer with the book that the library rebuilds for its exchange and moment."""
    for exchange, received, value in answers(history, name):
        at_us = round(received.timestamp() * 1_000_000)
        past = books_at(HistoryFolder(history.root), "BTC/USDT", at_us, (exchange,))
        for book in past.books:
            yield book, value


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_has_an_answer(history, name):
    rows = answers(history, name)
    assert {row[0] for row in rows} == set(NAMES)


def test_the_imbalance_is_that_of_the_best_levels(history):
    compared = 0
    for book, imbalance in rebuilt(history, "imbalance"):
        bids, asks = (sum(float(each[1]) for each in side) for side in book.core.top(10))
        assert imbalance == pytest.approx((bids - asks) / (bids + asks), abs=0.001)
        compared += 1
    assert compared


def test_the_ages_and_outages_are_those_of_the_hours(history):
    """Equal to the quality that was measured when the hours were closed."""
    counted = {}
    for exchange, reason, times, _ in answers(history, "outages"):
        counted[exchange, reason] = times
    gaps = {exchange: gaps for exchange, _, _, gaps, _ in answers(history, "uptime")[::2]}
    later = {exchange: gaps for exchange, _, _, gaps, _ in answers(history, "uptime")[1::2]}
    for name in NAMES:
        assert counted[name, "gap"] == gaps[name] + later[name] > 0
    for _, p50, p90, p99, late in answers(history, "ages"):
        assert 7 < p50 < p90 < p99 < 8  # milliseconds: see the world's `sent_us`
        assert late == 0


def test_what_five_cost_is_what_the_book_says(history):
    """Equal to the levels that the library rebuilds for the same keyframe."""
    compared = 0
    for book, cost in rebuilt(history, "cost"):
        left, total = 5.0, 0.0
        for price, amount in book.core.top(500)[1]:
            taken = min(left, float(amount))
            left, total = left - taken, total + taken * float(price)
        assert cost == pytest.approx(total)
        compared += book.core.top(1)[1] != []
    assert compared
