"""Updates of a stream as protobuf, by `onebook.proto`; without the number of the subscription.

The core writes the fields of every update, protobuf's library those on request. The gateway puts
what differs between clients in front of an update or after it: joined messages are read as one.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from onebook import updates
from onebook.core import Packer, View
from onebook.crossings import CrossingReport
from onebook.fill import NOTIONAL, Fill
from onebook.orderbook import BookTimes, LayerTimes
from onebook.routes import Route
from onebook.streams.basket import BasketMembers, StepBooks
from onebook.streams.fill import FillView, RouteView, oldest_ms
from onebook.streams.members import StreamMembers
from onebook.streams.options import ViewOptions
from onebook.updates import Update, figures

_json = msgspec.json.encode
_numbers = msgspec.json.Encoder(decimal_format="number").encode
FIELDS_MAX: Final = 1_024  # encoded fields in each cache: most updates repeat one
_FIGURES: Final = ("size", "amount", "notional", "average", "worst")
_ROUTE_FIGURES: Final = (*_FIGURES, "fees", "net", "net_average", "extra", "unplaced")


def content(
    members: StreamMembers,
    options: ViewOptions,
    now: float,
    fills: FillView | RouteView | None,
    reports: Sequence[CrossingReport],
    times: BookTimes | None,
    sent_us: int,
) -> bytes | None:
    """Encode the exchanges left out and what was requested; None if a number is too large."""
    steps = members.steps if isinstance(members, BasketMembers) else ()
    fields: dict[str, Any] = {}
    if options.ages:
        fields["ages_ms"] = members.ages_ms(now)
    at: dict[str, int] = {}  # positions of exchanges, for fields that name some
    if fills is not None or reports or steps or times is not None:
        at = {name: position for position, name in enumerate(members.names)}
    try:
        if options.coverage:
            ends = members.ends()
            fields["coverage"] = figures(price for end in ends for price in (end.bid, end.ask))
        if fills is not None:
            fields["buys"], fields["sells"] = (
                [_fill(each, at, members, now) for each in side] for side in fills.found
            )
        if reports:
            fields["crossings"] = [_crossing(each, at) for each in reports]
        if steps:
            fields["conversions"] = [_conversion(each, at, now) for each in steps]
    except OverflowError:
        return None
    if times is not None:
        fields["times"] = _times(times, at, sent_us)
    stale = _stale(tuple(members.stale))
    return stale + _bytes(Update(**fields)) if fields else stale


@lru_cache(maxsize=FIELDS_MAX)
def _stale(positions: tuple[int, ...]) -> bytes:
    return _bytes(Update(stale=positions))


def _fill(fill: Fill | Route, at: Mapping[str, int], members: StreamMembers, now: float) -> Any:
    parts = [number for part in fill.split.values() for number in part]
    shared = {
        "by_notional": fill.by == NOTIONAL,
        "complete": fill.complete,
        "uncovered": [at[name] for name in fill.uncovered],
        "exchanges": [at[name] for name in fill.split],
        "parts": figures(parts),
    }
    if isinstance(fill, Fill):
        numbers = figures(getattr(fill, name) for name in _FIGURES)
        return updates.Fill(figures=numbers, levels=fill.levels, **shared)
    return updates.Fill(
        figures=figures(getattr(fill, name) for name in _ROUTE_FIGURES),
        exact=fill.exact,
        unknown_rules=[at[name] for name in fill.unknown_rules],
        oldest_ms=oldest_ms(fill, members, now),
        **shared,
    )


def _crossing(report: CrossingReport, at: Mapping[str, int]) -> Any:
    crossing, moved = report.crossing, report.transferable
    return updates.Crossing(
        phase=report.phase.upper(),
        buy=at[report.buy],
        sell=at[report.sell],
        lasted_ms=report.lasted_ms,
        figures=() if crossing is None else figures(crossing[2:]),
        buy_age_ms=report.buy_age_ms,
        sell_age_ms=report.sell_age_ms,
        transferable=None if moved is None else _numbers(moved).decode(),
    )


def _times(times: BookTimes, at: Mapping[str, int], sent_us: int) -> Any:
    def layer(found: LayerTimes) -> Any:
        sent = found.exchange_us
        return updates.LayerTimes(
            exchange_us=None if sent is None else times.merged_us - sent,
            received_us=times.merged_us - found.received_us,
        )

    return updates.Times(
        merged_us=times.merged_us,
        sent_us=sent_us,
        exchanges=[
            updates.ExchangeTimes(
                exchange=at[name],
                top=layer(each.top),
                depth=layer(each.depth),
                offset_us=each.offset_us,
                error_us=each.error_us,
            )
            for name, each in times.exchanges.items()
        ],
    )


def _conversion(step: StepBooks, at: Mapping[str, int], now: float) -> Any:
    found = step.report(now)
    return updates.Conversion(
        symbol=found.symbol,
        members=[at[name] for name in found.members],
        exchanges=found.exchanges,
        stale_exchanges=found.stale_exchanges,
        bid=figures(found.bid or ()),
        ask=figures(found.ask or ()),
        age_ms=found.age_ms,
        reason=found.reason,
    )


class PackedUpdates:
    """Encodes the updates of one view; changes follow only what clients can apply them to."""

    __slots__ = ("_packer", "_scales", "_time_us", "_with_changes")

    def __init__(self, view: View, *, with_changes: bool) -> None:
        self._packer = Packer(view)
        self._with_changes = with_changes
        self._scales: tuple[int, int] | None = None  # of the last update
        self._time_us = 0  # of the last update

    def advance(self, number: int, time_us: int, content: bytes | None) -> bytes | None:
        """Encode the changes of the last merge as an update; None if it must be the whole book."""
        before, self._scales = self._scales, self._packer.scales
        elapsed_us, self._time_us = time_us - self._time_us, time_us
        if not self._with_changes or number == 1 or before is None or before != self._scales:
            return None
        return None if content is None else self._packer.changes(number, elapsed_us, content)

    def whole(
        self, number: int, content: bytes | None, message_id: str | int | float | None = None
    ) -> bytes | None:
        """Encode the whole book as the last update; None if a number is too large."""
        if content is None:
            return None
        rest = content + _id(message_id)
        return self._packer.whole(number, self._time_us, rest, checked=self._with_changes)


def answer(
    view: View,
    symbol: str,
    exchanges: Sequence[str],
    content: bytes | None,
    *,
    time_us: int,
    message_id: str | int | float | None,
) -> bytes | None:
    """Encode the answer to a one-time request; None if a number is too large."""
    if content is None:
        return None
    rest = content + _bytes(Update(exchanges=exchanges, symbol=symbol)) + _id(message_id)
    return Packer(view).whole(0, time_us, rest, checked=False)


def wrapped(message: bytes) -> bytes:
    """Encode a JSON message of the same update, whose numbers are too large for protobuf."""
    return _bytes(Update(json=message))


def with_subscription(payload: bytes, number: int) -> bytes:
    """Put the number of the client's subscription in front of an update."""
    return _subscription(number) + payload


@lru_cache(maxsize=FIELDS_MAX)
def _subscription(number: int) -> bytes:
    return _bytes(Update(subscription=number))


def with_skipped(payload: bytes, skipped: int) -> bytes:
    """Add the number of skipped states to an update, unless it is 0."""
    return payload + _bytes(Update(skipped=skipped)) if skipped else payload


def with_view(payload: bytes, view: str | None) -> bytes:
    """Add the client's view name to an answer."""
    return payload if view is None else payload + _bytes(Update(view=view))


def _bytes(update: Any) -> bytes:
    encoded: bytes = update.SerializeToString()
    return encoded


def _id(message_id: str | int | float | None) -> bytes:
    return b"" if message_id is None else _bytes(Update(id=_json(message_id).decode()))
