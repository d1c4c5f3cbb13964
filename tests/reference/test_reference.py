"""Quality levels say what the tests prove, and the reference pages what the code knows."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("ccxt", reason="ccxt is one of the judges (dependency group `judges`)")

from contract.venue import CHANNELS
from onebook.cli.exchange_facts import listed
from onebook.cli.exchange_page import index
from onebook.exchanges import EXCHANGES
from onebook.exchanges.contract import LossDetection
from onebook.exchanges.quality import (
    NO_LEVEL,
    Evidence,
    Recording,
    docstring,
    doubts,
    evidence,
    page_read,
    quality,
    rules,
)
from reference.evidence import collected, reads_lists, reads_sample, written
from reference.write import EVIDENCE, PAGES, pages

STALE = "it is not what the tests and the connectors say: run `make reference`"
SPEED = re.compile(r"\b(?:every|about every|of) (\d+) (ms|s)\b")


def test_the_evidence_is_what_the_tests_prove() -> None:
    assert EVIDENCE.read_text(encoding="utf-8") == written(collected()), STALE


def test_the_pages_are_what_is_known() -> None:
    made = pages()
    assert sorted(each.name for each in PAGES.glob("*.md")) == sorted(made), STALE
    for name, text in made.items():
        assert (PAGES / name).read_text(encoding="utf-8") == text, f"{name}: {STALE}"


def test_the_index_has_the_facts_of_the_list_under_their_columns() -> None:
    rows = [line.strip("| ").split(" | ") for line in index().splitlines() if line[:2] == "| "]
    columns, _, *exchanges = rows
    assert columns[:4] == ["exchange", "quality", "depth", "lost frame"]
    for exchange in EXCHANGES.values():
        facts = listed(exchange)
        (found,) = (each for each in exchanges if each[0].endswith(f"({exchange.name}.md)"))
        depth = facts["depth"] or "all"
        assert found[1:4] == [facts["quality"] or "none", str(depth), facts["lost_frame"]]


def test_the_rules_are_whole() -> None:
    asked = [rule for level in rules().levels.values() for rule in level.rules]
    assert list(rules().levels) == ["bronze", "silver", "gold"]
    assert sorted(asked) == sorted(rules().rules)
    assert list(quality(EXCHANGES["binance"]).held) == asked


@pytest.mark.parametrize("name", rules().harmless)
def test_a_doubt_that_is_called_harmless_is_still_there(name: str) -> None:
    known = doubts(docstring(EXCHANGES[name]))
    for words in rules().harmless[name]:
        assert any(each.startswith(words) for each in known), words


def test_what_is_said_to_be_replayed_was_recorded(samples: Path) -> None:
    replayed = {each.sample for proven in evidence().values() for each in proven.recordings}
    assert replayed
    assert replayed <= {each.name for each in (samples / "exchange_frames").iterdir()}


ALL = Evidence(
    suites=("contract", "faults"), spot="x", ccxt="x", recordings=(Recording("x", "test"),)
)


@pytest.mark.parametrize(
    ("proven", "level"),
    [
        (ALL, "gold"),
        (replace(ALL, ccxt=""), "gold"),
        (replace(ALL, recordings=()), "silver"),
        (replace(ALL, recordings=(Recording("x", "test", "an older protocol"),)), "silver"),
        (replace(ALL, ccxt="", recordings=()), "bronze"),
        (replace(ALL, suites=("contract",)), NO_LEVEL),
        (replace(ALL, suites=("faults",)), NO_LEVEL),
        (replace(ALL, spot=""), NO_LEVEL),
        (Evidence(), NO_LEVEL),
    ],
    ids=range(9),
)
def test_a_level_is_the_highest_whose_rules_hold(proven: Evidence, level: str) -> None:
    assert quality(EXCHANGES["binance"], proven).level == level


def test_an_open_doubt_and_an_unseen_loss_keep_from_gold_and_an_unread_page_from_silver() -> None:
    assert doubts(docstring(EXCHANGES["gate"]))
    assert quality(EXCHANGES["gate"], ALL).level == "silver"
    unguarded = replace(EXCHANGES["binance"], guard=LossDetection.ORDER)
    assert quality(unguarded, ALL).level == "silver"
    assert not page_read(docstring(EXCHANGES["hitbtc"]))
    assert quality(EXCHANGES["hitbtc"], ALL).level == "bronze"


TEXT = """Mint spot: 10 levels a side.

Page: https://mint.example/book

Frames:

    {"unconfirmed": "a frame is no doubt"}

It is so. ccxt agrees. Unconfirmed, as nobody looked: whether it is;
how often. That is all. The rest (unconfirmed on spot) is silent.
"""


def test_doubts_are_read_from_the_docstring() -> None:
    assert doubts(TEXT) == [
        "whether it is",
        "how often",
        "The rest (unconfirmed on spot) is silent",
    ]
    assert page_read(TEXT)


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("/book", "/book (not read: behind a login)"),
        TEXT.replace("/book", "/book. Not read but in excerpts."),
        TEXT.replace("Page: https://mint.example/book", "The channel is on no page."),
        TEXT.replace("whether it is;", "the page itself, which was not read;"),
    ],
    ids=range(4),
)
def test_a_page_that_was_not_read_is_none(text: str) -> None:
    assert not page_read(text)


@pytest.mark.parametrize("name", CHANNELS)
def test_the_speed_is_the_one_that_the_docstring_begins_with(name: str) -> None:
    exchange = CHANNELS[name]
    found = SPEED.search(docstring(exchange).partition("\n\n")[0])
    if found and name in EXCHANGES and exchange.interval_ms is not None:
        assert exchange.interval_ms == int(found[1]) * (1 if found[2] == "ms" else 1_000)


def test_a_mark_counts_only_on_a_test_that_does_what_the_mark_says() -> None:
    def idle(samples: Path) -> None: ...

    def lists() -> None:
        EXCHANGES["okx"].parse_instruments(b"")

    assert (reads_lists(idle), reads_lists(lists)) == (False, True)
    assert not reads_sample(idle, "never.ws." + "1.0"), "its module does not name it"
    assert not reads_sample(lists, "OKX.ws.1.0"), "it asks for no recordings"
