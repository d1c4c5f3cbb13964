"""A random account: Bybit's raw rows, each with the expected record."""

from collections import defaultdict
from decimal import Decimal

from transactions.oracle.rows import (
    CANCELLED,
    COMPLETED,
    DAY_MS,
    FAILED,
    PENDING,
    REVERSED,
    UID,
    UNKNOWN,
    UNMOVED,
    Expected,
    RandomRows,
    Row,
    Sent,
)

MARKETS = {
    "spot": {"BTCUSDT": ("BTC", "USDT", ""), "ETHBTC": ("ETH", "BTC", ""),
             "SOLUSDC": ("SOL", "USDC", "")},
    "linear": {"BTCUSDT": ("BTC", "USDT", "USDT"), "ETHPERP": ("ETH", "USDC", "USDC"),
               "BTC-26DEC25": ("BTC", "USDC", "USDC")},
    "inverse": {"BTCUSD": ("BTC", "USD", "BTC"), "ETHUSDZ25": ("ETH", "USD", "ETH")},
}  # fmt: skip
DEPOSITS = {
    0: UNKNOWN, 1: PENDING, 2: PENDING, 3: COMPLETED, 4: FAILED, 7: PENDING, 10011: PENDING,
    10012: COMPLETED, 70011: REVERSED, 70012: COMPLETED, 70013: PENDING, 4242: UNKNOWN,
}  # fmt: skip
WITHDRAWALS = {
    "SecurityCheck": PENDING, "Pending": PENDING, "success": COMPLETED, "CancelByUser": CANCELLED,
    "Reject": FAILED, "Fail": FAILED, "BlockchainConfirmed": PENDING, "Unknown": UNKNOWN,
    "MoreInformationRequired": PENDING,
}  # fmt: skip
ORDERS = {"Filled": COMPLETED, "Cancelled": CANCELLED, "Rejected": FAILED, "New": PENDING}
BOOKED_ALONE = {
    "INTEREST": "interest", "AIRDROP": "bonus", "BONUS": "bonus", "CURRENCY_BUY": "convert",
    "CURRENCY_SELL": "convert", "FEE_REFUND": "fee_refund", "BORROW": "borrow", "REPAY": "repay",
    "FLEXIBLE_STAKING_SUBSCRIPTION": "earn", "A_TYPE_OF_2027": "other",
}  # fmt: skip


class RandomAccount(RandomRows):
    """An account with random events."""

    def fill(self, events: int) -> None:
        """Generate this many events, and leave some holdings."""
        makers = [
            self.deposit, self.internal_deposit, self.withdrawal, self.transfer, self.universal,
            self.spot_order, self.position, self.funding, self.expiry, self.session, self.tokens,
            self.booked, self.fund_line,
        ]  # fmt: skip
        often = self.random.sample(makers, 2)  # so that some lists have many pages
        chosen = self.random.choices(
            makers, [12 if make in often else 1 for make in makers], k=events
        )
        for make in [*makers, *chosen]:
            make()
        for coin in ("BTC", "USDT"):
            for name in ("wallet", "fund"):
                row = {"coin": coin, "walletBalance": self.text(), "bonus": name}
                self.put(name, 0, row, Expected("holdings", "balance", None, view="snapshot"))

    def deposit(self) -> None:
        native, kind = self.random.choice(list(DEPOSITS)), self.random.choice(["0", "0", "50"])
        status = DEPOSITS[native]
        if kind == "50" and status == COMPLETED:
            status = PENDING
        credited = self.random.random() < 0.8 or status == COMPLETED
        at_ms, coin, amount = self.time(), self.random.choice(["BTC", "USDT"]), self.number()
        fee = self.number() if self.random.random() < 0.3 else Decimal(0)
        created_ms = at_ms - self.random.randrange(28 * DAY_MS) if credited else at_ms
        row = {
            "coin": coin, "chain": "ETH", "amount": self.shown(amount), "txID": self.name(),
            "status": native, "toAddress": "0xto", "tag": "", "confirmations": "64",
            "depositFee": self.shown(fee) if fee else self.random.choice(["", "0"]),
            "successAt": str(at_ms) if credited else self.random.choice(["", "0"]),
            "txIndex": "1", "blockHash": "", "depositType": kind, "fromAddress": "",
        }  # fmt: skip
        if self.random.random() < 0.7:
            row["id"] = self.name()
        moves = status not in UNMOVED
        self.put("deposits", created_ms, row, Expected(
            "deposits", "deposit", at_ms if credited else None, status,
            received=(coin, amount) if moves else None, fees=[(coin, fee)] if moves else [],
        ), spoil="amount")  # fmt: skip
        if status == COMPLETED:
            self.gain("deposits", (coin, amount - fee))

    def receive(self, sent: Sent, *, stated: bool = True) -> None:
        """A deposit from another account of the owner, with its address or without."""
        at_ms = sent.at_ms + self.random.randrange(60_000, 3_600_000)
        row = {
            "coin": sent.coin, "chain": "ETH", "amount": self.shown(sent.amount),
            "txID": sent.tx_hash, "status": 3, "toAddress": sent.address if stated else "",
            "tag": "", "confirmations": "64", "depositFee": "", "successAt": str(at_ms),
            "txIndex": "1", "blockHash": "", "depositType": "0", "fromAddress": "",
            "id": self.name(),
        }  # fmt: skip
        self.put("deposits", at_ms, row, Expected(
            "deposits", "deposit", at_ms, received=(sent.coin, sent.amount),
        ))  # fmt: skip
        self.gain("deposits", (sent.coin, sent.amount))

    def internal_deposit(self) -> None:
        native = self.random.choice([1, 2, 2, 3])
        status, at_ms = {1: PENDING, 2: COMPLETED, 3: FAILED}[native], self.second()
        amount = self.number()
        row = {
            "id": self.name(), "type": 1, "coin": "USDT", "amount": self.shown(amount),
            "status": native, "address": "a***@b.c", "createdTime": str(at_ms // 1_000),
            "fromMemberId": "77", "txID": self.name(),
        }  # fmt: skip
        self.put("internal_deposits", at_ms, row, Expected(
            "deposits", "deposit", at_ms, status,
            received=None if status in UNMOVED else ("USDT", amount),
        ), spoil="id")  # fmt: skip
        if status == COMPLETED:
            self.gain("internal_deposits", ("USDT", amount))

    def withdrawal(self) -> None:
        native = self.random.choice(["success", *WITHDRAWALS])
        status, at_ms, amount = WITHDRAWALS[native], self.time(), self.number()
        fee, tax = self.number(), self.random.choice([Decimal(0), self.number()])
        row = {
            "withdrawId": self.name(), "coin": "BTC", "chain": "BTC", "txID": self.name(),
            "amount": self.shown(amount), "withdrawFee": self.shown(fee), "status": native,
            "toAddress": "bc1", "tag": "", "createTime": str(at_ms), "updateTime": str(at_ms + 5),
            "withdrawType": self.random.choice([0, 1]), "tax": self.shown(tax), "taxRate": "0.1",
        }  # fmt: skip
        moves = status not in UNMOVED
        self.put("withdrawals", at_ms, row, Expected(
            "withdrawals", "withdrawal", at_ms, status, sent=("BTC", amount) if moves else None,
            fees=[("BTC", fee), ("BTC", tax)] if moves else [],
        ), spoil="amount")  # fmt: skip
        if status == COMPLETED:
            self.gain("withdrawals", ("BTC", -amount - fee - tax))

    def transfer(self) -> None:
        self._transfer("internal_transfers", {}, sends=True, receives=True)

    def universal(self) -> None:
        parties = self.random.choice([(UID, "2"), ("2", UID)])
        ids = {"fromMemberId": parties[0], "toMemberId": parties[1]}
        self._transfer(
            "universal_transfers", ids, sends=parties[0] == UID, receives=parties[1] == UID
        )

    def _transfer(self, name: str, ids: Row, *, sends: bool, receives: bool) -> None:
        native = self.random.choice(["SUCCESS", "SUCCESS", "PENDING", "FAILED"])
        status = {"SUCCESS": COMPLETED, "PENDING": PENDING, "FAILED": FAILED}[native]
        at_ms, amount, moves = self.time(), self.number(), native != "FAILED"
        row = {
            "transferId": self.name(), "coin": "USDT", "amount": self.shown(amount),
            "fromAccountType": "FUND", "toAccountType": "UNIFIED", "timestamp": str(at_ms),
            "status": native,
        } | ids  # fmt: skip
        self.put(name, at_ms, row, Expected(
            "transfers", "transfer", at_ms, status,
            sent=("USDT", amount) if moves and sends else None,
            received=("USDT", amount) if moves and receives else None,
        ), spoil="transferId")  # fmt: skip
        if status == COMPLETED:
            self.gain(name, ("USDT", amount * (receives - sends)))

    def spot_order(self) -> None:
        symbol = self.random.choice(list(MARKETS["spot"]))
        base, quote, _ = MARKETS["spot"][symbol]
        side, order_id = self.random.choice(["Buy", "Sell"]), self.name()
        created_ms, fills = self.time(), self.random.randrange(4)
        total, paid, charged = Decimal(0), Decimal(0), defaultdict(Decimal)
        for _ in range(fills):
            quantity, price, fee = self.number(4), self.number(4), self.number(4)
            value, rebate = quantity * price, self.random.random() < 0.2
            bought, sold = (base, quote) if side == "Buy" else (quote, base)
            coin = self.random.choice([bought, "MNT"]) if not rebate else sold
            fee = -fee if rebate else fee
            at_ms = min(created_ms + self.random.randrange(DAY_MS), self.to_ms)
            row = {
                "symbol": symbol, "orderId": order_id, "side": side, "execId": self.name(),
                "execPrice": self.shown(price), "execQty": self.shown(quantity),
                "execValue": self.random.choice([self.shown(value), self.shown(value), ""]),
                "execFee": self.shown(fee), "feeRate": "0.001", "execTime": str(at_ms),
                "execType": "Trade", "isMaker": rebate, "seq": self._seq, "orderLinkId": "",
                "feeCurrency": coin if coin == "MNT" or self.random.random() < 0.5 else "",
            }  # fmt: skip
            money = ((quote, value), (base, quantity))
            sent, received = money if side == "Buy" else money[::-1]
            self.put("spot_fills", at_ms, row, Expected(
                "spot_orders", "trade", at_ms, sent=sent, received=received, fees=[(coin, fee)],
            ), spoil="execQty")  # fmt: skip
            self.gain("spot_fills", (sent[0], -sent[1]), received, (coin, -fee))
            total, paid = total + quantity, paid + value
            charged[coin] += fee
        native = "Filled" if fills else self.random.choice(["Cancelled", "Rejected", "New"])
        row = {
            "orderId": order_id, "symbol": symbol, "side": side, "orderType": "Limit",
            "orderStatus": native, "createdTime": str(created_ms), "avgPrice": "",
            "updatedTime": str(created_ms + 9), "qty": "999", "cumExecQty": self.shown(total),
            "cumExecValue": self.shown(paid), "orderLinkId": "", "blockTradeId": "",
            "cumFeeDetail": {coin: self.shown(fee) for coin, fee in charged.items()},
        }  # fmt: skip
        money = ((quote, paid), (base, total))
        sent, received = money if side == "Buy" else money[::-1]
        self.put("spot_orders", created_ms, row, Expected(
            "spot_orders", "order", created_ms,
            ORDERS[native],
            "summary", sent if fills else None, received if fills else None,
            list(charged.items()),
        ))  # fmt: skip

    def _market(self) -> tuple[str, str, str]:
        category = self.random.choice(["linear", "inverse"])
        symbol = self.random.choice(list(MARKETS[category]))
        return category, symbol, MARKETS[category][symbol][2]

    def _future_fill(self, category: str, symbol: str, at_ms: int, kind: str, fee: Decimal) -> Row:
        return {
            "symbol": symbol, "orderId": self.name(), "side": self.random.choice(["Buy", "Sell"]),
            "execId": self.name(), "execPrice": self.text(), "execQty": self.text(),
            "execValue": self.text(), "execFee": self.shown(fee), "feeRate": "0.0005",
            "execTime": str(at_ms), "execType": kind, "isMaker": False, "closedSize": "0",
            "markPrice": self.text(), "feeCurrency": "", "settleCoin": MARKETS[category][symbol][2],
        }  # fmt: skip

    def position(self) -> None:
        """A fill, and the profit of the order if it closed a position."""
        category, symbol, settle = self._market()
        at_ms, fee, kind = self.time(), self.number(), f"futures_{category}"
        native = self.random.choice(["Trade", "Trade", "BustTrade", "AdlTrade", "NewKindOf2027"])
        row = self._future_fill(category, symbol, at_ms, native, fee)
        word = {"Trade": "trade", "BustTrade": "liquidation", "AdlTrade": "adl"}.get(
            native, "other"
        )
        self.put(f"{category}_fills", at_ms, row,
                 Expected(kind, word, at_ms, fees=[(settle, fee)]), spoil="execId")  # fmt: skip
        self.gain(f"{category}_fills", (settle, -fee))
        entered, left, side = self.number(), self.number(), self.random.choice(["Buy", "Sell"])
        gross = left - entered if side == "Sell" else entered - left
        gross = -gross if category == "inverse" else gross
        updated_ms = min(at_ms + self.random.randrange(6 * DAY_MS), self.to_ms)
        fees = {"openFee": "0.1", "closeFee": "0.2"} if self.random.random() < 0.5 else {}
        row = {
            "symbol": symbol, "orderId": row["orderId"], "side": side, "execType": "Trade",
            "cumEntryValue": self.shown(entered), "cumExitValue": self.shown(left), "qty": "1",
            "closedPnl": self.shown(gross - Decimal("0.3")), "avgEntryPrice": "1",
            "avgExitPrice": "2", "closedSize": "1", "leverage": "3", "createdTime": str(at_ms),
            "updatedTime": str(updated_ms),
        } | fees  # fmt: skip
        self.put(f"{category}_closed", at_ms, row,
                 self._profit(kind, "closed_pnl", updated_ms, settle, gross),
                 spoil="closedPnl")  # fmt: skip
        self.gain(f"{category}_closed", (settle, gross))

    def _profit(self, kind: str, word: str, at_ms: int, coin: str, gross: Decimal) -> Expected:
        return Expected(
            kind, word, at_ms,
            sent=(coin, -gross) if gross < 0 else None,
            received=(coin, gross) if gross > 0 else None,
        )  # fmt: skip

    def funding(self) -> None:
        category, symbol, settle = self._market()
        at_ms, paid = self.time(), self.number() * self.random.choice([1, -1])
        row = self._future_fill(category, symbol, at_ms, "Funding", paid)
        self.put(f"{category}_fills", at_ms, row,
                 self._profit(f"futures_{category}", "funding", at_ms, settle, -paid),
                 spoil="execFee")  # fmt: skip
        self.gain(f"{category}_fills", (settle, -paid))

    def expiry(self) -> None:
        at_ms, gross, fee = self.time(), self.number() * self.random.choice([1, -1]), self.number()
        row = {
            "deliveryTime": at_ms, "symbol": "BTC-26DEC25", "side": "Buy", "position": self.text(),
            "deliveryPrice": "5", "strike": "", "fee": self.shown(fee), "entryPrice": "4",
            "deliveryRpl": self.shown(gross),
        }  # fmt: skip
        self.put("linear_deliveries", at_ms, row,
                 self._profit("futures_linear", "delivery", at_ms, "USDC", gross),
                 spoil="deliveryRpl")  # fmt: skip
        self.gain("linear_deliveries", ("USDC", gross))
        row = self._future_fill("linear", "BTC-26DEC25", at_ms, "Delivery", fee)
        expected = Expected("futures_linear", "delivery", at_ms, fees=[("USDC", fee)])
        self.put("linear_fills", at_ms, row, expected)
        self.gain("linear_fills", ("USDC", -fee))

    def session(self) -> None:
        at_ms, gross = self.time(), self.number() * self.random.choice([1, -1])
        if any(other.filter_ms == at_ms for other in self.lists["sessions"]):
            return  # a contract has one at a time
        row = {
            "symbol": "ETHPERP", "side": "Sell", "size": "-1", "sessionAvgPrice": "3",
            "markPrice": "4", "realisedPnl": self.shown(gross), "createdTime": str(at_ms),
        }  # fmt: skip
        self.put("sessions", at_ms, row,
                 self._profit("futures_linear", "settlement", at_ms, "USDC", gross),
                 spoil="realisedPnl")  # fmt: skip
        self.gain("sessions", ("USDC", gross))

    def tokens(self) -> None:
        """An order of leverage tokens; of a completed one the ledger has two lines."""
        at_ms, bought = self.time(self.tokens_to_ms), self.random.random() < 0.5
        native = self.random.choice([1, 1, 2, 3])
        status = {1: COMPLETED, 2: PENDING, 3: FAILED}[native]
        amount, value, fee = self.number(), self.number(), self.number()
        tokens, money = ("BTC3L", amount), ("USDT", value)
        sent, received = (money, tokens) if bought else (tokens, money)
        typed = self.random.choice([str, int])
        row = {
            "ltCoin": "BTC3L", "orderId": typed(self.random.randrange(10**9)),
            "fee": self.shown(fee),
            "ltOrderType": typed(1 if bought else 2), "orderTime": str(at_ms),
            "updateTime": str(at_ms + 1), "ltOrderStatus": typed(native), "valueCoin": "USDT",
            "amount": self.shown(amount), "value": self.shown(value), "serialNo": self.name(),
        }  # fmt: skip
        moves = status != FAILED
        self.put("token_orders", at_ms, row, Expected(
            "leverage_token_trades", "leverage_token", at_ms, status, "summary",
            sent if moves else None, received if moves else None, [("USDT", fee)] if moves else [],
        ), spoil="amount")  # fmt: skip
        if status != COMPLETED:
            return
        native_type = "TOKENS_SUBSCRIPTION" if bought else "TOKENS_REDEMPTION"
        for (coin, moved), sign, charged in (
            (sent, -1, Decimal(0)), (received, 1, fee if not bought else Decimal(0)),
        ):  # fmt: skip
            self._line(native_type, "leverage_token", at_ms, coin, sign * moved, charged,
                       view="ledger", also="leverage_token_trades")  # fmt: skip

    def booked(self) -> None:
        """A line of the unified wallet's ledger; some are in no other list."""
        at_ms, gross = self.time(), self.number() * self.random.choice([1, -1])
        fee = self.random.choice([Decimal(0), self.number()])
        if self.random.random() < 0.6:
            native = self.random.choice(list(BOOKED_ALONE))
            self._line(native, BOOKED_ALONE[native], at_ms, "USDT", gross, fee)
            return
        native, word, category = self.random.choice([
            ("TRADE", "trade", "spot"), ("TRADE", "trade", "linear"),
            ("TRANSFER_IN", "transfer", ""), ("LIQUIDATION", "liquidation", "inverse"),
        ])  # fmt: skip
        self._line(native, word, at_ms, "USDT", gross, fee, view="ledger", category=category)

    def _line(self, native: str, word: str, at_ms: int, coin: str, gross: Decimal, fee: Decimal, *,
              view: str = "primary", category: str = "", also: str = "") -> None:  # fmt: skip
        row = {
            "id": self.name(), "symbol": "BTCUSDT" if category else "", "category": category,
            "side": "Buy" if category else "None", "transactionTime": str(at_ms), "type": native,
            "qty": "1", "size": "0", "currency": coin, "tradePrice": "1", "funding": "",
            "fee": self.shown(fee), "cashFlow": self.shown(gross), "bonusChange": "",
            "change": self.shown(gross - fee), "cashBalance": self.text(), "feeRate": "0",
            "tradeId": self.name() if category else "", "orderId": "", "orderLinkId": "",
            "extraFees": "",
        }  # fmt: skip
        money = {
            "sent": (coin, -gross) if gross < 0 else None,
            "received": (coin, gross) if gross > 0 else None,
            "fees": [(coin, fee)],
        }
        expected = [Expected("ledger", word, at_ms, view=view, **money)]
        if also:
            expected.append(Expected(also, word, at_ms, **money))
        self.put("ledger", at_ms, row, *expected, spoil="change")
        if view == "primary" or also:
            self.gain("ledger", (coin, gross - fee))

    def fund_line(self) -> None:
        """A line of the funding wallet's ledger."""
        at_ms, amount, way = self.second(), self.number(), self.random.choice("IO")
        words, word, view = self.random.choice([
            ("Earn", "earn", "primary"), ("Deposit", "deposit", "ledger"),
            ("Transfer to Unified", "transfer", "ledger"), ("Airdrop", "bonus", "primary"),
            ("Something of 2027", "other", "primary"),
        ])  # fmt: skip
        row = {
            "memberId": UID, "currency": "USDT", "ioDirection": way, "txnAmt": self.shown(amount),
            "afterAmt": self.text(), "createTime": str(at_ms // 1_000), "showBusiType": "x",
            "showBusiTypeEn": words, "description": "y", "descriptionEn": words,
        }  # fmt: skip
        if self.random.random() < 0.7:
            row["currcCursor"] = self.name()
        self.put("fund_ledger", at_ms, row, Expected(
            "ledger", word, at_ms, view=view, sent=("USDT", amount) if way == "O" else None,
            received=("USDT", amount) if way == "I" else None,
        ), spoil="txnAmt")  # fmt: skip
        if view == "primary":
            self.gain("fund_ledger", ("USDT", amount if way == "I" else -amount))
