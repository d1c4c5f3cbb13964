"""Trades of pairs, conversions and loans of the simulated OKX account, booked in its bills.

A fill of a pair has two bills, one per currency, whose subtype says what happened to that currency;
the fee is in the receiving leg.
https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-last-7-days
"""

from typing import Any, Final

from onebook.simulator.accounts.blocks import Acts
from onebook.simulator.accounts.okx.facts import (
    ISOLATED,
    TRADING,
    BorrowStep,
    DebtConversion,
    DustConversion,
    InterestRow,
    OkxConversion,
    OkxFill,
    OkxOrder,
    TradingBill,
)
from onebook.simulator.accounts.okx.generator import OkxBooks
from onebook.simulator.accounts.okx.names import (
    HOUR_MS,
    MICRO,
    NANO8,
    PAIRS,
    SPOT_MARKETS,
    SPOT_WEIGHTS,
    UNIT,
    OkxInstrument,
    cut_to,
    ms_of,
    per,
    times,
    trading_id,
)

TAKER_RATE, MAKER_RATE, REBATE_RATE = -UNIT // 1_000, -UNIT * 8 // 10_000, UNIT // 20_000
SIGNED_SIZES: Final = ms_of("2022-01-01")  # from then on: signed pair sizes, no balance tails
LEAST: Final = 1_000  # minimum lots of an order
FIRST_TRADE: Final = 586_760_000
CONVERT_RATE: Final = UNIT // 500  # surcharge of a conversion over the market price
INTEREST_RATE: Final = UNIT * 4_083 // 10**9  # per hour


class PairTrading:
    """Generates trades of pairs, conversions and loans, and books them."""

    def __init__(self, books: OkxBooks) -> None:
        self._books = books
        self._random = books.random

    def acts(self) -> Acts:
        """Return the possible events, by name."""
        return {
            "order": lambda at: self.order(at, "SPOT"),
            "simple trade": self.trade_simply,
            "conversion in the trading account": self.convert,
            "easy convert": self.convert_dust,
            "token conversion": self.replace_token,
            "strategy": self.start_strategy,
            "strategy end": self.end_strategy,
            "profit share": self.share_profit,
            "auto earn": self.earn,
            "margin trade": self.trade_on_margin,
            "interest": self.accrue,
            "interest deduction": self.deduct_interest,
            "isolated margin": self.set_margin_apart,
            "isolated margin end": self.return_margin,
            "borrowing": self.borrow,
            "repayment": self.repay,
            "one-click repay": self.repay_by_conversion,
            "forced repayment": self.force_repayment,
        }

    # Orders ---------------------------------------------------------------------------------

    def order(self, at: int, kind: str) -> OkxInstrument | None:
        """Place an order with one to three fills, or one that is cancelled; returns its pair."""
        pair = self._random.choices(SPOT_MARKETS, SPOT_WEIGHTS)[0]
        if not pair.open(at):
            return None
        price = pair.price_at(at, self._random)
        side = self._random.choice(("buy", "sell"))
        size = self._affordable(pair, side, price)
        if size < LEAST * pair.lot:
            side = "sell" if side == "buy" else "buy"
            size = self._affordable(pair, side, price)
            if size < LEAST * pair.lot:
                return None
        drawn = self._random.random()
        parts = self._random.choice((1, 1, 1, 2, 3))
        maker = self._random.random() < 0.5
        market = not maker and self._random.random() < 0.6
        created = self._books.moment("orders", at - self._random.randrange(1, 20_000))
        order = created, self._books.state.number("order")
        client = f"x{order[1]:05}" if self._random.random() < 0.1 else ""
        fills: list[OkxFill] = []
        if drawn >= 0.04:
            left = size
            for part in range(parts):
                portion = left if part == parts - 1 else cut_to(left // (parts - part), pair.lot)
                left -= portion
                fills.append(self._fill(at, order, pair, kind, side, price, portion, maker, client))
                at += self._random.choice((0, 0, 1, 700))
        state = "canceled" if drawn < 0.08 else "filled"
        if state == "canceled" and fills:
            size += cut_to(size // 3, pair.lot)
        self._keep_order(order, pair, kind, side, fills, size, price, market, state, client)
        return pair

    def _affordable(self, pair: OkxInstrument, side: str, price: int) -> int:
        """Return a size worth up to four percent of the balance that pays for it."""
        share, parts = self._random.randrange(1, 40), max(1_000, self._books.history.rows // 10)
        if side == "sell":
            return cut_to(self._books.held(TRADING, pair.base) * share // parts, pair.lot)
        worth = self._books.held(TRADING, pair.settle) * share // parts
        return cut_to(max(0, per(worth, price)), pair.lot)

    def _fill(
        self,
        at: int,
        order: tuple[int, int],
        pair: OkxInstrument,
        kind: str,
        side: str,
        price: int,
        size: int,
        maker: bool,
        client: str,
    ) -> OkxFill:
        trade = FIRST_TRADE + self._books.state.number(f"trade {pair.id}")
        rate = TAKER_RATE if not maker else MAKER_RATE
        if maker and self._random.random() < 0.1:
            rate = REBATE_RATE
        cost, liquidity = times(price, size), "M" if maker else "T"
        fee_ccy, gross = (pair.base, size) if side == "buy" else (pair.settle, cost)
        fee = times(gross, rate)
        legs = self._book_legs(
            at, pair, [(pair.base, size if side == "buy" else -size),
                       (pair.settle, cost if side == "sell" else -cost)],
            fee_ccy=fee_ccy, fee=fee, price=price, liquidity=liquidity, order=order, trade=trade,
            kind="" if kind == "SPOT" else kind, mode="cash" if kind == "SPOT" else "cross",
            client=client,
        )  # fmt: skip
        base = next(leg for leg in legs if leg.ccy == pair.base)
        fill = OkxFill(
            base.time, base.seq, base.ts, pair, kind, side, "net", base.sub, price, size, fee,
            fee_ccy, rate, liquidity, 0, order, trade, client,
        )  # fmt: skip
        self._books.block.fills.append(fill)
        self._books.done("trade", f"{pair.id} {trade}", *legs)
        return fill

    def _book_legs(
        self,
        at: int,
        pair: OkxInstrument,
        amounts: list[tuple[str, int]],
        *,
        fee_ccy: str = "",
        fee: int = 0,
        type_: str = "2",
        subs: tuple[str, str] = ("1", "2"),
        **facts: Any,
    ) -> list[TradingBill]:
        """Book both legs of a fill in random order."""
        if self._random.random() < 0.5:
            amounts = amounts[::-1]
        legs = []
        for ccy, amount in amounts:
            own = fee if ccy == fee_ccy else 0
            tail = 0
            if at < SIGNED_SIZES and amount < 0 and self._random.random() < 0.3:
                tail = self._random.randrange(1, NANO8)
            size = abs(amount) if at < SIGNED_SIZES else amount
            legs.append(
                self._books.bill(
                    at, ccy, amount + own + tail, type_, subs[0] if amount > 0 else subs[1],
                    instrument=pair, size=size, fee=own, filled=at, **facts,
                )
            )  # fmt: skip
        return legs

    def _keep_order(
        self,
        order: tuple[int, int],
        pair: OkxInstrument,
        kind: str,
        side: str,
        fills: list[OkxFill],
        size: int,
        price: int,
        market: bool,
        state: str,
        client: str,
    ) -> None:
        filled = sum(each.size for each in fills)
        cost = sum(times(each.size, each.price) for each in fills)
        in_quote = market and side == "buy"
        last = fills[-1] if fills else None
        updated = order[0] + 500 if last is None else last.ts + 1
        self._books.block.orders.append(
            OkxOrder(
                *order,
                updated,
                pair,
                kind,
                side,
                "net" if kind == "MARGIN" else "",
                "market" if market else self._random.choice(("limit", "limit", "post_only")),
                "cash" if kind == "SPOT" else "cross",
                0 if market else price,
                times(size, price) if in_quote else size,
                ("quote_ccy" if in_quote else "base_ccy") if market and kind == "SPOT" else "",
                filled,
                per(cost, filled) if filled else 0,
                sum(each.fee for each in fills),
                last.fee_ccy if last else "",
                0,
                state,
                "normal",
                (last.price, last.size, last.ts, last.trade) if last else (0, 0, 0, 0),
                client,
            )
        )  # fmt: skip

    # Conversions ----------------------------------------------------------------------------

    def trade_simply(self, at: int) -> None:
        """Buy or sell with one click: two bills without a fee, with an order but no trade."""
        pair = PAIRS["ETH-USDT"]
        legs = self._exchanged(pair, at)
        if legs:
            order = self._books.moment("orders", at), self._books.state.number("order")
            rows = self._book_legs(
                at, pair, legs, type_="30", subs=("320", "321"), order=order, mode="cash"
            )
            self._books.done("simple trade", str(trading_id(*order)), *rows)

    def _exchanged(self, pair: OkxInstrument, at: int) -> list[tuple[str, int]]:
        """Return both legs of an exchange at a price that is worse than the market."""
        price = pair.price_at(at, self._random)
        buys = self._random.random() < 0.6
        size = self._affordable(pair, "buy" if buys else "sell", price)
        cost = cut_to(times(size, price + times(price, CONVERT_RATE) * (1 if buys else -1)), NANO8)
        if not size or not cost or (buys and cost > self._books.held(TRADING, pair.settle)):
            return []
        sign = 1 if buys else -1
        return [(pair.base, sign * size), (pair.settle, -sign * cost)]

    def convert(self, at: int) -> None:
        """Convert in the trading account."""
        pair = PAIRS[self._random.choice(("BTC-USDT", "ETH-USDT", "SOL-USDT"))]
        legs = self._exchanged(pair, at)
        if not legs:
            return
        (_, size), (_, cost) = legs
        number = self._books.state.number("conversion")
        rows = [
            self._books.bill(at, ccy, n, "27", "318" if n > 0 else "319", size=n)
            for ccy, n in sorted(legs, key=lambda leg: leg[1])
        ]
        self._books.keep(
            "conversions",
            OkxConversion(
                rows[0].time // 1_000 * 1_000, number, pair.base, pair.settle,
                "buy" if size > 0 else "sell", abs(size), abs(cost), per(abs(cost), abs(size)),
            ),
        )  # fmt: skip
        self._books.done("conversion", f"trader{number}", *rows)

    def convert_dust(self, at: int) -> None:
        """Convert small amounts of several currencies to another, with a pair of bills for each."""
        got = self._random.choice(("OKB", "USDT"))
        sources = [ccy for ccy in ("XRP", "DOGE", "LTC", "SOL") if self._books.held(TRADING, ccy)]
        rows: list[TradingBill] = []
        for ccy in sources[:3]:
            amount = self._books.share(TRADING, ccy, 2, 1)
            price = PAIRS[f"{ccy}-USDT"].price_at(at, self._random)
            received = times(amount, price)
            if got == "OKB":
                received = cut_to(per(received, PAIRS["OKB-USDT"].price), NANO8)
            if not amount or not received:
                continue
            rows += [
                self._books.bill(at, ccy, -amount, "28", "237", size=-amount),
                self._books.bill(at, got, received, "28", "236", size=received),
            ]
            number = self._books.state.number("dust")
            self._books.keep(
                "dust", DustConversion(rows[0].time, number, ccy, amount, got, received)
            )
        if rows:
            self._books.done("easy convert", "", *rows)

    def replace_token(self, at: int) -> None:
        """Replace a renamed token with its successor."""
        amount = self._books.held(TRADING, "LTC") // 3
        if amount:
            rows = [
                self._books.bill(at, "LTC", -amount, "11", "119", size=-amount),
                self._books.bill(at, "LTCN", amount, "11", "118", size=amount),
            ]
            self._books.done("token conversion", "", *rows)

    def repay_by_conversion(self, at: int) -> None:
        """Repay a debt of dollars with another currency."""
        pair = PAIRS["BTC-USDT"]
        price, size = pair.price_at(at, self._random), self._affordable(pair, "sell", 1)
        got = cut_to(times(size, price), NANO8)
        if not got:
            return
        rows = [
            self._books.bill(at, "BTC", -size, "29", "225", size=-size),
            self._books.bill(at, "USDT", got, "29", "224", size=got),
        ]
        number = self._books.state.number("debt")
        self._books.keep("repaid", DebtConversion(rows[0].time, number, "USDT", got, "BTC", size))
        self._books.done("one-click repay", "", *rows)

    # Strategies and copy trading --------------------------------------------------------------

    def start_strategy(self, at: int) -> None:
        """Move money to a trading bot, whose trades are in a separate ledger."""
        amount = self._books.share(TRADING, "USDT", 20, NANO8)
        if amount:
            row = self._books.bill(at, "USDT", -amount, "12", "201", size=-amount)
            self._books.done("strategy transfer", "", row)
            days = self._random.randrange(1, 30)
            self._books.state.later(at + days * 24 * HOUR_MS, "strategy end", amount)

    def end_strategy(self, at: int, amount: int) -> None:
        """Move the trading bot's money back, with its result."""
        back = cut_to(amount * self._random.randrange(900, 1_150) // 1_000, NANO8)
        row = self._books.bill(at, "USDT", back, "12", "202", size=back)
        self._books.done("strategy transfer", "", row)

    def share_profit(self, at: int) -> None:
        """Pay, recover or receive a share of the profit of copied trades."""
        type_, sub, sign = self._random.choice(
            (("250", "250", -1), ("251", "251", 1), ("18", "280", -1), ("18", "282", 1))
        )
        amount = min(self._random.randrange(1, 900) * UNIT // 7, self._books.held(TRADING, "USDT"))
        if amount:
            row = self._books.bill(at, "USDT", sign * amount, type_, sub, size=sign * amount)
            self._books.done("profit share", "", row)

    def earn(self, at: int) -> None:
        """Receive interest for automatically lent coins."""
        amount = times(self._books.held(TRADING, "USDT"), INTEREST_RATE)
        if amount:
            apr = UNIT * self._random.randrange(1, 9) // 100
            row = self._books.bill(
                at, "USDT", amount, "381", "381", size=amount, earned=amount, apr=apr
            )
            self._books.done("auto earn", "", row)

    # Loans ----------------------------------------------------------------------------------

    def trade_on_margin(self, at: int) -> None:
        """Trade with borrowed money: interest accrues hourly; the first is deducted immediately."""
        pair = self.order(at, "MARGIN")
        if pair is None:
            return
        ccy, hours = pair.settle, self._random.randrange(1, 5)
        debt = max(UNIT // 100, self._books.share(TRADING, ccy, 50, MICRO))
        kind = self._random.choice(("1", "2", "2"))
        first = (at // HOUR_MS + 1) * HOUR_MS
        for hour in range(hours):
            self._books.state.later(first + hour * HOUR_MS, "interest", ccy, debt, kind)
        after = first + hours * HOUR_MS + 900
        self._books.state.later(after, "interest deduction", ccy, kind)

    def accrue(self, at: int, ccy: str, debt: int, kind: str) -> None:
        """Let the interest of an hour accrue."""
        interest = times(debt, INTEREST_RATE)
        self._books.block.interest.append(
            InterestRow(
                self._books.moment("interest", at),
                self._books.state.number("interest"),
                ccy,
                interest,
                INTEREST_RATE,
                debt,
                kind,
            )
        )  # fmt: skip
        accrued = self._books.state.accrued
        accrued[f"{ccy} {kind}"] = accrued.get(f"{ccy} {kind}", 0) + interest

    def deduct_interest(self, at: int, ccy: str, kind: str) -> None:
        """Deduct the interest that has accrued."""
        due = self._books.state.accrued.pop(f"{ccy} {kind}", 0)
        due = min(due, self._books.held(TRADING, ccy))
        if due:
            sub = "14" if kind == "1" else "9"
            row = self._books.bill(at, ccy, -due, "7", sub, interest=-due, size=due, mode="cross")
            self._books.done("interest", "", row)

    def set_margin_apart(self, at: int) -> None:
        """Give a position its own margin, which leaves the balance of the account."""
        amount = self._books.share(TRADING, "USDT", 30, NANO8)
        if amount:
            pair = PAIRS["BTC-USDT"]
            row = self._books.bill(
                at, "USDT", -amount, "6", self._random.choice(("160", "162")), instrument=pair,
                kind="MARGIN", mode="isolated", size=amount, isolated=amount,
            )  # fmt: skip
            self._books.done("isolated margin", "", row)
            hours = self._random.randrange(3, 200)
            self._books.state.later(at + hours * HOUR_MS, "isolated margin end", amount)

    def return_margin(self, at: int, amount: int) -> None:
        """Return the margin of a position."""
        if self._books.held(ISOLATED, "USDT") < amount:
            return
        row = self._books.bill(
            at, "USDT", amount, "6", "161", instrument=PAIRS["BTC-USDT"], kind="MARGIN",
            mode="isolated", size=amount, isolated=-amount,
        )  # fmt: skip
        self._books.done("isolated margin", "", row)

    def borrow(self, at: int) -> None:
        """Borrow: with quick margin the balance rises, in spot mode only the debt does."""
        amount = self._books.share(TRADING, "USDT", 40, NANO8)
        if not amount:
            return
        quick = self._random.random() < 0.5
        row = self._books.bill(
            at, "USDT", amount if quick else 0, "15" if quick else "16",
            "210" if quick else "306", size=amount,
        )  # fmt: skip
        self._owe(row.time, amount, "" if quick else "manual_borrow")
        self._books.done("borrow", "", row)
        hours = self._random.randrange(3, 300)
        self._books.state.later(at + hours * HOUR_MS, "repayment", amount, quick)

    def repay(self, at: int, amount: int, quick: bool) -> None:
        """Repay borrowed funds."""
        if quick and self._books.held(TRADING, "USDT") < amount:
            self._books.state.later(at + 24 * HOUR_MS, "repayment", amount, quick)
            return
        row = self._books.bill(
            at, "USDT", -amount if quick else 0, "15" if quick else "22",
            "211" if quick else "308", size=amount if not quick else -amount,
        )  # fmt: skip
        self._owe(row.time, -amount, "" if quick else "manual_repay")
        self._books.done("repay", "", row)

    def _owe(self, at: int, change: int, step: str) -> None:
        debt = self._books.state.debts.get("USDT", 0) + change
        self._books.state.debts["USDT"] = debt
        if step:
            number = self._books.state.number("borrowing")
            self._books.keep("borrowed", BorrowStep(at, number, "USDT", abs(change), debt, step))

    def force_repayment(self, at: int) -> None:
        """Sell a coin to repay a debt: two bills of one order."""
        pair = PAIRS["ETH-USDT"]
        price = pair.price_at(at, self._random)
        size = self._affordable(pair, "sell", price)
        if size:
            order = self._books.moment("orders", at), self._books.state.number("order")
            rows = self._book_legs(
                at, pair, [(pair.base, -size), (pair.settle, times(size, price))], type_="4",
                subs=("114", "115"), order=order, price=price, kind="MARGIN", mode="cross",
            )  # fmt: skip
            self._books.done("forced repayment", str(trading_id(*order)), *rows)
