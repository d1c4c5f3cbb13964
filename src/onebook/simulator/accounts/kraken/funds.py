"""Deposits, withdrawals, staking, Earn, airdrops and delistings of the simulated Kraken account.

A deposit or withdrawal is a `Movement` from the time of its request, and a ledger row under its
reference when it is booked; one that fails later has a second row with the opposite amount and fee.
Staked and earning coins have their own asset ids; a move between ids has two rows.
"""

from functools import partial
from typing import Final

from onebook.simulator.accounts.blocks import Acts
from onebook.simulator.accounts.history import UNIT
from onebook.simulator.accounts.kraken.facts import FLEX_OPENED, REFIDS_CHANGED, BookedRow, Movement
from onebook.simulator.accounts.kraken.generator import DAY_TICKS, BlockBooks
from onebook.simulator.accounts.kraken.names import (
    ASSETS,
    HOUR_TICKS,
    ICN_DELISTED,
    MATIC_DELISTED,
    MS_TICKS,
    REP_DELISTED,
    TICKS,
    TOKENS,
    cut,
    funding_id,
    hash_of,
)

MINUTE_TICKS: Final = 60 * TICKS
COINS: Final = {  # method, network, size, network fee
    "XXBT": ("Bitcoin", "Bitcoin", UNIT // 4, UNIT * 15 // 100_000),
    "XETH": ("Ether (Hex)", "Ethereum", 4 * UNIT, UNIT * 35 // 10_000),
    "XXRP": ("Ripple XRP", "Ripple", 4_000 * UNIT, UNIT // 50),
    "USDT": ("Tether USD (TRC20)", "Tron", 5_000 * UNIT, 5 * UNIT // 2),
    "SOL": ("Solana", "Solana", 60 * UNIT, UNIT // 100),
    "XXDG": ("Dogecoin", "Dogecoin", 20_000 * UNIT, 4 * UNIT),
}
FIAT: Final = {
    "ZEUR": ("Fidor Bank AG (Wire Transfer)", "SEPA", 12_000 * UNIT, UNIT * 9 // 100),
    "ZUSD": ("Synapse (US Wire)", "Fedwire", 12_000 * UNIT, 4 * UNIT),
    "ZGBP": ("ClearBank (Faster Payments)", "Faster Payments", 4_000 * UNIT, UNIT),
}
OPENING: Final = {
    "ZEUR": 400_000, "ZUSD": 300_000, "XXBT": 9, "XETH": 120, "USDT": 90_000, "XXDG": 200_000,
    "XXRP": 60_000, "DOT": 9_000, "XTZ": 8_000, "ATOM": 3_000, "SOL": 900, "XREP": 300,
    "XICN": 5_000, "MATIC": 20_000,
}  # fmt: skip
DELISTED: Final = {"XREP": REP_DELISTED, "XICN": ICN_DELISTED, "MATIC": MATIC_DELISTED}
CREDITS: Final = 300_000 * UNIT
STAKED: Final = {"XETH": "ETH2.S", "DOT": "DOT.S", "XTZ": "XTZ.S", "ATOM": "ATOM21.S"}
MIGRATED: Final = {"ETH2.S": "ETH.B", "ETH2": "ETH.B", "DOT.S": "DOT28.S", "XTZ.S": "XTZ"}
EARNED: Final = {"DOT": "DOT28.S", "XETH": "ETH.B", "XXBT": "XBT.M", "ZEUR": "EUR.M"}
AUTOMATIC: Final = {"XXBT": "XBT.F", "SOL": "SOL.F", "USDT": "USDT.F"}
COMMISSION: Final = 15  # percent of a reward


class FundMovements:
    """Generates and books the spot events other than trading."""

    def __init__(self, books: BlockBooks) -> None:
        self._books = books
        self._random = books.random

    def acts(self) -> Acts:
        """Return the possible events, by name."""
        return {
            "opening": self.open_account,
            "coin deposit": self.deposit_coin,
            "fiat deposit": self.deposit_fiat,
            "held deposit": self.hold_deposit,
            "returned deposit": self.return_deposit,
            "refused deposit": self.refuse_deposit,
            "credited": self.credit,
            "coin withdrawal": partial(self.withdraw, listed=COINS),
            "fiat withdrawal": partial(self.withdraw, listed=FIAT),
            "failed withdrawal": partial(self.withdraw, listed=COINS, fails="failed"),
            "cancelled withdrawal": partial(self.withdraw, listed=FIAT, fails="canceled"),
            "reversal": self.reverse,
            "stake": self.stake,
            "unstake": self.unstake,
            "staking arrival": self.arrive,
            "staking rewards": self.reward_stakes,
            "virtual reward": self.turn_rewards,
            "staking migration": self.migrate_stakes,
            "earn allocation": self.allocate,
            "earn deallocation": self.deallocate,
            "auto allocation": self.allocate_automatically,
            "earn rewards": self.reward_allocations,
            "fork": partial(self.receive, "transfer", "", ("XXLM", "XXRP", "XETH")),
            "airdrop": partial(self.receive, "transfer", "airdrop", ("ADA", "SOL")),
            "airdrop from futures": partial(
                self.receive, "transfer", "spotfromfutures", ("ETHW", "SYRUP")
            ),
            "earn airdrop": partial(self.receive, "earn", "airdrop", ("DOT", "ADA")),
            "fee credit": partial(self.receive, "credit", "", ("KFEE",), whole=2_000 * UNIT),
            "reward": partial(self.receive, "reward", "", ("ZUSD",)),
            "invite bonus": partial(self.receive, "invite bonus", "", ("ZEUR",)),
            "adjustment": partial(self.receive, "adjustment", "", ("ADA", "XXLM", "ZRX")),
            "token dividend": self.pay_dividend,
            "REP delisting": partial(self.replace, "XREP", "REPV2", "", 5 * HOUR_TICKS),
            "ICN delisting": self.redeem,
            "MATIC migration": self.adjust,
            "replaced": self.replaced,
            "nft": self.trade_nft,
            "custody": self.send_to_custody,
            "custody return": self.return_from_custody,
        }

    def _other(self) -> tuple[str, int]:
        """Return the reference of an event that is in no other list."""
        return "S", self._books.number("other")

    # Deposits and withdrawals ---------------------------------------------------------------

    def open_account(self, at: int) -> None:
        """Fund the new account."""
        for asset, whole in OPENING.items():
            at += MINUTE_TICKS
            if at < DELISTED.get(asset, at + 1):
                method, network = {**COINS, **FIAT}.get(asset, (ASSETS[asset].altname, "", 0, 0))[
                    :2
                ]
                self._deposit(at, asset, whole * UNIT, method, network, wait=10 * MINUTE_TICKS)
        self.receive("credit", "", ("KFEE",), at, whole=CREDITS)
        if self._books.history.futures and at >= FLEX_OPENED:
            self._books.later(at + 20 * MINUTE_TICKS, "transfer to futures")

    def deposit_coin(self, at: int) -> None:
        """Deposit a coin: it is credited when the network has confirmed it."""
        asset = self._random.choice(tuple(COINS))
        method, network, size, _ = COINS[asset]
        self._deposit(at, asset, self._size(asset, size), method, network)

    def deposit_fiat(self, at: int) -> None:
        """Deposit fiat money, sometimes with a fee."""
        asset = self._random.choice(tuple(FIAT))
        method, network, size, fee = FIAT[asset]
        fee = fee if self._random.random() < 0.4 else 0
        self._deposit(at, asset, self._size(asset, size), method, network, fee=fee)

    def hold_deposit(self, at: int) -> None:
        """Deposit euros that are never released."""
        method, network, _, _ = FIAT["ZEUR"]
        self._deposit(at, "EUR.HOLD", 250 * UNIT, method, network, prop="on-hold")

    def return_deposit(self, at: int) -> None:
        """Deposit pounds that the exchange sends back a day later."""
        method, network, _, fee = FIAT["ZGBP"]
        self._deposit(
            at, "ZGBP", 300 * UNIT, method, network, fee=fee, returned=DAY_TICKS, prop="return"
        )

    def refuse_deposit(self, at: int) -> None:
        """Announce a deposit that is never credited."""
        method, network, _, _ = FIAT["ZUSD"]
        self._move(
            at, True, "ZUSD", method, network, 77 * UNIT, 0, booked=0, failed=at + 3 * HOUR_TICKS
        )

    def _size(self, asset: str, size: int) -> int:
        return cut(size * self._random.randrange(50, 2_000) // 1_000, ASSETS[asset].decimals)

    def _deposit(
        self,
        at: int,
        asset: str,
        amount: int,
        method: str,
        network: str,
        *,
        fee: int = 0,
        wait: int = 0,
        returned: int = 0,
        prop: str = "",
    ) -> None:
        booked = at + (wait or self._random.randrange(5, 90) * MINUTE_TICKS + 31 * MS_TICKS)
        failed = booked + returned if returned else 0
        move = self._move(
            at, True, asset, method, network, amount, fee, booked=booked, failed=failed, prop=prop
        )
        self._books.later(booked, "credited", move)

    def _move(
        self,
        at: int,
        incoming: bool,
        asset: str,
        method: str,
        network: str,
        amount: int,
        fee: int,
        *,
        booked: int,
        failed: int = 0,
        prop: str = "",
    ) -> Movement:
        number = self._books.number("movement")
        old = "Q" if incoming else self._random.choice("AB")
        refid = funding_id("FT" if at >= REFIDS_CHANGED else old, number)
        shown = fee > 0 or not incoming or self._random.random() < 0.7
        sender = hash_of(number * 7) if incoming and asset in COINS and number % 3 == 0 else ""
        move = Movement(
            number, incoming, refid, asset, method, network, amount, fee, shown, at, booked,
            failed, prop, sender,
        )  # fmt: skip
        self._books.block.movements.append(move)
        return move

    def credit(self, at: int, move: Movement) -> None:
        """Book a deposit."""
        row = self._books.row(at, "deposit", move.asset, move.amount, move.refid, fee=move.fee)
        self._books.done("deposit", move.refid, [row])
        if move.failed:
            self._books.later(move.failed, "reversal", move)

    def withdraw(
        self, at: int, listed: dict[str, tuple[str, str, int, int]], fails: str = ""
    ) -> None:
        """Withdraw up to a tenth of an asset; a failed withdrawal is credited again some days
        later."""
        asset = self._random.choice(tuple(listed))
        method, network, size, fee = listed[asset]
        amount = min(self._size(asset, size), self._books.held(asset) // 10)
        amount = cut(amount, ASSETS[asset].decimals)
        if amount < 10 * fee:
            return
        sent = at + self._random.randrange(3, 60) * MINUTE_TICKS
        failed = at + self._random.randrange(20, 96) * HOUR_TICKS if fails else 0
        prop = fails if fails == "canceled" else ""
        move = self._move(
            at, False, asset, method, network, amount, fee,
            booked=0 if fails else sent, failed=failed, prop=prop,
        )  # fmt: skip
        row = self._books.row(at, "withdrawal", asset, -amount, move.refid, fee=fee)
        self._books.done("withdrawal", move.refid, [row])
        if fails:
            self._books.later(failed, "reversal", move)

    def reverse(self, at: int, move: Movement) -> None:
        """Reverse a movement: book the opposite amount and a negative fee under its reference."""
        kind = "deposit" if move.incoming else "withdrawal"
        amount = -move.amount if move.incoming else move.amount
        row = self._books.row(at, kind, move.asset, amount, move.refid, fee=-move.fee)
        self._books.done(f"{kind} reversal", move.refid, [row])

    # Staking, until 2024 --------------------------------------------------------------------

    def stake(self, at: int) -> None:
        """Move a coin into staking: it arrives minutes later, under another reference."""
        asset = self._random.choice(tuple(STAKED))
        amount = self._share(asset, 300)
        if amount:
            self._leave(at, asset, "spottostaking", STAKED[asset], "stakingfromspot", amount)

    def unstake(self, at: int) -> None:
        """Move a coin out of staking."""
        asset = self._random.choice(("DOT", "XTZ", "ATOM"))
        amount = self._share(STAKED[asset], 500)
        if amount:
            self._leave(at, STAKED[asset], "stakingtospot", asset, "spotfromstaking", amount)

    def _share(self, asset: str, most: int) -> int:
        """Return a part of a balance, up to `most` thousandths."""
        held = self._books.held(asset) * self._random.randrange(most // 3, most) // 1_000
        return max(0, cut(held, ASSETS[asset].decimals))

    def _leave(
        self, at: int, asset: str, word: str, target: str, arrival: str, amount: int
    ) -> None:
        reference = self._other()
        row = self._books.row(at, "transfer", asset, -amount, reference, subtype=word)
        self._books.done("staking", reference, [row])
        after = self._random.randrange(2, 28) * MINUTE_TICKS + 9_200
        self._books.later(row.time + after, "staking arrival", target, arrival, amount)

    def arrive(self, at: int, asset: str, word: str, amount: int) -> None:
        """Book the second half of a move into or out of staking."""
        reference = self._other()
        row = self._books.row(at, "transfer", asset, amount, reference, subtype=word)
        self._books.done("staking", reference, [row])

    def reward_stakes(self, at: int) -> None:
        """Pay the reward for all staked coins; the reward for staked ETH is held separately."""
        for asset in STAKED.values():
            amount = self._reward(asset)
            if amount:
                paid, reference = ("ETH2" if asset == "ETH2.S" else asset), self._other()
                row = self._books.row(at, "staking", paid, amount, reference)
                self._books.done("staking reward", reference, [row])
                at += 20_000

    def _reward(self, asset: str) -> int:
        held = self._books.held(asset) * self._random.randrange(5, 90) // 100_000
        return max(0, cut(held, ASSETS[asset].decimals))

    def turn_rewards(self, at: int) -> None:
        """Convert rewards of staked ETH to ETH: a negative reward and a positive one."""
        amount = cut(self._books.held("ETH2") // 2, 10)
        if amount:
            reference = self._other()
            legs = (("ETH2", -amount), ("XETH", amount))
            rows = [self._books.row(at, "staking", asset, n, reference) for asset, n in legs]
            self._books.done("reward turned to ETH", reference, rows)

    def migrate_stakes(self, at: int) -> None:
        """Move staked coins to Earn."""
        for asset, target in MIGRATED.items():
            amount = self._books.held(asset)
            if amount > 0:
                self._reassign(at, ((asset, target, amount),), "migration", self._other())
                at += 5 * TICKS

    # Earn, since 2024 -----------------------------------------------------------------------

    def allocate(self, at: int) -> None:
        """Allocate a part of a balance; the reference of a strategy is reused."""
        index = self._random.randrange(len(EARNED))
        asset, target = tuple(EARNED.items())[index]
        if amount := self._share(asset, 200):
            self._reassign(at, ((asset, target, amount),), "allocation", ("EL", 1 + index))

    def deallocate(self, at: int) -> None:
        """Deallocate a part of an allocation."""
        index = self._random.randrange(len(EARNED))
        asset, target = tuple(EARNED.items())[index]
        if amount := self._share(target, 600):
            self._reassign(at, ((target, asset, amount),), "deallocation", ("EL", 51 + index))

    def allocate_automatically(self, at: int) -> None:
        """Move several assets to Kraken Rewards together, under one reference."""
        moves = [
            (asset, target, amount)
            for asset, target in AUTOMATIC.items()
            if (amount := self._share(asset, 60))
        ]
        word = "autoallocate" if self._random.random() < 0.2 else "autoallocation"
        if moves:
            self._reassign(at, moves, word, ("EL", 100 + self._books.number("allocation")))

    def _reassign(
        self,
        at: int,
        moves: list[tuple[str, str, int]] | tuple[tuple[str, str, int], ...],
        word: str,
        reference: tuple[str, int],
    ) -> None:
        rows: list[BookedRow] = []
        for source, target, amount in moves:
            for asset, change in ((source, -amount), (target, amount)):
                rows.append(self._books.row(at, "earn", asset, change, reference, subtype=word))
                at += self._random.choice((0, 30, 400))
        self._books.done("earn", reference, rows)

    def reward_allocations(self, at: int) -> None:
        """Pay rewards of up to three allocations, less a commission."""
        products = [*EARNED.values(), *AUTOMATIC.values()]
        for asset in self._random.sample(products, 3):
            amount = self._reward(asset)
            if amount:
                fee = cut(amount * COMMISSION // 100, ASSETS[asset].decimals)
                word = "" if fee and self._random.random() < 0.1 else "reward"
                reference = self._other()
                row = self._books.row(at, "earn", asset, amount, reference, fee=fee, subtype=word)
                self._books.done("earn reward", reference, [row])
                at += 20_000

    # One row, or a pair without anything in common ------------------------------------------------

    def receive(
        self, kind: str, subtype: str, assets: tuple[str, ...], at: int, *, whole: int = 0
    ) -> None:
        """Credit an asset without a counterpart: a fork, an airdrop, a bonus, a correction."""
        asset, reference = self._random.choice(assets), self._other()
        amount = whole or self._random.randrange(10_000, 30_000) * UNIT // 1_000
        amount = cut(amount, ASSETS[asset].decimals)
        row = self._books.row(at, kind, asset, amount, reference, subtype=subtype)
        words = {"spotfromfutures": "airdrop", "": kind}
        self._books.done(words.get(subtype, subtype), reference, [row])

    def pay_dividend(self, at: int) -> None:
        """Pay a dividend on a tokenized asset."""
        if any(self._books.held(token) > 0 for token in TOKENS):
            self.receive("dividend", "", ("ZUSD",), at)

    def replace(self, old: str, new: str, subtype: str, after: int, at: int) -> None:
        """Remove a delisted asset; its successor is credited later, under another reference."""
        amount, reference = self._books.held(old), self._other()
        if amount > 0:
            row = self._books.row(at, "transfer", old, -amount, reference, subtype=subtype)
            self._books.done("delisting", reference, [row])
            self._books.later(at + after, "replaced", "transfer", new, amount, subtype)

    def replaced(self, at: int, kind: str, asset: str, amount: int, subtype: str) -> None:
        """Credit the successor of an asset."""
        reference = self._other()
        amount = cut(amount, ASSETS[asset].decimals)
        row = self._books.row(at, kind, asset, amount, reference, subtype=subtype)
        self._books.done("delisting", reference, [row])

    def redeem(self, at: int) -> None:
        """Pay dollars for a delisted asset."""
        amount, word = self._books.held("XICN"), "delistingconversion"
        if amount > 0:
            reference = self._other()
            row = self._books.row(at, "transfer", "XICN", -amount, reference, subtype=word)
            self._books.done("delisting", reference, [row])
            self._books.later(at + HOUR_TICKS, "replaced", "transfer", "ZUSD", amount // 3, word)

    def adjust(self, at: int) -> None:
        """Migrate an asset with two adjustments, a hundredth of a second apart."""
        amount, reference = self._books.held("MATIC"), self._other()
        if amount > 0:
            row = self._books.row(at, "adjustment", "MATIC", -amount, reference)
            self._books.done("migration", reference, [row])
            self.replaced(at + 97_000, "adjustment", "POL", amount, "")

    def trade_nft(self, at: int) -> None:
        """Sell an NFT: the price, its creator's fee, and a rebate."""
        reference = self._other()
        legs = (("nfttrade", 4_000), ("nftcreatorfee", -200), ("nftrebate", 15))
        rows = [
            self._books.row(at, kind, "ZUSD", cents * UNIT // 100, reference)
            for kind, cents in legs
        ]
        self._books.done("nft", reference, rows)

    def send_to_custody(self, at: int) -> None:
        """Move ETH to custody for ten days."""
        amount, reference = self._share("XETH", 50), self._other()
        if amount:
            row = self._books.row(at, "custodytransfer", "XETH", -amount, reference)
            self._books.done("custody", reference, [row])
            self._books.later(at + 10 * DAY_TICKS, "custody return", amount)

    def return_from_custody(self, at: int, amount: int) -> None:
        """Return ETH from custody."""
        reference = self._other()
        row = self._books.row(at, "custodytransfer", "XETH", amount, reference)
        self._books.done("custody", reference, [row])
