"""Reference pages of exchanges in Markdown, from the facts, the evidence and the docstrings."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from onebook.cli.exchange_facts import (
    CONFIRMED_COLUMNS,
    PROOF_COLUMNS,
    confirmed,
    facts,
    proof,
    proven_of,
)
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Exchange
from onebook.exchanges.kit.quality import (
    NEVER,
    OLD_DAYS,
    confirmations,
    docstring,
    doubts,
    protocol,
    quality,
    rules,
)

NOTE: Final = "<!-- Written by `make reference`: change the connector, its tests or the rules. -->"
# Facts that are code, in code spans.
CODE: Final = ("exchange_name", "ws_url", "rest_url", "instruments_path", "subscription")
INDEX_COLUMNS: Final = (
    "exchange",
    "quality",
    "depth",
    "lost frame",
    "oldest fact",
    "the next level lacks",
)


def page(exchange: Exchange) -> str:
    """Write the reference page of an exchange."""
    text = docstring(exchange)
    graded = quality(exchange)
    parts = [
        NOTE,
        f"# {exchange.display}",
        " ".join(text.partition("\n\n")[0].split()),
        f"Quality: **{named(graded.level)}**"
        + (f"; not proven: {', '.join(graded.missing)}." if graded.missing else "."),
        table(("fact", "value"), spelled(facts(exchange))),
        "## Proof",
        "What each rule asks is said in the [index](README.md).",
        table(PROOF_COLUMNS, proof(exchange)),
        *confirmed_part("## Last confirmed", text),
        "## Known doubts",
        "\n".join(f"- {each}" for each in doubts(text)) or "None is known.",
        "## Protocol",
        protocol(text),
        *(
            part
            for channel, its in exchange.channels.items()
            for part in other_channel(its, channel)
        ),
    ]
    return "\n\n".join(parts) + "\n"


def other_channel(exchange: Exchange, channel: str) -> list[str]:
    """Write the part about another book channel of the same exchange."""
    setting = f"feeds.overrides.{exchange.name}.channel"
    note = proven_of(exchange, channel).ccxt_note
    text = docstring(exchange, channel)
    own = [] if text == docstring(exchange) else confirmed_part("### Last confirmed", text)
    return [
        f"## Channel `{channel}`",
        f"Chosen with `{setting}`." + (f" Compared with ccxt: {note}." if note else ""),
        table(("fact", "value"), spelled(facts(exchange, channel))),
        *own,
    ]


def confirmed_part(heading: str, text: str) -> list[str]:
    """Write what last confirmed each fact, with a warning about old facts."""
    found = confirmations(text)
    old = [fact for fact, each in found.items() if each.old]
    warning = (
        f"> **Warning**: not confirmed within {OLD_DAYS} days before the review of"
        f" {rules().reviewed}: {', '.join(old)}."
    )
    rows = table(CONFIRMED_COLUMNS, confirmed(text))
    return [heading, *([warning] if old else ()), rows] if found else []


def index() -> str:
    """Write the index: what the levels mean, and every exchange with its level."""
    parts = [
        NOTE,
        "# Exchanges and how well each is proven",
        "A level holds where all its rules and those of the levels below it hold. The rules stand"
        " in `onebook/exchanges/kit/quality.toml`; whether they hold is read from the tests, so that a"
        " level cannot be claimed. `onebook exchanges show NAME` prints the same.",
    ]
    for name, level in rules().levels.items():
        held = "\n".join(f"- {rule}: {rules().rules[rule]}" for rule in level.rules)
        parts.append(f"**{named(name)}**. {level.means}\n\n{held}")
    ranked = sorted(EXCHANGES.values(), key=lambda each: (rank(each), each.name))
    parts.append(
        "What shows a lost frame: `numbers` or a `count` of frames, at once; a `checksum`, when it"
        " differs; the `order` of the socket alone shows none; where a frame is the `whole` book,"
        " none is needed."
    )
    parts.append(
        "The oldest fact is when the newest source of the one that was confirmed longest ago is of;"
        f" facts older than {OLD_DAYS} days on {rules().reviewed} are marked on the page of each"
        " exchange."
    )
    parts.append(table(INDEX_COLUMNS, (index_row(each) for each in ranked)))
    return "\n\n".join(parts) + "\n"


def rank(exchange: Exchange) -> int:
    """Return 0 for the best level."""
    levels = [*reversed(rules().levels)]
    level = quality(exchange).level
    return levels.index(level) if level in levels else len(levels)


def index_row(exchange: Exchange) -> tuple[str, ...]:
    """Return an exchange's row of the index."""
    level, missing = quality(exchange).level, quality(exchange).missing
    # Only what the next level requires: rules are in the order of the levels.
    wanted = next(
        (each.rules for each in rules().levels.values() if {*each.rules} & {*missing}), ()
    )
    lacks = ", ".join(rule for rule in wanted if rule in missing)
    link = f"[{exchange.display}]({exchange.name}.md)"
    depth, guard = str(exchange.depth or "all"), exchange.guard.name.lower()
    dates = [each.when for each in confirmations(docstring(exchange)).values()]
    oldest = min((when for when in dates if when != NEVER), default="-")
    return link, named(level), depth, guard, oldest, lacks or "-"


def named(level: str) -> str:
    """Return a level as a word for a reader."""
    return level if level in rules().levels else "none"


def spelled(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Put code into code spans."""
    return [
        (name, f"`{value}`" if name in CODE and value != "-" else value) for name, value in rows
    ]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def cell(text: str) -> str:
    """Write a cell: a bar would end it."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
