"""Quality levels of exchanges: bronze, silver, gold, by the rules of `quality.toml`.

The evidence (`evidence.toml`) is written from the tests by `make reference`, and a test fails where
it is not what the tests say: no proof is stated by hand. Doubts are read from
the docstrings of connectors, where they stand beside the code that they are about.
"""

import inspect
import re
import tomllib
from functools import cache
from importlib import import_module, resources
from typing import Final

import msgspec
from msgspec import Struct

from onebook.exchanges.contract import Exchange, LossDetection

NO_LEVEL: Final = "-"
UNREAD: Final = re.compile(r"\bnot read\b|\bon no page\b", re.IGNORECASE)
DOUBT: Final = re.compile(r"\b[Uu]nconfirmed\b")
SENTENCES: Final = re.compile(r"(?<=[.)])\s+(?=[A-Z`]|ccxt )")
LEAD: Final = re.compile(r"^Unconfirmed[^:]*: ")


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

    levels: dict[str, QualityLevel]
    rules: dict[str, str]
    harmless: dict[str, tuple[str, ...]]


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
    file = resources.files("onebook.exchanges").joinpath(name)
    return tomllib.loads(file.read_text(encoding="utf-8"))


def docstring(exchange: Exchange) -> str:
    """Return what the connector's module states about its exchange."""
    name = "through_ccxt" if exchange.via else exchange.name
    return inspect.getdoc(import_module(f"onebook.exchanges.{name}")) or ""


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
