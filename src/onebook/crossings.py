"""Crossings: the profit of buying on one exchange and selling on another, after both fees.

Pure functions over integer levels. The lowest asks are paired with the highest bids, by net price,
as long as a pair yields the minimum profit; no other pairing earns more in total.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from onebook.fees import fee_percent
from onebook.fill import decimal_of
from onebook.routes import RouteSide
from onebook.transfers import Transferable

PERCENT_DECIMALS: Final = 6  # of a profit in percent
PERCENT: Final = 100 * 10**PERCENT_DECIMALS


class Crossing(NamedTuple):
    """A pair of exchanges: one bids more, after fees, than the other asks.

    Both are the same exchange if its rebates exceed its spread. `amount` can be bought at `buy` for
    at most `buy_limit` and sold at `sell` for at least `sell_limit`, both before fees. `gross` and
    `profit` are the profit in the quote currency, before and after fees; `percent` is the profit in
    percent of what is paid, rounded down.
    """

    buy: str
    sell: str
    amount: Decimal
    buy_limit: Decimal
    sell_limit: Decimal
    gross: Decimal
    profit: Decimal
    percent: Decimal


class CrossingReport(NamedTuple):
    """The state of a crossing in an update of a view.

    `phase` is "began", "changed", "lasts" or "ended" since the previous update, `lasted_ms` the
    milliseconds since the update with which it began. `crossing` and the ages of both exchanges'
    data are None for one that ended. `transferable` is None unless the service reads transfers
    and knows those of at least one of the two exchanges.
    """

    phase: str
    buy: str
    sell: str
    lasted_ms: int
    crossing: Crossing | None
    buy_age_ms: int | None
    sell_age_ms: int | None
    transferable: Transferable | None = None


class _Pair:
    """The matched orders of two members: amount, and net and gross values."""

    __slots__ = ("amount", "ask", "bid", "gross", "paid", "received")

    def __init__(self) -> None:
        self.amount = self.paid = self.received = self.gross = 0
        self.ask = self.bid = 0  # the worst net prices


def crossings(asks: RouteSide, bids: RouteSide, names: Sequence[str], least: str) -> list[Crossing]:
    """Return the pairs of exchanges that cross after fees, the most profitable first.

    Args:
        asks: The levels to buy from.
        bids: The levels to sell to, at the same scales.
        names: The exchanges by member number.
        least: Minimum profit of each matched order, in percent of its price after fees.
    """
    price_scale, amount_scale = asks.price_scale, asks.amount_scale
    mantissa, least_scale = fee_percent(least)
    unit = 10 ** (least_scale + 2)
    found: dict[tuple[int, int], _Pair] = {}
    asked, bidden = iter(asks.orders), iter(bids.orders)
    ask, bid = next(asked, None), next(bidden, None)
    while ask is not None and bid is not None:
        if bid[0] <= ask[0] or bid[0] * unit < ask[0] * (unit + mantissa):
            break
        amount = min(ask[1], bid[1])
        pair = found.setdefault((ask[2], bid[2]), _Pair())
        pair.amount += amount
        pair.paid += ask[0] * amount
        pair.received += bid[0] * amount
        pair.ask, pair.bid = ask[0], bid[0]
        pair.gross += (bid[0] // bids.factors[bid[2]] - ask[0] // asks.factors[ask[2]]) * amount
        ask = (ask[0], ask[1] - amount, ask[2]) if ask[1] > amount else next(asked, None)
        bid = (bid[0], bid[1] - amount, bid[2]) if bid[1] > amount else next(bidden, None)
    gross_scale = price_scale - asks.fee_scale

    def crossing(buy: int, sell: int, pair: _Pair) -> Crossing:
        profit = pair.received - pair.paid
        percent = profit * PERCENT // pair.paid if pair.paid else 0
        return Crossing(
            names[buy],
            names[sell],
            decimal_of(pair.amount, amount_scale),
            decimal_of(pair.ask // asks.factors[buy], gross_scale),
            decimal_of(pair.bid // bids.factors[sell], gross_scale),
            decimal_of(pair.gross, gross_scale + amount_scale),
            decimal_of(profit, price_scale + amount_scale),
            decimal_of(percent, PERCENT_DECIMALS),
        )

    crossed = [crossing(buy, sell, pair) for (buy, sell), pair in found.items()]
    return sorted(crossed, key=lambda each: (-each.profit, each.buy, each.sell))
