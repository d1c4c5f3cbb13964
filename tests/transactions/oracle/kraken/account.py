"""A random Kraken account: rows of its ledgers and lists, and the records that they must become.

An event has one to four ledger rows; its record is expected of the last of them. Balances are
those of the rows in their order, whatever an event means, so that every chain holds.
"""

from collections import defaultdict
from decimal import Decimal
from typing import Any

from transactions.oracle.rows import (
    DAY_MS,
    FAILED,
    PENDING,
    Amount,
    Expected,
    RandomRows,
    Row,
    Sent,
)

# Asset ids and the coins that they are.
COINS = {
    "XXBT": "BTC", "XETH": "ETH", "XXDG": "DOGE", "XXRP": "XRP", "ZEUR": "EUR", "ZUSD": "USD",
    "USDT": "USDT", "SOL": "SOL", "XTZ": "XTZ", "ZRX": "ZRX", "DOT": "DOT",
}  # fmt: skip
PRODUCTS = {"DOT28.S": "DOT", "XTZ.S": "XTZ", "XBT.M": "BTC", "SOL.F": "SOL", "USDT.F": "USDT"}
SPOT_OF = {"DOT28.S": "DOT", "XTZ.S": "XTZ", "XBT.M": "XXBT", "SOL.F": "SOL", "USDT.F": "USDT"}
ALTNAMES = {"XXBT": "XBT", "XETH": "ETH", "XXDG": "XDG", "XXRP": "XRP", "ZEUR": "EUR",
            "ZUSD": "USD"}  # fmt: skip
PAIRS = {
    "XXBTZEUR": ("XXBT", "ZEUR"), "XETHZUSD": ("XETH", "ZUSD"), "XETHXXBT": ("XETH", "XXBT"),
    "XDGEUR": ("XXDG", "ZEUR"), "SOLUSD": ("SOL", "ZUSD"), "XTZEUR": ("XTZ", "ZEUR"),
    "ZRXUSD": ("ZRX", "ZUSD"), "USDTZUSD": ("USDT", "ZUSD"),
}  # fmt: skip
DELISTED = "ZRXUSD"
# Status of a deposit without a ledger row, and the one of its record.
LISTED = {"Initial": PENDING, "Pending": PENDING, "Settled": PENDING, "Failure": FAILED}
BOOKED_ALONE = {
    ("transfer", ""): ("earn", "bonus"), ("transfer", "airdrop"): ("earn", "bonus"),
    ("earn", "airdrop"): ("earn", "bonus"), ("staking", ""): ("earn", "earn"),
    ("reward", ""): ("earn", "bonus"), ("invite bonus", ""): ("earn", "bonus"),
    ("dividend", ""): ("earn", "bonus"), ("a type of 2027", ""): ("other", "other"),
}  # fmt: skip
CONTRACT = "pf_xbtusd"


class RandomKraken(RandomRows):
    """An account with random events; `lists` has `ledger`, `log` and the lists with details."""

    def __init__(self, seed: int, *, from_ms: int, to_ms: int) -> None:
        super().__init__(seed, from_ms=from_ms, to_ms=to_ms, tokens_to_ms=from_ms)
        self.trades: dict[str, Row] = {}
        self._balanced: list[Row] = []
        self.movements: dict[str, list[Row]] = defaultdict(list)
        self.wallets: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)

    def fill(self, events: int) -> None:
        """Generate this many events."""
        makers = [
            self.trade, self.one_legged_trade, self.conversion, self.token_trade, self.deposit,
            self.withdrawal, self.failed_withdrawal, self.unbooked, self.reward, self.allocation,
            self.booked_alone, self.delisting, self.margin_profit, self.rollover,
        ]  # fmt: skip
        often = self.random.sample(makers, 2)
        weights = [12 if make in often else 1 for make in makers]
        for make in [*makers, *self.random.choices(makers, weights, k=events)]:
            make()
        # Ids of the log rise with time.
        for at_ms in sorted(self.time() for _ in range(events // 3 + 6)):
            self.random.choice([self.execution, self.execution, self.funding, self.interest])(at_ms)

    def time(self, to_ms: int = 0) -> int:
        """Rows that arrive while an account is read are its newest."""
        return self.to_ms if self.late else super().time(to_ms)

    # Rows -----------------------------------------------------------------------------------

    def row(
        self, at_ms: int, kind: str, asset: str, amount: Decimal, refid: str, *expected: Expected,
        fee: Decimal = Decimal(0), subtype: str = "", aclass: str = "currency",
    ) -> None:  # fmt: skip
        """A ledger row; its balance is filled in when it is served."""
        name = self.name()
        row = {
            "id": f"L{name}", "refid": refid, "time": at_ms, "type": kind, "subtype": subtype,
            "aclass": aclass, "asset": asset, "amount": self.shown(amount),
            "fee": self.shown(fee) if fee else self.random.choice(["0", "0.0000"]),
        }  # fmt: skip
        self.put("ledger", at_ms, row, *expected)
        if not self.late:
            coin = COINS.get(asset) or PRODUCTS.get(asset) or asset.removesuffix(".T")
            self.gained[coin] += amount - fee

    def balanced(self) -> list[Row]:
        """The ledger, oldest first, with the balance after each row; made once for all pages."""
        if len(self._balanced) == len(self.lists["ledger"]):
            return self._balanced
        held: defaultdict[str, Decimal] = defaultdict(Decimal)
        rows = []
        for served in sorted(self.lists["ledger"], key=lambda each: (each.filter_ms, each.seq)):
            row = served.row
            held[row["asset"]] += Decimal(row["amount"]) - Decimal(row["fee"])
            rows.append(row | {"balance": f"{held[row['asset']]:f}"})
        self._balanced = rows
        return rows

    def refid(self, letter: str) -> str:
        return f"{letter}{self.name()}"

    def coin(self) -> str:
        return self.random.choice(list(COINS))

    def _times(self, count: int) -> tuple[list[int], int | None]:
        """Times of an event's rows, in any order; the record's time, if all are equal."""
        at_ms = self.time()
        if self.random.random() < 0.5:
            return [at_ms] * count, at_ms
        return [min(at_ms + self.random.randrange(9), self.to_ms) for _ in range(count)], None

    # Trades and conversions -----------------------------------------------------------------

    def trade(self) -> None:
        pair = self.random.choice(list(PAIRS))
        (base, quote), buys, refid = PAIRS[pair], self.random.random() < 0.5, self.refid("T")
        volume, cost = self.number(), self.number()
        if self.random.random() < 0.1:
            cost = volume  # equal amounts of two coins are a trade, and cancel nothing
        fees: dict[str, Decimal] = {}
        for asset in self.random.choice([(quote,), (quote,), (base,), ("KFEE",), (base, quote),
                                         ("KFEE", quote), ()]):  # fmt: skip
            fees[asset] = self.number(4)
        amounts = {base: volume if buys else -volume, quote: -cost if buys else cost}
        legs = [base, quote] + (["KFEE"] if "KFEE" in fees else [])
        self.random.shuffle(legs)
        times, at_ms = self._times(len(legs))
        money = (COINS[quote], cost), (COINS[base], volume)
        sent, received = money if buys else money[::-1]
        expected = Expected(
            "trades", "trade", at_ms, sent=sent, received=received,
            fees=[(COINS.get(asset, asset), fee) for asset, fee in fees.items()],
        )  # fmt: skip
        subtype = self.random.choice(["", "tradespot"])
        for index, (asset, at) in enumerate(zip(legs, times, strict=True)):
            last = [expected] if index == len(legs) - 1 else []
            self.row(at, "trade", asset, amounts.get(asset, Decimal(0)), refid, *last,
                     fee=fees.get(asset, Decimal(0)), subtype=subtype)  # fmt: skip
        # The list's fee is an estimate in the quote, whatever was charged.
        self.trades[refid] = {
            "ordertxid": self.refid("O"), "postxid": refid, "pair": pair, "time": max(times),
            "type": "buy" if buys else "sell", "ordertype": "limit", "price": self.text(),
            "cost": self.shown(cost), "fee": self.text(), "vol": self.shown(volume),
            "margin": "0.00000", "misc": "", "trade_id": self._seq, "maker": False,
        }  # fmt: skip

    def one_legged_trade(self) -> None:
        """A trade whose other leg rounds to zero."""
        asset, amount, sells = self.coin(), self.number(4), self.random.random() < 0.5
        at_ms, money = self.time(), (COINS[asset], amount)
        self.row(
            at_ms, "trade", asset, -amount if sells else amount, self.refid("T"),
            Expected("trades", "trade", at_ms, sent=money if sells else None,
                     received=None if sells else money),
        )  # fmt: skip

    def conversion(self) -> None:
        spent, got = self.random.sample(list(COINS), 2)
        paid, bought, refid = self.number(), self.number(), self.refid("B")
        fee, also = self.number(4), self.random.choice([Decimal(0), self.number(4)])
        kinds = self.random.choice([("spend", "receive"), ("spend", "receive"), ("sale", "sale"),
                                    ("conversion", "conversion")])  # fmt: skip
        times, at_ms = self._times(2)
        expected = Expected(
            "conversions", "convert", at_ms, sent=(COINS[spent], paid),
            received=(COINS[got], bought), fees=[(COINS[spent], fee), (COINS[got], also)],
        )  # fmt: skip
        legs = [(kinds[0], spent, -paid, fee), (kinds[1], got, bought, also)]
        if self.random.random() < 0.5:
            legs.reverse()
        for index, ((kind, asset, amount, charged), at) in enumerate(zip(legs, times, strict=True)):
            self.row(at, kind, asset, amount, refid, *([expected] * index), fee=charged)

    def token_trade(self) -> None:
        """A tokenized share for euros, by dollars: two of four rows cancel."""
        count, euros, dollars = self.number(), self.number(), self.number()
        refid, at_ms, fee = self.refid("B"), self.time(), self.number(4)
        expected = Expected("conversions", "convert", at_ms, sent=("TSLAx", count),
                            received=("EUR", euros), fees=[("EUR", fee)])  # fmt: skip
        self.row(at_ms, "spend", "TSLAx.T", -count, refid, aclass="tokenized_asset")
        self.row(at_ms, "receive", "ZUSD", dollars, refid)
        self.row(at_ms, "spend", "ZUSD", -dollars, refid)
        self.row(at_ms, "receive", "ZEUR", euros, refid, expected, fee=fee)

    # Deposits and withdrawals ---------------------------------------------------------------

    def _listed(self, incoming: bool, asset: str, refid: str, at_ms: int, status: str,
                amount: Decimal, fee: Decimal) -> None:  # fmt: skip
        row = {
            "method": "Bitcoin", "aclass": "currency", "asset": asset, "refid": refid,
            "txid": self.name(), "info": self.name(), "amount": self.shown(amount),
            "fee": self.shown(fee), "time": at_ms // 1_000, "status": status,
        }  # fmt: skip
        self.movements["deposit" if incoming else "withdrawals"].append(row)

    def deposit(self) -> None:
        asset, amount, refid, at_ms = self.coin(), self.number(), self.refid("Q"), self.time()
        fee = self.random.choice([Decimal(0), self.number(4)])
        self.row(
            at_ms, "deposit", asset, amount, refid,
            Expected("deposits", "deposit", at_ms, received=(COINS[asset], amount),
                     fees=[(COINS[asset], fee)]),
            fee=fee,
        )  # fmt: skip
        if self.random.random() < 0.9:  # the list does not have all
            self._listed(True, asset, refid, at_ms - 60_000, "Success", amount, fee)

    def withdrawal(self) -> None:
        asset, amount, refid, at_ms = self.coin(), self.number(), self.refid("A"), self.time()
        fee = self.number(4)
        self.row(
            at_ms, "withdrawal", asset, -amount, refid,
            Expected("withdrawals", "withdrawal", at_ms, sent=(COINS[asset], amount),
                     fees=[(COINS[asset], fee)]),
            fee=fee,
        )  # fmt: skip
        if self.random.random() < 0.9:
            self._listed(False, asset, refid, at_ms, "Success", amount, fee)

    def send(self, asset: str) -> Sent:
        """A withdrawal to another account of the owner."""
        amount, refid, at_ms = self.number(24), self.refid("A"), self.time(self.to_ms - 4 * DAY_MS)
        fee = self.number(4)
        self.row(
            at_ms, "withdrawal", asset, -amount, refid,
            Expected("withdrawals", "withdrawal", at_ms, sent=(COINS[asset], amount),
                     fees=[(COINS[asset], fee)]),
            fee=fee,
        )  # fmt: skip
        self._listed(False, asset, refid, at_ms, "Success", amount, fee)
        listed = self.movements["withdrawals"][-1]
        return Sent(COINS[asset], amount, at_ms, listed["txid"], listed["info"])

    def failed_withdrawal(self) -> None:
        """A withdrawal reversed days later, with a negative fee: nothing moved."""
        asset, amount, refid = self.coin(), self.number(), self.refid("A")
        fee, at_ms = self.number(4), self.time(self.to_ms - 8 * DAY_MS)
        at_ms = min(at_ms, self.to_ms - 8 * DAY_MS)
        later = at_ms + self.random.randrange(DAY_MS, 5 * DAY_MS)
        self.row(at_ms, "withdrawal", asset, -amount, refid, fee=fee)
        self.row(later, "withdrawal", asset, amount, refid,
                 Expected("withdrawals", "withdrawal", at_ms, FAILED), fee=-fee)  # fmt: skip
        self._listed(False, asset, refid, at_ms, "Failure", amount, fee)

    def unbooked(self) -> None:
        """A deposit that the ledger does not have yet, or never will."""
        status, asset, amount = self.random.choice(list(LISTED)), self.coin(), self.number()
        at_ms = self.second()
        self._listed(True, asset, self.refid("Q"), at_ms, status, amount, Decimal(0))
        state = LISTED[status]
        moved = (COINS[asset], amount) if state == PENDING else None
        self.put("unbooked", at_ms, {}, Expected("deposits", "deposit", at_ms, state,
                                                 received=moved))  # fmt: skip

    # Earn, margin and the rest ---------------------------------------------------------------

    def reward(self) -> None:
        asset = self.random.choice(list(PRODUCTS))
        amount, fee, at_ms = self.number(), self.number(4), self.time()
        self.row(
            at_ms, "earn", asset, amount, self.refid("S"),
            Expected("earn", "earn", at_ms, received=(PRODUCTS[asset], amount),
                     fees=[(PRODUCTS[asset], fee)]),
            fee=fee, subtype=self.random.choice(["reward", "reward", ""]),
        )  # fmt: skip

    def allocation(self) -> None:
        """Two or more moves at once; the strategy's reference is reused on another day."""
        at_ms, word = self.time(), self.random.choice(["allocation", "deallocation",
                                                       "autoallocation", "migration"])  # fmt: skip
        refid = f"EL{at_ms // DAY_MS % 3}-{at_ms // 60_000}"
        if any(row.row["refid"] == refid for row in self.lists["ledger"]):
            return
        chosen = self.random.sample(list(PRODUCTS), 3 if word == "autoallocation" else 1)
        for asset in chosen:
            amount, coin = self.number(), PRODUCTS[asset]
            legs = (SPOT_OF[asset], asset) if word != "deallocation" else (asset, SPOT_OF[asset])
            self.row(at_ms, "earn", legs[0], -amount, refid, subtype=word)
            self.row(at_ms, "earn", legs[1], amount, refid,
                     Expected("transfers", "transfer", at_ms, sent=(coin, amount),
                              received=(coin, amount)), subtype=word)  # fmt: skip

    def booked_alone(self) -> None:
        kind, subtype = self.random.choice(list(BOOKED_ALONE))
        type_, word = BOOKED_ALONE[kind, subtype]
        asset, amount, at_ms = self.coin(), self.number(), self.time()
        self.row(at_ms, kind, asset, amount, self.refid("S"),
                 Expected(type_, word, at_ms, received=(COINS[asset], amount)),
                 subtype=subtype)  # fmt: skip

    def delisting(self) -> None:
        asset, amount, at_ms = self.coin(), self.number(), self.time()
        self.row(at_ms, "transfer", asset, -amount, self.refid("S"),
                 Expected("other", "adjustment", at_ms, sent=(COINS[asset], amount)))  # fmt: skip

    def margin_profit(self) -> None:
        asset, amount, at_ms = self.coin(), self.number(), self.time()
        fee, gains = self.number(4), self.random.random() < 0.5
        money = (COINS[asset], amount)
        self.row(
            at_ms, "margin", asset, amount if gains else -amount, self.refid("T"),
            Expected("margin", "closed_pnl", at_ms, sent=None if gains else money,
                     received=money if gains else None, fees=[(COINS[asset], fee)]),
            fee=fee,
        )  # fmt: skip

    def rollover(self) -> None:
        asset, fee, at_ms = self.coin(), self.number(4), self.time()
        self.row(at_ms, "rollover", asset, Decimal(0), self.refid("T"),
                 Expected("margin", "interest", at_ms, fees=[(COINS[asset], fee)]),
                 fee=fee)  # fmt: skip

    # Futures --------------------------------------------------------------------------------

    def logged(
        self, at_ms: int, asset: str, info: str, change: Decimal, *expected: Expected, **facts: Any
    ) -> None:
        """A row of the futures log."""
        place = ("flex", asset)
        old = self.wallets[place]
        self.wallets[place] = old + change
        names = ("contract", "execution", "fee", "realized_pnl", "realized_funding",
                 "funding_rate", "trade_price", "mark_price", "liquidation_fee")  # fmt: skip
        row = {
            "id": 1 + len(self.lists["log"]), "date": at_ms, "asset": asset, "info": info,
            "booking_uid": f"b-{self.name()}", "margin_account": "flex", "old_balance": old,
            "new_balance": old + change, "collateral": None,
        } | {name: facts.get(name) for name in names}  # fmt: skip
        self.put("log", at_ms, row, *expected)
        if asset != CONTRACT and not self.late:
            self.gained[asset.upper()] += change

    def execution(self, at_ms: int) -> None:
        """Two rows: the position and the cash."""
        size, fee = self.number(4), self.number(4)
        pnl = self.random.choice([Decimal(0), self.number(8), -self.number(8)])
        facts = {"contract": CONTRACT, "execution": f"x-{self.name()}",
                 "trade_price": self.number(4), "mark_price": self.number(4)}  # fmt: skip
        self.logged(at_ms, CONTRACT, "futures trade", size, **facts)
        expected = [Expected("futures", "trade", at_ms, fees=[("USD", fee)])]
        if pnl:
            expected.append(self._profit("closed_pnl", at_ms, pnl))
        self.logged(at_ms, "usd", "futures trade", pnl - fee, *expected, **facts, fee=fee,
                    realized_pnl=pnl)  # fmt: skip

    def _profit(self, word: str, at_ms: int, gain: Decimal) -> Expected:
        money: Amount = ("USD", abs(gain))
        return Expected("futures", word, at_ms, sent=money if gain < 0 else None,
                        received=money if gain > 0 else None)  # fmt: skip

    def funding(self, at_ms: int) -> None:
        paid = self.number(8) * self.random.choice([1, -1])
        self.logged(at_ms, "usd", "funding rate change", paid, self._profit("funding", at_ms, paid),
                    contract=CONTRACT, realized_funding=paid, funding_rate=Decimal("5.44e-06"),
                    mark_price=self.number(4))  # fmt: skip

    def interest(self, at_ms: int) -> None:
        paid = -self.number(8)
        self.logged(at_ms, "usd", "interest payment", paid,
                    self._profit("interest", at_ms, paid))  # fmt: skip
