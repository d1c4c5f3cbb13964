"""Kraken's types of ledger rows, and their meanings; pure.

- Types of the ledger: https://docs.kraken.com/api-reference/account-data/get-ledgers-info
- Their meaning: https://support.kraken.com/hc/en-us/articles/360001169383

The documentation lists types without their subtypes; the subtypes here are from recorded ledgers.
The sign of the amount can decide the meaning: a transfer without a subtype is an airdrop or the
removal of a delisted coin. An unknown type becomes kind `other` and is counted.
"""

from functools import lru_cache
from typing import Final

from onebook.transactions.mapping import Meaning

WORDS_MAX: Final = 4_096  # distinct ledger words with a cached meaning

DEPOSITS, WITHDRAWALS, TRADES = "deposits", "withdrawals", "trades"
CONVERSIONS, MARGIN, FUTURES = "conversions", "margin", "futures"
TRANSFERS, EARN, FEES, OTHERS = "transfers", "earn", "fees", "other"
HOLDINGS, LEDGER = "holdings", "ledger"

# The unified names of our types, where there is one.
UNIFIED: Final = {
    DEPOSITS: "deposits",
    WITHDRAWALS: "withdrawals",
    TRADES: "trades",
    MARGIN: "derivatives",
    FUTURES: "futures",
    TRANSFERS: "transfers",
    HOLDINGS: "balances",
}


TITLES: Final = {
    DEPOSITS: "Kraken Deposit",
    WITHDRAWALS: "Kraken Withdrawal",
    TRADES: "Kraken Trade",
    CONVERSIONS: "Kraken Conversion",
    MARGIN: "Kraken Margin",
    FUTURES: "Kraken Futures",
    TRANSFERS: "Kraken Transfer",
    EARN: "Kraken Earn",
    FEES: "Kraken Fee",
    HOLDINGS: "Kraken Balance",
    LEDGER: "Kraken Ledger Entry",
}


DEPOSIT: Final = Meaning(DEPOSITS, "deposit", "Deposit", "network")
WITHDRAWAL: Final = Meaning(WITHDRAWALS, "withdrawal", "Withdrawal", "network")
TRADE: Final = Meaning(TRADES, "trade", "Trade")
CONVERSION: Final = Meaning(CONVERSIONS, "convert", "Convert")
TRANSFER: Final = Meaning(TRANSFERS, "transfer", "Transfer", "transfer")
REWARD: Final = Meaning(EARN, "earn", "Staking Reward", "commission")
EARNED: Final = Meaning(EARN, "earn", "Other", "commission")
AIRDROP: Final = Meaning(EARN, "bonus", "Airdrop", "commission")
BONUS: Final = Meaning(EARN, "bonus", "Bonus", "commission")
DIVIDEND: Final = Meaning(EARN, "bonus", "Dividend", "tax")
ADJUSTMENT: Final = Meaning(OTHERS, "adjustment", "Adjustment")
UNKNOWN: Final = Meaning(OTHERS, "other", "Other")
REALISED: Final = Meaning(MARGIN, "closed_pnl", "Realised PnL")
OPENED: Final = Meaning(MARGIN, "trade", "Trade")

# The meanings of a type if the amount is positive, and if it is negative.
Signed = tuple[Meaning, Meaning]
GIFT: Final[Signed] = (AIRDROP, ADJUSTMENT)  # credited, or removed

TYPES: Final[dict[str, Meaning | Signed]] = {
    "trade": TRADE,
    "spend": CONVERSION,
    "receive": CONVERSION,
    "sale": CONVERSION,
    "conversion": CONVERSION,
    "deposit": DEPOSIT,
    "withdrawal": WITHDRAWAL,
    "adjustment": ADJUSTMENT,
    "margin": REALISED,
    "rollover": Meaning(MARGIN, "interest", "Interest", "interest"),
    "settled": Meaning(MARGIN, "settlement", "Settlement"),
    # Rewards of ETH2.S once ended as rows below zero, when they became ETH.
    "staking": (REWARD, EARNED),
    "reward": BONUS,
    "invite bonus": BONUS,
    "dividend": DIVIDEND,
    "credit": ADJUSTMENT,
    "nfttrade": Meaning(OTHERS, "trade", "Trade"),
    "nftcreatorfee": Meaning(FEES, "fee", "Fee"),
    "nftrebate": Meaning(FEES, "fee_refund", "Fee Refund"),
    "nft_rebate": Meaning(FEES, "fee_refund", "Fee Refund"),
    "custodytransfer": Meaning(TRANSFERS, "custody", "Transfer", "transfer"),
}
SUBTYPES: Final[dict[tuple[str, str], Meaning | Signed]] = {
    ("transfer", ""): GIFT,
    ("transfer", "airdrop"): GIFT,
    ("transfer", "delistingconversion"): GIFT,
    ("transfer", "spottostaking"): TRANSFER,
    ("transfer", "stakingfromspot"): TRANSFER,
    ("transfer", "stakingtospot"): TRANSFER,
    ("transfer", "spotfromstaking"): TRANSFER,
    ("transfer", "spottofutures"): TRANSFER,
    ("transfer", "spotfromfutures"): TRANSFER,
    ("transfer", "spottospot"): TRANSFER,
    ("transfer", "spotfromspot"): TRANSFER,
    ("earn", ""): (REWARD, EARNED),
    ("earn", "reward"): (REWARD, EARNED),
    ("earn", "airdrop"): GIFT,
    ("earn", "delistingconversion"): GIFT,
    ("earn", "allocation"): TRANSFER,
    ("earn", "deallocation"): TRANSFER,
    ("earn", "autoallocation"): TRANSFER,
    ("earn", "autoallocate"): TRANSFER,
    ("earn", "migration"): TRANSFER,
}
# The wallets on both sides of a transfer whose other row, if any, has another refid.
ROUTES: Final = {
    "spottostaking": ("SPOT", "STAKING"),
    "stakingfromspot": ("SPOT", "STAKING"),
    "stakingtospot": ("STAKING", "SPOT"),
    "spotfromstaking": ("STAKING", "SPOT"),
    "spottofutures": ("SPOT", "FUTURES"),
    "spotfromfutures": ("FUTURES", "SPOT"),
}


@lru_cache(maxsize=WORDS_MAX)
def meaning_of(kind: str, subtype: str, incoming: bool) -> Meaning:
    """The meaning of a ledger row, by its type, its subtype and the sign of its amount."""
    found = SUBTYPES.get((kind, subtype)) or TYPES.get(kind, UNKNOWN)
    return found if isinstance(found, Meaning) else found[not incoming]
