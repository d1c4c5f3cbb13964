"""Facts about an exchange, as rows of `onebook exchanges` and as Markdown reference pages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

from onebook.core import ChecksumLayout
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import BookChannel, Exchange, Limit, LossDetection, Scope
from onebook.exchanges.kit.published import fee_pages
from onebook.exchanges.kit.quality import (
    FEES,
    NEVER,
    OLD_DAYS,
    Evidence,
    confirmations,
    docstring,
    doubts,
    evidence,
    open_doubts,
    page_read,
    paragraphs,
    protocol,
    quality,
    rules,
)

WINDOWS: Final = {1.0: "1 s", 60.0: "1 min", 3_600.0: "1 h"}
COLUMNS: Final = (
    "exchange_name",
    "display_name",
    "quality",
    "via",
    "depth",
    "lost_frame",
    "heartbeat_s",
    "quiet_s",
    "times",
    "ws_url",
)
GUARDS: Final = {
    LossDetection.NUMBERS: "each frame names its predecessor, so a lost frame is detected at once",
    LossDetection.COUNT: (
        "the frames of the connection are numbered, so a lost frame is detected at once but "
        "could belong to any book"
    ),
    LossDetection.CHECKSUM: (
        "a checksum of the best levels: a lost frame is detected when the checksums differ"
    ),
    LossDetection.ORDER: (
        "none, only TCP's ordering: a frame that the exchange drops is not detected"
    ),
    LossDetection.WHOLE: "none needed, because each frame contains the whole book",
}
UNRECORDED_FEES: Final = "; unconfirmed: in no recorded response, but ccxt reads this field too"
ADDRESS: Final = re.compile(r"https://[^\s)>`]+[^\s)>`.,;:]")
PROOF_COLUMNS: Final = ("level", "rule", "holds", "evidence")
CONFIRMED_COLUMNS: Final = ("fact", "confirmed", "by", "source")
NOTE: Final = "<!-- Written by `make reference`: change the connector, its tests or the rules. -->"
# Facts that are code and printed in code spans.
CODE: Final = ("exchange_name", "ws_url", "rest_url", "instruments_path", "subscription")
INDEX_COLUMNS: Final = (
    "exchange",
    "quality",
    "depth",
    "lost frame",
    "oldest fact",
    "missing for the next level",
)


def row(exchange: Exchange) -> tuple[str, ...]:
    """Return the row of an exchange, with the columns `COLUMNS`."""
    heartbeat_s = exchange.heartbeat_max_s
    return (
        exchange.name,
        exchange.display,
        quality(exchange).level,
        exchange.via or "own",
        str(exchange.depth or "all"),
        exchange.guard.name.lower(),
        "none" if heartbeat_s is None else f"{heartbeat_s:g}",
        f"{exchange.quiet_max_s:g}",
        "yes" if exchange.timed else "no",
        exchange.ws_url or "-",
    )


def listed(exchange: Exchange) -> dict[str, Any]:
    """Return the row of an exchange as values, with the keys `COLUMNS`."""
    return {
        "exchange_name": exchange.name,
        "display_name": exchange.display,
        "quality": quality(exchange).level,
        "via": exchange.via or "own",
        "depth": exchange.depth,
        "lost_frame": exchange.guard.name.lower(),
        "heartbeat_s": exchange.heartbeat_max_s,
        "quiet_s": exchange.quiet_max_s,
        "times": exchange.timed,
        "ws_url": exchange.ws_url,
    }


def detailed(exchange: Exchange) -> dict[str, Any]:
    """Return all facts about an exchange as values."""
    proven, limits, text = proven_of(exchange), exchange.limits, docstring(exchange)
    return listed(exchange) | {
        "former_names": exchange.former_names,
        "rest_url": exchange.rest_url,
        "instruments_path": exchange.instruments_path,
        "subscription": proven.subscription,
        "interval_ms": exchange.interval_ms,
        "gap_rule": GUARDS[exchange.guard],
        "checksum": checksum(exchange),
        "horizon": horizon(exchange, proven),
        "lifetime_s": exchange.lifetime_s,
        "limits": {
            "instruments_on_a_connection": limits.topics,
            "connections": limits.connections,
            "messages": _limits(limits.messages),
            "subscription_requests": _limits(limits.requests),
            "connection_attempts": _limits(limits.connects),
            "rest_weight": _limits(limits.fetches),
        },
        "shut_out_by": [
            {"status": status, "hold_s": hold_s} for status, hold_s in exchange.holds.items()
        ],
        "published_fee": published_fee(exchange),
        "channels": list(exchange.channels),
        "proof": [dict(zip(PROOF_COLUMNS, each, strict=True)) for each in proof(exchange)],
        "confirmed": [dict(zip(CONFIRMED_COLUMNS, each, strict=True)) for each in confirmed(text)],
        "doubts": doubts(text),
        "protocol": text,
    }


def _limits(limits: Sequence[Limit]) -> list[dict[str, Any]]:
    return [
        {"count": each.count, "per_s": each.per_s, "scope": each.scope.name.lower()}
        for each in limits
    ]


def facts(exchange: Exchange, channel: str = "") -> list[tuple[str, str]]:
    """Return the facts about one book channel of an exchange, by name.

    Args:
        exchange: The facts of the channel.
        channel: The name of the channel; "" for the default one.
    """
    proven = proven_of(exchange, channel)
    limits = exchange.limits
    heartbeat_s = exchange.heartbeat_max_s
    return [
        ("exchange_name", exchange.name),
        ("via", exchange.via or "own"),
        ("former_names", ", ".join(exchange.former_names) or "-"),
        ("ws_url", exchange.ws_url or "-"),
        ("rest_url", exchange.rest_url or "-"),
        ("instruments_path", exchange.instruments_path),
        ("subscription", proven.subscription or "-"),
        ("depth", f"{exchange.depth:,} levels a side" if exchange.depth else "the whole book"),
        ("interval_ms", speed(exchange)),
        ("gap_rule", GUARDS[exchange.guard]),
        ("checksum", checksum(exchange)),
        ("horizon", horizon(exchange, proven)),
        ("times", "in every frame" if exchange.timed else "none"),
        ("heartbeat_s", f"within {heartbeat_s:g} s" if heartbeat_s else "none promised"),
        ("quiet_s", f"stale after {exchange.quiet_max_s:g} s"),
        ("lifetime_s", f"{exchange.lifetime_s:,.0f} s"),
        ("instruments_on_a_connection", f"{limits.topics:,}"),
        ("connections", f"{limits.connections:,}" if limits.connections else "-"),
        ("messages", words(limits.messages)),
        ("subscription_requests", words(limits.requests)),
        ("connection_attempts", words(limits.connects)),
        ("rest_weight", words(limits.fetches)),
        ("shut_out_by", held(exchange.holds)),
        ("published_fee", published_fee(exchange)),
    ]


def published_fee(exchange: Exchange) -> str:
    """Return the base taker fee that the exchange states itself, and where."""
    page = fee_pages().get(exchange.name)
    if page is not None:
        by = " by the class of the pair" if page.classes else ""
        return f"{page} %{by}, {page.page} of {page.date}"
    if not exchange.lists_fees:
        return "-"
    how = UNRECORDED_FEES
    if is_recorded_fee(exchange):
        seen = confirmations(docstring(exchange)).get(FEES)
        how = "" if seen is None else f"; seen {seen.when} in {seen.source}"
    return f"of each pair in the instrument list{how}"


def is_recorded_fee(exchange: Exchange) -> bool:
    """Return whether a recorded response has the fee that the list of an exchange states."""
    return bool(proven_of(exchange).fees) or FEES in confirmations(docstring(exchange))


def proven_of(exchange: Exchange, channel: str = "") -> Evidence:
    """Return the test evidence for a channel."""
    key = f"{exchange.name}.{channel}" if channel else exchange.name
    return evidence().get(key, Evidence())


def proof(exchange: Exchange) -> list[tuple[str, str, str, str]]:
    """Return name, result and reason of each quality rule, with the columns `PROOF_COLUMNS`."""
    held = quality(exchange).held
    why = reasons(exchange)
    return [
        (name, rule, "yes" if held[rule] else "no", why[rule] or "-")
        for name, level in rules().levels.items()
        for rule in level.rules
    ]


def confirmed(text: str) -> list[tuple[str, str, str, str]]:
    """Return the latest confirmation of each fact, with the columns `CONFIRMED_COLUMNS`."""
    return [(each.fact, each.when, each.how, each.source) for each in confirmations(text).values()]


def reasons(exchange: Exchange) -> dict[str, str]:
    """Return the evidence behind each quality rule."""
    proven = proven_of(exchange)
    doubted = len(open_doubts(exchange))
    named = ", ".join(pages(exchange)) or "none named"
    ccxt = proven.ccxt and f"ccxt's class {proven.ccxt}"
    recorded = [
        f"{each.sample}, {each.differs}" if each.differs else each.sample
        for each in proven.recordings
    ]
    return {
        "contract": "tests/contract" if "contract" in proven.suites else "",
        "faults": "tests/chaos" if "faults" in proven.suites else "",
        "spot": proven.spot,
        "page": named if page_read(docstring(exchange)) else f"{named}: not read",
        "compared": "; ".join(filter(None, (ccxt, proven.ccxt_note, *recorded))),
        "recorded": "; ".join(recorded),
        "loss": GUARDS[exchange.guard],
        "certain": f"{doubted} open" if doubted else "none open",
    }


def pages(exchange: Exchange) -> list[str]:
    """Return the URLs of the exchange's documentation that the connector cites."""
    named = [each for each in paragraphs(docstring(exchange)) if each.startswith("Page")]
    return [address for each in named for address in ADDRESS.findall(each)]


def speed(exchange: Exchange) -> str:
    """Return the update interval of the channel."""
    match exchange.interval_ms:
        case None:
            return "not stated"
        case 0:
            return "in real time"
        case interval_ms:
            return f"every {interval_ms:,} ms"


def checksum(exchange: Exchange) -> str:
    """Return the checksum that books are verified with, if the exchange sends one."""
    made = exchange.connector
    channels = made.args if isinstance(made, partial) else ()
    modules = [
        part.__module__  # either may come from a helper shared by several connectors
        for each in channels
        if isinstance(each, BookChannel)
        for part in (each.data, each.control)
    ]
    layouts = [
        value
        for module in modules
        for value in vars(import_module(module)).values()
        if isinstance(value, ChecksumLayout)
    ]
    return f"CRC-32 of the {layouts[0].levels} best levels per side" if layouts else "none"


def horizon(exchange: Exchange, proven: Evidence) -> str:
    """Return the horizon of a book: the number of known levels."""
    if proven.horizon:
        return f"{proven.horizon:,} levels per side; refetched before prices reach the last one"
    return "its depth" if exchange.depth else "none"


def held(holds: Mapping[int, float]) -> str:
    """Format the HTTP statuses that block an address, and the pause after each."""
    return "; ".join(f"{status} for {hold_s:g} s" for status, hold_s in holds.items()) or "-"


def words(limits: Sequence[Limit]) -> str:
    """Format the limits of one kind; all apply at once."""
    texts = [
        f"{each.count:,} in {WINDOWS.get(each.per_s, f'{each.per_s:g} s')}"
        + (" of the address" if each.scope is Scope.ADDRESS else "")
        for each in limits
    ]
    return "; ".join(texts) or "-"


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
        "An exchange reaches a level if it meets all rules of that level and of the levels below. "
        "The rules are defined in `onebook/exchanges/kit/quality.toml`; their results are taken "
        "from the tests, so a level cannot merely be claimed. `onebook exchanges show NAME` "
        "prints the same.",
    ]
    for name, level in rules().levels.items():
        held = "\n".join(f"- {rule}: {rules().rules[rule]}" for rule in level.rules)
        parts.append(f"**{named(name)}**. {level.means}\n\n{held}")
    ranked = sorted(EXCHANGES.values(), key=lambda each: (rank(each), each.name))
    parts.append(
        "How a lost frame is detected: `numbers` and `count` detect it at once, `checksum` at the "
        "next checksum, `order` (TCP's ordering only) never; `whole` books need no detection."
    )
    parts.append(
        "`oldest fact` is the earliest date on which any fact of the exchange was last confirmed. "
        f"The page of an exchange marks facts last confirmed more than {OLD_DAYS} days before "
        f"the review of {rules().reviewed}."
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
    # Only the rules of the next level: rules are in the order of the levels.
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
