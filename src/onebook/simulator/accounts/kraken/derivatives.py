"""Kraken Futures of the simulated account: its log of executions, funding, conversions, transfers.

An execution has two rows in the log: the position (its asset is the contract, its balance the size)
and the cash of the margin account. If the dollars of the multi-collateral account do not suffice, a
conversion of other collateral is between them, in the same millisecond. For cash, new balance = old
balance + realised profit + realised funding - fee - liquidation fee.
"""

from functools import partial
from typing import Final

from onebook.simulator.accounts.blocks import Acts
from onebook.simulator.accounts.history import UNIT, product, quotient
from onebook.simulator.accounts.kraken.facts import (
    FLEX_OPENED,
    FuturesFill,
    LoggedRow,
)
from onebook.simulator.accounts.kraken.generator import DAY_TICKS, BlockBooks
from onebook.simulator.accounts.kraken.names import (
    ASSETS,
    CONTRACTS,
    HOUR_TICKS,
    MS_TICKS,
    STEPS,
    Contract,
    cut,
    dated,
    id_of,
    nearest,
    uuid_of,
)

FLEX, CASH, MARGIN_ACCOUNT = "flex", "cash", "fi_xbtusd"
CROSS: Final = "cross-exchange transfer"
TAKER, MAKER = UNIT * 5 // 10_000, UNIT * 2 // 10_000
LIQUIDATION: Final = UNIT // 200
COLLATERAL: Final = {"usdt": (8, UNIT), "xbt": (8, 55_000 * UNIT)}  # decimals, dollars
WALLET_ASSETS: Final = {"usd": "ZUSD", "usdt": "USDT", "xbt": "XXBT"}


class DerivativesTrading:
    """Generates the events of Kraken Futures, and books them."""

    def __init__(self, books: BlockBooks) -> None:
        self._books = books
        self._state = books.state
        self._random = books.random

    def acts(self) -> Acts:
        """Return the possible events, by name."""
        return {
            "futures step": self.step,
            "transfer to futures": self.transfer_in,
            "transfer from futures": self.transfer_out,
            "margin account transfer": self.transfer_to_margin_account,
            "collateral conversion": self.convert_some,
            "interest": partial(self.adjust, "interest payment", FLEX, "usd", -3),
            "fee rebate": partial(self.adjust, "kfee applied", FLEX, "usd", 2),
            "tax": self.tax,
            "admin transfer": partial(self.adjust, "admin transfer", CASH, "eth", 1),
            "subaccount transfer": partial(self.adjust, "subaccount transfer", FLEX, "usdt", -40),
            "liquidation": self.liquidate,
            "assignment": self.assign,
            "unwind": partial(self.trade, info="futures unwind counterparty",
                              kind="unwindCounterparty"),
            "dated contract": self.buy_dated,
            "expiry": self.expire,
        }  # fmt: skip

    def _held(self, account: str, asset: str) -> int:
        return self._state.wallets.get((account, asset), 0)

    # Executions -----------------------------------------------------------------------------

    def step(self, at: int) -> None:
        """Trade, or realise the funding of every open position."""
        if self._random.random() < 0.7:
            self.trade(at)
        else:
            self._fund(at)

    def trade(self, at: int, info: str = "futures trade", kind: str = "") -> None:
        """Trade a contract: open or increase its position, or close a part of it."""
        names = list(CONTRACTS) if at >= FLEX_OPENED else ["PI_XBTUSD"]
        contract = CONTRACTS[self._random.choice(names)]
        price = self._price(contract, at)
        most = self._held(contract.account, contract.settle)
        if contract.account == FLEX:
            most += self._held(FLEX, "usdt")
        worth = most * self._random.randrange(1, 80) // 400
        size = quotient(worth, price) if not contract.inverse else product(worth, price)
        size = cut(size, contract.size_decimals)
        held = self._held(contract.account, contract.id)
        side = self._random.choice(("buy", "sell"))
        if held and (held > 0) == (side == "sell"):
            size = abs(held) if self._random.random() < 0.5 else min(size, abs(held))
        kind = kind or self._random.choice(("maker", "taker", "taker", "takerAfterEdit"))
        self._fill(at, contract, side, size, price, info, kind)

    def _price(self, contract: Contract, at: int) -> int:
        hours, step = at // HOUR_TICKS, STEPS[contract.price_decimals]
        moved = contract.price * (6_000 + abs(hours % 17_520 - 8_760)) // 10_000
        return moved * self._random.randrange(9_950, 10_051) // 10_000 // step * step

    def _fill(
        self,
        at: int,
        contract: Contract,
        side: str,
        size: int,
        price: int,
        info: str,
        kind: str,
        penalty: int = 0,
    ) -> None:
        """Book an execution if the collateral suffices."""
        if not size:
            return
        old = self._held(contract.account, contract.id)
        change = size if side == "buy" else -size
        old_entry = self._entry(contract, old)
        value = self._value(contract, price, size)
        fee = nearest(product(value, MAKER if kind == "maker" else TAKER), contract.decimals)
        entries, pnl = self._entries(contract, old, change, value)
        paid = value * self._random.randrange(-30, 31) // 1_000_000 if old else 0
        funding = nearest(paid, contract.decimals)
        charge = nearest(product(value, penalty), contract.decimals)
        gain = pnl + funding - fee - charge
        if not self._covers(contract, gain):
            return
        self._state.entries[contract.symbol] = entries
        new_entry = self._entry(contract, old + change) or old_entry
        number, mark = self._books.number("fill"), price + price // 4_000
        at = max(at // MS_TICKS * MS_TICKS, self._state.log_floor)
        facts = {
            "contract": contract.id, "execution": uuid_of("fill", number), "trade_price": price,
            "mark_price": mark,
        }  # fmt: skip
        rows = [
            self._books.log(at, contract.account, contract.id, info, change, **facts,
                            old_entry=old_entry, new_entry=new_entry),
            *self._convert(at, contract, gain),
            self._books.log(at, contract.account, contract.settle, info, gain, **facts, fee=fee,
                            pnl=pnl, funding=funding if old else None,
                            liquidation_fee=charge or None),
        ]  # fmt: skip
        self._state.positions[contract.symbol] = (at, number)
        self._books.block.fills.append(
            FuturesFill(at, number, contract, side, size, price, mark, kind, old, old + change,
                        old_entry, new_entry, fee, pnl, funding)
        )  # fmt: skip
        self._books.done(info, uuid_of("fill", number), (), rows)

    def _value(self, contract: Contract, price: int, size: int) -> int:
        return quotient(size, price) if contract.inverse else product(size, price)

    def _entry(self, contract: Contract, size: int) -> int:
        """Return the average entry price of a position, from its entry value."""
        value = self._state.entries.get(contract.symbol, 0)
        if not size or not value:
            return 0
        price = abs(size) * UNIT // value if contract.inverse else value * UNIT // abs(size)
        return cut(price, 10)

    def _entries(self, contract: Contract, old: int, change: int, value: int) -> tuple[int, int]:
        """Return the new entry value of a position, and the profit of closing a part."""
        entries = self._state.entries.get(contract.symbol, 0)
        if old * change >= 0:
            return entries + value, 0
        part = entries * abs(change) // abs(old)
        gain = (value - part) * (1 if old > 0 else -1) * (-1 if contract.inverse else 1)
        return entries - part, nearest(gain, contract.decimals)

    def _covers(self, contract: Contract, gain: int) -> bool:
        left = self._held(contract.account, contract.settle) + gain
        if left >= 0:
            return True
        return contract.account == FLEX and self._source(-left) is not None

    def _source(self, dollars: int) -> str | None:
        """Return collateral worth more than an amount of dollars."""
        for asset, (_, price) in COLLATERAL.items():
            if product(self._held(FLEX, asset), price) > 2 * dollars:
                return asset
        return None

    def _convert(self, at: int, contract: Contract, gain: int) -> list[LoggedRow]:
        """Convert collateral so that the dollars end at zero, if they would fall below."""
        missing = -(self._held(contract.account, contract.settle) + gain)
        source = self._source(missing) if missing > 0 else None
        return self._conversion(at, source, missing) if source else []

    def _conversion(self, at: int, source: str, dollars: int) -> list[LoggedRow]:
        decimals, price = COLLATERAL[source]
        price = price * self._random.randrange(9_990, 10_011) // 10_000
        amount = cut(quotient(dollars, price), decimals) + STEPS[decimals]
        facts = {"spread": UNIT // 1_000, "exchange_rate": (price, "usd")}
        return [
            self._books.log(at, FLEX, source, "conversion", -amount, **facts),
            self._books.log(at, FLEX, "usd", "conversion", dollars, **facts),
        ]

    def _fund(self, at: int) -> None:
        """Realise the funding of each position, at the full hour."""
        at = max(at // HOUR_TICKS * HOUR_TICKS, self._state.log_floor)
        for contract in CONTRACTS.values():
            held = self._held(contract.account, contract.id)
            if not held:
                continue
            price, drawn = self._price(contract, at), self._random.randrange(-40, 60)
            value = self._value(contract, price, held)
            rate = drawn * UNIT // 10_000_000
            paid = nearest(-product(value, rate), contract.decimals)
            if not paid or self._held(contract.account, contract.settle) + paid < 0:
                continue
            row = self._books.log(
                at, contract.account, contract.settle, "funding rate change", paid,
                contract=contract.id, mark_price=price, funding=paid, rate=rate,
            )  # fmt: skip
            self._books.done("funding", str(row.seq), (), [row])

    def liquidate(self, at: int) -> None:
        """Liquidate a position."""
        info = "covered liquidation" if self._random.random() < 0.25 else "futures liquidation"
        for contract in CONTRACTS.values():
            held = self._held(contract.account, contract.id)
            if held and contract.account == FLEX:
                side, price = ("sell" if held > 0 else "buy"), self._price(contract, at)
                self._fill(
                    at, contract, side, abs(held), price, info, "liquidation", LIQUIDATION
                )  # fmt: skip
                return

    def assign(self, at: int) -> None:
        """Take over a position from another account, or hand one over."""
        kind = self._random.choice(("assignor", "assignee"))
        self.trade(at, info=f"futures {kind}", kind=kind)

    def buy_dated(self, at: int) -> None:
        """Buy a contract that expires a week later."""
        contract = dated(at + 7 * DAY_TICKS)
        if self._held(FLEX, contract.id):
            return
        self._fill(at, contract, "buy", UNIT // 2, self._price(contract, at), "futures trade",
                   "taker")  # fmt: skip
        self._books.later(at + 7 * DAY_TICKS, "expiry", contract)

    def expire(self, at: int, contract: Contract) -> None:
        """Settle a dated contract: its position ends, and the profit is booked."""
        held = self._held(FLEX, contract.id)
        price = self._price(contract, at)
        value = self._value(contract, price, held)
        _, pnl = self._entries(contract, held, -held, value)
        if not held or not self._covers(contract, pnl):
            return
        entry = self._entry(contract, held)
        self._state.entries.pop(contract.symbol)
        self._state.positions.pop(contract.symbol)
        at = max(at // MS_TICKS * MS_TICKS, self._state.log_floor)
        facts = {"contract": contract.id, "trade_price": price, "mark_price": price}
        rows = [
            self._books.log(at, FLEX, contract.id, "settlement", -held, **facts, old_entry=entry,
                            new_entry=entry),
            *self._convert(at, contract, pnl),
            self._books.log(at, FLEX, "usd", "settlement", pnl, **facts, fee=0, pnl=pnl),
        ]  # fmt: skip
        self._books.done("settlement of a contract", contract.symbol, (), rows)

    # Transfers and the rest ------------------------------------------------------------------

    def transfer_in(self, at: int) -> None:
        """Transfer from the spot account into the multi-collateral account."""
        turn = self._books.number("transfer in")
        asset = ("usd", "usdt", "xbt", "usdt", "xbt")[turn % 5]
        share = self._spot_share(asset) // (10 if asset == "usd" else 1)
        amount = cut(share, ASSETS[WALLET_ASSETS[asset]].decimals)
        self._transfer(at, asset, FLEX, amount, incoming=True)

    def transfer_out(self, at: int) -> None:
        """Transfer back."""
        assets = sorted(COLLATERAL, key=lambda asset: -self._held(FLEX, asset))
        asset = assets[0] if not self._held(FLEX, assets[1]) else self._random.choice(assets)
        share = self._held(FLEX, asset) * self._random.randrange(50, 300) // 1_000
        amount = cut(share, ASSETS[WALLET_ASSETS[asset]].decimals)
        self._transfer(at, asset, FLEX, amount, incoming=False)

    def _spot_share(self, asset: str) -> int:
        held = self._books.held(WALLET_ASSETS[asset])
        return cut(held * self._random.randrange(20, 150) // 1_000,
                   ASSETS[WALLET_ASSETS[asset]].decimals)  # fmt: skip

    def _transfer(self, at: int, asset: str, account: str, amount: int, *, incoming: bool) -> None:
        if amount <= 0:
            return
        sign, word = (1, "spottofutures") if incoming else (-1, "spotfromfutures")
        reference = ("S", self._books.number("other"))
        row = self._books.row(
            at, "transfer", WALLET_ASSETS[asset], -sign * amount, reference, subtype=word
        )
        # The reference of the other side: a UUID, or the reference in the spot ledger.
        uuid = uuid_of("transfer", reference[1])
        execution = uuid if self._random.random() < 0.5 else id_of(*reference)
        log = self._books.log(at + 300 * MS_TICKS, account, asset, CROSS, sign * amount,
                              execution=execution)  # fmt: skip
        kind = "transfer to futures" if incoming else "transfer from futures"
        self._books.done(kind, reference, [row], [log])

    def transfer_to_margin_account(self, at: int) -> None:
        """Transfer bitcoin from the spot account to the wallet of inverse contracts."""
        amount = self._spot_share("xbt")
        self._transfer(at, "xbt", CASH, amount, incoming=True)
        if amount > 0:
            rows = [
                self._books.log(at, CASH, "xbt", "transfer", -amount),
                self._books.log(at, MARGIN_ACCOUNT, "xbt", "transfer", amount),
            ]
            self._books.done("transfer between wallets", str(rows[0].seq), (), rows)

    def convert_some(self, at: int) -> None:
        """Convert collateral to dollars on demand."""
        dollars = 500 * UNIT
        source = self._source(dollars)
        if source:
            rows = self._conversion(at, source, dollars)
            self._books.done("collateral conversion", str(rows[0].seq), (), rows)

    def tax(self, at: int) -> None:
        """Withhold a tax, or refund it."""
        withheld = self._random.random() < 0.6
        self.adjust("tax withheld" if withheld else "tax refund", FLEX, "usd",
                    -5 if withheld else 5, at)  # fmt: skip

    def adjust(self, info: str, account: str, asset: str, whole: int, at: int) -> None:
        """Book a row whose amount follows only from its balances."""
        change = whole * self._random.randrange(100, 900) * UNIT // 1_000
        if self._held(account, asset) + change >= 0:
            row = self._books.log(at, account, asset, info, change)
            self._books.done(info, str(row.seq), (), [row])
