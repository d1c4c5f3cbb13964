"""Quality levels of exchanges: bronze, silver, gold, by the rules of `quality.toml`.

`make reference` writes the evidence (`evidence.toml`) from the tests, and a test fails if the file
differs from them, so no proof is written by hand. Doubts, and the source and date that last
confirmed each fact, are read from the docstrings of connectors, beside the code that they concern.
"""

import inspect
import re
import tomllib
from datetime import date
from functools import cache, partial
from importlib import import_module, resources
from typing import Final

import msgspec
from msgspec import Struct

from onebook.exchanges.kit.channel import BookChannel
from onebook.exchanges.kit.contract import Exchange, LossDetection

NO_LEVEL: Final = "-"
UNREAD: Final = re.compile(r"\bnot read\b|\bon no page\b", re.IGNORECASE)
DOUBT: Final = re.compile(r"\b[Uu]nconfirmed\b")
SENTENCES: Final = re.compile(r"(?<=[.)])\s+(?=[A-Z`]|ccxt )")
LEAD: Final = re.compile(r"^Unconfirmed[^:]*: ")
# The facts for which each connector states its newest source.
FACTS: Final = ("channel", "verbs", "ping", "limits", "sequence", "levels", "depth")
FEES: Final = "fees"  # stated only for lists with fees that a recorded response confirms
NEVER: Final = "never"
SECTION: Final = re.compile(r"^Confirmed:\n\n((?: {4}.*(?:\n|$))+)\n*", re.MULTILINE)
STATED: Final = re.compile(
    r"(?P<facts>[a-z, ]+): (?:(?P<when>20\d\d-(?:0[1-9]|1[0-2])(?:-[0-3]\d)?), "
    r"(?P<how>page|recorded|third-party)|never): (?P<source>.+)"
)
OLD_DAYS: Final = 180


class Recording(Struct, frozen=True):
    """Recorded frames that a test replays to exact books.

    Args:
        sample: The name of the recording.
        test: The test that replays it.
        differs: How it differs from the exchange's frames today; "" if it does not.
    """

    sample: str
    test: str
    differs: str = ""


class Evidence(Struct, frozen=True):
    """What the tests prove about one book channel.

    Args:
        suites: The test suites that cover it.
        spot: The test that feeds it derivative rows, or why its list has none; "" if neither.
        ccxt: The ccxt class that keeps the same book from the same channel; "" if there is none.
        ccxt_note: What that comparison does not prove, or why there is none.
        recordings: Recordings that are replayed to exact books.
        horizon: Levels a side of the initial REST body, beyond which levels are unknown; 0 if the
            channel reports levels that enter and leave its depth.
        subscription: The message that subscribes to one book.
        fees: The test that reads published fees from a recorded instrument list.
    """

    suites: tuple[str, ...] = ()
    spot: str = ""
    ccxt: str = ""
    ccxt_note: str = ""
    recordings: tuple[Recording, ...] = ()
    horizon: int = 0
    subscription: str = ""
    fees: str = ""


class QualityLevel(Struct, frozen=True):
    """A quality level: its meaning, and the rules it adds to those of lower levels."""

    means: str
    rules: tuple[str, ...]


class QualityRules(Struct, frozen=True):
    """The content of `quality.toml`."""

    reviewed: date
    levels: dict[str, QualityLevel]
    rules: dict[str, str]
    harmless: dict[str, tuple[str, ...]]


class Confirmation(Struct, frozen=True):
    """The newest confirmation of one fact of a connector.

    Args:
        fact: One of `FACTS`, or `FEES`.
        when: Its date or month, as in the docstring; `NEVER` without an external source.
        how: "page" (of the exchange, including its changelog), "recorded" (frames of the real
            exchange, including recordings by others), "third-party" (code or a report).
        source: The source, or why there is none.
    """

    fact: str
    when: str
    how: str
    source: str

    @property
    def old(self) -> bool:
        """Whether it was older than `OLD_DAYS` at the last review, or never confirmed."""
        if self.when == NEVER:
            return True
        day = date.fromisoformat(self.when if len(self.when) > 7 else f"{self.when}-01")
        return (rules().reviewed - day).days > OLD_DAYS


class Quality(Struct, frozen=True):
    """The quality of one exchange.

    Args:
        level: "gold", "silver", "bronze" or "-".
        held: For each rule, in the order of the levels, whether it holds.
    """

    level: str
    held: dict[str, bool]

    @property
    def missing(self) -> list[str]:
        """The rules that do not hold."""
        return [rule for rule, holds in self.held.items() if not holds]


@cache
def rules() -> QualityRules:
    """Read `quality.toml`."""
    return msgspec.convert(_read("quality.toml"), QualityRules)


@cache
def evidence() -> dict[str, Evidence]:
    """Read `evidence.toml`, by exchange, or `exchange.channel` for its other channels."""
    return msgspec.convert(_read("evidence.toml"), dict[str, Evidence])


def _read(name: str) -> object:
    file = resources.files("onebook.exchanges.kit").joinpath(name)
    return tomllib.loads(file.read_text(encoding="utf-8"))


def docstring(exchange: Exchange, channel: str = "") -> str:
    """Return the docstring of the connector's module.

    Args:
        exchange: The facts of the channel.
        channel: Another book channel, which may have its own module.
    """
    name = "onebook.exchanges." + ("kit.through_ccxt" if exchange.via else exchange.name)
    made = exchange.connector
    if channel and isinstance(made, partial) and isinstance(made.args[0], BookChannel):
        name = made.args[0].data.__module__
    return inspect.getdoc(import_module(name)) or ""


def confirmations(text: str) -> dict[str, Confirmation]:
    """Parse the section `Confirmed:` of a docstring: the newest confirmation of each fact.

    Each line has facts, a date or month, the kind of source and the source; lines that are indented
    further continue it. If a fact has several lines, the newest counts.

        channel, verbs: 2026-09-15, third-party: the official SDK 1.3.2
        limits: never: the page states none

    Raises:
        ValueError: A line has another form.
    """
    section = SECTION.search(text)
    found: dict[str, Confirmation] = {}
    lines = re.sub(r"\n {5,}", " ", section[1]).splitlines() if section else ()
    for line in lines:
        stated = STATED.fullmatch(line.strip())
        facts = stated["facts"].split(", ") if stated else []
        if stated is None or not {*facts} <= {*FACTS, FEES}:
            raise ValueError(f"{line.strip()!r} is not of the form 'facts: date, kind: source'")
        when = stated["when"] or NEVER
        for fact in facts:
            known = found.get(fact)
            if known is None or known.when == NEVER or NEVER != when > known.when:
                found[fact] = Confirmation(fact, when, stated["how"] or "-", stated["source"])
    return {fact: found[fact] for fact in (*FACTS, FEES) if fact in found}


def protocol(text: str) -> str:
    """Return a docstring without its first paragraph and its section `Confirmed:`."""
    return SECTION.sub("", text.partition("\n\n")[2]).rstrip()


def paragraphs(text: str) -> list[str]:
    """Split a docstring into paragraphs of prose, each on one line, without the frames."""
    return [
        " ".join(each.split())
        for each in re.split(r"\n\s*\n", text)
        if each.strip() and not each.startswith(("    ", "\n"))
    ]


def doubts(text: str) -> list[str]:
    """Return the doubts in a docstring: the clauses of its sentences with "unconfirmed"."""
    sentences = [
        sentence for each in paragraphs(text)[1:] for sentence in SENTENCES.split(each) if sentence
    ]
    return [
        part.strip().rstrip(".")
        for sentence in sentences
        if DOUBT.search(sentence)
        for part in LEAD.sub("", sentence).split(";")
    ]


def open_doubts(exchange: Exchange) -> list[str]:
    """Return the doubts about an exchange that may affect its books."""
    harmless = rules().harmless.get(exchange.name, ())
    return [each for each in doubts(docstring(exchange)) if not each.startswith(harmless)]


def page_read(text: str) -> bool:
    """Return whether the docstring names a page of the exchange that was read."""
    pages = [each for each in paragraphs(text) if each.startswith(("Page:", "Pages:"))]
    unread = any(UNREAD.search(each) for each in pages)
    return bool(pages) and not unread and "the page itself" not in text.replace("\n", " ")


def quality(exchange: Exchange, proven: Evidence | None = None) -> Quality:
    """Grade an exchange by the rules.

    Args:
        exchange: Its facts.
        proven: What the tests prove about it; by default from `evidence.toml`.
    """
    proven = proven or evidence().get(exchange.name, Evidence())
    text = docstring(exchange)
    as_recorded = [each for each in proven.recordings if not each.differs]
    holds = {
        "contract": "contract" in proven.suites,
        "faults": "faults" in proven.suites,
        "spot": bool(proven.spot),
        "page": page_read(text),
        "compared": bool(proven.ccxt or proven.recordings),
        "recorded": bool(as_recorded),
        "loss": exchange.guard is not LossDetection.ORDER,
        "certain": not open_doubts(exchange),
    }
    level, complete = NO_LEVEL, True
    held: dict[str, bool] = {}
    for name, each in rules().levels.items():
        held |= {rule: holds[rule] for rule in each.rules}
        complete = complete and all(holds[rule] for rule in each.rules)
        level = name if complete else level
    return Quality(level, held)
