"""Reference pages of exchanges in Markdown, generated from facts, evidence and docstrings."""

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
from onebook.exchanges.kit.contract import Exchange
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
    """Return the reference page of an exchange."""
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
        "The rules are explained in the [index](README.md).",
        table(PROOF_COLUMNS, proof(exchange)),
        *confirmed_part("## Last confirmed", text),
        "## Known doubts",
        "\n".join(f"- {each}" for each in doubts(text)) or "None.",
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
    """Return the section about an additional book channel of an exchange."""
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
    """Return the confirmation of each fact, with a warning about old facts."""
    found = confirmations(text)
    old = [fact for fact, each in found.items() if each.old]
    warning = (
        f"> **Warning**: not confirmed within {OLD_DAYS} days before the review of"
        f" {rules().reviewed}: {', '.join(old)}."
    )
    rows = table(CONFIRMED_COLUMNS, confirmed(text))
    return [heading, *([warning] if old else ()), rows] if found else []


def index() -> str:
    """Return the index: the levels and their meaning, and every exchange with its level."""
    parts = [
        NOTE,
        "# Exchanges and how well each is proven",
        "An exchange has a level if all rules of that level and of the levels below it hold. "
        "The rules are defined in `onebook/exchanges/kit/quality.toml`; their results are taken "
        "from the tests, so a level cannot merely be claimed. `onebook exchanges show NAME` "
        "prints the same.",
    ]
    for name, level in rules().levels.items():
        held = "\n".join(f"- {rule}: {rules().rules[rule]}" for rule in level.rules)
        parts.append(f"**{named(name)}**. {level.means}\n\n{held}")
    ranked = sorted(EXCHANGES.values(), key=lambda each: (rank(each), each.name))
    parts.append(
        "How a lost frame is detected: `numbers` or a `count` of frames detect it at once, a "
        "`checksum` when it differs, the `order` of the socket alone not at all; with `whole` "
        "books nothing needs to be detected."
    )
    parts.append(
        "`oldest fact` is the date of the latest confirmation of the fact confirmed longest "
        f"ago; facts older than {OLD_DAYS} days on {rules().reviewed} are marked on the page of "
        "each exchange."
    )
    parts.append(table(INDEX_COLUMNS, (index_row(each) for each in ranked)))
    return "\n\n".join(parts) + "\n"


def rank(exchange: Exchange) -> int:
    """Return the rank of a level; 0 is the best."""
    levels = [*reversed(rules().levels)]
    level = quality(exchange).level
    return levels.index(level) if level in levels else len(levels)


def index_row(exchange: Exchange) -> tuple[str, ...]:
    """Return the row of an exchange in the index."""
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
    """Return the name of a level for display."""
    return level if level in rules().levels else "none"


def spelled(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Wrap code in code spans."""
    return [
        (name, f"`{value}`" if name in CODE and value != "-" else value) for name, value in rows
    ]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def cell(text: str) -> str:
    """Return a table cell with bars escaped."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
