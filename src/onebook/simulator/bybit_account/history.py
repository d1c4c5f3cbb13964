"""An account's history of years, generated: deterministic, and true to the identities Bybit keeps.

What holds by construction, and what a reader can therefore prove: per coin every ledger balance is
the one before plus the change; `change = cashFlow + funding - fee` less taxes; the fills of an
order add up to it; `closedPnl` is exit less entry less fees, and exit less entry what the ledger
booked; what is held is what all events add up to; ids grow with time. Several events share a
millisecond, deliberately.
"""

import hashlib
import heapq
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, Final

from msgspec import Struct

from onebook.model import DAY_MS
from onebook.simulator.account.amounts import UNIT, product, quotient
from onebook.simulator.account.ledger import WalletBalances
from onebook.simulator.account.tables import HistoryTable
from onebook.simulator.bybit_account.books import UID, AccountBooks
from onebook.simulator.bybit_account.facts import (
    Closed,
    Delivered,
    Deposit,
    ExecutionRow,
    FundLine,
    Moved,
    Order,
    SimulatedMarket,
    Withdrawal,
)
from onebook.simulator.bybit_account.modes import CONTRACT, UNIFIED, USDC, Modes, split

HOUR_MS: Final = 3_600_000
FUNDING_MS: Final = 8 * HOUR_MS
SPOT_RATE, LINEAR_RATE, INVERSE_RATE = "0.001", "0.00055", "0.0006"
RATES: Final = {
    "spot": UNIT // 1_000,
    "linear": UNIT * 55 // 100_000,
    "inverse": UNIT * 6 // 10_000,
}
RATE_TEXTS: Final = {"spot": SPOT_RATE, "linear": LINEAR_RATE, "inverse": INVERSE_RATE}
MAKER_REBATE: Final = UNIT // 10_000
GST: Final = UNIT * 18 // 100

TENTH, CENT, MILLI, MICRO = UNIT // 10, UNIT // 100, UNIT // 1_000, UNIT // 1_000_000
TEN_THOUSANDTH, HUNDRED_THOUSANDTH = UNIT // 10_000, UNIT // 100_000

MARKETS: Final = (
    SimulatedMarket("spot", "BTCUSDT", "BTC", "USDT", "", 60_000 * UNIT, CENT, HUNDRED_THOUSANDTH),
    SimulatedMarket("spot", "ETHUSDT", "ETH", "USDT", "", 3_000 * UNIT, CENT, HUNDRED_THOUSANDTH),
    SimulatedMarket("spot", "ETHBTC", "ETH", "BTC", "", UNIT // 20, MICRO, MILLI),
    SimulatedMarket("spot", "XRPUSDT", "XRP", "USDT", "", UNIT // 2, TEN_THOUSANDTH, CENT),
    SimulatedMarket("linear", "BTCUSDT", "BTC", "USDT", "USDT", 60_000 * UNIT, TENTH, MILLI),
    SimulatedMarket("linear", "ETHUSDT", "ETH", "USDT", "USDT", 3_000 * UNIT, CENT, CENT),
    SimulatedMarket("linear", "BTCPERP", "BTC", "USDC", "USDC", 60_000 * UNIT, TENTH, MILLI),
    SimulatedMarket("inverse", "BTCUSD", "BTC", "USD", "BTC", 60_000 * UNIT, TENTH, UNIT),
)
FUND_TEXTS: Final = {
    "Earn": "Easy Earn | Flexible Interest Distribution",
    "Convert": "Convert",
    "Airdrop": "Airdrop Bonus",
}
WEIGHTS: Final = (22, 14, 5, 9, 24, 14, 5, 7)
COINS: Final = ("USDT", "BTC", "ETH", "USDC")


class History(Struct, frozen=True):
    """How much an account has seen.

    Args:
        from_ms: When it began.
        to_ms: Until when.
        executions: About how many fills and funding payments.
        deposits: How many deposits, on chain and from other users.
        withdrawals: How many withdrawals.
        transfers: How many transfers between its wallets; a tenth as many to other users.
        seed: What it is made from.
        unified_ms: When it became a unified account; 0: it always was.
        merged_ms: When inverse contracts joined its wallet (UTA 2.0); 0: they always were there.
    """

    from_ms: int
    to_ms: int
    executions: int = 2_000
    deposits: int = 60
    withdrawals: int = 60
    transfers: int = 60
    seed: int = 1
    unified_ms: int = 0
    merged_ms: int = 0


class Holding:
    """A position in one market."""

    __slots__ = ("entry_value", "open_fee", "size")

    def __init__(self) -> None:
        self.size = 0
        self.entry_value = 0
        self.open_fee = 0


class Account:
    """A generated account: its tables, and the truth about them."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.uid = UID
        self.executions = {name: HistoryTable() for name in ("spot", "linear", "inverse")}
        self.orders = {name: HistoryTable() for name in ("spot", "linear", "inverse")}
        self.closed = {name: HistoryTable() for name in ("linear", "inverse")}
        self.deliveries = {name: HistoryTable() for name in ("linear", "inverse")}
        self.sessions = HistoryTable()
        self.former_executions: dict[str, HistoryTable] = {}
        self.former_orders: dict[str, HistoryTable] = {}
        self.former_closed: dict[str, HistoryTable] = {}
        self.former_sessions = HistoryTable()
        self.former_deliveries = HistoryTable()  # of options, which it never traded
        self.modes = Modes(history.unified_ms, history.merged_ms)
        self.books = AccountBooks(self.modes)
        self.ledger = self.books.tables[UNIFIED]
        self.contract_ledger = self.books.tables[CONTRACT]
        self.usdc_ledger = self.books.tables[USDC]
        self.fund_ledger = HistoryTable()
        self.deposits = HistoryTable()
        self.internal_deposits = HistoryTable()
        self.withdrawals = HistoryTable()
        self.transfers = HistoryTable()
        self.universal = HistoryTable()
        self.token_orders = HistoryTable()
        self.unified = self.books.held(UNIFIED)
        self._fund = WalletBalances()
        self.fund = self._fund.held
        self.inserted: set[str] = set()
        self._random = Random(history.seed)  # noqa: S311  # a simulation
        self._seq = 1_000_000
        self._prices = {market: market.price for market in MARKETS}
        self._holdings: dict[SimulatedMarket, Holding] = defaultdict(Holding)
        self._queue: list[tuple[int, int, Callable[[int], None]]] = []
        self._fills = 0
        self._closed: set[str] = set()
        self._generate()

    @property
    def status(self) -> int:
        """Its `unifiedMarginStatus` at the end of the history."""
        return self.modes.status(self.history.to_ms)

    # The order of time ----------------------------------------------------------------

    def _generate(self) -> None:
        self._schedule_funds()
        self._schedule_funding()
        self._schedule_odds()
        self._schedule_trading()
        self._schedule_modes()
        while self._queue:
            at_ms, _, act = heapq.heappop(self._queue)
            if at_ms <= self.history.to_ms:
                act(at_ms)
        for tables in (self.orders, self.closed):
            for table in tables.values():
                table.entries.sort(key=lambda entry: (entry.at_ms, entry.seq))
            if tables is self.orders:
                self._close_open_orders()
        self.deposits.entries.sort(key=lambda entry: (entry.at_ms, entry.seq))
        self._split()

    def _at(self, at_ms: int, act: Callable[[int], None]) -> None:
        heapq.heappush(self._queue, (at_ms, self._next(), act))

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _somewhere(self) -> int:
        return self._random.randrange(self.history.from_ms + HOUR_MS, self.history.to_ms)

    def _schedule_funds(self) -> None:
        start = self.history.from_ms
        for coin, amount in (
            ("USDT", 50_000_000),
            ("BTC", 500),
            ("ETH", 5_000),
            ("USDC", 5_000_000),
        ):
            self._at(start, partial(self._deposit, coin=coin, amount=2 * amount * UNIT))
            self._at(
                start + 1_000, partial(self._transfer, coin=coin, amount=amount * UNIT, sign=1)
            )
        for index in range(self.history.deposits - len(COINS)):
            self._at(self._somewhere(), partial(self._some_deposit, index=index))
        for index in range(self.history.withdrawals):
            self._at(self._somewhere(), partial(self._withdraw, index=index))
        for index in range(self.history.transfers - len(COINS)):
            self._at(self._somewhere(), partial(self._some_transfer, index=index))
        for index in range(self.history.transfers // 10):
            self._at(self._somewhere(), partial(self._give, index=index))

    def _schedule_modes(self) -> None:
        changes = {self.modes.unified_ms, self.modes.merged_ms} - {0}
        if changes:
            self._at(self.history.from_ms + 2_000, self._fund_contracts)
        for at_ms in sorted(changes):
            self._at(at_ms, self._change_mode)

    def _schedule_funding(self) -> None:
        first = -(-self.history.from_ms // FUNDING_MS) * FUNDING_MS
        for at_ms in range(first, self.history.to_ms, FUNDING_MS):
            self._at(at_ms, self._funding)
        for at_ms in range(first + 90 * DAY_MS, self.history.to_ms, 90 * DAY_MS):
            self._at(at_ms, self._buy_dated)

    def _schedule_odds(self) -> None:
        """What the ledger also knows: interest, airdrops, leverage tokens, types yet unknown."""
        kinds = ("INTEREST", "AIRDROP", "FEE_REFUND", "FLEXIBLE_STAKING_REDEMPTION",
                 "SOMETHING_NEW", "TOKENS_SUBSCRIPTION", "TOKENS_REDEMPTION", "CURRENCY_SELL",
                 "Earn", "Convert", "Airdrop")  # fmt: skip
        first = self.history.from_ms + DAY_MS + 17
        for index, at_ms in enumerate(range(first, self.history.to_ms, 3 * DAY_MS)):
            self._at(at_ms, partial(self._odd, kind=kinds[index % len(kinds)]))

    def _schedule_trading(self) -> None:
        """Orders at uneven times; one in eight in the millisecond of the one before."""
        span = self.history.to_ms - self.history.from_ms - 2 * HOUR_MS
        fundings = 3 * span // FUNDING_MS
        orders = max(1, int((self.history.executions - fundings) / 1.75))
        at_ms = self.history.from_ms + HOUR_MS
        for index in range(orders):
            if self._random.random() > 0.125:
                even = self.history.from_ms + HOUR_MS + span * index // orders
                at_ms = max(at_ms, even + self._random.randrange(max(1, span // orders)))
            market = self._random.choices(MARKETS, WEIGHTS)[0]
            self._at(at_ms, partial(self._order, market=market))

    # Trading --------------------------------------------------------------------------

    def _order(self, at_ms: int, market: SimulatedMarket) -> None:
        random, seq = self._random, self._next()
        quantity = random.randrange(1, 400) * market.size_step
        order_id = str(1_500_000_000_000_000_000 + seq) if market.category == "spot" else _uuid(seq)
        side = random.choice(("Buy", "Sell"))
        holding = self._holdings[market]
        closing = market.category != "spot" and holding.size * (1 if side == "Buy" else -1) < 0
        if closing:
            quantity = min(quantity, abs(holding.size))
        order = Order(market, order_id, f"link-{seq}" if seq % 3 else "", side, quantity, at_ms)
        order.closing = closing
        self.orders[market.category].append(at_ms, seq, order)
        if random.random() < 0.04:
            order.status = "Cancelled"
            order.updated_ms = at_ms + random.randrange(60_000)
            return
        self._fill_later(at_ms, order, random.choice((1, 1, 2, 3)))

    def _fill_later(self, at_ms: int, order: Order, parts: int) -> None:
        """Most orders fill at once; some wait. The last part can be cancelled."""
        step, left = order.market.size_step, order.quantity
        cancelled = order.market.category == "spot" and self._random.random() < 0.05
        for part in range(parts):
            size = left if part == parts - 1 else max(step, left // (parts - part) // step * step)
            size = min(size, left)
            left -= size
            last = part == parts - 1 or not left
            if size and not (last and cancelled and part):
                self._at(at_ms, partial(self._fill, order=order, size=size, ended=last))
            elif last:
                self._at(at_ms, partial(self._cancel_rest, order=order))
            if last:
                return
            at_ms += self._random.choice((0, 0, 1, 40, 5_000, 3 * HOUR_MS))

    def _cancel_rest(self, at_ms: int, order: Order) -> None:
        order.status = "PartiallyFilledCanceled" if order.done else "Cancelled"
        order.updated_ms = at_ms

    def _fill(self, at_ms: int, order: Order, size: int, *, ended: bool) -> None:
        market = order.market
        holding = self._holdings[market]
        if order.closing:  # another order may have closed it in between
            size = min(size, abs(holding.size))
        if not size:
            self._cancel_rest(at_ms, order)
            return self._close(at_ms, order)
        price = self._walk(market)
        value = quotient(size, price) if market.category == "inverse" else product(price, size)
        seq = self._next()
        if market.category == "spot":
            fill = self._spot_fill(at_ms, order, seq, price, size, value)
        else:
            fill = self._contract_fill(at_ms, order, holding, seq, price, size, value)
        order.done += size
        order.done_value += value
        order.fee += fill.fee
        order.fees[fill.fee_coin] += fill.fee
        order.fills += 1
        order.updated_ms = at_ms
        order.status = "Filled" if order.done == order.quantity else "PartiallyFilled"
        self.executions[market.category].append(at_ms, seq, fill)
        self._fills += 1
        self._book_fill(at_ms, fill, holding)
        if ended and order.status == "PartiallyFilled":
            order.status = "Cancelled"
        if ended:
            self._close(at_ms, order)

    def _walk(self, market: SimulatedMarket) -> int:
        moved = int(self._prices[market] * (1 + self._random.uniform(-0.002, 0.002)))
        low, high = market.price // 2, market.price * 2
        self._prices[market] = min(high, max(low, moved)) // market.price_step * market.price_step
        return self._prices[market]

    def _tax(self, at_ms: int, market: SimulatedMarket, fee: int, *, due: bool) -> int:
        """What is taken on a fee; the former modes knew no taxes."""
        taxed = due and fee > 0 and self.modes.wallet(at_ms, market) == UNIFIED
        return product(fee, GST) if taxed else 0

    def _spot_fill(
        self, at_ms: int, order: Order, seq: int, price: int, size: int, value: int
    ) -> ExecutionRow:
        market, buy = order.market, order.side == "Buy"
        maker = self._random.random() < 0.4
        rebate = maker and self._random.random() < 0.05
        # What is bought pays the fee; a rebate comes in the other coin.
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
            self._random.random() < 0.5,
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
    ) -> ExecutionRow:
        market = order.market
        fee = product(value, RATES[market.category])
        sign = 1 if order.side == "Buy" else -1
        closed = size if order.closing else 0
        if closed:
            whole = abs(holding.size)
            entry = holding.entry_value * size // whole
            opened = holding.open_fee * size // whole
            order.entry_value += entry
            order.open_fee += opened
            holding.entry_value -= entry
            holding.open_fee -= opened
        else:
            entry = 0
            holding.entry_value += value
            holding.open_fee += fee
        holding.size += sign * size
        # Gross P&L of this fill, carried in `left` of nobody: the ledger books it.
        gross = (value - entry) if closed else 0
        long = (order.side == "Sell") != (market.category == "inverse")
        self._gross = gross if long else -gross
        kind = "BustTrade" if closed and seq % 997 == 0 else "Trade"
        return ExecutionRow(
            market,
            _uuid(seq),
            order.order_id,
            order.link_id,
            order.side,
            price,
            size,
            value,
            fee,
            market.settle,
            self._random.random() < 0.3,
            RATE_TEXTS[market.category],
            kind,
            self._random.random() < 0.3,
            closed,
            order.quantity - order.done - size,
            self._tax(at_ms, market, fee, due=seq % 43 == 0),
        )

    def _book_fill(self, at_ms: int, fill: ExecutionRow, holding: Holding) -> None:
        market = fill.market
        if market.category != "spot":
            return self._book(
                at_ms, market.settle, self._gross, fee=fill.fee, tax=fill.tax, fill=fill,
                size=holding.size,
            )  # fmt: skip
        sign = 1 if fill.side == "Buy" else -1
        for coin, cash in ((market.base, sign * fill.quantity), (market.quote, -sign * fill.value)):
            charged = {"fee": fill.fee, "tax": fill.tax} if fill.fee_coin == coin else {}
            self._book(at_ms, coin, cash, fill=fill, size=0, **charged)

    def _close_open_orders(self) -> None:
        """What an order has closed so far is shown before it has ended."""
        for table in self.orders.values():
            for entry in table.entries:
                self._close(entry.facts.updated_ms, entry.facts)

    def _close(self, at_ms: int, order: Order) -> None:
        """Show what an order realised, once."""
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
            min(at_ms + 5, self.history.to_ms),
        )
        self.closed[order.market.category].append(order.created_ms, self._next(), closed)

    def _funding(self, at_ms: int) -> None:
        for market, holding in self._holdings.items():
            if market.category == "spot" or not holding.size:
                continue
            size, price = abs(holding.size), self._prices[market]
            value = quotient(size, price) if market.category == "inverse" else product(price, size)
            rate = self._random.randrange(-20, 30)
            paid = value * rate // 100_000 * (1 if holding.size > 0 else -1)
            if not paid:
                continue
            seq = self._next()
            side = "Buy" if holding.size > 0 else "Sell"
            order_id = f"{at_ms // 1000}-{market.symbol}-{UID}-{side}"
            text = f"{'-' if rate < 0 else ''}0.{abs(rate):05d}"
            fill = ExecutionRow(market, _uuid(seq), order_id, "", side, price, size, value, paid,
                        market.settle, False, text, "Funding", False, 0, 0)  # fmt: skip
            self.executions[market.category].append(at_ms, seq, fill)
            self._fills += 1
            session = self._session(at_ms, market, holding, side, price, value)
            self._book(at_ms, market.settle, session, fill=fill, size=holding.size, funding=-paid)

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
        self.sessions.append(at_ms, self._next(), facts)
        return gained

    def _buy_dated(self, at_ms: int) -> None:
        """Buy contracts that expire a day later."""
        for market in _dated(at_ms + DAY_MS):
            size = 1_000 * UNIT if market.category == "inverse" else UNIT
            bought = self._dated_fill(at_ms, market, "Buy", "Trade", size, market.price)
            self._book(at_ms, market.settle, 0, fee=bought.fee, fill=bought, size=size)
            deliver = partial(self._deliver, market=market, bought=bought)
            self._at(at_ms + DAY_MS, deliver)

    def _deliver(self, at_ms: int, market: SimulatedMarket, bought: ExecutionRow) -> None:
        kind = "Settle" if market.category == "inverse" else "Delivery"
        price = market.price + market.price // 100
        sold = self._dated_fill(at_ms, market, "Sell", kind, bought.quantity, price)
        gained = sold.value - bought.value
        gained = -gained if market.category == "inverse" else gained
        self._book(at_ms, market.settle, gained, fee=sold.fee, fill=sold, kind="DELIVERY")
        facts = Delivered(market, "Buy", sold.quantity, price, gained, sold.fee)
        self.deliveries[market.category].append(at_ms, self._next(), facts)

    def _dated_fill(
        self, at_ms: int, market: SimulatedMarket, side: str, kind: str, size: int, price: int
    ) -> ExecutionRow:
        seq = self._next()
        value = quotient(size, price) if market.category == "inverse" else product(price, size)
        closed = size if side == "Sell" else 0
        fill = ExecutionRow(
            market, _uuid(seq), _uuid(seq + 1), "", side, price, size, value,
            product(value, RATES[market.category]), market.settle, True,
            RATE_TEXTS[market.category], kind, False, closed, 0,
        )  # fmt: skip
        self.executions[market.category].append(at_ms, seq, fill)
        self._fills += 1
        return fill

    # Wallets --------------------------------------------------------------------------

    def _book(self, at_ms: int, coin: str, cash: int, **more: Any) -> None:
        """One line of a trading wallet's book."""
        self.books.add(at_ms, self._next(), coin, cash, **more)

    def _fund_contracts(self, at_ms: int) -> None:
        """Where contracts have wallets of their own, they get their margin."""
        for market in {market.settle: market for market in MARKETS if market.settle}.values():
            source, target = (self.modes.wallet(at_ms, of) for of in (None, market))
            if target == source:
                continue
            seq, amount = self._next(), 100 * UNIT
            moved = Moved(
                f"selfTransfer_{_uuid(seq)}", market.settle, amount, source, target, "", ""
            )
            self.transfers.append(at_ms, seq, moved)
            self._move(at_ms, market.settle, amount, source, target)

    def _move(self, at_ms: int, coin: str, amount: int, source: str, target: str) -> None:
        self._book(at_ms, coin, -amount, kind="TRANSFER_OUT", wallet=source)
        self._book(at_ms, coin, amount, kind="TRANSFER_IN", wallet=target)

    def _change_mode(self, at_ms: int) -> None:
        """Wallets that the new mode does not have give what they hold to the unified one."""
        for wallet, coin, amount in self.books.held_apart(at_ms):
            self._move(at_ms, coin, amount, wallet, UNIFIED)

    def _split(self) -> None:
        """Put what happened in former modes where the former paths look for it."""
        for tables, former in (
            (self.executions, self.former_executions),
            (self.orders, self.former_orders),
            (self.closed, self.former_closed),
        ):
            for category, table in tables.items():
                below_ms = self.modes.shown_from_ms(category, self.history.to_ms)
                former[category] = split(table, below_ms)
        self.former_sessions = split(
            self.sessions, self.modes.shown_from_ms("linear", self.history.to_ms)
        )

    def _book_fund(self, at_ms: int, coin: str, change: int, kind: str, text: str) -> None:
        at_ms = at_ms // 1_000 * 1_000
        line = FundLine(coin, change, self._fund.book(coin, change), kind, text)
        self.fund_ledger.append(at_ms, self._next(), line)

    def _odd(self, at_ms: int, kind: str) -> None:
        """Book something that no list but a wallet's book has."""
        amount = self._random.randrange(1, 10_000) * MILLI
        if kind.startswith("TOKENS"):
            return self._odd_token(at_ms, kind, amount)
        if kind in FUND_TEXTS:
            self._book_fund(at_ms, "USDT", amount, kind, FUND_TEXTS[kind])
            if kind == "Convert":
                self._book_fund(at_ms, "USDC", -amount, kind, FUND_TEXTS[kind])
            return None
        if kind == "CURRENCY_SELL":
            self._book(at_ms, "USDC", amount, kind="CURRENCY_BUY")
        paid = kind in ("INTEREST", "CURRENCY_SELL")
        self._book(at_ms, "USDT", -amount if paid else amount, kind=kind)
        return None

    def _odd_token(self, at_ms: int, kind: str, amount: int) -> None:
        bought = kind == "TOKENS_SUBSCRIPTION"
        held = self.books.held(self.modes.wallet(at_ms, None))["BTC3L"]
        amount = amount if bought else min(amount, held)
        if amount:
            sign = 1 if bought else -1
            self._book(at_ms, "USDT", -sign * amount, kind=kind)
            self._book(at_ms, "BTC3L", sign * amount, kind=kind)

    def _some_deposit(self, at_ms: int, index: int) -> None:
        coin = COINS[index % len(COINS)]
        amount = self._random.randrange(1, 100_000) * MILLI
        wait_ms = self._random.choice((0, 90_000, 20 * 60_000, 2 * HOUR_MS, 30 * HOUR_MS))
        internal, blocked = index % 7 == 3, index % 17 == 5
        self._deposit(
            at_ms, coin=coin, amount=amount, wait_ms=wait_ms, internal=internal, blocked=blocked
        )

    def _deposit(
        self,
        at_ms: int,
        *,
        coin: str,
        amount: int,
        wait_ms: int = 0,
        internal: bool = False,
        blocked: bool = False,
    ) -> None:
        seq = self._next()
        deposit = Deposit(coin, amount, at_ms, _hash(seq), internal=internal, blocked=blocked)
        if internal:
            deposit.status, deposit.credited_ms = 2, at_ms
            self.internal_deposits.append(at_ms // 1_000 * 1_000, seq, deposit)
            return self._book_fund(at_ms, coin, amount, "Deposit", "Off-chain deposit")
        self.deposits.append(at_ms, seq, deposit)
        if not wait_ms:
            return self._credit(at_ms, deposit)
        self._at(at_ms + wait_ms, partial(self._credit, deposit=deposit))

    def _credit(self, at_ms: int, deposit: Deposit) -> None:
        deposit.credited_ms = at_ms // 1_000 * 1_000
        deposit.status = 3 if self._random.random() > 0.02 else 70012
        if deposit.blocked:
            deposit.status = 3
            return
        self._book_fund(at_ms, deposit.coin, deposit.amount, "Deposit", "On-chain deposit")

    def _withdraw(self, at_ms: int, index: int) -> None:
        coin, internal = COINS[index % len(COINS)], index % 6 == 1
        amount = self._random.randrange(1, 5_000) * MILLI
        fee = 0 if internal else MILLI
        withdrawal = Withdrawal(coin, amount, fee, at_ms, _hash(self._seq), internal=internal)
        withdrawal.status = "success" if index % 9 else "CancelByUser"
        withdrawal.updated_ms = at_ms + 60_000
        withdrawal.tax = MILLI if index % 11 == 5 else 0
        self.withdrawals.append(at_ms, self._next(), withdrawal)
        if withdrawal.status == "success":
            left = amount + fee + withdrawal.tax
            self._book_fund(at_ms, coin, -left, "Withdraw", "Withdrawal")

    def _some_transfer(self, at_ms: int, index: int) -> None:
        amount = self._random.randrange(1, 1_000) * MILLI
        self._transfer(
            at_ms, coin=COINS[index % len(COINS)], amount=amount, sign=1 if index % 3 else -1
        )

    def _transfer(self, at_ms: int, *, coin: str, amount: int, sign: int) -> None:
        """Between the funding wallet and the unified one: a line in both books."""
        wallet = self.modes.wallet(at_ms, None)
        names = ("FUND", wallet) if sign > 0 else (wallet, "FUND")
        seq = self._next()
        moved = Moved(f"selfTransfer_{_uuid(seq)}", coin, amount, *names, "", "")
        self.transfers.append(at_ms, seq, moved)
        self._book_fund(at_ms, coin, -sign * amount, "Transfer", "Transfer")
        self._book(at_ms, coin, sign * amount, kind="TRANSFER_IN" if sign > 0 else "TRANSFER_OUT")

    def _give(self, at_ms: int, index: int) -> None:
        """Between users of the family: from this one, to it, or past it."""
        seq, coin = self._next(), COINS[index % len(COINS)]
        amount = self._random.randrange(1, 100) * MILLI
        source, target = ((UID, "7654399"), ("7654399", UID), ("7654398", "7654399"))[index % 3]
        moved = Moved(
            f"universalTransfer_{_uuid(seq)}", coin, amount, "UNIFIED", "UNIFIED", source, target
        )
        self.universal.append(at_ms, seq, moved)
        if UID in (source, target):
            kind, sign = ("TRANSFER_OUT", -1) if source == UID else ("TRANSFER_IN", 1)
            self._book(at_ms, coin, sign * amount, kind=kind)

    # What tests do to it ---------------------------------------------------------------

    def insert_execution(self, category: str, at_ms: int) -> str:
        """Let a fill appear in the past, as late bookings do; the ledger does not know it."""
        seq = self._next()
        market = next(market for market in MARKETS if market.category == category)
        fill = ExecutionRow(
            market, _uuid(seq), _uuid(seq + 1), "", "Buy", market.price, market.size_step,
            product(market.price, market.size_step), 0, "", False, "0", "Trade", False, 0, 0,
        )  # fmt: skip
        self.executions[category].insert(at_ms, seq, fill)
        self.inserted.add(fill.execution_id)
        return fill.execution_id

    def pend_deposit(self, at_ms: int) -> Deposit:
        """Let a deposit appear that is not credited yet."""
        seq = self._next()
        deposit = Deposit("USDT", UNIT, at_ms, _hash(seq), internal=False)
        self.deposits.insert(at_ms, seq, deposit)
        return deposit


def _dated(expires_ms: int) -> tuple[SimulatedMarket, SimulatedMarket]:
    """A linear and an inverse contract of a date."""
    day = datetime.fromtimestamp(expires_ms / 1_000, UTC)
    linear = f"ETHUSDT-{day:%d%b%y}".upper()
    inverse = f"BTCUSD{'FGHJKMNQUVXZ'[day.month - 1]}{day:%y}"
    return (
        SimulatedMarket("linear", linear, "ETH", "USDT", "USDT", 3_000 * UNIT, CENT, CENT),
        SimulatedMarket("inverse", inverse, "BTC", "USD", "BTC", 60_000 * UNIT, TENTH, UNIT),
    )


def _uuid(seq: int) -> str:
    text = hashlib.md5(b"%d" % seq, usedforsecurity=False).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _hash(seq: int) -> str:
    return "0x" + hashlib.sha256(b"tx%d" % seq).hexdigest()
