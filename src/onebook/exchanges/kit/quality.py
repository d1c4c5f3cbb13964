"""Quality levels of exchanges: bronze, silver, gold, by the rules of `quality.toml`.

The evidence (`evidence.toml`) is written from the tests by `make reference`, and a test fails where
it is not what the tests say: no proof is stated by hand. Doubts, and the source and date that last
confirmed each fact, are read from the docstrings of connectors, where they stand beside the code
that they are about.
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
# What each connector states the newest source of.
FACTS: Final = ("channel", "verbs", "ping", "limits", "sequence", "levels", "depth")
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
        test: Which test replays it.
        differs: How it differs from what the exchange sends today; "" where it does not.
    """

    sample: str
    test: str
    differs: str = ""


class Evidence(Struct, frozen=True):
    """What the tests prove of one book channel.

    Args:
        suites: Suites that run over it.
        spot: The test that feeds it derivative rows, or why its list has none; "" where neither.
        ccxt: The class of ccxt that keeps the same book by the same channel; "" where none does.
        ccxt_note: What that leaves unproven, or why none does.
        recordings: What is replayed to exact books.
        horizon: Levels a side of the body that a book starts at, beyond which nothing is known;
            0 where the channel says what enters and leaves its depth.
        subscription: What is sent to subscribe to one book.
    """

    suites: tuple[str, ...] = ()
    spot: str = ""
    ccxt: str = ""
    ccxt_note: str = ""
    recordings: tuple[Recording, ...] = ()
    horizon: int = 0
    subscription: str = ""


class QualityLevel(Struct, frozen=True):
    """A level: what it means, and which rules it adds to those of the levels below it."""

    means: str
    rules: tuple[str, ...]


class QualityRules(Struct, frozen=True):
    """The content of `quality.toml`."""

    reviewed: date
    levels: dict[str, QualityLevel]
    rules: dict[str, str]
    harmless: dict[str, tuple[str, ...]]


class Confirmation(Struct, frozen=True):
    """What last confirmed one fact of a connector.

    Args:
        fact: One of `FACTS`.
        when: Its date, or its month, as the docstring has it; `NEVER` where nothing outside
            confirms it.
        how: "page" (of the exchange, its changelog among them), "recorded" (frames of the real
            exchange, also those that others recorded), "third-party" (code or a report).
        source: Which one; why there is none where it was never confirmed.
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
        held: Of each rule in the order of the levels, whether it holds.
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
    """Read `evidence.toml`: by exchange, and by `exchange.channel` for its other channels."""
    return msgspec.convert(_read("evidence.toml"), dict[str, Evidence])


def _read(name: str) -> object:
    file = resources.files("onebook.exchanges.kit").joinpath(name)
    return tomllib.loads(file.read_text(encoding="utf-8"))


def docstring(exchange: Exchange, channel: str = "") -> str:
    """Return what the connector's module states about its exchange.

    Args:
        exchange: The facts of the channel.
        channel: Another book channel, which may have a module of its own.
    """
    name = "onebook.exchanges." + ("kit.through_ccxt" if exchange.via else exchange.name)
    made = exchange.connector
    if channel and isinstance(made, partial) and isinstance(made.args[0], BookChannel):
        name = made.args[0].data.__module__
    return inspect.getdoc(import_module(name)) or ""


def confirmations(text: str) -> dict[str, Confirmation]:
    """Return what last confirmed each fact, by the section `Confirmed:` of a docstring.

    Each line names facts, a date or month, the kind of source and the source; it goes on in lines
    that are indented more. Of several lines about one fact the newest counts.

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
        if stated is None or not {*facts} <= {*FACTS}:
            raise ValueError(f"{line.strip()!r} does not say what confirmed which fact, and when")
        when = stated["when"] or NEVER
        for fact in facts:
            known = found.get(fact)
            if known is None or known.when == NEVER or NEVER != when > known.when:
                found[fact] = Confirmation(fact, when, stated["how"] or "-", stated["source"])
    return {fact: found[fact] for fact in FACTS if fact in found}


def protocol(text: str) -> str:
    """Return a docstring without its first paragraph and without what confirmed it."""
    return SECTION.sub("", text.partition("\n\n")[2]).rstrip()


def paragraphs(text: str) -> list[str]:
    """Split a docstring into its paragraphs of prose, each on one line; frames are left out."""
    return [
        " ".join(each.split())
        for each in re.split(r"\n\s*\n", text)
        if each.strip() and not each.startswith(("    ", "\n"))
    ]


def doubts(text: str) -> list[str]:
    """Return what a docstring calls unconfirmed, one entry a doubt."""
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
    """Return the doubts of an exchange that may touch its books."""
    harmless = rules().harmless.get(exchange.name, ())
    return [each for each in doubts(docstring(exchange)) if not each.startswith(harmless)]


def page_read(text: str) -> bool:
    """Whether the docstring names a page of the exchange and does not say it was not read."""
    pages = [each for each in paragraphs(text) if each.startswith(("Page:", "Pages:"))]
    unread = any(UNREAD.search(each) for each in pages)
    return bool(pages) and not unread and "the page itself" not in text.replace("\n", " ")


def quality(exchange: Exchange, proven: Evidence | None = None) -> Quality:
    """Grade an exchange by the rules.

    Args:
        exchange: Its facts.
        proven: What the tests prove of it; by default `evidence.toml`.
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
