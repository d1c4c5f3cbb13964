"""Exchanges and pairs for replies, and the streams that commands describe."""

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from onebook import exchanges
from onebook.core import MEMBERS_MAX, View
from onebook.exchanges import ALL, ExchangeSelection, instead_of, select
from onebook.feeds import Catalogue
from onebook.fees import (
    NO_FEES,
    OTHERS,
    PUBLISHED,
    PublishedFee,
    TakerFees,
    exchange_of,
    fee_of,
    least_profit,
    named_table,
    symbol_of,
)
from onebook.gateway import commands, replies
from onebook.gateway.commands import CommandRefused, shown
from onebook.gateway.replies import AllPairs, ExchangePairs, ExchangesList
from onebook.streams import BookSupervisor, StreamKey, ViewOptions
from onebook.streams.basket import (
    ConversionStep,
    conversion_pairs,
    conversion_steps,
    member_name,
)
from onebook.streams.fill import FillSizes, fill_sizes
from onebook.streams.options import (
    CROSSING,
    DELTA,
    INTERVAL_MS_MIN,
    INTERVAL_MUST_BE,
    OBJECT,
    PROTOBUF,
)

CACHE_S: Final = 5.0  # cache time of encoded lists, which are long and change hourly
SUGGESTIONS_MAX: Final = 3
SIMILAR_MAX: Final = 12  # candidates; the requested exchanges may not trade all of them
ACTIVE: Final = "active"

# Base currencies by kind, for `categories` of one exchange's pairs.
CATEGORIES: Final[dict[str, frozenset[str]]] = {
    "major": frozenset(("BTC", "ETH", "BNB", "SOL", "XRP")),
    "altcoins": frozenset(("ADA", "DOT", "LTC", "BCH", "LINK", "XLM", "ETC", "TRX", "TON", "ATOM")),
    "meme": frozenset(("DOGE", "SHIB", "PEPE", "BONK", "FLOKI", "WIF")),
    "defi": frozenset(("UNI", "AAVE", "COMP", "SUSHI", "MKR", "CRV", "LDO", "SNX")),
    "layer1": frozenset(("SOL", "ADA", "AVAX", "DOT", "ATOM", "NEAR", "ICP", "SUI", "APT", "ALGO")),
}

_encode = msgspec.json.encode


class GatewaySupervisor(BookSupervisor, Protocol):
    """Subscriptions to books, and the state of exchanges."""

    def in_use(self) -> Collection[str]:
        """The enabled exchanges."""

    def state(self, exchange: str) -> str:
        """One of active, maintenance, offline, limited."""


class Directory:
    """Lists of exchanges and pairs for clients; long lists are encoded at most once in `CACHE_S`.

    Args:
        catalogue: The instruments of all exchanges.
        supervisor: Returns the state of the feeds.
        monotonic: Monotonic time in seconds.
        via: The library of each enabled exchange without a connector.
        expected_gb: GiB that a stream costs a client in 30 days; None while unknown.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        supervisor: GatewaySupervisor,
        *,
        monotonic: Callable[[], float],
        via: Mapping[str, str] = MappingProxyType({}),
        expected_gb: Callable[[StreamKey], float | None] = lambda key: None,
    ) -> None:
        self._via = dict(via)
        self.trading = catalogue.exchanges
        self.unread = catalogue.unread
        self.expected_gb = expected_gb
        self._catalogue = catalogue
        self._supervisor = supervisor
        self._monotonic = monotonic
        self._kept: dict[str | None, tuple[float, bytes]] = {}

    def published_fee(self, exchange: str, symbol: str) -> PublishedFee | None:
        """Return the published taker fee of a pair; None if it is unknown."""
        return self._catalogue.published_fee(exchange, symbol)

    @property
    def supported(self) -> Sequence[str]:
        """The enabled exchanges, sorted by name."""
        return tuple(sorted({*self._supervisor.in_use(), *self._via}))

    def resolve(self, name: str) -> str | None:
        """Look up an enabled exchange by its name, an alias or a former name."""
        lowered = name.strip().lower()
        if lowered in self._via:
            return lowered
        known = exchanges.resolve(lowered)
        return known if known in self._supervisor.in_use() else None

    def is_quote(self, currency: str) -> bool:
        """Return whether any listed pair is quoted in a currency."""
        return any(each.partition("/")[2] == currency for each in self._catalogue.symbols())

    def suggest(self, symbol: str, wanted: Collection[str]) -> list[str]:
        """Return similar symbols that one of these exchanges trades."""
        similar = self._catalogue.suggest(symbol, SIMILAR_MAX)
        found = [
            each
            for each in similar
            if each != symbol and not set(wanted).isdisjoint(self.trading(each))
        ]
        return found[:SUGGESTIONS_MAX]

    def exchanges_json(self) -> bytes:
        """Return the `data` of an `exchanges_data` message."""
        states = {name: self._supervisor.state(name) for name in self.supported}
        active = [name for name, state in states.items() if state == ACTIVE]
        return _encode(
            ExchangesList(
                supported_exchanges=list(self.supported),
                active_exchanges=active,
                total_supported=len(self.supported),
                total_active=len(active),
                exchange_status=states,
                via=self._via,
            )
        )

    def pairs_json(self, exchange: str | None) -> bytes:
        """Return the `data` of a `pairs_data` message, for one exchange or for all."""
        now = self._monotonic()
        kept_at, data = self._kept.get(exchange, (float("-inf"), b""))
        if now - kept_at > CACHE_S:
            data = _encode(self._one(exchange) if exchange is not None else self._all())
            self._kept[exchange] = now, data
        return data

    def _one(self, exchange: str) -> ExchangePairs:
        pairs = self._catalogue.pairs(exchange)
        sorted_by_kind = {
            kind: [pair for pair in pairs if pair.partition("/")[0] in bases]
            for kind, bases in CATEGORIES.items()
        }
        return ExchangePairs(
            exchange=exchange,
            pairs=pairs,
            total_pairs=len(pairs),
            categories={kind: found for kind, found in sorted_by_kind.items() if found},
        )

    def _all(self) -> AllPairs:
        by_exchange = {name: self._catalogue.pairs(name) for name in self.supported}
        counts: dict[str, int] = {}
        for pairs in by_exchange.values():
            for pair in pairs:
                counts[pair] = counts.get(pair, 0) + 1
        return AllPairs(
            exchanges=by_exchange,
            total_exchanges=len(by_exchange),
            total_pairs=len(counts),
            common_pairs=sorted(pair for pair, number in counts.items() if number > 1),
        )


Fee = Callable[[str, str], str | None]  # taker fee in percent, by exchange and symbol
Book = tuple[str, str]  # exchange and symbol

GROUP_DIGITS_MAX: Final = 18
# Finer than nearly every tick. With more decimals, most prices exceed 64 bits, which makes merging
# many times slower.
GROUP_DECIMALS_MAX: Final = 12
QUOTE_CHARS_MAX: Final = 20  # of a quote currency
LIST_RETRY_S: Final = 10  # a failed list is fetched again within a minute


class Resolved(NamedTuple):
    """The stream that options describe, and the exchanges that were left out."""

    key: StreamKey
    rejected: list[replies.Rejected]
    unknown_fee: tuple[str, ...] = ()  # exchanges or books left out of a view with fees
    published: tuple[replies.StatedFee, ...] | None = None  # of `fees: "published"`


def stream_key(
    directory: Directory,
    symbol: str,
    exchanges: list[str] | str,
    options: ViewOptions,
    key_fees: TakerFees = NO_FEES,
) -> Resolved:
    """Return the stream that these options describe, and the rejected exchanges.

    `key_fees` is the fee table of the client's API key, for `fees: "key"`.

    Raises:
        CommandRefused: No requested exchange lists the symbol, or an option is invalid.
    """
    canonical = _canonical(options, directory, symbol)
    quotes = canonical.quotes or ()
    accepted, rejected = _choose(directory, symbol, exchanges, quotes)
    members = _members(directory, symbol, quotes, accepted)
    unknown: list[str] = []
    fee: Fee | None = None
    if options.fees is not None:
        fee = _fee_source(directory, options.fees, key_fees)
        unknown = _without_fee(members, symbol, fee)
        rejected += [replies.Rejected(exchange=name, reason="unknown_fee") for name in unknown]
        members = {each for each in members if fee(exchange_of(each), symbol_of(each, symbol))}
        if not members:
            raise _bad(
                f"fees: no exchange of this view has a fee: {', '.join(unknown)}; "
                f'name them, or give "{OTHERS}", the fee for all others.'
            )
    steps: list[ConversionStep] = []
    if quotes:
        steps, lost = _conversions(directory, symbol, members, fee)
        _require_members(members, lost, symbol, quotes)
    published = None
    if fee is not None:
        books = {(exchange_of(each), symbol_of(each, symbol)) for each in members}
        pairs = _conversion_pairs(directory, symbol, members, quotes)
        by_pair = bool(quotes) and _is_by_pair(options.fees)
        canonical = replace(canonical, fees=_used_fees(books | pairs, fee, by_pair=by_pair))
        if options.fees == PUBLISHED:
            published = _stated(directory, books, steps)
    key = StreamKey(symbol, tuple(sorted(members)), canonical)
    return Resolved(key, rejected, tuple(unknown), published)


def _members(
    directory: Directory, symbol: str, quotes: Sequence[str], accepted: set[str]
) -> set[str]:
    """Return the books of a view on these exchanges.

    Raises:
        CommandRefused: A quote is unknown.
    """
    symbols = _symbols(symbol, quotes)
    for quote, pair in zip(quotes, symbols[1:], strict=True):
        if not directory.trading(pair) and not directory.is_quote(quote):
            raise _bad(f"quotes: no exchange lists a pair in {shown(quote)}.")
    own = symbol.partition("/")[2]
    return {
        member_name(name, pair.partition("/")[2], own)
        for pair in symbols
        for name in accepted.intersection(directory.trading(pair))
    }


def _symbols(symbol: str, quotes: Sequence[str]) -> list[str]:
    """Return the symbol of a view, and its base currency in the other quotes."""
    return [symbol, *(f"{symbol.partition('/')[0]}/{quote}" for quote in quotes)]


def _without_fee(members: Collection[str], symbol: str, fee: Fee) -> list[str]:
    """Return the exchanges without a fee; if only some of their books have none, those books."""
    books: dict[str, list[str]] = {}
    for name in sorted(members):
        books.setdefault(exchange_of(name), []).append(name)
    unknown: list[str] = []
    for exchange, names in books.items():
        missing = [name for name in names if fee(exchange, symbol_of(name, symbol)) is None]
        unknown += [exchange] if len(missing) == len(names) else missing
    return unknown


def _conversions(
    directory: Directory, symbol: str, members: Collection[str], fee: Fee | None
) -> tuple[list[ConversionStep], list[str]]:
    """Return the conversions of a basket, and the members that nothing converts yet."""

    def usable(exchange: str, pair: str) -> bool:
        charged = fee is None or fee(exchange, pair) is not None
        return charged and exchange in directory.trading(pair)

    steps = conversion_steps(sorted(members), symbol, usable)
    converted = {member for step in steps for member in step.members}
    lost = sorted(each for each in members if ":" in each and each not in converted)
    return steps, lost


def _require_members(
    members: Collection[str], lost: Collection[str], symbol: str, quotes: Sequence[str]
) -> None:
    """Check the number of books of a basket; nothing converts those that are `lost`.

    Raises:
        CommandRefused: No book can be shown, or there are too many.
    """
    base, _, own = symbol.partition("/")
    if len(members) == len(lost):
        raise _bad(
            f"quotes: none of these exchanges lists a pair that converts {', '.join(quotes)} "
            f"to {own}."
        )
    if len(members) > MEMBERS_MAX:
        raise _bad(
            f"quotes: a view merges at most {MEMBERS_MAX} books, and these exchanges have "
            f"{len(members)} of {base} in these quotes; request fewer exchanges or quotes."
        )


def _conversion_pairs(
    directory: Directory, symbol: str, members: Collection[str], quotes: Sequence[str]
) -> set[Book]:
    """Return the listed pairs by which the exchanges of a view may convert."""
    own = symbol.partition("/")[2]
    return {
        (exchange, pair)
        for exchange in map(exchange_of, members)
        for quote in quotes
        for pair, _ in conversion_pairs(quote, own)
        if exchange in directory.trading(pair)
    }


def _is_by_pair(fees: Mapping[str, str] | str | None) -> bool:
    """Return whether fees are those of pairs: published, or of a subscription with such fees."""
    return any(":" in name for name in fees) if isinstance(fees, dict) else fees == PUBLISHED


def _used_fees(books: Collection[Book], fee: Fee, *, by_pair: bool) -> TakerFees:
    """Return the fees of a view in canonical form, by exchange or by pair.

    By exchange, they are also those of conversion pairs that are listed later.
    """
    found = {
        f"{exchange}:{pair}" if by_pair else exchange: fee(exchange, pair)
        for exchange, pair in sorted(books)
    }
    return TakerFees({name: percent for name, percent in found.items() if percent is not None})


def _stated(
    directory: Directory, books: set[Book], steps: Sequence[ConversionStep]
) -> tuple[replies.StatedFee, ...]:
    """Describe the published fees of books and conversions."""
    converting = {(exchange, step.symbol) for step in steps for exchange in step.through}
    return tuple(
        replies.StatedFee.of(fee)
        for book in sorted(books | converting)
        if (fee := directory.published_fee(*book)) is not None
    )


def _fee_source(directory: Directory, fees: Mapping[str, str] | str, key_fees: TakerFees) -> Fee:
    """Return the fees of a table, sent or named, by our exchange names.

    Raises:
        CommandRefused: A fee is invalid, an exchange is unknown, or the key has no table.
    """
    if fees == PUBLISHED:

        def published(exchange: str, symbol: str) -> str | None:
            found = directory.published_fee(exchange, symbol)
            return None if found is None else found.percent

        return published
    return partial(fee_of, _table(directory, fees, key_fees))


def _table(directory: Directory, fees: Mapping[str, str] | str, key_fees: TakerFees) -> TakerFees:
    """Return the client's fee table, sent or named, by our exchange names.

    Raises:
        CommandRefused: A fee is invalid, an exchange is unknown, or the key has no table.
    """
    if isinstance(fees, TakerFees):
        return fees  # of a subscription
    if isinstance(fees, str):
        if not key_fees:
            raise _bad(
                "fees: this API key has no fee table; set one with PUT /api/v1/fees, "
                "or `onebook keys fees`."
            )
        return key_fees
    try:
        return named_table(fees, partial(_known, directory))
    except ValueError as error:
        raise _bad(f"fees: {error}") from None


def _known(directory: Directory, name: str) -> str:
    """Return our name of an exchange, enabled or not, so that a table suits several services.

    Raises:
        CommandRefused: The exchange is unknown, so it would silently get the fee of all others.
    """
    found = directory.resolve(name) or exchanges.resolve(name)
    if found is None:
        raise _bad(f"fees: {no_exchange(name)}")
    return found


def requested_stream(
    directory: Directory,
    body: commands.GetAggregatedOrderbook,
    subscribed: StreamKey | None,
    key_fees: TakerFees,
) -> StreamKey:
    """Return the stream of a one-time request: absent options are the subscription's, or defaults.

    Raises:
        CommandRefused: As in `stream_key`.
    """
    exchanges: list[str] | str = ALL
    options = ViewOptions()
    if subscribed is not None:
        exchanges = [*dict.fromkeys(map(exchange_of, subscribed.exchanges))]
        options = subscribed.options
    if body.exchanges is not UNSET:
        exchanges = body.exchanges
    sent = ((name, getattr(body, name)) for name in ViewOptions.__struct_fields__)
    options = replace(options, **{name: value for name, value in sent if value is not UNSET})
    return stream_key(directory, body.symbol, exchanges, options, key_fees).key


def _canonical(options: ViewOptions, directory: Directory, symbol: str) -> ViewOptions:
    """Return options in canonical form, without the other fields of a command.

    Raises:
        CommandRefused: The interval, the price step, a size, the distance or a quote is invalid.
    """
    if 0 < options.interval_ms < INTERVAL_MS_MIN:
        raise _bad(f"interval_ms: must be {INTERVAL_MUST_BE}.")
    chosen = {name: getattr(options, name) for name in ViewOptions.__struct_fields__}
    exact: dict[str, Any] = {
        "group": _shortest(options.group),
        "fill": _sizes(options.fill, directory),
        "within": _within(options.within),
        "encoding": PROTOBUF if options.encoding == PROTOBUF else None,
        "quotes": _quotes(options.quotes or (), symbol),
    }
    if options.net:
        exact["split"] = True  # a net level lists the price and amount of each exchange
    if options.crossings is not None:
        exact["crossings"] = _least_profit(options.crossings)
    if options.fees is None and options.crossings is not None:
        raise _bad("crossings: needs fees.")
    if options.crossings is None and options.on == CROSSING:
        raise _bad("on: crossing needs the option crossings.")
    if options.fees is None and options.net:
        raise _bad("net: needs fees.")
    if options.fees is None and options.fill is not None and options.fill.of_routes:
        raise _bad("fill: limit, exclude and max_exchanges need fees.")
    if options.encoding == PROTOBUF:
        exact["levels"] = OBJECT  # always names the exchanges of a level
    if options.on is not None and options.mode == DELTA:
        exact["depth"] = 1  # its short updates contain no other level
    return ViewOptions(**chosen | exact)


def _quotes(quotes: Sequence[str], symbol: str) -> tuple[str, ...] | None:
    """Return quote currencies in canonical form, without the symbol's own; None without any.

    Raises:
        CommandRefused: One is not the name of a currency.
    """
    found = {quote.strip().upper() for quote in quotes}
    for quote in found:
        if not quote.isascii() or not quote.isalnum() or len(quote) > QUOTE_CHARS_MAX:
            raise _bad(f"quotes: must be currencies such as USDC, not {shown(quote)}.")
    return tuple(sorted(found - {symbol.partition("/")[2]})) or None


def _choose(
    directory: Directory, symbol: str, requested: list[str] | str, quotes: Sequence[str]
) -> tuple[set[str], list[replies.Rejected]]:
    """Return the requested exchanges that trade a symbol, and why the others are rejected.

    With quotes, an exchange has to trade the base currency in one of them.
    """
    symbols = _symbols(symbol, quotes)
    try:
        selection = select([ALL] if requested == ALL else requested, directory.resolve)
        if not selection.everything and not selection.known:
            raise _none_known(directory, selection)
        asked = set(selection.among(directory.supported))
    except ValueError as error:
        raise _bad(str(error)) from None
    trading = {name for each in symbols for name in directory.trading(each)}
    unread = directory.unread() & asked
    accepted = trading & asked
    if not accepted:
        if unread:
            raise _not_known_yet(symbol, unread)
        raise CommandRefused(
            "invalid_symbol",
            f"None of these exchanges lists {shown(' or '.join(symbols))}.",
            symbol=symbol,
            suggested_symbols=directory.suggest(symbol, asked),
        )
    if len(accepted) > MEMBERS_MAX:
        raise _bad(
            f"exchanges: a view merges at most {MEMBERS_MAX} exchanges, and {len(accepted)} of "
            f"these list {symbol}; request fewer."
        )
    return accepted, _rejected(selection, trading, unread)


def _not_known_yet(symbol: str, unread: set[str]) -> CommandRefused:
    """Refuse an unknown symbol that may be in an instrument list that is not loaded yet."""
    names = sorted(unread)
    return CommandRefused(
        "exchange_unavailable",
        f"The instrument lists of {', '.join(names)} are not loaded yet; retry {shown(symbol)} "
        "shortly.",
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
    """Return the message for an unknown exchange, with its replacement if there is one."""
    return f"Unknown exchange {shown(name)}. {instead_of(name)}".rstrip()


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


def _shortest(group: str | None) -> str | None:
    """Return a price step without redundant zeros.

    Raises:
        CommandRefused: The step is not a positive decimal number, or is too fine.
    """
    if group is None:
        return None
    digits = group.replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit()) or len(digits) > GROUP_DIGITS_MAX:
        raise _bad('group: must be a price step as decimal text, such as "0.5".')
    step = Decimal(group)
    if not step:
        raise _bad("group: must be greater than 0.")
    shortest = _without_zeros(step)
    if len(shortest.partition(".")[2]) > GROUP_DECIMALS_MAX:
        raise _bad(f"group: must have at most {GROUP_DECIMALS_MAX} decimals.")
    return shortest


def _without_zeros(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _least_profit(percent: str) -> str:
    """Return a minimum profit in percent in canonical form.

    Raises:
        CommandRefused: The profit is negative, or not a decimal number within the limits of fees.
    """
    try:
        return least_profit(percent)
    except ValueError as error:
        raise _bad(f"crossings: {error}") from None


def _within(distance: str | None) -> str | None:
    """Return a distance from the mid, in basis points, without redundant zeros.

    Raises:
        CommandRefused: The distance is not a positive decimal number, or is too large or too fine.
    """
    if distance is None:
        return None
    try:
        View([], depth=1, within=distance)
    except ValueError as error:
        raise _bad(f"within: {error}") from None
    return _without_zeros(Decimal(distance))


def options_of(key: StreamKey) -> replies.Options:
    """Return the options of a stream as listed in a reply."""
    return replies.Options.of(key.options)


def _sizes(sizes: FillSizes | None, directory: Directory) -> FillSizes | None:
    """Check the option `fill` and convert it to canonical form.

    Raises:
        CommandRefused: There are no sizes, too many, or an invalid one.
    """
    if sizes is None:
        return None
    try:
        return fill_sizes(
            sizes.amounts,
            sizes.notionals,
            limit=sizes.limit or None,
            exclude=[_member(directory, name) for name in sizes.exclude or ()],
            max_exchanges=sizes.max_exchanges or None,
        )
    except ValueError as error:
        raise _bad(f"fill: {error}") from None


def _member(directory: Directory, name: str) -> str:
    found = directory.resolve(name)
    if found is None:
        raise _bad(f"fill: exclude: {no_exchange(name)}")
    return found


def _bad(message: str) -> CommandRefused:
    return CommandRefused("invalid_parameters", message)
