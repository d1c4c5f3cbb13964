"""Quality levels match the tests, and the reference pages match the code."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("ccxt", reason="ccxt is one of the judges (dependency group `judges`)")

from contract.venue import CHANNELS
from onebook.cli.exchange_facts import confirmed_part, index, listed, page
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import LossDetection
from onebook.exchanges.kit.quality import (
    FACTS,
    FEES,
    NEVER,
    NO_LEVEL,
    Evidence,
    Recording,
    confirmations,
    docstring,
    doubts,
    evidence,
    page_read,
    protocol,
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


CONFIRMED = """Mint spot: 10 levels a side.

Page: https://mint.example/book

Confirmed:

    channel, verbs: 2026-09-15, third-party: the official client 1.3
    limits: 2026-02, page: limits
    limits: 2026-10-01, recorded: a probe
    levels: 2026-03, page: book, whose
        address is long
    depth: never: the page states none

It is so.
"""


def test_what_confirmed_a_fact_is_its_newest_source() -> None:
    found = confirmations(CONFIRMED)
    assert [(fact, each.when, each.how) for fact, each in found.items()] == [
        ("channel", "2026-09-15", "third-party"),
        ("verbs", "2026-09-15", "third-party"),
        ("limits", "2026-10-01", "recorded"),
        ("levels", "2026-03", "page"),
        ("depth", NEVER, "-"),
    ]
    assert found["limits"].source == "a probe"
    assert found["levels"].source == "book, whose address is long"
    assert confirmations(TEXT) == {}


@pytest.mark.parametrize(
    "line",
    [
        "channel: a probe",
        "channel: 2026-9-15, page: it",
        "channel: 2026-09-15, rumour: it",
        "channel: 2026-13-15, page: it",
        "chanel: 2026-09-15, page: it",
    ],
)
def test_a_line_that_does_not_say_what_confirmed_it_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        confirmations(CONFIRMED.replace("depth: never: the page states none", line))


def test_old_and_unconfirmed_facts_are_warned_of_on_the_page() -> None:
    heading, warning, rows = confirmed_part("## Last confirmed", CONFIRMED)
    assert heading == "## Last confirmed"
    assert warning.endswith(f"the review of {rules().reviewed}: levels, depth.")
    assert "| limits | 2026-10-01 | recorded | a probe |" in rows
    young = CONFIRMED.replace("levels: 2026-03", "levels: 2026-06").replace(
        "depth: never: the page states none", "depth: 2026-06-01, page: book"
    )
    assert len(confirmed_part("## Last confirmed", young)) == 2, "180 days are not old"


def test_the_section_stands_on_its_page_once() -> None:
    assert protocol(CONFIRMED) == "Page: https://mint.example/book\n\nIt is so."
    assert page(EXCHANGES["woo"]).count("pull request 29578, for spot") == 1


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_connector_says_what_last_confirmed_each_of_its_facts(channel: str) -> None:
    _, _, other = channel.partition(".")
    found = confirmations(docstring(CHANNELS[channel], other))
    assert [fact for fact in found if fact != FEES] == list(FACTS)
    assert FEES not in found or (CHANNELS[channel].lists_fees and found[FEES].how == "recorded")
    dates = [each.when for each in found.values() if each.when != NEVER]
    assert all(when <= f"{rules().reviewed}" for when in dates), (
        "`reviewed` of quality.toml is when facts were last compared"
    )
