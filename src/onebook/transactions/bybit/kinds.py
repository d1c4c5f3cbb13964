"""Maps Bybit's ledger types to our kinds.


- the unified wallet's: https://bybit-exchange.github.io/docs/v5/enum#typeuta-translog
- the funding wallet's has no enumeration, only English; recorded rows say which words there are

New types appear every month: the first beginning that fits decides, and what fits none is `other`.
"""

from typing import Final

Kind = tuple[str, str]  # kind and label

LEDGER_KINDS: Final[dict[str, Kind]] = {
    "TRANSFER_IN": ("transfer", "Transfer"),
    "TRANSFER_OUT": ("transfer", "Transfer"),
    "TRADE": ("trade", "Trade"),
    "SETTLEMENT": ("funding", "Funding"),
    "DELIVERY": ("delivery", "Delivery"),
    "LIQUIDATION": ("liquidation", "Liquidation"),
    "ADL": ("adl", "Auto-Deleveraging"),
    "AIRDROP": ("bonus", "Airdrop"),
    "TWAP_BUDGET_AIRDROP": ("bonus", "Airdrop"),
    "TWAP_BUDGET_RECALL": ("bonus", "Bonus"),
    "FEE_REFUND": ("fee_refund", "Fee Refund"),
    "SPREAD_FEE_OUT": ("fee", "Fee"),
    "BROKER_ABACCOUNT_FEE": ("fee", "Fee"),
    "CUSTODY_NETWORK_FEE": ("fee", "Fee"),
    "CUSTODY_SETTLE_FEE": ("fee", "Fee"),
    "INTEREST": ("interest", "Interest"),
    "BORROW": ("borrow", "Borrow"),
    "REPAY": ("repay", "Repay"),
    "FLOATING_TO_FIXED_BORROW": ("borrow", "Borrow"),
    "FLOATING_TO_FIXED_REPAY": ("repay", "Repay"),
    "TOKENS_SUBSCRIPTION": ("leverage_token", "Buy"),
    "TOKENS_REDEMPTION": ("leverage_token", "Sell"),
    "AUTO_DEDUCTION": ("adjustment", "Adjustment"),
    "ALPHA_SMALL_TOKEN_REFUND": ("adjustment", "Adjustment"),
}
LEDGER_PREFIXES: Final[tuple[tuple[str, Kind], ...]] = (
    ("BONUS", ("bonus", "Bonus")),
    ("CURRENCY_", ("convert", "Convert")),
    ("CONVERT", ("convert", "Convert")),
    ("IDN_CONVERT", ("convert", "Convert")),
    ("SPOT_REPAYMENT", ("repay", "Repay")),
    ("MANUAL_BORROW", ("borrow", "Borrow")),
    ("MANUAL_REPAY", ("repay", "Repay")),
    ("FLEXIBLE_STAKING", ("earn", "Other")),
    ("FIXED_STAKING", ("earn", "Other")),
    ("ONCHAINEARN", ("earn", "Other")),
    ("EARNING", ("earn", "Other")),
    ("LIQUIDITY_MINING", ("earn", "Other")),
    ("STRUCTURE_PRODUCT", ("earn", "Other")),
    ("DEFI_INVESTMENT", ("earn", "Other")),
    ("CLASSIC_WEALTH_MANAGEMENT", ("earn", "Other")),
    ("PREMIMUM_WEALTH_MANAGEMENT", ("earn", "Other")),  # so Bybit spells it
    ("PWM", ("earn", "Other")),
    ("PEF", ("earn", "Other")),  # a private fund: money in and out, and a share of its profit
    ("LOANS", ("loan", "Other")),
    ("INSTITUTION", ("loan", "Other")),
    ("PREMARKET", ("premarket", "Other")),
    ("CUSTODY", ("custody", "Other")),
    ("DBS_CASH", ("custody", "Other")),
    ("PLATFORM_TOKEN_MNT", ("adjustment", "Adjustment")),
)
INSTITUTION_LOAN: Final = "_INS_LOAN"
UNKNOWN_KIND: Final[Kind] = ("other", "Other")

# The funding wallet's English words, by what they begin with.
FUNDING_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("deposit", ("deposit", "Deposit")),
    ("withdraw", ("withdrawal", "Withdrawal")),
    ("transfer", ("transfer", "Transfer")),
    ("convert", ("convert", "Convert")),
    ("airdrop", ("bonus", "Airdrop")),
    ("bonus", ("bonus", "Bonus")),
    ("reward", ("bonus", "Bonus")),
    ("earn", ("earn", "Other")),
    ("fiat", ("fiat", "Other")),
    ("loan", ("loan", "Other")),
    ("crypto loan", ("loan", "Other")),
)
REWARD_WORDS: Final = ("interest", "reward", "yield", "distribution")

# What has records of its own: in the lists of transfers, deposits, withdrawals, leverage tokens ...
COVERED_MOVES: Final = frozenset({"transfer", "deposit", "withdrawal", "leverage_token"})
# ... and, of spot and futures, among fills, closed positions, deliveries and sessions.
COVERED_EVENTS: Final = frozenset(
    {"trade", "funding", "settlement", "delivery", "liquidation", "adl"}
)


def ledger_kind(native: str) -> Kind:
    """Our kind and label of a ledger type."""
    found = LEDGER_KINDS.get(native)
    if found is not None:
        return found
    if native.endswith(INSTITUTION_LOAN):
        return "loan", "Other"
    return next((k for prefix, k in LEDGER_PREFIXES if native.startswith(prefix)), UNKNOWN_KIND)


def funding_kind(words: str, desc: str, *, incoming: bool) -> Kind:
    """Our kind and label of a funding wallet line, from Bybit's English."""
    lower = words.lower()
    kind, label = next((k for start, k in FUNDING_KINDS if lower.startswith(start)), UNKNOWN_KIND)
    if kind == "earn" and incoming and any(word in desc.lower() for word in REWARD_WORDS):
        label = "Staking Reward"
    return kind, label
