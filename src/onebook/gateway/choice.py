"""Resolves the exchanges and options of a subscription to the key of a stream."""

from decimal import Decimal
from typing import Any, Final

from msgspec import UNSET

from onebook.core import MEMBERS_MAX
from onebook.exchanges.kit.instead import instead_of
from onebook.exchanges.kit.selection import ALL, ExchangeSelection, select
from onebook.gateway import commands, replies
from onebook.gateway.directory import Directory
from onebook.gateway.effects import CommandRefused
from onebook.gateway.plain import shown
from onebook.streams import StreamKey
from onebook.streams.fill import FillSizes, fill_sizes

GROUP_DIGITS_MAX: Final = 18
# Finer than nearly every tick. With more, most prices at this scale exceed 64 bits, and each merge
# takes many times as long.
GROUP_DECIMALS_MAX: Final = 12
LIST_RETRY_S: Final = 10  # a list that could not be read is read again within a minute


def stream_key(
    directory: Directory, body: commands.Chosen
) -> tuple[StreamKey, list[replies.Rejected]]:
    """The stream of a subscription, and the exchanges that were rejected."""
    group = _shortest(body.group)
    accepted, rejected = _choose(directory, body.symbol, body.exchanges)
    key = StreamKey(
        symbol=body.symbol,
        exchanges=tuple(sorted(accepted)),
        depth=body.depth,
        interval_ms=body.interval_ms,
        mode=body.mode,
        levels=body.levels,
        split=body.split,
        group=group,
        ages=body.ages,
        coverage=body.coverage,
        fill=_sizes(body.fill),
    )
    return key, rejected


def completed(
    body: commands.GetAggregatedOrderbook, subscribed: StreamKey | None
) -> commands.Chosen:
    """Options of a one-time request: absent ones come from the subscription, else the default."""
    chosen: dict[str, Any] = {}
    if subscribed is not None:
        chosen = subscribed._asdict()
        chosen |= {
            "exchanges": list(subscribed.exchanges),
            "group": subscribed.group or None,
            "fill": _fill_option(subscribed),
        }
    sent = ((name, getattr(body, name)) for name in body.__struct_fields__)
    return commands.Chosen(**chosen | {name: value for name, value in sent if value is not UNSET})


def _choose(
    directory: Directory, symbol: str, requested: list[str] | str
) -> tuple[set[str], list[replies.Rejected]]:
    """The requested exchanges that trade the symbol, and why the others are rejected."""
    try:
        selection = select([ALL] if requested == ALL else requested, directory.resolve)
        if not selection.everything and not selection.known:
            raise _none_known(directory, selection)
        asked = set(selection.among(directory.supported))
    except ValueError as error:
        raise _bad(str(error)) from None
    trading = set(directory.trading(symbol))
    unread = directory.unread() & asked
    accepted = trading & asked
    if not accepted:
        if unread:
            raise _not_known_yet(symbol, unread)
        raise CommandRefused(
            "invalid_symbol",
            f"None of these exchanges trades {shown(symbol)}.",
            symbol=symbol,
            suggested_symbols=directory.suggest(symbol, asked),
        )
    if len(accepted) > MEMBERS_MAX:
        raise _bad(
            f"exchanges: a view merges at most {MEMBERS_MAX} exchanges, and {len(accepted)} of"
            f" these trade {symbol}; name fewer."
        )
    return accepted, _rejected(selection, trading, unread)


def _not_known_yet(symbol: str, unread: set[str]) -> CommandRefused:
    """The symbol is unknown so far: some instrument lists could not be read yet."""
    names = sorted(unread)
    return CommandRefused(
        "exchange_unavailable",
        f"The instruments of {', '.join(names)} are not known yet; try {shown(symbol)} again"
        " shortly.",
        symbol=symbol,
        exchange=names[0],
        retry_after=LIST_RETRY_S,
    )


def _none_known(directory: Directory, selection: ExchangeSelection) -> CommandRefused:
    name = next(iter(selection.wanted))
    return CommandRefused(
        "exchange_unavailable",
        no_exchange(name),
        exchange=name,
        supported_exchanges=list(directory.supported),
    )


def no_exchange(name: str) -> str:
    """Say that there is no such exchange, and what to use instead where that is known."""
    return f"There is no exchange {shown(name)}. {instead_of(name)}".rstrip()


def _rejected(
    selection: ExchangeSelection, trading: set[str], unread: set[str]
) -> list[replies.Rejected]:
    rejected = [
        replies.Rejected(
            exchange=name, reason="unknown_exchange", detail=no_exchange(name.removeprefix("-"))
        )
        for name in selection.unknown
    ]
    for name, exchange in selection.wanted.items():
        if exchange is not None and exchange not in trading:
            reason: replies.RejectedReason = (
                "exchange_unavailable" if exchange in unread else "symbol_not_traded"
            )
            rejected.append(replies.Rejected(exchange=name, reason=reason))
    return rejected


def _shortest(group: str | None) -> str:
    """Return the shortest text of a price step, "" for none.

    Raises:
        CommandRefused: It is not a positive decimal number, or too fine.
    """
    if group is None:
        return ""
    plain = group.replace(".", "", 1)
    if not (plain.isascii() and plain.isdigit()) or len(plain) > GROUP_DIGITS_MAX:
        raise _bad('group: must be a price step as decimal text, such as "0.5".')
    step = Decimal(group)
    if not step:
        raise _bad("group: must be more than 0.")
    text = f"{step:f}"
    shortest = text.rstrip("0").rstrip(".") if "." in text else text
    if len(shortest.partition(".")[2]) > GROUP_DECIMALS_MAX:
        raise _bad(f"group: has at most {GROUP_DECIMALS_MAX} decimals.")
    return shortest


def options_of(key: StreamKey) -> replies.Options:
    """Return the options of a stream as a reply lists them."""
    return replies.Options(
        depth=key.depth,
        interval_ms=key.interval_ms,
        mode=key.mode,  # type: ignore[arg-type]
        levels=key.levels,  # type: ignore[arg-type]
        split=key.split,
        group=key.group or None,
        ages=key.ages,
        coverage=key.coverage,
        fill=_fill_option(key),
    )


def _sizes(option: commands.FillOption | None) -> FillSizes | None:
    """Read the option `fill`.

    Raises: CommandRefused: There is no size, there are too many, or one is invalid.
    """
    if option is None:
        return None
    try:
        return fill_sizes(option.amounts, option.notionals)
    except ValueError as error:
        raise _bad(f"fill: {error}") from None


def _fill_option(key: StreamKey) -> commands.FillOption | None:
    return None if key.fill is None else commands.FillOption(*key.fill)


def _bad(message: str) -> CommandRefused:
    return CommandRefused("invalid_parameters", message)
