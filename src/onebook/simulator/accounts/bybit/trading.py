"""Orders of the simulated account, their fills, and contract events without an order.

Contract events are funding, daily settlement, expiry and delivery.
"""

from functools import partial
from typing import Final

from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit.facts import (
    MARKETS,
    RATE_TEXTS,
    RATES,
    SPOT_RATE,
    WEIGHTS,
    Closed,
    Delivered,
    ExecutionRow,
    Order,
    SimulatedMarket,
    dated_markets,
)
from onebook.simulator.accounts.bybit.generator import (
    HOUR_MS,
    UID,
    UNIFIED,
    HistoryGenerator,
    HistoryParts,
    Holding,
    uuid_of,
)
from onebook.simulator.accounts.history import UNIT, product, quotient

FUNDING_MS: Final = 8 * HOUR_MS
MAKER_REBATE: Final = UNIT // 10_000
GST: Final = UNIT * 18 // 100


class OrderHistory(HistoryGenerator):
    """Generates orders and fills, and books them."""

    def __init__(self, parts: HistoryParts) -> None:
        super().__init__(parts)
        self._closed: set[str] = set()

    def schedule(self) -> None:
        """Schedule orders at uneven times, one in eight in the same millisecond as the previous
        one."""
        span = self._history.to_ms - self._history.from_ms - 2 * HOUR_MS
        fundings = 3 * span // FUNDING_MS
        orders = max(1, int((self._history.executions - fundings) / 1.75))
        at_ms = self._history.from_ms + HOUR_MS
        for index in range(orders):
            if self._timeline.random.random() > 0.125:
                even = self._history.from_ms + HOUR_MS + span * index // orders
                at_ms = max(at_ms, even + self._timeline.random.randrange(max(1, span // orders)))
            market = self._timeline.random.choices(MARKETS, WEIGHTS)[0]
            self._timeline.at(at_ms, partial(self.order, market=market))

    def order(self, at_ms: int, market: SimulatedMarket) -> None:
        """Place an order; it is filled now, later, in parts or never."""
        random, seq = self._timeline.random, self._timeline.number()
        quantity = random.randrange(1, 400) * market.size_step
        order_id = (
            str(1_500_000_000_000_000_000 + seq) if market.category == "spot" else uuid_of(seq)
        )
        side = random.choice(("Buy", "Sell"))
        holding = self._positions.held[market]
        closing = market.category != "spot" and holding.size * (1 if side == "Buy" else -1) < 0
        if closing:
            quantity = min(quantity, abs(holding.size))
        order = Order(market, order_id, f"link-{seq}" if seq % 3 else "", side, quantity, at_ms)
        order.closing = closing
        self._tables.orders[market.category].append(at_ms, seq, order)
        if random.random() < 0.04:
            order.status = "Cancelled"
            order.updated_ms = at_ms + random.randrange(60_000)
            return
        self._fill_later(at_ms, order, random.choice((1, 1, 2, 3)))

    def _fill_later(self, at_ms: int, order: Order, parts: int) -> None:
        """Fill an order, usually immediately, sometimes later; the last part may be cancelled."""
        step, left = order.market.size_step, order.quantity
        cancelled = order.market.category == "spot" and self._timeline.random.random() < 0.05
        for part in range(parts):
            size = left if part == parts - 1 else max(step, left // (parts - part) // step * step)
            size = min(size, left)
            left -= size
            last = part == parts - 1 or not left
            if size and not (last and cancelled and part):
                self._timeline.at(at_ms, partial(self._fill, order=order, size=size, ended=last))
            elif last:
                self._timeline.at(at_ms, partial(self._cancel_rest, order=order))
            if last:
                return
            at_ms += self._timeline.random.choice((0, 0, 1, 40, 5_000, 3 * HOUR_MS))

    def _cancel_rest(self, at_ms: int, order: Order) -> None:
        order.status = "PartiallyFilledCanceled" if order.done else "Cancelled"
        order.updated_ms = at_ms

    def _fill(self, at_ms: int, order: Order, size: int, *, ended: bool) -> None:
        market = order.market
        holding = self._positions.held[market]
        if order.closing:  # another order may have closed the position in between
            size = min(size, abs(holding.size))
        if not size:
            self._cancel_rest(at_ms, order)
            return self._close(at_ms, order)
        price = self._positions.next_price(market, self._timeline.random)
        value = quotient(size, price) if market.category == "inverse" else product(price, size)
        seq = self._timeline.number()
        gross = 0
        if market.category == "spot":
            fill = self._spot_fill(at_ms, order, seq, price, size, value)
        else:
            fill, gross = self._contract_fill(at_ms, order, holding, seq, price, size, value)
        order.done += size
        order.done_value += value
        order.fee += fill.fee
        order.fees[fill.fee_coin] += fill.fee
        order.fills += 1
        order.updated_ms = at_ms
        order.status = "Filled" if order.done == order.quantity else "PartiallyFilled"
        self._tables.executions[market.category].append(at_ms, seq, fill)
        self._book_fill(at_ms, fill, gross, holding.size)
        if ended and order.status == "PartiallyFilled":
            order.status = "Cancelled"
        if ended:
            self._close(at_ms, order)

    def _tax(self, at_ms: int, market: SimulatedMarket, fee: int, *, due: bool) -> int:
        """Return the tax on a fee; former modes had no taxes."""
        taxed = due and fee > 0 and self._modes.wallet(at_ms, market) == UNIFIED
        return product(fee, GST) if taxed else 0

    def _spot_fill(
        self, at_ms: int, order: Order, seq: int, price: int, size: int, value: int
    ) -> ExecutionRow:
        market, buy = order.market, order.side == "Buy"
        maker = self._timeline.random.random() < 0.4
        rebate = maker and self._timeline.random.random() < 0.05
        # The fee is paid in the bought coin; a rebate is paid in the other coin.
        in_base = buy != rebate
        of = size if in_base else value
        fee = -product(of, MAKER_REBATE) if rebate else product(of, RATES["spot"])
        return ExecutionRow(
            market,
            str(2_100_000_000_000_000_000 + seq),
            order.order_id,
            order.link_id,
            order.side,
            price,
            size,
            value,
            fee,
            market.base if in_base else market.quote,
            self._timeline.random.random() < 0.5,
            "-0.0001" if rebate else SPOT_RATE,
            "FutureSpread" if seq % 53 == 0 else "Trade",
            maker,
            0,
            order.quantity - order.done - size,
            self._tax(at_ms, market, fee, due=seq % 41 == 0),
        )

    def _contract_fill(
        self,
        at_ms: int,
        order: Order,
        holding: Holding,
        seq: int,
        price: int,
        size: int,
        value: int,
    ) -> tuple[ExecutionRow, int]:
        """Make a fill of a contract, and its gross profit or loss, which the ledger books."""
        market = order.market
        fee = product(value, RATES[market.category])
        change = size if order.side == "Buy" else -size
        closed, gross = 0, 0
        if order.closing:
            entry, opened = holding.reduce(change)
            order.entry_value += entry
            order.open_fee += opened
            closed, gross = size, value - entry
        else:
            holding.add(change, value, fee)
        long = (order.side == "Sell") != (market.category == "inverse")
        kind = "BustTrade" if closed and seq % 997 == 0 else "Trade"
        fill = ExecutionRow(
            market,
            uuid_of(seq),
            order.order_id,
            order.link_id,
            order.side,
            price,
            size,
            value,
            fee,
            market.settle,
            self._timeline.random.random() < 0.3,
            RATE_TEXTS[market.category],
            kind,
            self._timeline.random.random() < 0.3,
            closed,
            order.quantity - order.done - size,
            self._tax(at_ms, market, fee, due=seq % 43 == 0),
        )
        return fill, gross if long else -gross

    def _book_fill(self, at_ms: int, fill: ExecutionRow, gross: int, held: int) -> None:
        market = fill.market
        if market.category != "spot":
            return self._books.add(
                at_ms, market.settle, gross, fee=fill.fee, tax=fill.tax, fill=fill,
                size=held,
            )  # fmt: skip
        sign = 1 if fill.side == "Buy" else -1
        for coin, cash in ((market.base, sign * fill.quantity), (market.quote, -sign * fill.value)):
            fee, tax = (fill.fee, fill.tax) if fill.fee_coin == coin else (0, 0)
            self._books.add(at_ms, coin, cash, fee=fee, tax=tax, fill=fill)

    def close_open_orders(self) -> None:
        """Add the closed P&L of orders that have fills but have not ended."""
        for table in self._tables.orders.values():
            for entry in table.entries:
                self._close(entry.facts.updated_ms, entry.facts)

    def _close(self, at_ms: int, order: Order) -> None:
        """Add the closed P&L row of an order, once."""
        if not order.closing or not order.done or order.order_id in self._closed:
            return
        self._closed.add(order.order_id)
        closed = Closed(
            order.market,
            order.order_id,
            order.side,
            order.done,
            order.entry_value,
            order.done_value,
            order.open_fee,
            order.fee,
            order.fills,
            order.created_ms,
            min(at_ms + 5, self._timeline.to_ms),
        )
        self._tables.closed[order.market.category].append(
            order.created_ms, self._timeline.number(), closed
        )


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
        """Settle a session of a USDC contract: its position continues at today's price."""
        if market.settle != "USDC":
            return 0
        gained = (value - holding.entry_value) * (1 if holding.size > 0 else -1)
        holding.entry_value = value
        size = holding.size  # negative for a short position
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
