"""Quote baskets: books of one base currency in several quotes, pooled into the quote of a view.

A member of a basket is an exchange (`kraken`: its book in the view's quote), or an exchange and a
quote (`kraken:USD`: its book in USD, converted). Each converts through the exchange's own
conversion book if the exchange lists one, else through the merged books of the view's exchanges
that list one: `BTC/USD` in a basket of USDT through `USD/USDT` or `USDT/USD`. A conversion is one
step. A member is shown while its book and its conversion are live; one that no listed pair
converts is `NO_CONVERSION`, and its book stays closed, until a list shows such a pair.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from onebook.books import Books, LiveBook
from onebook.core import LEVELS_MAX, Book, Conversion
from onebook.fees import exchange_of, fee_of, symbol_of
from onebook.model import Health, Instrument, Reason
from onebook.orderbook import ConversionReport
from onebook.streams.identity import CONFLICT
from onebook.streams.members import StreamMembers, age_of, condition

QUOTES_MAX: Final = 8  # quote currencies of a view, besides its own
_json: Final = msgspec.json.encode
_read_top: Final = msgspec.json.Decoder(dict[str, tuple[Decimal, Decimal] | None]).decode

Listed = Callable[[str, str], bool]  # whether an exchange lists a symbol
Lookup = Callable[[str, str], Instrument | None]  # by exchange and symbol


def member_name(exchange: str, quote: str, own: str) -> str:
    """Return the name of an exchange's book in a quote currency; `own` is the view's quote."""
    return exchange if quote == own else f"{exchange}:{quote}"


def percents_of(fees: Mapping[str, str], members: Sequence[str], symbol: str) -> list[str]:
    """Return the taker fee of each member of a view of `symbol`; each has one."""
    found = [fee_of(fees, exchange_of(name), symbol_of(name, symbol)) for name in members]
    assert None not in found, fees  # members without a fee are rejected
    return [fee for fee in found if fee is not None]


class ConversionStep(NamedTuple):
    """How some members are converted: through this symbol's books on these exchanges.

    `inverse` if the symbol's base currency is the view's quote: USDT/USD for USD to USDT.
    """

    quote: str
    symbol: str
    inverse: bool
    through: tuple[str, ...]
    members: tuple[str, ...]


def conversion_pairs(quote: str, own: str) -> tuple[tuple[str, bool], ...]:
    """Return the symbols that convert a quote currency, and whether each does so inversely."""
    return (f"{quote}/{own}", False), (f"{own}/{quote}", True)


def conversion_steps(members: Sequence[str], symbol: str, listed: Listed) -> list[ConversionStep]:
    """Return the conversions of a basket; members that nothing converts are in none of them.

    Without a conversion on the member's own exchange, the direction that more of the exchanges
    list is used, the direct one if equally many do. Members with the same conversion books share a
    step, because they use up the same levels.
    """
    own = symbol.partition("/")[2]
    exchanges = sorted({exchange_of(each) for each in members})
    steps: list[ConversionStep] = []
    for quote in sorted({each.partition(":")[2] for each in members} - {""}):
        pairs = conversion_pairs(quote, own)
        served: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
        shared: list[str] = []
        for member in (each for each in members if each.partition(":")[2] == quote):
            exchange = exchange_of(member)
            pair = next((each for each in pairs if listed(exchange, each[0])), None)
            if pair is None:
                shared.append(member)
            else:
                served[*pair, (exchange,)] = [member]
        candidates = (
            (*pair, tuple(each for each in exchanges if listed(each, pair[0]))) for pair in pairs
        )
        best = max(candidates, key=lambda each: len(each[2]))
        if shared and best[2]:
            served.setdefault(best, []).extend(shared)
        steps += [
            ConversionStep(quote, *how, tuple(sorted(members))) for how, members in served.items()
        ]
    return steps


class StepMembers(StreamMembers):
    """The books of a conversion: one of another coin is never used, not even alone."""

    __slots__ = ()

    def shows(self, book: LiveBook) -> bool:
        """Return whether a book is live, and of the same coin as others of its symbol."""
        is_other = book.mark is not None and book.mark.reason is CONFLICT
        return not is_other and super().shows(book)


class StepBooks:
    """One conversion of a view: its live books, and the converted books of its members."""

    __slots__ = ("_conversion", "_positions", "books", "reason", "step")

    def __init__(
        self,
        step: ConversionStep,
        symbol: str,
        instruments: list[Instrument | None],
        names: Sequence[str],
        fees: Mapping[str, str] | None,
        net: bool,
    ) -> None:
        self.step = step
        self.books = StepMembers(step.through, instruments)
        self.reason: Reason | None = Reason.SUBSCRIBING  # why it is not live
        self._positions = [names.index(each) for each in step.members]
        self._conversion = Conversion(
            step.members,
            step.through,
            inverse=step.inverse,
            fees=None if fees is None else percents_of(fees, step.members, symbol),
            through_fees=None if fees is None else percents_of(fees, step.through, step.symbol),
            net=net,
        )

    def refresh(self, books: Books) -> None:
        """Refresh which conversion books are live."""
        self.books.refresh(books)
        self.reason = None
        if self.books.live:
            return
        self.reason = Reason.NOT_LISTED
        for instrument in self.books.needed():
            book = books.get(instrument)
            if book is None:
                self.reason = Reason.SUBSCRIBING
            else:
                _, self.reason, _ = condition(book, shown=False)
                return

    def prepare(self, cores: list[Book | None], depth: int) -> None:
        """Replace the members' books among those of the view by converted ones."""
        own = [cores[at] for at in self._positions]
        converted = self._conversion.convert(own, self.books.cores, depth=depth)
        for at, book in zip(self._positions, converted, strict=True):
            cores[at] = book

    def age_ms(self, now: float) -> int:
        """Milliseconds since the last data of its books, of the oldest."""
        return max((age_of(each, now) for each in self.books.books), default=0)

    def top(self) -> bytes:
        """Its best bid and ask as of its last use, as members of a JSON object."""
        return self._conversion.top() if self.books.live else b'"bid":null,"ask":null'

    def json(self, now: float) -> bytes:
        """Encode the conversion as of its last use."""
        top, age = self.top(), b"%d" % self.age_ms(now) if self.books.live else b"null"
        return (
            b'{"symbol":%b,"members":%b,"exchanges":%b,"stale_exchanges":%b,%b,"age_ms":%b,'
            b'"reason":%b}'
            % (
                _json(self.step.symbol),
                _json(self.step.members),
                _json(self.books.shown),
                self.books.stale_json,
                top,
                age,
                _json(self.reason),
            )
        )

    def report(self, now: float) -> ConversionReport:
        """Return the conversion as of its last use."""
        top = _read_top(b"{%b}" % self.top())
        return ConversionReport(
            self.step.symbol,
            self.step.members,
            tuple(self.books.shown),
            tuple(self.books.names[at] for at in self.books.stale),
            top["bid"],
            top["ask"],
            self.age_ms(now) if self.books.live else None,
            self.reason,
        )


class MemberState(NamedTuple):
    """State of a member, the reason why it is not shown, and a detail."""

    state: Health
    reason: Reason | None
    detail: str


UNCONVERTED: Final = MemberState(Health.OFFLINE, Reason.NO_CONVERSION, "")


class BasketMembers(StreamMembers):
    """The books of a view in several quotes, of which those in other quotes are converted.

    Args:
        names: The members.
        symbol: The view's symbol.
        lookup: Returns the instrument of an exchange and a symbol, as listed now.
        fees: Taker fees by exchange or pair (`fees.fee_of`); None without.
        depth: Levels a side of the merged book.
        net: Whether the merged book is in the order of prices after fees.
    """

    __slots__ = (
        "_convertible",
        "_depth",
        "_fees",
        "_lookup",
        "_native",
        "_net",
        "_pairs",
        "_states",
        "_step_of",
        "_symbol",
        "steps",
    )

    def __init__(
        self,
        names: Sequence[str],
        symbol: str,
        lookup: Lookup,
        fees: Mapping[str, str] | None,
        depth: int = LEVELS_MAX,
        *,
        net: bool = False,
    ) -> None:
        super().__init__(
            names, [lookup(exchange_of(name), symbol_of(name, symbol)) for name in names]
        )
        self._symbol = symbol
        self._lookup = lookup
        self._fees = fees
        self._depth = depth
        self._net = net
        self._native: list[Book | None] = []
        self._states: dict[str, MemberState] = {}
        own = symbol.partition("/")[2]
        quotes = sorted({each.partition(":")[2] for each in names} - {""})
        self._pairs = [pair for quote in quotes for pair, _ in conversion_pairs(quote, own)]
        # Those of `_pairs` that each exchange can convert by, as of its last list.
        self._convertible = {each: self._found_at(each) for each in map(exchange_of, names)}
        self.steps: list[StepBooks] = []
        self._step_of: dict[str, StepBooks] = {}
        self._find_steps()
        # Each new subscriber is told of these (`Streams.marks`).
        self._states |= dict.fromkeys(filter(self.lacks_conversion, names), UNCONVERTED)

    def follow_list(self, exchange: str) -> bool:
        """Look for conversions in the list of an exchange; return whether any conversion changed.

        A conversion that stays the same keeps its state.
        """
        if exchange not in self._convertible:
            return False
        found = self._found_at(exchange)
        if found == self._convertible[exchange]:
            return False
        self._convertible[exchange] = found
        before = self.steps
        self._find_steps()
        return self.steps != before

    def _found_at(self, exchange: str) -> set[str]:
        """Return the listed conversion pairs of an exchange whose fees are known."""
        fees = self._fees
        return {
            pair
            for pair in self._pairs
            if self._lookup(exchange, pair) is not None
            and (fees is None or fee_of(fees, exchange, pair) is not None)
        }

    def _find_steps(self) -> None:
        def usable(exchange: str, pair: str) -> bool:
            return pair in self._convertible[exchange]

        known = {each.step: each for each in self.steps}
        self.steps = [
            known.get(step) or self._opened(step)
            for step in conversion_steps(self.names, self._symbol, usable)
        ]
        self._step_of = {name: each for each in self.steps for name in each.step.members}

    def _opened(self, step: ConversionStep) -> StepBooks:
        instruments = [self._lookup(each, step.symbol) for each in step.through]
        return StepBooks(step, self._symbol, instruments, self.names, self._fees, self._net)

    def needed(self) -> list[Instrument]:
        """Return the instruments of the members and of their conversions, each once."""
        found = [
            each
            for name, each in zip(self.names, self.instruments, strict=True)
            if each is not None and not self.lacks_conversion(name)
        ]
        for each in self.steps:
            found += each.books.needed()
        return list(dict.fromkeys(found))

    def refresh(self, books: Books) -> None:
        """Refresh which books and conversions are live."""
        for each in self.steps:
            each.refresh(books)
        super().refresh(books)
        self._native = self.cores
        self.awaited |= any(each.books.awaited and not each.books.live for each in self.steps)

    def merged(self) -> list[object]:
        """Return the books that are merged, and the conversions with their books."""
        found = super().merged()
        for each in self.steps:
            if each.books.live:
                found += [each.step, *each.books.books]
        return found

    def lacks_conversion(self, name: str) -> bool:
        """Return whether no listed pair converts the book of a member."""
        return ":" in name and name not in self._step_of

    def unconverted(self) -> list[tuple[str, Instrument, MemberState]]:
        """Return the members that no listed pair converts, and their state."""
        return [
            (name, instrument, UNCONVERTED)
            for name, instrument in zip(self.names, self.instruments, strict=True)
            if instrument is not None and self.lacks_conversion(name)
        ]

    def shows_as(self, name: str, book: LiveBook) -> bool:
        """Return whether the book of a member and its conversion are live."""
        step = self._step_of.get(name)
        is_converted = step.books.live if step is not None else ":" not in name
        return is_converted and super().shows_as(name, book)

    def prepare(self) -> None:
        """Convert the current books."""
        self.cores = list(self._native)
        for each in self.steps:
            if each.books.live:
                each.prepare(self.cores, self._depth)

    def age_ms(self, name: str, now: float) -> int:
        """Milliseconds since the last data of a live member or its conversion, if that is older."""
        step = self._step_of.get(name)
        return max(super().age_ms(name, now), 0 if step is None else step.age_ms(now))

    def horizon_of(self, name: str, book: LiveBook) -> tuple[str | None, str | None]:
        """The horizon of a live member in the view's quote, as of the last `prepare`."""
        core = self.cores[self.names.index(name)]
        assert core is not None
        return core.horizon(book.window)

    def conversions_json(self, now: float) -> bytes:
        """Encode the conversions as of the last `prepare`."""
        return b"[%b]" % b",".join(each.json(now) for each in self.steps)

    def changed_states(self, books: Books) -> list[tuple[str, Instrument, MemberState]]:
        """Return the members whose state has changed since the last call."""
        found = []
        for name, instrument in zip(self.names, self.instruments, strict=True):
            if instrument is None:
                continue
            book = books.get(instrument)
            if self.lacks_conversion(name):
                state = UNCONVERTED
            elif book is None:
                continue
            else:
                state = self.state_of(name, book)
            if self._states.get(name) != state:
                self._states[name] = state
                found.append((name, instrument, state))
        return found

    def state_of(self, name: str, book: LiveBook) -> MemberState:
        """Return a member's state: while its book is live, that of its conversion."""
        if self.lacks_conversion(name):
            return UNCONVERTED
        state = MemberState(*condition(book, shown=super().shows_as(name, book)))
        if state.state is not Health.LIVE or ":" not in name:
            return state
        step = self._step_of[name]
        if step.books.live:
            return state
        through = ", ".join(step.step.through)
        detail = f"{step.step.symbol} on {through}, which converts its prices, is not live"
        return MemberState(Health.STALE, step.reason, detail)
