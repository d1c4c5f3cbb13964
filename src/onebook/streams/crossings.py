"""Crossings of a stream: the pairs of exchanges that cross after fees, and how long they last."""

from collections.abc import Sequence
from typing import Final

import msgspec

from onebook.core import View
from onebook.crossings import Crossing, CrossingReport, crossings
from onebook.fees import exchange_of, fee_factors
from onebook.fill import BUY, SELL, decimal_text
from onebook.streams.fill import route_side
from onebook.streams.members import StreamMembers
from onebook.transfers import Transferable, Transfers, no_transfers, transferable

CROSSING_LEVELS_MAX: Final = 100  # a side that are matched, whatever depth is delivered
CROSSINGS_MAX: Final = 32  # pairs of one update, the most profitable first

_FIGURES: Final = ("amount", "buy_limit", "sell_limit", "gross", "profit", "percent")
_json = msgspec.json.encode
_numbers = msgspec.json.Encoder(decimal_format="number").encode

Pair = tuple[str, str]  # where to buy, where to sell


class CrossingView:
    """The crossings of one stream, from a separate merge of its books by net price."""

    __slots__ = (
        "_coin",
        "_factors",
        "_fee_scale",
        "_found",
        "_least",
        "_names",
        "_shown",
        "_since",
        "_transfers",
        "_view",
    )

    def __init__(
        self,
        names: Sequence[str],
        least: str,
        percents: Sequence[str],
        coin: str = "",
        transfers: Transfers = no_transfers,
    ) -> None:
        self._names = names
        self._coin = coin
        self._transfers = transfers
        self._least = least
        self._fee_scale, self._factors = fee_factors(percents)
        self._view = View(names, depth=CROSSING_LEVELS_MAX, split=True, fees=percents)
        self._found: list[Crossing] = []
        self._shown: dict[Pair, Crossing] = {}  # in the last report
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

    def reports(self, members: StreamMembers, now: float) -> tuple[CrossingReport, ...]:
        """Report the crossings of the last merge, after those that ended since the last report."""
        shown = {(each.buy, each.sell): each for each in self._found[:CROSSINGS_MAX]}
        ended = [pair for pair in self._shown if pair not in shown]
        reports = [
            CrossingReport("ended", *pair, _ms(now - self._since.pop(pair)), None, None, None)
            for pair in ended
        ]
        for pair, crossing in shown.items():
            before = self._shown.get(pair)
            phase = "began" if before is None else "lasts" if before == crossing else "changed"
            lasted_ms = _ms(now - self._since.setdefault(pair, now))
            buy_age_ms, sell_age_ms = (members.age_ms(name, now) for name in pair)
            moved = self._transferable(*map(exchange_of, pair))
            ages = buy_age_ms, sell_age_ms
            reports.append(CrossingReport(phase, *pair, lasted_ms, crossing, *ages, moved))
        self._shown = shown
        return tuple(reports)

    def _transferable(self, buy: str, sell: str) -> Transferable | None:
        if buy == sell:
            return None  # nothing has to be moved
        known = (self._transfers(each, self._coin) for each in (buy, sell))
        return transferable(self._coin, *known)


def reports_json(reports: Sequence[CrossingReport]) -> bytes:
    """Encode the crossings of an update; numbers are printed from exact decimals."""
    return b"[%b]" % b",".join(map(_report_json, reports))


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


def _report_json(report: CrossingReport) -> bytes:
    buy, sell = map(_json, (report.buy, report.sell))
    head = b'"phase":"%b","buy":%b,"sell":%b,"lasted_ms":%d' % (
        report.phase.encode(),
        buy,
        sell,
        report.lasted_ms,
    )
    if report.crossing is None:
        return b"{%b}" % head
    figures = [f'"{name}":{decimal_text(getattr(report.crossing, name))}' for name in _FIGURES]
    ages = f'"buy_age_ms":{report.buy_age_ms},"sell_age_ms":{report.sell_age_ms}'
    moved = b""
    if report.transferable is not None:
        moved = b',"transferable":' + _numbers(report.transferable)
    return b"{%b,%b%b}" % (head, ",".join((*figures, ages)).encode(), moved)
