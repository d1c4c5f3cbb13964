"""Reads the instrument lists of exchanges: rows become instruments with checked names and steps.

A `ListReader` is the `parse_instruments` of an exchange whose list consists of JSON objects; it is
declared by the names of their members. For other lists, the connector has a function that uses
`instruments_of` and `instrument_of`. `Columns` extracts members by path and skips all others:
msgspec decodes a row to a type built from the paths, without an intermediate dict.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from decimal import Decimal
from functools import cache, reduce
from operator import or_
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from onebook.core.types import SCALE_MAX
from onebook.exchanges.kit import currencies
from onebook.exchanges.kit.codec import UNREADABLE, decode, short
from onebook.exchanges.kit.contract import ROWS_MAX, Instruments, ProtocolError
from onebook.fees import fee_text
from onebook.model import Instrument, InstrumentStatus

SYMBOL_CHARACTERS_MAX: Final = 40  # of our symbol of a pair
STEP_DECIMALS: Final = 12  # of a step sent as a float
NATIVE_CHARACTERS_MAX: Final = 64  # of the exchange's name of a pair
# Letters and digits of any script (Binance lists Chinese names) and the punctuation that exchanges
# use: no blanks, control characters, bidirectional marks, quotes or HTML.
_NAME: Final = re.compile(r"[\w.\-:/$@+!()*#~]+")
_NUMBER: Final = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")
_FEE: Final = re.compile(r"-?[0-9]{1,4}(\.[0-9]{1,20})?")
_STEP: Final = re.compile(r"[0-9.eE+-]{0,32}")

Row = TypeVar("Row")
Value = str | int | bool | None
Rule = Mapping[str, Collection[Value]]  # members and the allowed values of each
Step = str | int | float
Decimals = str | int

NAME: Final = ""  # used as a member: the key of the row in an object of rows
NO_RULE: Final[Rule] = {}

Kinds = dict[tuple[str, ...], tuple[Any, bool]]  # the type of each path, and whether it is optional

_MEMBER: Final = re.compile(r"([^.\[]+)(?:\[(\w+)=(\w+)\])?(?:\.|$)")


class PathStep(NamedTuple):
    """A step of a path: a member, and the key and value that select one object if it is a list."""

    name: str
    key: str = ""
    value: str = ""


@cache
def members_of(path: str) -> tuple[PathStep, ...]:
    """Parse a path such as `priceFilter.tickSize` or `filters[filterType=LOT_SIZE].stepSize`."""
    return tuple(PathStep(*each.groups("")) for each in _MEMBER.finditer(path))


class Columns:
    """The members of a JSON object to decode, by path (`members_of`); all others are skipped.

    An optional member that is absent or null reads as None. An object that lacks a required member,
    or has a value of another type, cannot be decoded.
    """

    def __init__(self) -> None:
        self._kinds: Kinds = {}
        self._lists: set[tuple[str, ...]] = set()
        self._attributes: dict[tuple[str, ...], str] = {}

    def need(self, path: str, kind: Any, *, optional: bool) -> None:
        """Decode a member as this type; a member needed twice may have either type."""
        members = members_of(path)
        names = tuple(member.name for member in members)
        for depth, member in enumerate(members, start=1):
            if member.key:
                self._lists.add(names[:depth])
                self._kinds[(*names[:depth], member.key)] = (str, True)
        known, absent = self._kinds.get(names, (kind, True))
        self._kinds[names] = (known | kind, absent and optional)

    def shape(self) -> type[Struct]:
        """Return the Struct type that objects are decoded to."""
        return self._shape(self._kinds, ())

    def value(self, row: Any, path: str) -> Any:
        """Return a member of a decoded object."""
        names: tuple[str, ...] = ()
        for member in members_of(path):
            names = (*names, member.name)
            row = getattr(row, self._attributes[names], None)
            if member.key:
                key = self._attributes[(*names, member.key)]
                row = next((one for one in row or () if getattr(one, key) == member.value), None)
        return row

    def _shape(self, kinds: Kinds, path: tuple[str, ...]) -> type[Struct]:
        """Make a Struct type with numbered attributes: member names may not be identifiers."""
        heads: dict[str, Kinds] = {}
        for (head, *rest), wanted in kinds.items():
            heads.setdefault(head, {})[tuple(rest)] = wanted
        names: dict[str, str] = {}
        required: list[tuple[str, Any]] = []
        optional: list[tuple[str, Any, None]] = []
        for number, (head, below) in enumerate(heads.items()):
            attribute, here = f"member{number}", (*path, head)
            names[attribute] = head
            self._attributes[here] = attribute
            kind = below[()][0] if () in below else self._shape(below, here)
            kind = _list_of(kind) if here in self._lists else kind
            if all(absent for _, absent in below.values()):
                optional.append((attribute, kind | None, None))
            else:
                required.append((attribute, kind))
        return msgspec.defstruct("Members", [*required, *optional], rename=names)


def _list_of(kind: Any) -> Any:
    return list[kind]


class FeeColumn(NamedTuple):
    """The members of a row that state the base taker fee.

    Args:
        member: The fee, in percent; or rows of a volume and a fee, of which the first is the base.
        fraction: The fee is a fraction of the price instead.
        classes: The fee is the name of a class, of which this is the percent.
        factor: The member that the fee is multiplied by; "" if there is none.
    """

    member: str
    fraction: bool = False
    classes: Mapping[str, str] | None = None
    factor: str = ""

    def percent(self, value: object, factor: object = 1) -> str:
        """Return the fee in percent from the values of both members; "" if it is unusable."""
        if isinstance(value, list):
            tier = value[0] if value else None
            value = tier[1] if isinstance(tier, list) and len(tier) > 1 else None
        if self.classes is not None:
            value = self.classes.get(str(value))
        percent, times = _decimal(value), _decimal(factor)
        if percent is None or times is None:
            return ""
        if self.fraction:
            percent *= 100
        try:
            return fee_text(f"{(percent * times).normalize():f}")
        except ValueError:
            return ""


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        value = f"{value:.{STEP_DECIMALS}f}"
    text = str(value) if isinstance(value, int | str) else ""
    return Decimal(text) if _FEE.fullmatch(text) else None


class ListReader:
    """Reads an instrument list by the names of its members (`contract.ParseInstruments`).

    Members are given as paths (`members_of`).

    Args:
        exchange: The exchange's name.
        rows: The member that holds the rows, a list or an object; "" if the body is the rows.
        native: The member with the exchange's name of an instrument; `NAME` if the rows are an
            object with these names as keys.
        base, quote: The members with the currency codes; "" if the native name holds both.
        separator: The text between both codes in a native name.
        quote_first: Whether the native name begins with the quote.
        spell: Converts the name in the list to the name on the socket.
        answered: Required values of other members of the body; any other value is an error of the
            exchange.
        spot: Values of a spot row; other rows are skipped.
        not_spot: Values of a row that is not spot; several members must all match.
        not_spot_name: Text that occurs only in native names of other products.
        trading: Values of a row that is trading; others are halted.
        halted: Values of a halted row; several members must all match.
        tick, lot: The members with the price and amount steps.
        tick_decimals, lot_decimals: The members with the number of decimals instead.
        least_amount, least_notional: The members with the smallest amount, in the base currency,
            and the smallest value, in the quote currency, of an order.
        taker: The members with the base taker fee; None if the list does not state it.

    A row that lacks a required member is skipped. Members of the negative rules (`not_spot`,
    `halted`) and of steps may be absent, and so may those of a positive rule that allows None.
    """

    def __init__(
        self,
        exchange: str,
        *,
        native: str,
        rows: str = "",
        base: str = "",
        quote: str = "",
        separator: str = "",
        quote_first: bool = False,
        spell: Callable[[str], str] = str,
        answered: Mapping[str, Collection[object]] = NO_RULE,
        spot: Rule = NO_RULE,
        not_spot: Rule = NO_RULE,
        not_spot_name: str = "",
        trading: Rule = NO_RULE,
        halted: Rule = NO_RULE,
        tick: str = "",
        lot: str = "",
        tick_decimals: str = "",
        lot_decimals: str = "",
        least_amount: str = "",
        least_notional: str = "",
        taker: FeeColumn | None = None,
    ) -> None:
        self.exchange = exchange
        self._rows = rows
        self._native = native
        self._codes = (base, quote)
        self._separator = separator
        self._quote_first = quote_first
        self._spell = spell
        self._answered = answered
        self._spot, self._trading = (spot, not_spot), (trading, halted)
        self._not_spot_name = not_spot_name
        self._steps = ((tick, tick_decimals), (lot, lot_decimals))
        self._leasts = (least_amount, least_notional)
        self._taker = taker
        self._columns = self._row_columns()
        self._decode_row = msgspec.json.Decoder(self._columns.shape()).decode
        self._envelope = self._body_columns()
        either: Any = list[Raw] if native else dict[str, Raw]
        kind = self._envelope.shape() if rows else either
        self._decode_body = msgspec.json.Decoder(kind).decode

    def of(self, exchange: str) -> "ListReader":
        """Return a reader for another exchange that has the same list."""
        other = copy(self)
        other.exchange = exchange
        return other

    def __call__(self, body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
        """Read a list.

        Raises:
            ProtocolError: The body is not such a list, is an error of the exchange, or has more
                rows than `rows_max`.
        """
        found = decode(self._decode_body, body, what="the instruments", items_max=rows_max)
        rows = self._checked(found) if self._rows else found
        checked_rows(rows, rows_max)
        named = rows.items() if isinstance(rows, dict) else (("", row) for row in rows)
        instruments = sound_ones(self._read(named))
        if isinstance(found, dict) and not instruments:
            # Both the rows and an error may be an object.
            raise ProtocolError(f"the instruments include no spot pair: {short(list(found))}")
        return instruments

    def _row_columns(self) -> Columns:
        columns = Columns()
        for member in filter(None, (self._native, *self._codes)):
            columns.need(member, str, optional=False)
        for needed, forbidden in (self._spot, self._trading):
            for member, values in (*needed.items(), *forbidden.items()):
                kinds = reduce(or_, (type(value) for value in values if value is not None))
                optional = member in forbidden or None in values
                columns.need(member, _or_list(kinds), optional=optional)
        for step, decimals in self._steps:
            if step:
                columns.need(step, Step, optional=True)
            if decimals:
                columns.need(decimals, Decimals, optional=True)
        for least in filter(None, self._leasts):
            columns.need(least, Any, optional=True)
        if self._taker is not None:
            for member in filter(None, (self._taker.member, self._taker.factor)):
                columns.need(member, Any, optional=True)
        return columns

    def _body_columns(self) -> Columns:
        columns = Columns()
        if self._rows:
            either = list[Raw] | dict[str, Raw]
            columns.need(self._rows, either, optional=bool(self._answered))
            for member in self._answered:
                columns.need(member, Any, optional=None in self._answered[member])
        return columns

    def _checked(self, found: object) -> Any:
        for member, values in self._answered.items():
            value = self._envelope.value(found, member)
            if value not in values:
                raise ProtocolError(f"the instruments are refused: {member} is {short(value)}")
        rows = self._envelope.value(found, self._rows)
        if rows is None:
            raise ProtocolError(f"the instruments cannot be read: {self._rows} is missing")
        return rows

    def _read(self, rows: Iterable[tuple[str, Raw]]) -> Iterator[Instrument | None]:
        for name, raw in rows:
            try:
                row = self._decode_row(raw)
            except UNREADABLE:
                continue
            yield self._instrument(name, row)

    def _instrument(self, name: str, row: object) -> Instrument | None:
        listed = self._columns.value(row, self._native) if self._native else name
        not_spot = self._not_spot_name and self._not_spot_name in listed
        if not_spot or not self._holds(row, *self._spot):
            return None
        base, quote = self._pair(listed, row)
        tick, lot = (self._step(row, *members) for members in self._steps)
        least_amount, least_notional = (
            self._columns.value(row, member) if member else "" for member in self._leasts
        )
        return instrument_of(
            self.exchange,
            self._spell(listed),
            base=base,
            quote=quote,
            trading=self._holds(row, *self._trading),
            tick=tick,
            lot=lot,
            least_amount=least_amount,
            least_notional=least_notional,
            taker_fee=self._taker_fee(row),
        )

    def _taker_fee(self, row: object) -> str:
        taker = self._taker
        if taker is None:
            return ""
        factor = self._columns.value(row, taker.factor) if taker.factor else 1
        return taker.percent(self._columns.value(row, taker.member), factor)

    def _pair(self, listed: str, row: object) -> tuple[str, str]:
        if not self._separator:
            base, quote = (self._columns.value(row, member) for member in self._codes)
            return base, quote
        first, _, second = listed.partition(self._separator)
        return (second, first) if self._quote_first else (first, second)

    def _holds(self, row: object, needed: Rule, forbidden: Rule) -> bool:
        is_said = self._is_said
        forbids = bool(forbidden) and all(is_said(row, *rule) for rule in forbidden.items())
        return not forbids and all(is_said(row, *rule) for rule in needed.items())

    def _is_said(self, row: object, member: str, values: Collection[Value]) -> bool:
        """Return whether a member has one of these values, or is a list that contains one."""
        value = self._columns.value(row, member)
        if isinstance(value, list):
            return any(each in values for each in value)
        return value in values

    def _step(self, row: object, step: str, decimals: str) -> str:
        if step:
            found: Step | None = self._columns.value(row, step)
            return found if isinstance(found, str) else plain_step(found)
        return step_of(_whole(self._columns.value(row, decimals))) if decimals else ""


def _or_list(kind: Any) -> Any:
    return kind | list[kind]


def _whole(number: Decimals | None) -> int | None:
    if isinstance(number, str):
        return int(number) if number.isdecimal() and len(number) < 3 else None
    return number


def instruments_of(
    rows: Collection[Raw],
    row_type: type[Row],
    build: Callable[[Row], Instrument | None],
    *,
    rows_max: int = ROWS_MAX,
) -> Instruments:
    """Read a list row by row; rows that cannot be decoded are skipped.

    Raises:
        ProtocolError: The list has more rows than `rows_max`.
    """
    checked_rows(rows, rows_max)
    row_decode = msgspec.json.Decoder(row_type).decode

    def built() -> Iterator[Instrument | None]:
        for raw in rows:
            try:
                row = row_decode(raw)
            except UNREADABLE:
                continue
            yield build(row)

    return sound_ones(built())


def checked_rows(rows: Collection[object], rows_max: int) -> None:
    """Check the length of a list.

    Raises:
        ProtocolError: The list has more rows than `rows_max`.
    """
    if len(rows) > rows_max:
        raise ProtocolError(f"the list has {len(rows)} rows, more than {rows_max}")


def sound_ones(instruments: Iterable[Instrument | None]) -> Instruments:
    """Keep the instruments with safe names and count the others; None is skipped."""
    found = Instruments()
    for instrument in instruments:
        if instrument is None:
            continue
        if sound(instrument):
            found.append(instrument)
        else:
            found.refused += 1
    return found


def sound(instrument: Instrument) -> bool:
    """Return whether the names of an instrument are safe in logs, pages and other systems."""
    return (
        len(instrument.symbol) <= SYMBOL_CHARACTERS_MAX
        and len(instrument.native) <= NATIVE_CHARACTERS_MAX
        and _NAME.fullmatch(instrument.symbol) is not None
        and _NAME.fullmatch(instrument.native) is not None
        and _STEP.fullmatch(instrument.tick) is not None
        and _STEP.fullmatch(instrument.lot) is not None
        and all(0 <= scale <= SCALE_MAX for scale in instrument.scales)
    )


def instrument_of(
    exchange: str,
    native: str,
    *,
    base: str,
    quote: str,
    trading: bool,
    tick: str = "",
    lot: str = "",
    least_amount: object = "",
    least_notional: object = "",
    taker_fee: str = "",
    scales: tuple[int, int] = (0, 0),
) -> Instrument | None:
    """Make an instrument with our symbol; None if a part of its name is missing.

    `base` and `quote` are the exchange's codes, which `currencies` translates. None also if one
    contains "/", which would make the symbol ambiguous.
    """
    if not (native and base and quote) or "/" in base or "/" in quote:
        return None
    status = InstrumentStatus.TRADING if trading else InstrumentStatus.HALTED
    codes = f"{base}/{quote}".upper()
    symbol = currencies.symbol_of(exchange, codes)
    return Instrument(
        exchange,
        symbol,
        native,
        _plain(tick),
        _plain(lot),
        status,
        codes,
        least_amount=_least(least_amount),
        least_notional=_least(least_notional),
        taker_fee=taker_fee,
        scales=scales,
    )


def _least(value: object) -> str:
    """Return a minimum as decimal text, "" if it is unusable: that costs no instrument."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = plain_step(value)
    return _plain(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else ""


def _plain(step: str) -> str:
    """Strip trailing zeros from a step."""
    return step.rstrip("0").rstrip(".") if "." in step else step


def plain_step(step: float | None) -> str:
    """Format a step that is a JSON number, such as 1e-8, without an exponent.

    An integer too large for a float is "inf", which is not `sound`.
    """
    try:
        return "" if step is None else f"{step:.{STEP_DECIMALS}f}"
    except OverflowError:
        return "inf"


def step_of(decimals: int | str | None) -> str:
    """Return the step of a number of decimals: 2 is "0.01", 0 is "1", anything unusable is ""."""
    if isinstance(decimals, str):
        decimals = int(decimals) if decimals.isdecimal() and len(decimals) < 3 else None
    if decimals is None or not 0 <= decimals <= 18:
        return ""
    return f"0.{'1':0>{decimals}}" if decimals else "1"
