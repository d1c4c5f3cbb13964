"""Events of contracts without an order: funding, daily settlement, expiry and delivery."""

from functools import partial
from typing import Final

from onebook.model import DAY_MS
from onebook.simulator.accounts.amounts import UNIT, product, quotient
from onebook.simulator.accounts.bybit.books import UID
from onebook.simulator.accounts.bybit.facts import Delivered, ExecutionRow, SimulatedMarket
from onebook.simulator.accounts.bybit.generator import HistoryGenerator
from onebook.simulator.accounts.bybit.markets import RATE_TEXTS, RATES, dated_markets
from onebook.simulator.accounts.bybit.positions import Holding
from onebook.simulator.accounts.bybit.timeline import HOUR_MS, uuid_of

FUNDING_MS: Final = 8 * HOUR_MS


class ContractHistory(HistoryGenerator):
    """Generates funding payments, daily settlements in USDC, and contracts that expire."""

    def schedule(self) -> None:
        """Schedule funding every 8 hours, and dated contracts every 90 days."""
        first = -(-self._history.from_ms // FUNDING_MS) * FUNDING_MS
        for at_ms in range(first, self._history.to_ms, FUNDING_MS):
            self._timeline.at(at_ms, self._funding)
        for at_ms in range(first + 90 * DAY_MS, self._history.to_ms, 90 * DAY_MS):
            self._timeline.at(at_ms, self._buy_dated)

    def _funding(self, at_ms: int) -> None:
        for market, holding in self._positions.held.items():
            if market.category == "spot" or not holding.size:
                continue
            size, price = abs(holding.size), self._positions.prices[market]
            value = quotient(size, price) if market.category == "inverse" else product(price, size)
            rate = self._timeline.random.randrange(-20, 30)
            paid = value * rate // 100_000 * (1 if holding.size > 0 else -1)
            if not paid:
                continue
            seq = self._timeline.number()
            side = "Buy" if holding.size > 0 else "Sell"
            order_id = f"{at_ms // 1000}-{market.symbol}-{UID}-{side}"
            text = f"{'-' if rate < 0 else ''}0.{abs(rate):05d}"
            fill = ExecutionRow(market, uuid_of(seq), order_id, "", side, price, size, value, paid,
                        market.settle, False, text, "Funding", False, 0, 0)  # fmt: skip
            self._tables.executions[market.category].append(at_ms, seq, fill)
            session = self._session(at_ms, market, holding, side, price, value)
            self._books.add(
                at_ms, market.settle, session, fill=fill, size=holding.size, funding=-paid
            )

    def _session(
        self,
        at_ms: int,
        market: SimulatedMarket,
        holding: Holding,
        side: str,
        price: int,
        value: int,
    ) -> int:
        """Settle a session of a contract in USDC: its position goes on at today's price."""
        if market.settle != "USDC":
            return 0
        gained = (value - holding.entry_value) * (1 if holding.size > 0 else -1)
        holding.entry_value = value
        size = holding.size  # of a short position it is negative
        facts = Delivered(market, side, size, price, gained, 0)
        self._tables.sessions.append(at_ms, self._timeline.number(), facts)
        return gained

    def _buy_dated(self, at_ms: int) -> None:
        """Buy contracts that expire a day later."""
        for market in dated_markets(at_ms + DAY_MS):
            size = 1_000 * UNIT if market.category == "inverse" else UNIT
            bought = self._dated_fill(at_ms, market, "Buy", "Trade", size, market.price)
            self._books.add(at_ms, market.settle, 0, fee=bought.fee, fill=bought, size=size)
            deliver = partial(self._deliver, market=market, bought=bought)
            self._timeline.at(at_ms + DAY_MS, deliver)

    def _deliver(self, at_ms: int, market: SimulatedMarket, bought: ExecutionRow) -> None:
        kind = "Settle" if market.category == "inverse" else "Delivery"
        price = market.price + market.price // 100
        sold = self._dated_fill(at_ms, market, "Sell", kind, bought.quantity, price)
        gained = sold.value - bought.value
        gained = -gained if market.category == "inverse" else gained
        self._books.add(at_ms, market.settle, gained, fee=sold.fee, fill=sold, kind="DELIVERY")
        facts = Delivered(market, "Buy", sold.quantity, price, gained, sold.fee)
        self._tables.deliveries[market.category].append(at_ms, self._timeline.number(), facts)

    def _dated_fill(
        self, at_ms: int, market: SimulatedMarket, side: str, kind: str, size: int, price: int
    ) -> ExecutionRow:
        seq = self._timeline.number()
        value = quotient(size, price) if market.category == "inverse" else product(price, size)
        closed = size if side == "Sell" else 0
        fill = ExecutionRow(
            market, uuid_of(seq), uuid_of(seq + 1), "", side, price, size, value,
            product(value, RATES[market.category]), market.settle, True,
            RATE_TEXTS[market.category], kind, False, closed, 0,
        )  # fmt: skip
        self._tables.executions[market.category].append(at_ms, seq, fill)
        return fill
