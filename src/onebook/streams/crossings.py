"""Crossings of a stream: the pairs of exchanges that cross after fees, and how long they last."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from onebook.core import View
from onebook.crossings import Crossing, crossings
from onebook.fees import fee_factors
from onebook.fill import BUY, SELL, decimal_text
from onebook.streams.basket import exchange_of
from onebook.streams.fill import route_side
from onebook.streams.members import StreamMembers

CROSSING_LEVELS_MAX: Final = 100  # a side that are matched, whatever depth is delivered
CROSSINGS_MAX: Final = 32  # pairs of one update, the most profitable first

_FIGURES: Final = ("amount", "buy_limit", "sell_limit", "gross", "profit", "percent")
_json = msgspec.json.encode

Pair = tuple[str, str]  # where to buy, where to sell


class CrossingView:
    """The crossings of one stream, from a separate merge of its books by net price."""

    __slots__ = (
        "_factors",
        "_fee_scale",
        "_found",
        "_least",
        "_names",
        "_shown",
        "_since",
        "_view",
    )

    def __init__(self, names: Sequence[str], least: str, fees: Mapping[str, str]) -> None:
        percents = [fees[exchange_of(name)] for name in names]
        self._names = names
        self._least = least
        self._fee_scale, self._factors = fee_factors(percents)
        self._view = View(names, depth=CROSSING_LEVELS_MAX, split=True, fees=percents)
        self._found: list[Crossing] = []
        self._shown: dict[Pair, Crossing] = {}  # in the last update
        self._since: dict[Pair, float] = {}

    def merge(self, members: StreamMembers) -> bool:
        """Match the books; returns whether any crossing changed."""
        self._view.merge(members.cores)
        levels = self._view.levels()
        asks, bids = (
            route_side(levels, name, self._factors, self._fee_scale) for name in (BUY, SELL)
        )
        found = crossings(asks, bids, self._names, self._least)
        changed, self._found = found != self._found, found
        return changed

    def json(self, members: StreamMembers, now: float) -> bytes:
        """Encode the crossings of the last merge, and those that ended since the last update."""
        shown = {(each.buy, each.sell): each for each in self._found[:CROSSINGS_MAX]}
        ended = [pair for pair in self._shown if pair not in shown]
        rows = [_ended_json(pair, now - self._since.pop(pair)) for pair in ended]
        for pair, crossing in shown.items():
            before = self._shown.get(pair)
            phase = "began" if before is None else "lasts" if before == crossing else "changed"
            lasted_s = now - self._since.setdefault(pair, now)
            rows.append(_crossing_json(crossing, phase, lasted_s, members, now))
        self._shown = shown
        return b"[%b]" % b",".join(rows)


def _crossing_json(
    crossing: Crossing, phase: str, lasted_s: float, members: StreamMembers, now: float
) -> bytes:
    """Encode a crossing; numbers are printed from exact decimals."""
    ages = (
        f'"{direction}_age_ms":{members.age_ms(name, now)}'
        for direction, name in ((BUY, crossing.buy), (SELL, crossing.sell))
    )
    figures = (f'"{name}":{decimal_text(getattr(crossing, name))}' for name in _FIGURES)
    pair = crossing.buy, crossing.sell
    return b"{%b,%b}" % (_pair_json(pair, phase, lasted_s), ",".join((*figures, *ages)).encode())


def _ended_json(pair: Pair, lasted_s: float) -> bytes:
    return b"{%b}" % _pair_json(pair, "ended", lasted_s)


def _pair_json(pair: Pair, phase: str, lasted_s: float) -> bytes:
    buy, sell = map(_json, pair)
    return b'"phase":"%b","buy":%b,"sell":%b,"lasted_ms":%d' % (
        phase.encode(),
        buy,
        sell,
        round(lasted_s * 1_000),
    )
