"""Instrument lists as data: the names of the members that hold what an instrument needs.

A `ListReader` is the `parse_instruments` of an exchange whose list is rows of JSON objects. Lists
of another kind are read by a function of their connector (`frames.instruments_of`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec
from msgspec import Raw

from onebook.exchanges.kit.columns import Columns
from onebook.exchanges.kit.contract import ROWS_MAX, Instruments, ProtocolError
from onebook.exchanges.kit.frames import (
    UNREADABLE,
    checked_rows,
    decode,
    instrument_of,
    plain_step,
    short,
    sound_ones,
    step_of,
)
from onebook.model import Instrument

Value = str | int | bool | None
Rule = Mapping[str, Collection[Value]]  # members and the values that each may have, or list
Step = str | int | float
Decimals = str | int

NAME: Final = ""  # in place of a member: the name that the row has in an object of rows
NO_RULE: Final[Rule] = {}


class ListReader:
    """Reads an instrument list by the names of its members; see `contract.ParseInstruments`.

    Members are paths as `columns.members_of` reads them.

    Args:
        exchange: Whose list it is.
        rows: The member that holds the rows, a list or an object; "" where the body is the rows.
        native: The member with the exchange's own name of an instrument; `NAME` where rows are
            members of an object that has them by this name.
        base, quote: The members with its codes; "" where the native name holds both.
        separator: What is between the two in a native name.
        quote_first: Whether the native name begins with the quote.
        spell: Writes the name that the socket uses, where it is not the native one of the list.
        answered: Members that the body must have beside its rows; anything else is an error of the
        exchange.
        spot: Members of a spot row; others are left out.
        not_spot: Members of a row that is not of spot; where it names several members, all of them.
        not_spot_name: What is part of the native names that are not of spot.
        trading: Members of a row that is traded now; others are halted.
        halted: Members of a row that is halted; where it names several members, all of them.
        tick, lot: The members with the steps of prices and amounts.
        tick_decimals, lot_decimals: The members with the number of their decimals instead.

    A row lacks a needed member at its own cost: it is left out. Those of the negative rules
    (`not_spot`, `halted`) and of steps may be absent, and those of a positive rule that has None
    among its values.
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
        self._columns = self._row_columns()
        self._decode_row = msgspec.json.Decoder(self._columns.shape()).decode
        self._envelope = self._body_columns()
        either: Any = list[Raw] if native else dict[str, Raw]
        kind = self._envelope.shape() if rows else either
        self._decode_body = msgspec.json.Decoder(kind).decode

    def of(self, exchange: str) -> "ListReader":
        """Return a reader of the same list of another exchange."""
        other = copy(self)
        other.exchange = exchange
        return other

    def __call__(self, body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
        """Read a body.

        Raises:
            ProtocolError: It is no such list, the exchange refuses it, or it has more rows than
                `rows_max`.
        """
        found = decode(self._decode_body, body, what="the instruments", items_max=rows_max)
        rows = self._checked(found) if self._rows else found
        checked_rows(rows, rows_max)
        named = rows.items() if isinstance(rows, dict) else (("", row) for row in rows)
        instruments = sound_ones(self._read(named))
        if isinstance(found, dict) and not instruments:
            # An object of rows and an error are both objects.
            raise ProtocolError(f"the instruments hold no spot pair: {short(list(found))}")
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
            raise ProtocolError(f"the instruments cannot be read: there is no {self._rows}")
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
        return instrument_of(
            self.exchange,
            self._spell(listed),
            base=base,
            quote=quote,
            trading=self._holds(row, *self._trading),
            tick=tick,
            lot=lot,
        )

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
        """Return whether a member has one of these values, or lists one."""
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
