"""Perpetual and dated contracts, and options, up to their end, booked in bills of the simulated
OKX.

A fill is one bill in the settlement currency with its profit and its fee; an option's premium is
only part of the change. Long and short positions are separate, and all are cross margined.
https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-last-7-days
"""

from typing import Final, NamedTuple

from onebook.model import DAY_MS
from onebook.simulator.accounts.blocks import Acts
from onebook.simulator.accounts.okx.facts import (
    TRADING,
    ClosedPart,
    OkxFill,
    OkxOrder,
    OpenPosition,
    TradingBill,
)
from onebook.simulator.accounts.okx.generator import OkxBooks
from onebook.simulator.accounts.okx.names import (
    HOUR_MS,
    SETTLED_DAILY,
    SWAP_MARKETS,
    SWAP_WEIGHTS,
    SWAPS,
    UNIT,
    OkxInstrument,
    cut_to,
    dated,
    expiry_after,
    option,
    per,
    times,
    trading_id,
)

TAKER_RATE, MAKER_RATE, REBATE_RATE = -UNIT * 5 // 10_000, -UNIT * 2 // 10_000, UNIT // 50_000
PENALTY_RATE: Final = UNIT // 250  # of a liquidation
FUNDING_HOURS: Final = 8
FIRST_TRADE: Final = 98_617_000
OPEN_SUBS: Final = {"long": "3", "short": "4"}
CLOSE_SUBS: Final = {"long": "5", "short": "6"}
BLOCK_SUBS: Final = {"long": "206", "short": "207"}
SPREAD_SUBS: Final = {"long": "272", "short": "273"}
LIQUIDATED: Final = {"long": "104", "short": "105"}
DELEVERAGED: Final = {"long": "125", "short": "126"}
DELIVERED: Final = {"long": "112", "short": "113"}


class _Deal(NamedTuple):
    """How a fill was made: the codes of its bill, its order and its position."""

    type: str = "2"
    subs: dict[str, str] = {}  # noqa: RUF012  # never changed
    category: str = "normal"
    end: str = ""  # how positions-history reports a close
    ordered: bool = True
    fee: bool = True


NORMAL: Final = _Deal()


class ContractTrading:
    """Generates trades of contracts and options, and books them."""

    def __init__(self, books: OkxBooks) -> None:
        self._books = books
        self._random = books.random

    def acts(self) -> Acts:
        """Return the possible events, by name."""
        return {
            "position": self.open_position,
            "close": self.close,
            "funding": self.pay_funding,
            "liquidation": self.liquidate,
            "deleveraging": self.deleverage,
            "clawback": self.claw_back,
            "dated contract": self.open_dated,
            "settled contract": self.open_dated,
            "settlement": self.settle,
            "delivery": self.deliver,
            "option": self.trade_option,
            "option expiry": self.expire_option,
            "block trade": lambda at: self.open_position(at, _Deal("14", BLOCK_SUBS)),
            "spread trade": self.trade_spread,
        }

    # Fills ----------------------------------------------------------------------------------

    def _contracts(self, market: OkxInstrument, price: int) -> int:
        """Return a size worth up to a few percent of the balance."""
        share, parts = self._random.randrange(20, 90), max(1_000, self._books.history.rows // 20)
        margin = self._books.held(TRADING, market.settle) * share // parts
        one = market.worth(UNIT, price)
        return cut_to(per(max(0, margin), one), market.lot) if one else 0

    def _fill(
        self,
        at: int,
        market: OkxInstrument,
        side: str,
        size: int,
        price: int,
        *,
        opening: bool,
        deal: _Deal = NORMAL,
    ) -> TradingBill | None:
        """Trade contracts on one side of the position; returns the bill."""
        position = self._books.state.positions.get((market.id, side))
        maker = deal.ordered and self._random.random() < 0.5
        worth = market.worth(size, price)
        rate = MAKER_RATE if maker else TAKER_RATE
        rate = REBATE_RATE if maker and self._random.random() < 0.2 else rate
        fee = times(worth, rate) if deal.fee else 0
        pnl = 0
        if not opening:
            if position is None or not position.size:
                return None
            size = min(size, position.size)
            pnl = self._profit(position, size, price)
            # The loss is limited here, so that no balance becomes negative.
            pnl = max(pnl, -(self._books.held(TRADING, market.settle) // 2))
        created = self._books.moment("orders", at - self._random.randrange(1, 3_000))
        order = created, self._books.state.number("order")
        trade = FIRST_TRADE + self._books.state.number(f"trade {market.id}")
        trade = trade if deal.ordered else 0
        subs = deal.subs or (OPEN_SUBS if opening else CLOSE_SUBS)
        liquidity = ("M" if maker else "T") if deal.ordered else ""
        row = self._books.bill(
            at, market.settle, pnl + fee, deal.type, subs[side], instrument=market, mode="cross",
            size=size, price=price, pnl=pnl, fee=fee, liquidity=liquidity, order=order,
            trade=trade, filled=at,
        )  # fmt: skip
        bought = (side == "long") == opening
        self._books.block.fills.append(
            OkxFill(
                row.time,
                row.seq,
                row.ts,
                market,
                market.kind,
                "buy" if bought else "sell",
                side,
                subs[side],
                price,
                size,
                fee,
                market.settle,
                rate,
                liquidity,
                pnl,
                order,
                trade,
            )
        )  # fmt: skip
        self._books.block.orders.append(
            OkxOrder(
                *order,
                row.ts,
                market,
                market.kind,
                "buy" if bought else "sell",
                side,
                "limit" if maker else "market",
                "cross",
                price if maker else 0,
                size,
                "",
                size,
                price,
                fee,
                market.settle,
                pnl,
                "filled",
                deal.category,
                (price, size, row.ts, trade),
            )
        )  # fmt: skip
        if opening:
            self._enlarge(position, market, side, size, price, fee, row.time)
        elif position is not None:
            self._reduce(position, size, price, pnl, fee, row.time, deal.end)
        return row

    def _profit(self, position: OpenPosition, size: int, price: int) -> int:
        market, sign = position.instrument, 1 if position.side == "long" else -1
        if market.inverse:
            dollars = times(size, market.value)
            return sign * (per(dollars, position.entry) - per(dollars, price))
        return sign * times(times(size, market.value), price - position.entry)

    def _covered_profit(self, position: OpenPosition, price: int) -> int:
        """Return the profit of a whole position; a loss is at most a quarter of the balance."""
        most = self._books.held(TRADING, position.instrument.settle) // 4
        return max(self._profit(position, position.size, price), -most)

    def _enlarge(
        self, position: OpenPosition | None, market: OkxInstrument, side: str, size: int,
        price: int, fee: int, at: int,
    ) -> None:  # fmt: skip
        if position is None:
            number = self._books.state.number("position")
            position = OpenPosition(market, side, size, price, at, number, size, fee=fee)
            if market.kind == "SWAP":
                due = (at // (FUNDING_HOURS * HOUR_MS) + 1) * FUNDING_HOURS * HOUR_MS
                self._books.state.later(due, "funding", market.id, side)
        else:
            total = position.size + size
            if market.inverse:  # the harmonic mean, so that the entry value is exact
                cost = per(position.size, position.entry) + per(size, price)
                entry = per(total, cost)
            else:
                entry = per(times(position.size, position.entry) + times(size, price), total)
            position = position._replace(
                size=total, entry=entry, fee=position.fee + fee,
                largest=max(position.largest, total),
            )  # fmt: skip
        self._books.state.positions[market.id, side] = position

    def _reduce(
        self, position: OpenPosition, size: int, price: int, pnl: int, fee: int, at: int, end: str
    ) -> None:  # fmt: skip
        market = position.instrument
        position = position._replace(
            size=position.size - size, closed=position.closed + size,
            proceeds=position.proceeds + times(size, price), pnl=position.pnl + pnl,
            fee=position.fee + fee,
        )  # fmt: skip
        closed = not position.size
        if closed:
            del self._books.state.positions[market.id, position.side]
        else:
            self._books.state.positions[market.id, position.side] = position
        self._books.block.closings.append(
            ClosedPart(
                self._books.moment("closings", at),
                self._books.state.number("closing"),
                position,
                end or ("2" if closed else "1"),
            )
        )  # fmt: skip

    # Perpetual contracts --------------------------------------------------------------------

    def open_position(self, at: int, deal: _Deal = NORMAL) -> None:
        """Open or increase a position that is closed in parts hours later."""
        market = self._random.choices(SWAP_MARKETS, SWAP_WEIGHTS)[0]
        side = self._random.choice(("long", "short"))
        price = market.price_at(at, self._random)
        size = self._contracts(market, price)
        if size < market.lot:
            return
        row = self._fill(at, market, side, size, price, opening=True, deal=deal)
        assert row is not None
        self._books.done("contract trade", f"{market.id} {row.trade}", row)
        first = cut_to(size // 2, market.lot) if self._random.random() < 0.3 else 0
        hours = self._random.randrange(1, 30)
        for part in (first, size - first):
            if part:
                self._books.state.later(at + hours * HOUR_MS + 7_001, "close", market, side, part)
            hours += self._random.randrange(1, 6)

    def close(self, at: int, market: OkxInstrument, side: str, size: int) -> None:
        """Close a part of a position, as far as it still exists."""
        price = market.price_at(at, self._random)
        row = self._fill(at, market, side, size, price, opening=False)
        if row is not None:
            self._books.done("contract trade", f"{market.id} {row.trade}", row)

    def pay_funding(self, at: int, instrument: str, side: str) -> None:
        """Pay or receive the funding of eight hours, and schedule the next while the position is
        open."""
        position = self._books.state.positions.get((instrument, side))
        if position is None:
            return
        market = position.instrument
        price = market.price_at(at, self._random)
        rate = UNIT * self._random.randrange(-40, 101) // 1_000_000
        paid = times(market.worth(position.size, price), rate)
        change = -paid if side == "long" else paid
        change = max(change, -(self._books.held(TRADING, market.settle) // 4))
        if change:
            row = self._books.bill(
                at, market.settle, change, "8", "174" if change > 0 else "173",
                instrument=market, mode="cross", size=position.size, price=price, pnl=change,
            )  # fmt: skip
            funding = position.funding + change
            self._books.state.positions[instrument, side] = position._replace(funding=funding)
            self._books.done("funding", instrument, row)
        self._books.state.later(at + FUNDING_HOURS * HOUR_MS, "funding", instrument, side)

    def _any_position(self, at: int) -> OpenPosition | None:
        """Return an open position, after opening one if there is none."""
        if not self._books.state.positions:
            self.open_position(at)
        found = [each for each in self._books.state.positions.values()
                 if each.instrument.kind == "SWAP"]  # fmt: skip
        return self._random.choice(found) if found else None

    def liquidate(self, at: int) -> None:
        """Liquidate a position: a bill for its loss, and one for the penalty."""
        position = self._any_position(at)
        if position is None:
            return
        market, side = position.instrument, position.side
        price = market.price_at(at, self._random)
        penalty = times(market.worth(position.size, price), PENALTY_RATE)
        penalty = min(penalty, self._books.held(TRADING, market.settle) // 20)
        row = self._fill(
            at, market, side, position.size, price, opening=False,
            deal=_Deal("5", LIQUIDATED, "full_liquidation", "3", ordered=False, fee=False),
        )  # fmt: skip
        assert row is not None
        charge = self._books.bill(
            at, market.settle, -penalty, "5", "109", instrument=market, mode="cross", fee=-penalty,
            size=row.size, order=row.order,
        )  # fmt: skip
        last = self._books.block.closings[-1]
        self._books.block.closings[-1] = last._replace(
            position=last.position._replace(penalty=-penalty)
        )
        self._books.done("liquidation", market.id, row, charge)

    def deleverage(self, at: int) -> None:
        """Close a position against a liquidated one."""
        position = self._any_position(at)
        if position is None:
            return
        market, side = position.instrument, position.side
        row = self._fill(
            at, market, side, position.size, market.price_at(at, self._random), opening=False,
            deal=_Deal("9", DELEVERAGED, "adl", "5", ordered=False, fee=False),
        )  # fmt: skip
        assert row is not None
        self._books.done("deleveraging", market.id, row)

    def claw_back(self, at: int) -> None:
        """Pay a part of the exchange's loss."""
        amount = self._books.share(TRADING, "USDT", 3, UNIT // 10**8)
        if amount:
            row = self._books.bill(
                at, "USDT", -amount, "10", "108", instrument=SWAPS["BTC-USDT-SWAP"], mode="cross",
                size=UNIT, pnl=-amount,
            )  # fmt: skip
            self._books.done("clawback", "", row)

    # Dated contracts ------------------------------------------------------------------------

    def open_dated(self, at: int) -> None:
        """Open a contract that is delivered days later, and since 2025 settled daily."""
        days = self._random.randrange(2, 15)
        expiry = expiry_after(at, days)
        market = dated(self._random.choice(("BTC", "ETH")), expiry)
        price, side = market.price_at(at, self._random), self._random.choice(("long", "short"))
        size = self._contracts(market, price)
        if size < market.lot:
            return
        row = self._fill(at, market, side, size, price, opening=True)
        assert row is not None
        self._books.done("contract trade", f"{market.id} {row.trade}", row)
        if at >= SETTLED_DAILY:
            for day in range(1, days):
                self._books.state.later(expiry_after(at, day), "settlement", market.id, side)
        self._books.state.later(expiry, "delivery", market.id, side)

    def settle(self, at: int, instrument: str, side: str) -> None:
        """Settle the profit of a day: the position restarts at the current price."""
        position = self._books.state.positions.get((instrument, side))
        if position is None:
            return
        market = position.instrument
        price = market.price_at(at, self._random)
        pnl = self._covered_profit(position, price)
        row = self._books.bill(
            at, market.settle, pnl, "34", "355", instrument=market, mode="cross",
            size=position.size, price=price, pnl=pnl,
        )  # fmt: skip
        self._books.state.positions[instrument, side] = position._replace(
            entry=price, pnl=position.pnl + pnl
        )
        self._books.done("settlement", instrument, row)

    def deliver(self, at: int, instrument: str, side: str) -> None:
        """Deliver a contract: a bill with its profit less a fee, without an order."""
        position = self._books.state.positions.get((instrument, side))
        if position is None:
            return
        market = position.instrument
        price = market.price_at(at, self._random)
        pnl = self._covered_profit(position, price)
        fee = times(market.worth(position.size, price), MAKER_RATE)
        row = self._books.bill(
            at, market.settle, pnl + fee, "3", DELIVERED[side], instrument=market, mode="cross",
            size=position.size, price=price, pnl=pnl, fee=fee,
        )  # fmt: skip
        self._reduce(position, position.size, price, pnl, fee, row.time, "2")
        self._books.done("delivery", instrument, row)

    # Options --------------------------------------------------------------------------------

    def trade_option(self, at: int) -> None:
        """Buy or sell an option; its premium is paid immediately."""
        base = self._random.choice(("BTC", "ETH"))
        expiry, spot = expiry_after(at, self._random.randrange(1, 10)), SWAPS[f"{base}-USD-SWAP"]
        price = spot.price_at(at, self._random)
        strike = max(UNIT, cut_to(price, 100 * UNIT))
        market = option(base, expiry, strike, self._random.choice("CP"))
        premium = market.price_at(at, self._random)
        parts = max(1_000, self._books.history.rows // 20)
        coins = self._books.held(TRADING, base) * self._random.randrange(10, 80) // parts
        size = cut_to(per(coins, market.multiple), UNIT)
        if not size:
            return
        sold = self._random.random() < 0.3
        worth = market.worth(size, premium)
        fee = max(times(times(size, market.multiple), -UNIT * 3 // 10_000), -worth // 8)
        order = (
            self._books.moment("orders", at - self._random.randrange(1, 3_000)),
            self._books.state.number("order"),
        )
        trade = FIRST_TRADE + self._books.state.number(f"trade {market.id}")
        row = self._books.bill(
            at, base, (worth if sold else -worth) + fee, "2", "2" if sold else "1",
            instrument=market, mode="cross", size=size, price=premium, fee=fee, liquidity="T",
            order=order, trade=trade, filled=at,
        )  # fmt: skip
        side = "sell" if sold else "buy"
        self._books.block.fills.append(
            OkxFill(
                row.time,
                row.seq,
                row.ts,
                market,
                "OPTION",
                side,
                "net",
                row.sub,
                premium,
                size,
                fee,
                base,
                -UNIT * 3 // 10_000,
                "T",
                0,
                order,
                trade,
            )
        )  # fmt: skip
        self._books.block.orders.append(
            OkxOrder(
                *order,
                row.ts,
                market,
                "OPTION",
                side,
                "net",
                "limit",
                "cross",
                premium,
                size,
                "",
                size,
                premium,
                fee,
                base,
                0,
                "filled",
                "normal",
                (premium, size, row.ts, trade),
            )
        )  # fmt: skip
        self._books.done("option trade", f"{market.id} {trade}", row)
        self._books.state.later(expiry, "option expiry", market, size, sold)

    def expire_option(self, at: int, market: OkxInstrument, size: int, sold: bool) -> None:
        """Exercise an option that has value, or let it expire; both cases have a bill."""
        price = SWAPS[f"{market.base}-USD-SWAP"].price_at(at, self._random)
        inside = (price - market.strike) * (1 if market.option == "C" else -1)
        payoff = per(times(times(size, market.multiple), max(0, inside)), price)
        payoff = min(payoff, self._books.held(TRADING, market.settle) // 4)
        change = -payoff if sold else payoff
        sub = "172" if not payoff else "171" if sold else "170"
        row = self._books.bill(
            at, market.settle, change, "3", sub, instrument=market, mode="cross", size=size,
            price=price, pnl=change,
        )  # fmt: skip
        self._books.done("exercise", market.id, row)

    # Blocks and spreads ---------------------------------------------------------------------

    def trade_spread(self, at: int) -> None:
        """Open both legs of a spread together: a perpetual and a dated contract."""
        expiry = expiry_after(at, 9)
        markets = (SWAPS["BTC-USD-SWAP"], dated("BTC", expiry))
        price = markets[0].price_at(at, self._random)
        size = self._contracts(markets[0], price)
        if size < UNIT:
            return
        rows = []
        for market, side in zip(markets, ("long", "short"), strict=True):
            row = self._fill(
                at, market, side, size, price, opening=True, deal=_Deal("24", SPREAD_SUBS)
            )
            assert row is not None
            rows.append(row)
        reference = str(trading_id(*rows[0].order)) if rows[0].order else ""
        self._books.done("spread trade", reference, *rows)
        self._books.state.later(at + DAY_MS, "close", markets[0], "long", size)
        self._books.state.later(expiry, "delivery", markets[1].id, "short")
