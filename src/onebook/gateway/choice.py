"""What a subscription names: which exchanges, and which stream that is."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Final, NamedTuple

from onebook.gateway import commands, messages
from onebook.gateway.directory import Directory
from onebook.gateway.outputs import Refusal
from onebook.streams import StreamKey

GROUP_DIGITS_MAX: Final = 18
NAME_SHOWN_MAX: Final = 64
ALL: Final = "all"
UNKNOWN_EXCHANGE: Final = "unknown_exchange"
NOT_TRADED: Final = "symbol_not_traded"


def stream_key(
    directory: Directory, body: commands.Chosen
) -> tuple[StreamKey, list[messages.Rejected]]:
    """What a client means: the stream, and the exchanges it cannot have."""
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
    )
    return key, rejected


class _Request(NamedTuple):
    """The names of a message, resolved: None where nobody has that name."""

    everything: bool
    wanted: dict[str, str | None]
    unwanted: dict[str, str | None]

    @property
    def known(self) -> set[str]:
        return {exchange for exchange in self.wanted.values() if exchange is not None}


def _choose(
    directory: Directory, symbol: str, requested: list[str] | str
) -> tuple[set[str], list[messages.Rejected]]:
    """Which of the exchanges asked for trade the symbol, and why the others are left out."""
    request = _read(directory, [ALL] if requested == ALL else requested)
    if not request.everything and not request.known:
        raise _none_known(directory, request)
    trading = set(directory.trading(symbol))
    candidates = trading if request.everything else trading & request.known
    if not candidates:
        raise Refusal(
            "invalid_symbol",
            f"None of these exchanges trades {symbol}.",
            symbol=symbol,
            suggested_symbols=directory.suggest(symbol),
        )
    accepted = candidates - set(request.unwanted.values())
    if not accepted:
        raise _bad("exchanges: nothing is left of the exchanges you named.")
    return accepted, _rejected(request, trading)


def _read(directory: Directory, names: Iterable[str]) -> _Request:
    request = _Request(ALL in names, {}, {})
    for name in names:
        if name.startswith("-"):
            request.unwanted[name] = directory.resolve(name[1:])
        elif name != ALL:
            request.wanted[name] = directory.resolve(name)
    return request


def _none_known(directory: Directory, request: _Request) -> Refusal:
    if not request.wanted:
        return _bad('exchanges: name at least one, or send "all".')
    name = next(iter(request.wanted))
    return Refusal(
        "exchange_unavailable",
        f"There is no exchange {name[:NAME_SHOWN_MAX]!r}.",
        exchange=name,
        supported_exchanges=list(directory.supported),
    )


def _rejected(request: _Request, trading: set[str]) -> list[messages.Rejected]:
    rejected = [
        messages.Rejected(exchange=name, reason=UNKNOWN_EXCHANGE)
        for name, exchange in (*request.wanted.items(), *request.unwanted.items())
        if exchange is None
    ]
    for name, exchange in request.wanted.items():
        if exchange is not None and exchange not in trading:
            rejected.append(messages.Rejected(exchange=name, reason=NOT_TRADED))
    return rejected


def _shortest(group: str | None) -> str:
    """Return the shortest text of a price step, "" for none.

    Raises:
        Refusal: It is not a positive decimal number.
    """
    if group is None:
        return ""
    plain = group.replace(".", "", 1)
    if not (plain.isascii() and plain.isdigit()) or len(plain) > GROUP_DIGITS_MAX:
        raise _bad("group: expected a decimal number as text.")
    step = Decimal(group)
    if not step:
        raise _bad("group: expected more than 0.")
    text = f"{step:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def options_of(key: StreamKey) -> messages.Options:
    """Return the options of a stream as a reply tells them."""
    return messages.Options(
        depth=key.depth,
        interval_ms=key.interval_ms,
        mode=key.mode,  # type: ignore[arg-type]
        levels=key.levels,  # type: ignore[arg-type]
        split=key.split,
        group=key.group or None,
    )


def _bad(message: str) -> Refusal:
    return Refusal("invalid_parameters", message)
