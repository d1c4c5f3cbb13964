"""Clients of a simulated world: each follows a view and compares it with the true history."""

import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from onebook.streams import StreamKey
from proofs.clock import seconds
from proofs.venue import State, Venue

CHECKSUM_LEVELS = 25
STATES_APART_MAX = 40  # of a top and the depth below it

Amounts = dict[str, Decimal]  # by exchange
Side = dict[Decimal, Amounts]


class Broken(AssertionError):
    """A guarantee was violated; the text states which one, where and when."""


class Shown(NamedTuple):
    """The state of a client after an update."""

    bids: Side
    asks: Side
    stale: tuple[str, ...]


class Viewer:
    """One client of one split view, in full or in delta mode."""

    def __init__(self, key: StreamKey) -> None:
        assert key.options.split, "who says what must be known"
        self.key = key
        self.number = 0
        self.shown: Shown | None = None
        self.at_s = 0.0  # the world's time of the last update
        self.updates = 0
        self.shown_levels = 0

    def take(self, message: dict[str, Any]) -> None:
        """Apply one message, whose numbers are decimals."""
        data, number = message["data"], message["update_number"]
        if message["type"] == "aggregated_orderbook_delta":
            if self.shown is None or message["previous_update_number"] != self.number:
                raise Broken(f"a delta follows {message['previous_update_number']}, not {number}")
            bids, asks = (
                _changed(side, data[name])
                for side, name in ((self.shown.bids, "bids"), (self.shown.asks, "asks"))
            )
        else:
            bids, asks = (_changed({}, data[name]) for name in ("bids", "asks"))
        if number < self.number:
            raise Broken(f"update {number} follows {self.number}")
        self.number = int(number)
        self.at_s = seconds(message["timestamp"])
        self.shown = Shown(bids, asks, tuple(data["stale_exchanges"]))
        self.updates += 1
        self.shown_levels += len(bids) + len(asks)
        if "checksum" in message and message["checksum"] != self._checksum():
            raise Broken(f"the checksum of update {number} is wrong")
        _check_sorted_and_positive(self.shown)

    def _checksum(self) -> int:
        assert self.shown is not None
        best = _ranked(self.shown.bids, best_first=True)[:CHECKSUM_LEVELS]
        best += _ranked(self.shown.asks, best_first=False)[:CHECKSUM_LEVELS]
        text = ":".join(f"{price:f}:{_total(amounts)}" for price, amounts in best)
        return zlib.crc32(text.encode())

    def check(self, venues: dict[str, Venue], now_s: float, age_max_s: Callable[[str], float]):
        """Compare every live exchange of the view with its history.

        Raises:
            Broken: The shown book of an exchange is not a state that it had, or the state ended
                longer ago than the exchange's silence limit.
        """
        shown = self.shown
        assert shown is not None
        for name in self.key.exchanges:
            levels = [
                {price: amounts[name] for price, amounts in side.items() if name in amounts}
                for side in (shown.bids, shown.asks)
            ]
            if name in shown.stale:
                if any(levels):
                    raise Broken(f"{name} is stale and shown")
                continue
            ended_s = self._ended(name, levels, shown, venues[name])
            if ended_s is None:
                raise Broken(f"{name} shows what {self.key.symbol} never was there")
            if now_s - ended_s > age_max_s(name):
                raise Broken(f"{name} shows a book that ended {now_s - ended_s:.1f} s ago")

    def _ended(self, name: str, levels: list, shown: Shown, venue: Venue) -> float | None:
        """When the shown state of an exchange ended: infinity for the newest, None if it never
        existed."""
        states = venue.history.get(self.key.symbol, ())
        ticks, lots = venue.units(self.key.symbol)
        levels = [
            {price * ticks: amount * lots for price, amount in side.items()} for side in levels
        ]
        bounds = (
            min(shown.bids) * ticks if len(shown.bids) >= self.key.options.depth else 0,
            max(shown.asks) * ticks if len(shown.asks) >= self.key.options.depth else float("inf"),
        )
        ended_s = float("inf")
        newest_first = list(reversed(states))
        for at, state in enumerate(newest_first):
            if _agrees(state, levels, bounds):
                return ended_s
            if venue.exchange.tops and _has_top(state, levels):
                older = newest_first[at : at + STATES_APART_MAX]
                if any(_agrees(_fused(state, depth), levels, bounds) for depth in older):
                    return ended_s
            ended_s = state.since_s
        return None


def _has_top(state: State, levels: list) -> bool:
    """Whether the best shown levels are the best levels of a state."""
    shown = max(levels[0].items(), default=None), min(levels[1].items(), default=None)
    return shown == (max(state.bids.items(), default=None), min(state.asks.items(), default=None))


def _fused(newer: State, depth: State) -> State:
    """The top of one state above the strictly worse levels of an older one."""
    bid, ask = max(newer.bids, default=0), min(newer.asks, default=0)
    bids = {price: amount for price, amount in depth.bids.items() if price < bid}
    asks = {price: amount for price, amount in depth.asks.items() if price > ask}
    bids = {bid: newer.bids[bid]} | bids if bid else {}
    asks = {ask: newer.asks[ask]} | asks if ask else {}
    return State(newer.since_s, newer.number, bids, asks)


def _agrees(state: State, levels: list, bounds: tuple) -> bool:
    """Whether the shown levels are those of a state, as far as the view extends on each side."""
    least, most = bounds
    pairs = zip((state.bids, state.asks), levels, strict=True)
    if any(was.get(price) != amount for was, now in pairs for price, amount in now.items()):
        return False  # most states differ in the first levels
    bids = {price: amount for price, amount in state.bids.items() if price >= least}
    asks = {price: amount for price, amount in state.asks.items() if price <= most}
    return bids == levels[0] and asks == levels[1]


def _changed(side: Side, rows: list) -> Side:
    changed = dict(side)
    for price, amount, split in rows:
        if not amount:
            changed.pop(price, None)
            continue
        changed[price] = {name: Decimal(part) for name, part in split}
        if sum(changed[price].values()) != amount:
            raise Broken(f"the parts of {price} do not sum to {amount}")
    return changed


def _total(amounts: Amounts) -> str:
    """The sum as printed by the service: no trailing zeros."""
    text = f"{sum(amounts.values()):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _ranked(side: Side, *, best_first: bool) -> list:
    return sorted(side.items(), reverse=best_first)


def _check_sorted_and_positive(shown: Shown) -> None:
    for side in (shown.bids, shown.asks):
        for price, amounts in side.items():
            if price <= 0 or any(amount <= 0 for amount in amounts.values()):
                raise Broken(f"a level of {price} has no positive amount")
