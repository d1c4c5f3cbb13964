"""Deposits, withdrawals, transfers, conversions, earn and rewards in the funding account of OKX.

A deposit or withdrawal is a row of its list from the time of its request, and a bill when it is
booked. Funds subscribed to an earn product leave the account; a redemption returns them. Bills only
have a type: https://www.okx.com/docs-v5/en/#funding-account-rest-api-asset-bills-details
"""

from typing import Final, NamedTuple

from onebook.model import DAY_MS
from onebook.simulator.accounts.blocks import Acts
from onebook.simulator.accounts.okx.facts import (
    FIXED,
    FUNDING,
    LOANS,
    SAVINGS,
    STAKING,
    STRUCTURED,
    TRADING,
    FiatOrder,
    FundingBill,
    LendingRow,
    LiquidStake,
    LoanStep,
    OkxConversion,
    OkxDeposit,
    OkxWithdrawal,
    StakeOrder,
    SubTransfer,
    TradingBill,
    WalletTransfer,
)
from onebook.simulator.accounts.okx.generator import OkxBooks
from onebook.simulator.accounts.okx.names import (
    CHAINS,
    HOUR_MS,
    MATIC_ENDED,
    MICRO,
    NANO8,
    PAIRS,
    UNIT,
    OkxChain,
    cut_to,
    ms_of,
    per,
    times,
)

MINUTE_MS: Final = 60_000
COINS: Final = tuple(each for each in CHAINS if not each.apart)
OPENING: Final = {
    "USDT": 900_000, "BTC": 12, "ETH": 160, "SOL": 900, "XRP": 90_000, "DOGE": 250_000,
    "OKB": 900, "LTC": 900, "USDC": 300_000, "EUR": 200_000, "MATIC": 60_000, "DOT": 3_000,
    "USDG": 20_000, "LUNC": 900_000,
}  # fmt: skip
LATE: Final = {"EUR": ms_of("2023-10-01"), "USDG": ms_of("2025-02-01")}  # listed from then on
ENDED: Final = {"MATIC": MATIC_ENDED, "LUNC": MATIC_ENDED}
MOVED: Final = 70  # percent of the opening deposits that go to the trading account
OLD_CONVERSIONS: Final = ms_of("2023-06-01")  # until then, both legs have the same type
HELD_STATES: Final = (8, 11, 12, 13, 14, 17)  # of deposits that are not credited
EARNING_RATE: Final = UNIT // 100_000


class Reward(NamedTuple):
    """A type of bill without a counterpart: a reward or a charge."""

    type: int
    ccys: tuple[str, ...]
    size: int
    notes: str = ""


GAINS: Final = (
    Reward(28, ("SOL", "OKB"), UNIT // 3, "Airdrop"), Reward(229, ("DOGE", "XRP"), 30 * UNIT),
    Reward(48, ("USDT",), 7 * UNIT, "Event reward"), Reward(72, ("USDT", "BTC"), UNIT // 900),
    Reward(150, ("USDT",), 3 * UNIT), Reward(151, ("BTC",), UNIT // 50_000),
    Reward(172, ("USDT",), 2 * UNIT), Reward(173, ("USDT", "BTC"), UNIT // 10_000),
    Reward(189, ("OKB",), UNIT // 50, "Mystery box"), Reward(232, ("USDT",), UNIT // 9),
    Reward(299, ("USDC",), UNIT), Reward(300, ("USDT",), 5 * UNIT // 4),
    Reward(314, ("USDT",), 11 * UNIT), Reward(333, ("USDT",), UNIT // 2),
    Reward(354, ("USDT",), 4 * UNIT), Reward(89, ("USDT", "ETH"), UNIT // 700),
    Reward(400, ("USDT",), UNIT // 80), Reward(408, ("USDG",), UNIT // 20),
    Reward(124, ("SOL",), UNIT // 4, "Jumpstart"),
)  # fmt: skip
CHARGES: Final = (
    Reward(47, ("XRP", "DOGE"), 5 * UNIT, "System reversal"), Reward(49, ("USDT",), 3 * UNIT),
    Reward(73, ("USDT",), 9 * UNIT), Reward(84, ("USDT",), UNIT // 2),
    Reward(313, ("USDT",), 8 * UNIT), Reward(174, ("OKB",), UNIT // 20, "Jumpstart"),
)  # fmt: skip


class FundingFlows:
    """Generates and books the events of the funding account."""

    def __init__(self, books: OkxBooks) -> None:
        self._books = books
        self._random = books.random

    def acts(self) -> Acts:
        """Return the possible events, by name."""
        return {
            "opening": self.open_account,
            "deposit": self.deposit,
            "deposits at once": self.deposit_at_once,
            "internal deposit": lambda at: self.deposit(at, self._random.choice(("id", "empty"))),
            "held deposit": self.hold_deposit,
            "credited": self.credit,
            "fiat deposit": self.deposit_fiat,
            "fiat done": self.finish_fiat,
            "withdrawal": self.withdraw,
            "internal withdrawal": lambda at: self.withdraw(at, internal=True),
            "failed withdrawal": lambda at: self.withdraw(at, final=-1),
            "cancelled withdrawal": lambda at: self.withdraw(at, final=-2),
            "returned": self.give_back,
            "fiat withdrawal": self.withdraw_fiat,
            "transfer": self.transfer,
            "opening transfer": self.move_opening,
            "sub-account transfer": self.transfer_to_sub_account,
            "conversion": self.convert,
            "dust": self.collect_dust,
            "savings": self.save,
            "savings redemption": self.redeem_savings,
            "savings earnings": self.pay_savings,
            "stake": self.stake,
            "stake earnings": self.pay_stake,
            "stake end": self.redeem_stake,
            "ETH stake": lambda at: self.stake_liquid(at, "ETH"),
            "SOL stake": lambda at: self.stake_liquid(at, "SOL"),
            "liquid stake end": self.settle_liquid,
            "fixed savings": self.fix_savings,
            "fixed savings end": self.end_fixed,
            "OKUSD": self.subscribe_okusd,
            "OKUSD end": self.redeem_okusd,
            "dual investment": self.invest,
            "dual investment end": self.collect_investment,
            "structured order": self.order_structured,
            "structured settlement": self.settle_structured,
            "loan": self.take_loan,
            "loan end": self.repay_loan,
            "buy with a card": self.buy,
            "peer to peer": self.sell_to_peer,
            "peer to peer cancelled": self.cancel_peer,
            "gain": self.gain,
            "charge": self.charge,
            "delisting": self.delist,
            "custody": self.keep_in_custody,
        }

    # Deposits -------------------------------------------------------------------------------

    def open_account(self, at: int) -> None:
        """Fund the new account; most of it goes to the trading account."""
        for ccy, whole in OPENING.items():
            at += MINUTE_MS
            if LATE.get(ccy, 0) <= at < ENDED.get(ccy, 2**63):
                chain = next((c for c in CHAINS if c.ccy == ccy), OkxChain(f"{ccy}-{ccy}", 0, 0))
                self._deposit(at, chain, whole * UNIT, wait=5 * MINUTE_MS)
                moved = whole * UNIT * MOVED // 100
                self._books.state.later(at + 9 * MINUTE_MS, "opening transfer", ccy, moved)

    def deposit(self, at: int, internal: str = "") -> None:
        """Deposit a coin: it is credited when the network has confirmed it."""
        chain = self._random.choice(COINS)
        self._deposit(at, chain, self._size(chain), internal=internal)

    def deposit_at_once(self, at: int) -> None:
        """Make several deposits in one millisecond, as by a payment to many."""
        for _ in range(self._random.randrange(3, 7)):
            chain = self._random.choice(COINS)
            self._deposit(at, chain, self._size(chain) // 20 // NANO8 * NANO8, wait=HOUR_MS)

    def hold_deposit(self, at: int) -> None:
        """Deposit a coin that is not credited."""
        chain = self._random.choice(COINS)
        self._deposit(at, chain, self._size(chain), final=self._random.choice(HELD_STATES))

    def _size(self, chain: OkxChain) -> int:
        step = UNIT // 10**chain.decimals
        return cut_to(chain.size * self._random.randrange(50, 2_000) // 1_000, step)

    def _deposit(
        self, at: int, chain: OkxChain, amount: int, *, wait: int = 0, final: int = 2,
        internal: str = "",
    ) -> None:  # fmt: skip
        credited = at + (wait or self._random.randrange(2, 70) * MINUTE_MS + 31)
        deposit = OkxDeposit(
            at, self._books.state.number("deposit"), chain, amount, credited if final == 2 else 0,
            final, internal, self._books.history.direct,
        )  # fmt: skip
        self._books.keep("deposits", deposit)
        if final == 2:
            self._books.state.later(credited, "credited", deposit)

    def credit(self, at: int, deposit: OkxDeposit) -> None:
        """Book a deposit."""
        ccy, amount = deposit.chain.ccy, deposit.amount
        row: FundingBill | TradingBill
        if deposit.direct:  # unconfirmed: how the trading account calls it
            row = self._books.bill(at, ccy, amount, "1", "11", size=amount, way=("", "18"))
        else:
            row = self._books.fund(at, ccy, amount, 1)
        self._books.done("deposit", f"deposit {deposit.seq}", row)

    def deposit_fiat(self, at: int) -> None:
        """Deposit euros at a bank, sometimes unsuccessfully."""
        if at < LATE["EUR"]:
            return
        amount = self._random.randrange(100, 9_000) * UNIT
        state = "failed" if self._random.random() < 0.2 else "completed"
        order = FiatOrder(
            at, self._books.state.number("fiat"), True, "EUR", amount, 0,
            at + self._random.randrange(1, 30) * HOUR_MS, state,
        )  # fmt: skip
        self._books.keep("fiat", order)
        if state == "completed":
            self._books.state.later(order.done, "fiat done", order)

    def finish_fiat(self, at: int, order: FiatOrder) -> None:
        """Book the euros that arrived from a bank."""
        row = self._books.fund(at, order.ccy, order.amount, 1)
        self._books.done("fiat deposit", f"fiat {order.seq}", row)

    # Withdrawals ----------------------------------------------------------------------------

    def withdraw(self, at: int, *, internal: bool = False, final: int = 2) -> None:
        """Withdraw up to a tenth of a coin; a failed or cancelled withdrawal is returned."""
        chain = self._random.choice(CHAINS)
        step = UNIT // 10**chain.decimals
        amount = min(self._size(chain), self._books.held(FUNDING, chain.ccy) // 10)
        amount, fee = cut_to(amount, step), 0 if internal else chain.fee
        if amount < 10 * fee or not amount:
            return
        at = self._books.moment("funding", at)
        minutes = self._random.randrange(2, 50) if final == 2 else self._random.randrange(60, 4_000)
        withdrawal = OkxWithdrawal(
            at, self._books.state.number("withdrawal"), chain, amount, fee,
            at + minutes * MINUTE_MS, final, internal,
        )  # fmt: skip
        self._books.keep("withdrawals", withdrawal)
        apart = chain.apart and fee > 0
        rows = [self._books.fund(at, chain.ccy, -amount - (0 if apart else fee), 2)]
        if apart:
            rows.append(self._books.fund(at, chain.ccy, -fee, 221))
        self._books.done(
            "withdrawal", f"withdrawal {withdrawal.seq}", *rows,
            fees=((FUNDING, chain.ccy, fee),) if fee else (),
        )  # fmt: skip
        if final != 2:
            self._books.state.later(withdrawal.ended, "returned", withdrawal)

    def give_back(self, at: int, withdrawal: OkxWithdrawal) -> None:
        """Return funds that were not sent."""
        chain, fee = withdrawal.chain, withdrawal.fee
        apart = chain.apart and fee > 0
        amount = withdrawal.amount + (0 if apart else fee)
        rows = [self._books.fund(at, chain.ccy, amount, 13)]
        if apart:
            rows.append(self._books.fund(at, chain.ccy, fee, 222))
        self._books.done(
            "withdrawal reversal", f"withdrawal {withdrawal.seq}", *rows,
            fees=((FUNDING, chain.ccy, -fee),) if fee else (),
        )  # fmt: skip

    def withdraw_fiat(self, at: int) -> None:
        """Withdraw euros to a bank, with the fee in a separate bill."""
        amount = cut_to(self._books.share(FUNDING, "EUR", 100, UNIT // 100), UNIT)
        if not amount:
            return
        fee = UNIT // 2
        order = FiatOrder(
            self._books.moment("funding", at), self._books.state.number("fiat"), False, "EUR",
            amount, fee, at + 20 * HOUR_MS,
        )  # fmt: skip
        self._books.keep("fiat", order)
        rows = (self._books.fund(at, "EUR", -amount, 2), self._books.fund(at, "EUR", -fee, 221))
        self._books.done("fiat withdrawal", f"fiat {order.seq}", *rows,
                         fees=((FUNDING, "EUR", fee),))  # fmt: skip

    # Transfers ------------------------------------------------------------------------------

    def transfer(self, at: int) -> None:
        """Move a currency between the funding and the trading account, whichever has more."""
        ccy = self._random.choice(("USDT", "USDT", "BTC", "ETH", "SOL", "USDC", "EUR", "OKB"))
        into = self._books.held(FUNDING, ccy) * 2 > self._books.held(TRADING, ccy)
        amount = self._books.share(FUNDING if into else TRADING, ccy, 200, MICRO)
        if amount:
            self._transfer(at, ccy, amount, into)

    def move_opening(self, at: int, ccy: str, amount: int) -> None:
        """Move a part of the first deposits to the trading account."""
        self._transfer(at, ccy, amount, True)

    def _transfer(self, at: int, ccy: str, amount: int, into: bool) -> None:
        number = self._books.state.number("transfer")
        later = at + self._random.randrange(0, 900)
        change = amount if into else -amount
        client = f"move{number}" if number % 4 == 0 else ""
        if into:
            one = self._books.fund(at, ccy, -amount, 131, client=client)
        trade = self._books.bill(
            later if into else at, ccy, change, "1", "11" if into else "12", size=change,
            way=("6", "18") if into else ("18", "6"),
            notes="From Funding Account" if into else "To Funding Account",
        )  # fmt: skip
        if not into:
            one = self._books.fund(later, ccy, amount, 130, client=client)
        way = ("6", "18") if into else ("18", "6")
        self._books.keep("transfers", WalletTransfer(one.time, number, ccy, amount, *way))
        self._books.done("transfer", f"transfer {number}", one, trade)

    def transfer_to_sub_account(self, at: int) -> None:
        """Move a currency to the sub-account, or a part of it back."""
        ccy = self._random.choice(("USDT", "BTC", "ETH"))
        incoming = self._random.random() < 0.4
        amount = self._books.share(FUNDING, ccy, 40 if incoming else 90, MICRO)
        if amount:
            number = self._books.state.number("sub-account transfer")
            change = amount if incoming else -amount
            row = self._books.fund(at, ccy, change, 21 if incoming else 20)
            self._books.keep("sub_transfers", SubTransfer(row.time, number, ccy, amount, incoming))
            self._books.done("sub-account transfer", f"sub-account transfer {number}", row)

    # Conversions ----------------------------------------------------------------------------

    def convert(self, at: int) -> None:
        """Convert a currency in the funding account: two bills that have only the time in
        common."""
        pair = PAIRS[self._random.choice(("BTC-USDT", "ETH-USDT", "SOL-USDT", "XRP-USDT"))]
        buys = self._random.random() < 0.6
        spent = pair.settle if buys else pair.base
        amount = self._books.share(FUNDING, spent, 60, NANO8)
        price = pair.price_at(at, self._random)
        price = price * (1_002 if buys else 998) // 1_000
        got = cut_to(per(amount, price) if buys else times(amount, price), NANO8)
        if not amount or not got:
            return
        old = at < OLD_CONVERSIONS
        rows = [
            self._books.fund(at, spent, -amount, 136 if old else 273),
            self._books.fund(at + self._random.choice((0, 0, 3)), pair.base if buys else
                             pair.settle, got, 136 if old else 272),
        ]  # fmt: skip
        number = self._books.state.number("conversion")
        self._books.keep(
            "conversions",
            OkxConversion(
                rows[0].time // 1_000 * 1_000, number, pair.base, pair.settle,
                "buy" if buys else "sell", got if buys else amount, amount if buys else got, price,
            ),
        )  # fmt: skip
        self._books.done("conversion", f"trader{number}", *rows)

    def collect_dust(self, at: int) -> None:
        """Collect a tiny remainder of the trading account."""
        amount = self._random.randrange(1, 90_000)
        if self._books.held(TRADING, "DOGE") < amount:
            return
        rows = (
            self._books.bill(at, "DOGE", -amount, "1", "290", size=-amount, way=("18", "6")),
            self._books.fund(at, "DOGE", amount, 311),
        )
        self._books.done("dust", "", *rows)

    # Earn -----------------------------------------------------------------------------------

    def save(self, at: int) -> None:
        """Subscribe to flexible savings."""
        ccy = self._random.choice(("USDT", "BTC", "ETH"))
        amount = self._books.share(FUNDING, ccy, 150, MICRO)
        if amount:
            self._subscribe(at, ccy, amount, 75, SAVINGS)

    def _subscribe(self, at: int, ccy: str, amount: int, kind: int, wallet: str) -> None:
        row = self._books.fund(at, ccy, -amount, kind)
        held = self._books.product(row.time, wallet, ccy, amount)
        self._books.done(f"{wallet} subscription", "", row, held)

    def _redeem(self, at: int, ccy: str, amount: int, kind: int, wallet: str) -> None:
        row = self._books.fund(at, ccy, amount, kind)
        held = self._books.product(row.time, wallet, ccy, -amount)
        self._books.done(f"{wallet} redemption", "", row, held)

    def redeem_savings(self, at: int) -> None:
        """Redeem a part of the savings, with its earnings."""
        ccy = self._random.choice(("USDT", "BTC", "ETH"))
        held = self._books.held(SAVINGS, ccy)
        amount = held if self._random.random() < 0.3 else self._books.share(SAVINGS, ccy, 700, 1)
        if amount:
            self._redeem(at, ccy, amount, 76, SAVINGS)

    def pay_savings(self, at: int) -> None:
        """Pay the hour's earnings of all savings: they stay there, and no bill shows them."""
        hour = at // HOUR_MS * HOUR_MS
        for ccy in ("USDT", "BTC", "ETH"):
            held = self._books.held(SAVINGS, ccy)
            earnings = times(held, EARNING_RATE)
            if not earnings:
                continue
            time = self._books.moment("lendings", hour)
            number = self._books.state.number("lending")
            rate = UNIT * self._random.randrange(1, 9) // 100
            self._books.block.lendings.append(LendingRow(time, number, ccy, held, earnings, rate))
            row = self._books.product(at, SAVINGS, ccy, earnings)
            self._books.done("savings earnings", "", row)

    def stake(self, at: int) -> None:
        """Stake on chain: the yield is paid weekly, and the principal is returned at the end."""
        ccy, protocol = self._random.choice((("DOT", "Polkadot"), ("USDT", "On-Chain Defi")))
        amount = self._books.share(FUNDING, ccy, 120, MICRO)
        if not amount:
            return
        at = self._books.moment("funding", at)
        weeks = self._random.randrange(1, 9)
        each = cut_to(amount * self._random.randrange(5, 40) // 10_000, NANO8)
        earnings = tuple((at + week * 7 * DAY_MS, each) for week in range(1, weeks + 1))
        order = StakeOrder(
            at, self._books.state.number("stake"), ccy, amount, protocol,
            UNIT * self._random.randrange(20, 200) // 1_000, earnings,
            at + (weeks * 7 + 2) * DAY_MS,
        )  # fmt: skip
        self._books.keep("stakes", order)
        self._subscribe(at, ccy, amount, 80, STAKING)
        for time, paid in earnings:
            self._books.state.later(time, "stake earnings", ccy, paid)
        self._books.state.later(order.redeemed, "stake end", ccy, amount)

    def pay_stake(self, at: int, ccy: str, amount: int) -> None:
        """Pay the yield of a stake."""
        if amount:
            self._books.done("staking earnings", "", self._books.fund(at, ccy, amount, 83))

    def redeem_stake(self, at: int, ccy: str, amount: int) -> None:
        """Return the principal of a stake."""
        self._redeem(at, ccy, amount, 82, STAKING)

    def stake_liquid(self, at: int, ccy: str) -> None:
        """Stake ETH or SOL for a token that earns, or redeem the token, which takes days."""
        token = {"ETH": "BETH", "SOL": "OKSOL"}[ccy]
        out, swap, back, reward = {"ETH": (137, 138, 138, 139), "SOL": (329, 330, 331, 328)}[ccy]
        held = self._books.held(FUNDING, token)
        if held:
            earned = cut_to(held // 900, NANO8)
            if earned:
                row = self._books.fund(at, token, earned, reward)
                self._books.done("staking earnings", "", row)
        if held and self._random.random() < 0.4:
            amount = self._books.share(FUNDING, token, 800, NANO8)
            done = at + self._random.randrange(24, 200) * HOUR_MS
            row = self._books.fund(at, token, -amount, back)
            pending = self._books.product(row.time, STAKING, ccy, amount)
            self._books.done("liquid redemption", "", row, pending)
            self._keep_liquid(row.time, ccy, amount, False, done)
            self._books.state.later(done, "liquid stake end", ccy, amount)
            return
        amount = self._books.share(FUNDING, ccy, 200, NANO8)
        if amount:
            rows = (self._books.fund(at, ccy, -amount, out),
                    self._books.fund(at, token, amount, swap))  # fmt: skip
            self._keep_liquid(rows[0].time, ccy, amount, True, rows[0].time)
            self._books.done("liquid stake", "", *rows)

    def _keep_liquid(self, at: int, ccy: str, amount: int, purchase: bool, done: int) -> None:
        number = self._books.state.number("liquid stake")
        self._books.keep("liquid", LiquidStake(at, number, ccy, amount, purchase, done))

    def settle_liquid(self, at: int, ccy: str, amount: int) -> None:
        """Redeem a staking token: return its coins."""
        self._redeem(at, ccy, amount, 138 if ccy == "ETH" else 332, STAKING)

    def fix_savings(self, at: int) -> None:
        """Save for some days at a fixed rate."""
        amount = self._books.share(FUNDING, "USDT", 80, UNIT)
        if amount:
            self._subscribe(at, "USDT", amount, 339, FIXED)
            days = self._random.choice((7, 30))
            self._books.state.later(at + days * DAY_MS, "fixed savings end", amount)

    def end_fixed(self, at: int, amount: int) -> None:
        """Return fixed savings and their interest, in two bills of one time."""
        at = self._books.moment("funding", at)
        self._redeem(at, "USDT", amount, 342, FIXED)
        interest = self._books.fund(at, "USDT", cut_to(amount // 400, NANO8), 343)
        self._books.done("fixed earnings", "", interest)

    def subscribe_okusd(self, at: int) -> None:
        """Exchange dollars for OKUSD, which earns."""
        amount = self._books.share(FUNDING, "USDT", 60, UNIT)
        if amount:
            rows = (self._books.fund(at, "USDT", -amount, 509),
                    self._books.fund(at, "OKUSD", amount, 509))  # fmt: skip
            self._books.done("OKUSD subscription", "", *rows)
            self._books.state.later(at + 5 * DAY_MS, "OKUSD end", amount)

    def redeem_okusd(self, at: int, amount: int) -> None:
        """Pay the yield of OKUSD, and exchange it back."""
        paid = self._books.fund(at, "OKUSD", cut_to(amount // 900, NANO8), 516)
        self._books.done("OKUSD earnings", "", paid)
        rows = (self._books.fund(at, "OKUSD", -amount, 511),
                self._books.fund(at, "USDT", amount, 511))  # fmt: skip
        self._books.done("OKUSD redemption", "", *rows)

    def invest(self, at: int) -> None:
        """Subscribe to a dual investment."""
        amount = self._books.share(FUNDING, "BTC", 40, NANO8)
        if amount:
            self._subscribe(at, "BTC", amount, 160, STRUCTURED)
            days = self._random.randrange(1, 9)
            self._books.state.later(at + days * DAY_MS, "dual investment end", amount)

    def collect_investment(self, at: int, amount: int) -> None:
        """End a dual investment: in its own coin, or in the other one."""
        at = self._books.moment("funding", at)
        if self._random.random() < 0.5:
            self._redeem(at, "BTC", amount, 161, STRUCTURED)
            gain = self._books.fund(at, "BTC", cut_to(amount // 200, NANO8), 162)
            self._books.done("structured earnings", "", gain)
            return
        price = PAIRS["BTC-USDT"].price_at(at, self._random)
        dollars = self._books.fund(at, "USDT", cut_to(times(amount, price), NANO8), 161)
        gone = self._books.product(at, STRUCTURED, "BTC", -amount)
        self._books.done("structured conversion", "", dollars, gone)

    def order_structured(self, at: int) -> None:
        """Order a structured product from the trading account."""
        amount = self._books.share(TRADING, "USDT", 10, UNIT)
        if amount:
            row = self._books.bill(at, "USDT", -amount, "26", "297", size=-amount)
            held = self._books.product(row.time, STRUCTURED, "USDT", amount)
            self._books.done("structured subscription", "", row, held)
            self._books.state.later(at + 3 * DAY_MS, "structured settlement", amount)

    def settle_structured(self, at: int, amount: int) -> None:
        """Settle a structured product, with its gain."""
        back = amount + cut_to(amount // 300, NANO8)
        row = self._books.bill(at, "USDT", back, "26", "298", size=back)
        held = self._books.product(row.time, STRUCTURED, "USDT", -amount)
        self._books.done("structured settlement", "", row, held)

    # Loans ----------------------------------------------------------------------------------

    def take_loan(self, at: int) -> None:
        """Lock coins as collateral, and borrow dollars."""
        collateral = self._books.share(FUNDING, "BTC", 60, NANO8)
        borrowed = cut_to(times(collateral, PAIRS["BTC-USDT"].price) // 2, UNIT)
        if not borrowed:
            return
        rows = (self._books.fund(at, "BTC", -collateral, 212),
                self._books.fund(at + 900, "USDT", borrowed, 217))  # fmt: skip
        locked = self._books.product(rows[0].time, LOANS, "BTC", collateral)
        self._books.done("loan", "", *rows, locked)
        self._keep_loan(rows[0].time, "BTC", -collateral, "collateral_locked")
        self._keep_loan(rows[1].time, "USDT", borrowed, "borrowed")
        days = self._random.randrange(1, 40)
        self._books.state.later(at + days * DAY_MS, "loan end", collateral, borrowed)

    def repay_loan(self, at: int, collateral: int, borrowed: int) -> None:
        """Repay a loan with its interest, which releases the collateral."""
        due = borrowed + cut_to(borrowed // 500, NANO8)
        if self._books.held(FUNDING, "USDT") < due:
            self._books.state.later(at + DAY_MS, "loan end", collateral, borrowed)
            return
        rows = (self._books.fund(at, "USDT", -due, 218),
                self._books.fund(at + 900, "BTC", collateral, 215))  # fmt: skip
        locked = self._books.product(rows[1].time, LOANS, "BTC", -collateral)
        self._books.done("loan repayment", "", *rows, locked)
        self._keep_loan(rows[0].time, "USDT", -due, "repaid")
        self._keep_loan(rows[1].time, "BTC", collateral, "collateral_released")

    def _keep_loan(self, at: int, ccy: str, amount: int, step: str) -> None:
        self._books.keep("loans", LoanStep(at, self._books.state.number("loan"), ccy, amount, step))

    # Others ---------------------------------------------------------------------------------

    def buy(self, at: int) -> None:
        """Buy coins with a card; no list shows the price paid."""
        amount = self._random.randrange(1, 90) * UNIT // 1_000
        self._books.done("purchase", "", self._books.fund(at, "BTC", amount, 200))

    def sell_to_peer(self, at: int) -> None:
        """Sell dollars to a peer for outside money; sometimes the sale is cancelled."""
        amount = self._books.share(FUNDING, "USDT", 30, UNIT)
        if amount:
            row = self._books.fund(at, "USDT", -amount, 116)
            self._books.done("peer to peer", "", row)
            if self._random.random() < 0.4:
                self._books.state.later(at + HOUR_MS, "peer to peer cancelled", amount)

    def cancel_peer(self, at: int, amount: int) -> None:
        """Return the dollars of a cancelled sale."""
        self._books.done("peer to peer", "", self._books.fund(at, "USDT", amount, 118))

    def gain(self, at: int) -> None:
        """Receive a reward."""
        entry = self._random.choice(GAINS)
        ccy = self._random.choice(entry.ccys)
        if at >= LATE.get(ccy, 0):
            amount = cut_to(entry.size * self._random.randrange(50, 900) // 100, NANO8)
            row = self._books.fund(at, ccy, amount, entry.type, notes=entry.notes)
            self._books.done("reward", "", row)

    def charge(self, at: int) -> None:
        """Give away or lose an amount."""
        entry = self._random.choice(CHARGES)
        ccy = self._random.choice(entry.ccys)
        amount = cut_to(entry.size * self._random.randrange(50, 900) // 100, NANO8)
        if self._books.held(FUNDING, ccy) >= amount:
            row = self._books.fund(at, ccy, -amount, entry.type, notes=entry.notes)
            self._books.done("charge", "", row)

    def delist(self, at: int) -> None:
        """Remove a currency from both accounts."""
        amount = self._books.held(FUNDING, "LUNC")
        if amount:
            self._books.done("delisting", "LUNC", self._books.fund(at, "LUNC", -amount, 220))

    def keep_in_custody(self, at: int) -> None:
        """Move coins to a custodian or back; lists show only the requested custodian."""
        amount, back = self._books.share(FUNDING, "BTC", 10, NANO8), self._random.random() < 0.5
        if amount:
            row = self._books.fund(
                at, "BTC", amount if back else -amount, 287 if back else 286,
                custodian=self._random.choice((1, 2, 5)),
            )  # fmt: skip
            self._books.done("custody", "", row)
