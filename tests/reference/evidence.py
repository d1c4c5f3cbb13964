"""Evidence about each exchange, collected from the tests."""

import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from chaos import test_matrix
from contract import test_connectors, test_recorded
from contract.talk import Talk
from contract.venue import CHANNELS, START
from exchanges.kit import test_published
from judges.test_ccxt_books import judge_of
from onebook.exchanges.kit import Send, Snapshot
from onebook.exchanges.kit.quality import Evidence, Recording

TESTS = Path(__file__).parents[1]
# The test that stands for each suite: what it is parametrized with is what the suite runs over.
SUITES = {
    "contract": test_connectors.test_the_replayed_book_equals_the_exchanges_book,
    "faults": test_matrix.test_a_book_is_that_of_the_exchange_or_not_live,
}
HEADER = """\
# Written by `make reference` from the tests, never by hand: a test fails if they differ.
# `quality.py` explains the fields.
"""


def collected() -> dict[str, Evidence]:
    """The evidence of every book channel."""
    return {channel: of(channel) for channel in CHANNELS}


def of(channel: str) -> Evidence:
    """The evidence of one book channel; the default channel has its exchange's name."""
    name, _, other = channel.partition(".")
    ccxt, note = judged(name, other)
    talk = Talk(channel).open()
    sent = [out.at(START.ms).decode() for out in talk.outputs if isinstance(out, Send)]
    native = talk.instruments[0].native
    asked = (each for each in sent if native.casefold() in each.casefold())
    return Evidence(
        suites=tuple(suite for suite, test in SUITES.items() if {name, channel} & runs_over(test)),
        spot="" if other else spot(name),
        ccxt=ccxt,
        ccxt_note=note,
        recordings=tuple(recordings(channel)),
        horizon=max(out.levels_asked for out in talk.outputs if isinstance(out, Snapshot)),
        subscription=next(asked, ""),
        fees="" if other else recorded_fees(name),
    )


def runs_over(test: Any) -> set[str]:
    """The values of a test's parameter `name`."""
    marks = [each for each in test.pytestmark if each.name == "parametrize"]
    return {value for each in marks if each.args[0] == "name" for value in each.args[1]}


def judged(name: str, channel: str) -> tuple[str, str]:
    """The class of ccxt that keeps the same book, and a note about it."""
    try:
        judge = judge_of(name, channel)
    except pytest.skip.Exception as skipped:
        return "", str(skipped)
    return (judge.name if judge.same else ""), judge.because


def marked(module: ModuleType, mark: str) -> Iterator[tuple[FunctionType, pytest.Mark]]:
    """The tests of a module that have a mark."""
    for test in vars(module).values():
        for each in getattr(test, "pytestmark", ()) if isinstance(test, FunctionType) else ():
            if each.name == mark:
                yield test, each


def own_tests(name: str) -> ModuleType:
    """The tests of this exchange."""
    return import_module(f"exchanges.test_{name}")


def spot(name: str) -> str:
    """The test with derivative rows in the instrument list, or why there is none."""
    module = own_tests(name)
    for test, _ in marked(module, "derivatives"):
        if reads_lists(test):
            return place(test)
    return str(getattr(module, "NO_DERIVATIVES", ""))


def reads_lists(test: FunctionType) -> bool:
    """Whether a test makes the connector read an instrument list, directly or by a helper."""
    called = [test.__globals__.get(name) for name in test.__code__.co_names]
    helpers = [each for each in called if isinstance(each, FunctionType)]
    return any("parse_instruments" in each.__code__.co_names for each in (test, *helpers))


def reads_sample(test: FunctionType, sample: str) -> bool:
    """Whether a test uses the recordings, and its module lists this one beside the mark."""
    named = inspect.getsource(inspect.getmodule(test) or test).count(f'"{sample}"')
    return "samples" in inspect.signature(test).parameters and named > 1


def recordings(channel: str) -> Iterator[Recording]:
    """The recordings that are replayed to exact books."""
    for module in (own_tests(channel.partition(".")[0]), test_recorded):
        for test, mark in marked(module, "replayed"):
            of_channel, sample = mark.args
            if of_channel == channel and reads_sample(test, sample):
                yield Recording(sample, place(test), mark.kwargs.get("differs", ""))


def recorded_fees(name: str) -> str:
    """The test that reads published fees from a recorded instrument list; "" if there is none."""
    found = marked(test_published, "recorded_fees")
    return next((place(test) for test, mark in found if mark.args == (name,)), "")


def place(test: FunctionType) -> str:
    """The location of a test."""
    file = Path(test.__code__.co_filename).relative_to(TESTS.parent)
    return f"{file.as_posix()}::{test.__name__}"


def written(evidence: dict[str, Evidence]) -> str:
    """The content of `evidence.toml`, without empty entries."""
    tables = [HEADER]
    for channel, each in sorted(evidence.items()):
        lines = [f"[{json.dumps(channel) if '.' in channel else channel}]"]
        lines += [f"{key} = {toml(value)}" for key, value in asdict(each).items() if value]
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    match value:
        case Recording():
            fields = msgspec.to_builtins(value)
            return (
                "{ "
                + ", ".join(f"{key} = {toml(each)}" for key, each in fields.items() if each)
                + " }"
            )
        case tuple():
            return "[" + ", ".join(map(toml, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)
