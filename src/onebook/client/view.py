"""Client-side copy of one view: applies full updates and deltas and verifies the checksum.


Pure: messages in, books out. Numbers are `Decimal`, exactly as the service printed them.
"""

import zlib
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from onebook.client.failures import ViewProblem

CHECKSUM_LEVELS = 25


@dataclass(frozen=True, slots=True)
class ViewLevel:
    """One price of the merged book, with its attribution.

    `amounts` is parallel to `exchanges`, and empty unless `split` was requested.
    """

    price: Decimal
    amount: Decimal
    exchanges: tuple[str, ...] = ()
    amounts: tuple[Decimal, ...] = ()


@dataclass(slots=True)
class BookView:
    """The latest merged book of one symbol, best levels first.

    From a lost connection until the next full update, `live` is False, the view is empty and
    `problem` has the reason. A live view may have no levels, or only one side: `stale_exchanges`
    lists the exchanges that are not live, `rejected` the requested exchanges that are not served,
    with the reason, such as "unknown_exchange". `ages` (milliseconds) and `coverage` ({"bids":
    price, "asks": price}, None for a completely known side) are by exchange, and empty unless
    requested; `fill` ({"buy": [...], "sell": [...]}) is the cost of each requested size.
    """

    symbol: str
    live: bool = False
    problem: ViewProblem | None = None
    bids: list[ViewLevel] = field(default_factory=list)
    asks: list[ViewLevel] = field(default_factory=list)
    market_stats: dict[str, Any] = field(default_factory=dict)
    stale_exchanges: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)
    coverage: dict[str, dict[str, Decimal | int | None]] = field(default_factory=dict)
    fill: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    timestamp: str = ""
    update_number: int = 0

    def apply(self, message: dict[str, Any]) -> bool:
        """Apply an update, delta or status message.

        Returns:
            Whether the view is valid; if False, send `resync`.
        """
        if message["type"] == "exchange_status":
            self.states[message["exchange"]] = message["state"]
            return True
        if message["type"] == "aggregated_orderbook_delta":
            if message["previous_update_number"] != self.update_number:
                return False
            self._take(message, changed=True)
            return bool(message["checksum"] == self.checksum())
        self._take(message, changed=False)
        return True

    def lose(self, problem: ViewProblem) -> None:
        """Invalidate the view until the next full update."""
        self.live = False
        self.problem = problem
        self.bids, self.asks = [], []
        self.market_stats, self.states = {}, {}
        self.stale_exchanges = []
        self.ages, self.coverage, self.fill = {}, {}, {}
        self.update_number = 0

    def _take(self, message: dict[str, Any], *, changed: bool) -> None:
        data = message["data"]
        bids, asks = map(_level, data["bids"]), map(_level, data["asks"])
        self.bids = sorted(_joined(self.bids if changed else [], bids), key=_price, reverse=True)
        self.asks = sorted(_joined(self.asks if changed else [], asks), key=_price)
        self.live = True
        self.problem = None
        self.market_stats = data["market_stats"]
        self.stale_exchanges = data["stale_exchanges"]
        self.ages = data.get("ages", {})
        self.coverage = data.get("coverage", {})
        self.fill = data.get("fill", {})
        self.timestamp = message["timestamp"]
        self.update_number = message["update_number"]

    def checksum(self) -> int:
        """CRC-32 of the best levels' `price:amount` text, bids then asks, joined by colons."""
        best = self.bids[:CHECKSUM_LEVELS] + self.asks[:CHECKSUM_LEVELS]
        text = ":".join(f"{level.price:f}:{level.amount:f}" for level in best)
        return zlib.crc32(text.encode())


def _price(level: ViewLevel) -> Decimal:
    return level.price


def _joined(old: list[ViewLevel], changes: Any) -> list[ViewLevel]:
    levels = {level.price: level for level in old}
    for level in changes:
        if level.amount:
            levels[level.price] = level
        else:
            levels.pop(level.price, None)
    return list(levels.values())


def _level(raw: Any) -> ViewLevel:
    """Parse an object level or an array level; whole numbers arrive as ints."""
    if isinstance(raw, dict):
        price, amount = raw["price"], raw["amount"]
        exchanges, amounts = raw["exchanges"], raw.get("amounts", ())
    else:
        price, amount, *split = raw
        parts = split[0] if split else ()
        exchanges, amounts = [part[0] for part in parts], [part[1] for part in parts]
    return ViewLevel(
        Decimal(price), Decimal(amount), tuple(exchanges), tuple(map(Decimal, amounts))
    )
