"""A random OKX account: bills and rows of its lists, and the records that they must become.

Balances are those of the bills in the order of their ids, whatever an event means, so that every
chain holds. Ids rise with time, and times can be some milliseconds out of their order.
"""

from collections import defaultdict
from decimal import Decimal
from typing import Any

from transactions.oracle.rows import CANCELLED, DAY_MS, Amount, Expected, RandomRows, Row, Sent

KEPT_DAYS = 80  # of trading bills that every reading of "three months" keeps
PAIRS = {
    "BTC-USDT": ("BTC", "USDT"), "ETH-BTC": ("ETH", "BTC"), "SOL-EUR": ("SOL", "EUR"),
    "BTC-USD": ("BTC", "USDC"),
}  # fmt: skip
SWAPS = {"BTC-USDT-SWAP": "USDT", "ETH-USD-SWAP": "ETH", "BTC-USD-260327": "BTC"}
COINS = ("BTC", "ETH", "USDT", "SOL", "EUR", "OKB")
# Codes of single bills, and the records of one that comes and one that goes.
TRADING_ALONE = {
    ("7", "9"): ("loans", "interest"), ("12", "200"): ("transfers", "custody"),
    ("16", "306"): ("loans", "borrow"), ("22", "308"): ("loans", "repay"),
    ("26", "296"): ("earn", "earn"), ("33", "303"): ("loans", "loan"),
    ("6", "160"): ("transfers", "transfer"), ("998", "9999"): ("other", "other"),
}  # fmt: skip
FUNDING_ALONE = {
    "20": ("transfers", "transfer"), "284": ("transfers", "custody"), "75": ("earn", "earn"),
    "76": ("earn", "earn"), "83": ("earn", "earn"), "137": ("earn", "earn"),
    "116": ("fiat", "fiat"), "200": ("fiat", "fiat"), "84": ("fees", "fee"),
    "175": ("loans", "loan"), "346": ("loans", "interest"), "47": ("other", "adjustment"),
    "997": ("other", "other"), "509": ("earn", "earn"),
}  # fmt: skip
SIGNED = {  # those that mean another event where the balance falls
    "28": (("earn", "bonus"), ("other", "adjustment")),
    "176": (("loans", "borrow"), ("loans", "repay")),
    "173": (("fees", "fee_refund"), ("fees", "fee")),
    "400": (("earn", "earn"), ("loans", "interest")),
}


class RandomOkx(RandomRows):
    """An account with random events; `bills` has both ledgers, `lists` the other lists.

    Args:
        trading_days: For how long the trading account was used.
    """

    def __init__(
        self, seed: int, *, from_ms: int, to_ms: int, trading_days: int = KEPT_DAYS
    ) -> None:
        super().__init__(seed, from_ms=from_ms, to_ms=to_ms, tokens_to_ms=from_ms)
        self.trading_days = trading_days
        self.bills: dict[str, list[tuple[int, Row]]] = {"trading": [], "funding": []}
        self.expected: list[Expected] = []
        self.rows: defaultdict[str, list[Row]] = defaultdict(list)
        self._number = 10**17

    def fill(self, events: int) -> None:
        """Generate this many events."""
        makers = [
            self.trade, self.trade, self.contract, self.move, self.conversion, self.alone,
            self.funded, self.signed, self.deposit, self.withdrawal, self.cancelled, self.unlisted,
        ]  # fmt: skip
        for make in [*makers, *self.random.choices(makers, k=events)]:
            make()

    def balanced(self, wallet: str) -> list[Row]:
        """The bills of an account, oldest first by id, with the balance after each."""
        held: defaultdict[str, Decimal] = defaultdict(Decimal)
        found = []
        for number, (_, row) in enumerate(sorted(self.bills[wallet], key=lambda each: each[0])):
            held[row["ccy"]] += Decimal(row["balChg"])
            found.append(row | {"billId": str(10**6 + number * 3), "bal": f"{held[row['ccy']]:f}"})
        return found

    def held(self, wallet: str) -> dict[str, str]:
        last = {row["ccy"]: row["bal"] for row in self.balanced(wallet)}
        return {ccy: balance for ccy, balance in last.items() if Decimal(balance)}

    # Times and rows -------------------------------------------------------------------------

    def recent(self) -> int:
        """A time for trading bills, sometimes shared by many."""
        low = self.to_ms - self.trading_days * DAY_MS
        if self.dense and self.random.random() < 0.6:
            return low + 40 * DAY_MS + self.random.randrange(3_600) * 1_000
        return self.random.randrange(low, self.to_ms - 60_000)

    def trading(self, at_ms: int, kind: str, subtype: str, ccy: str, change: Decimal,
                **more: Any) -> None:  # fmt: skip
        row = {
            "ts": str(at_ms + self.random.choice((0, 0, 0, 1, 2))), "type": kind,
            "subType": subtype, "ccy": ccy, "balChg": self.shown(change), "fee": "0", "pnl": "0",
            "instType": "", "instId": "", "ordId": "", "tradeId": "", "from": "", "to": "",
            "px": "", "sz": "", "mgnMode": "", "fillTime": "",
        } | more  # fmt: skip
        self.bills["trading"].append((at_ms * 10 + len(self.bills["trading"]) % 10, row))
        self.gained[ccy] += change

    def funding(self, at_ms: int, kind: str, ccy: str, change: Decimal) -> None:
        row = {"ts": str(at_ms), "type": kind, "ccy": ccy, "balChg": self.shown(change),
               "notes": "", "clientId": ""}  # fmt: skip
        self.bills["funding"].append((at_ms * 10 + len(self.bills["funding"]) % 10, row))
        self.gained[ccy] += change

    def number_text(self) -> str:
        self._number += self.random.randrange(1, 10**6)
        return str(self._number)

    def expect(self, kind: str, what: str, *, sent: Amount | None = None,
               received: Amount | None = None, fees: list[Amount] | None = None,
               status: str = "completed") -> None:  # fmt: skip
        self.expected.append(
            Expected(kind, what, None, sent=sent, received=received, fees=fees or [],
                     status=status)
        )  # fmt: skip

    def one_way(self, ccy: str, change: Decimal, kind: str, what: str) -> None:
        money = (ccy, abs(change))
        self.expect(kind, what, sent=money if change < 0 else None,
                    received=money if change > 0 else None)  # fmt: skip

    def signed_number(self) -> Decimal:
        return self.number(8) * self.random.choice((1, -1))

    # Events ---------------------------------------------------------------------------------

    def trade(self) -> None:
        """A spot fill, whose fee is in either coin, in OKB, or given back."""
        inst_id = self.random.choice(list(PAIRS))
        (base, quote), buys = PAIRS[inst_id], self.random.random() < 0.5
        size, value = self.number(8), self.number(8)
        fee = self.number(4) * self.random.choice((1, 1, 1, -1))
        payer = self.random.choice((base, quote, quote, "OKB", ""))
        order, trade, at_ms = self.number_text(), self.number_text(), self.recent()
        price = self.text()
        shared = {
            "instType": self.random.choice(("SPOT", "MARGIN")), "instId": inst_id,
            "ordId": order, "tradeId": trade, "px": price, "fillTime": str(at_ms),
        }  # fmt: skip
        amounts = {base: size if buys else -size, quote: -value if buys else value}
        for ccy, amount in self.random.sample(list(amounts.items()), 2):
            charged = fee if ccy == payer else Decimal(0)
            self.trading(
                at_ms, "2", "1" if amount > 0 else "2", ccy, amount - charged,
                fee=self.shown(-charged), sz=self.shown(abs(amount)), **shared,
            )  # fmt: skip
        if payer == "OKB":
            self.trading(at_ms, "2", "2", "OKB", -fee, fee=self.shown(-fee), **shared)
        moves = (quote, value), (base, size)
        sent, received = moves if buys else moves[::-1]
        self.expect("trades", "trade", sent=sent, received=received,
                    fees=[(payer, fee)] if payer else [])  # fmt: skip
        self.rows["fills"].append({
            "instType": shared["instType"], "instId": inst_id, "ordId": order, "tradeId": trade,
            "side": "buy" if buys else "sell", "fillPx": price, "fillSz": self.shown(size),
            "fee": self.shown(-fee if payer else Decimal(0)), "feeCcy": payer or base,
            "ts": str(at_ms), "fillTime": str(at_ms),
        })  # fmt: skip

    def contract(self) -> None:
        """A fill of a contract, perhaps a liquidation, whose trade has no number."""
        inst_id = self.random.choice(list(SWAPS))
        ccy, at_ms = SWAPS[inst_id], self.recent()
        kind = "SWAP" if inst_id.endswith("SWAP") else "FUTURES"
        gained = self.random.choice((Decimal(0), self.signed_number()))
        fee, forced = self.number(4), self.random.random() < 0.2
        size, price = str(self.random.randrange(1, 99)), self.text()
        ids = {"ordId": self.number_text(), "tradeId": "0" if forced else self.number_text()}
        self.trading(
            at_ms, "5" if forced else "2", "105" if forced else "1", ccy, gained - fee,
            pnl=self.shown(gained), fee=self.shown(-fee), instType=kind, instId=inst_id,
            sz=size, px=price, mgnMode="cross", **ids,
        )  # fmt: skip
        self.rows["fills"].append({
            "instType": kind, "instId": inst_id, "side": "buy", "fillPx": price, "fillSz": size,
            "fee": self.shown(-fee), "feeCcy": ccy, "ts": str(at_ms), "fillTime": str(at_ms), **ids,
        })  # fmt: skip
        self.expect("futures", "liquidation" if forced else "trade", fees=[(ccy, fee)])
        if gained:
            self.one_way(ccy, gained, "futures", "closed_pnl")

    def move(self) -> None:
        """A move between the accounts, booked in each, up to a second apart."""
        ccy, amount, at_ms = self.random.choice(COINS), self.number(8), self.recent()
        later, back = self.random.randrange(1_000), self.random.random() < 0.5
        self.funding(at_ms, "130" if back else "131", ccy, amount if back else -amount)
        ends = ("18", "6") if back else ("6", "18")
        self.trading(
            at_ms + later, "1", "12" if back else "11", ccy, -amount if back else amount,
            **{"from": ends[0], "to": ends[1]},
        )  # fmt: skip
        self.expect("transfers", "transfer", sent=(ccy, amount), received=(ccy, amount))

    def conversion(self) -> None:
        """A conversion in the funding account, minutes from any other."""
        (spent, got), paid = self.random.sample(COINS, 2), self.number(8)
        bought, at_ms = self.number(8), self.from_ms + self._seq * 600_000
        self._seq += 1
        self.funding(at_ms, "273", spent, -paid)
        self.funding(at_ms + self.random.randrange(3), "272", got, bought)
        self.expect("conversions", "convert", sent=(spent, paid), received=(got, bought))
        if self.random.random() < 0.5:
            self.rows["converts"].append({
                "tradeId": f"trader{self.number_text()}", "instId": f"{got}-{spent}",
                "side": "buy", "baseCcy": got, "quoteCcy": spent, "clTReqId": "", "fillPx": "1",
                "fillBaseSz": self.shown(bought), "fillQuoteSz": self.shown(paid),
                "state": "fullyFilled", "ts": str(at_ms),
            })  # fmt: skip

    def alone(self) -> None:
        (kind, subtype), meaning = self.random.choice(list(TRADING_ALONE.items()))
        ccy, change = self.random.choice(COINS), self.signed_number()
        self.trading(self.recent(), kind, subtype, ccy, change)
        self.one_way(ccy, change, *meaning)

    def funded(self) -> None:
        kind, meaning = self.random.choice(list(FUNDING_ALONE.items()))
        ccy, change = self.random.choice(COINS), self.signed_number()
        self.funding(self.time(), kind, ccy, change)
        self.one_way(ccy, change, *meaning)

    def signed(self) -> None:
        kind, meanings = self.random.choice(list(SIGNED.items()))
        ccy, change = self.random.choice(COINS), self.signed_number()
        self.funding(self.time(), kind, ccy, change)
        self.one_way(ccy, change, *meanings[change < 0])

    def deposit(self) -> None:
        ccy, amount = self.random.choice(COINS), self.number(24)
        at_ms = self.time(self.to_ms - 4 * DAY_MS)
        waited = self.random.choice((0, 30_000, 3_600_000, 3 * DAY_MS))
        self.rows["deposits"].append({
            "ccy": ccy, "chain": f"{ccy}-TRC20", "amt": self.shown(amount), "from": "",
            "to": self.name(), "txId": self.name(), "ts": str(at_ms), "state": "2",
            "depId": self.number_text(), "fromWdId": "", "actualDepBlkConfirm": "2",
        })  # fmt: skip
        self.funding(at_ms + waited, "1", ccy, amount)
        self.expect("deposits", "deposit", received=(ccy, amount))

    def _withdrawal(self, state: str) -> tuple[int, str, Decimal, Decimal]:
        ccy, amount = self.random.choice(COINS), self.number(24)
        at_ms = self.time(self.to_ms - 4 * DAY_MS)
        fee = self.number(15)
        glued = self.random.random() < 0.3
        self.rows["withdrawals"].append({
            "ccy": ccy, "chain": f"{ccy}-ERC20", "amt": self.shown(amount),
            "fee": f"{fee:f}{ccy.lower()}" if glued else self.shown(fee),
            "feeCcy": "" if glued else ccy, "from": "", "to": self.name(), "txId": self.name(),
            "ts": str(at_ms), "state": state, "wdId": self.number_text(), "clientId": "",
        })  # fmt: skip
        return at_ms, ccy, amount, fee

    def withdrawal(self) -> None:
        """A conversion whose fee is in the same bill or in a separate one."""
        at_ms, ccy, amount, fee = self._withdrawal("2")
        if self.random.random() < 0.5:
            self.funding(at_ms, "2", ccy, -amount - fee)
        else:
            self.funding(at_ms, "2", ccy, -amount)
            self.funding(at_ms + 1, "221", ccy, -fee)
        self.expect("withdrawals", "withdrawal", sent=(ccy, amount), fees=[(ccy, fee)])

    def cancelled(self) -> None:
        at_ms, ccy, amount, fee = self._withdrawal("-2")
        self.funding(at_ms, "2", ccy, -amount - fee)
        self.funding(at_ms + self.random.choice((5, DAY_MS)), "13", ccy, amount + fee)
        self.expect("withdrawals", "withdrawal", status=CANCELLED)

    def send(self, *, stated: bool) -> Sent:
        """A withdrawal to another account of the owner, with its transaction or without."""
        at_ms, ccy, amount, fee = self._withdrawal("2")
        self.funding(at_ms, "2", ccy, -amount - fee)
        self.expect("withdrawals", "withdrawal", sent=(ccy, amount), fees=[(ccy, fee)])
        row = self.rows["withdrawals"][-1]
        sent = Sent(ccy, amount, at_ms, row["txId"], row["to"])
        if not stated:
            row["txId"] = ""
        return sent

    def receive(self, sent: Sent) -> None:
        """A deposit from another account of the owner."""
        at_ms = sent.at_ms + self.random.randrange(60_000, 3_600_000)
        self.rows["deposits"].append({
            "ccy": sent.coin, "chain": f"{sent.coin}-Bitcoin", "amt": self.shown(sent.amount),
            "from": "", "to": sent.address, "txId": sent.tx_hash, "ts": str(at_ms), "state": "2",
            "depId": self.number_text(), "fromWdId": "", "actualDepBlkConfirm": "2",
        })  # fmt: skip
        self.funding(at_ms, "1", sent.coin, sent.amount)
        self.expect("deposits", "deposit", received=(sent.coin, sent.amount))

    def unlisted(self) -> None:
        """Money from a bank, which no list has."""
        ccy, amount = self.random.choice(COINS), self.number(24)
        self.funding(self.time(), "1", ccy, amount)
        self.expect("deposits", "deposit", received=(ccy, amount))
