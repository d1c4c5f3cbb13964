"""OKX's codes of bills, and their meanings; pure.

- Trading account: `type` and `subType` of https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-last-3-months
- Funding account: `type` of https://www.okx.com/docs-v5/en/#funding-account-rest-api-asset-bills-details

The code states the kind of event, and the sign of the change its direction, so one code can mean
two events. OKX adds codes every month; an unknown one is kind `other`, and is counted.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from onebook.transactions.mapping import Meaning

DEPOSITS, WITHDRAWALS, TRADES = "deposits", "withdrawals", "trades"
CONVERSIONS, FIAT, FUTURES = "conversions", "fiat", "futures"
TRANSFERS, EARN, LOANS, FEES = "transfers", "earn", "loans", "fees"
OTHERS, HOLDINGS, LEDGER = "other", "holdings", "ledger"

CODES_MAX: Final = 4_096  # of bills, whose meaning is kept

# The unified names of our types, where there is one.
UNIFIED: Final = {
    DEPOSITS: "deposits",
    WITHDRAWALS: "withdrawals",
    TRADES: "trades",
    FUTURES: "futures",
    TRANSFERS: "transfers",
    HOLDINGS: "balances",
}
TITLES: Final = {
    DEPOSITS: "OKX Deposit",
    WITHDRAWALS: "OKX Withdrawal",
    TRADES: "OKX Trade",
    CONVERSIONS: "OKX Conversion",
    FIAT: "OKX Fiat",
    FUTURES: "OKX Futures",
    TRANSFERS: "OKX Transfer",
    EARN: "OKX Earn",
    LOANS: "OKX Loan",
    FEES: "OKX Fee",
    HOLDINGS: "OKX Balance",
    LEDGER: "OKX Ledger Entry",
}


Codes = Iterable[int]
# The meanings of a code if the change is positive, and if it is negative.
Signed = tuple[Meaning, Meaning]

DEPOSIT: Final = Meaning(DEPOSITS, "deposit", "Deposit", "network")
WITHDRAWAL: Final = Meaning(WITHDRAWALS, "withdrawal", "Withdrawal", "network")
TRADE: Final = Meaning(TRADES, "trade", "Trade")
CONVERSION: Final = Meaning(CONVERSIONS, "convert", "Convert")
TRANSFER: Final = Meaning(TRANSFERS, "transfer", "Transfer", "transfer")
CUSTODY: Final = Meaning(TRANSFERS, "custody", "Transfer", "transfer")
BOUGHT: Final = Meaning(FIAT, "fiat", "Fiat")
REWARD: Final = Meaning(EARN, "earn", "Staking Reward", "commission")
EARNED: Final = Meaning(EARN, "earn", "Other", "commission")
AIRDROP: Final = Meaning(EARN, "bonus", "Airdrop", "commission")
BONUS: Final = Meaning(EARN, "bonus", "Bonus", "commission")
INTEREST: Final = Meaning(LOANS, "interest", "Interest", "interest")
BORROWED: Final = Meaning(LOANS, "borrow", "Borrow")
REPAID: Final = Meaning(LOANS, "repay", "Repay")
LOAN: Final = Meaning(LOANS, "loan", "Loan")
FEE: Final = Meaning(FEES, "fee", "Fee")
REFUND: Final = Meaning(FEES, "fee_refund", "Fee Refund")
ADJUSTMENT: Final = Meaning(OTHERS, "adjustment", "Adjustment")
UNKNOWN: Final = Meaning(OTHERS, "other", "Other")

CONTRACT: Final = Meaning(FUTURES, "trade", "Trade")
LIQUIDATION: Final = Meaning(FUTURES, "liquidation", "Liquidation")
DELEVERAGED: Final = Meaning(FUTURES, "adl", "Auto-Deleveraging")
DELIVERY: Final = Meaning(FUTURES, "delivery", "Delivery")
SETTLEMENT: Final = Meaning(FUTURES, "settlement", "Settlement")
FUNDING: Final = Meaning(FUTURES, "funding", "Funding")
CLAWBACK: Final = Meaning(FUTURES, "adjustment", "Adjustment")

GIFT: Final[Signed] = (BONUS, ADJUSTMENT)
DROPPED: Final[Signed] = (AIRDROP, ADJUSTMENT)
YIELD: Final[Signed] = (REWARD, EARNED)  # a negative yield is taken back
LENT: Final[Signed] = (REWARD, INTEREST)  # received by lenders, paid by borrowers
SHARED: Final[Signed] = (BONUS, FEE)  # a share of a trader's profit
REBATE: Final[Signed] = (REFUND, FEE)

# The trading account -----------------------------------------------------------------------------

TRADING_TYPES: Final[dict[str, Meaning | Signed]] = {
    "1": TRANSFER,
    "2": CONTRACT,
    "3": DELIVERY,
    "4": REPAID,  # forced
    "5": LIQUIDATION,
    "6": TRANSFER,  # margin of an isolated position
    "7": INTEREST,
    "8": FUNDING,
    "9": DELEVERAGED,
    "10": CLAWBACK,
    "11": CONVERSION,
    "12": CUSTODY,  # strategies and bots
    "13": CONTRACT,  # OKX's delta hedges (DDH)
    "14": CONTRACT,  # block trades
    "15": (BORROWED, REPAID),  # quick margin
    "16": BORROWED,
    "18": SHARED,
    "22": REPAID,
    "24": CONTRACT,  # spreads
    "26": EARNED,  # structured products
    "27": CONVERSION,
    "28": CONVERSION,  # small balances
    "29": Meaning(LOANS, "repay", "Repay"),  # by converting another coin
    "30": CONTRACT,  # simple trade
    "32": CONTRACT,  # a position moved between accounts
    "33": LOAN,
    "34": SETTLEMENT,
    "250": SHARED,
    "251": SHARED,
}
TRADING_SUBTYPES: Final[dict[str, Meaning | Signed]] = {
    "9": INTEREST,
    "14": INTEREST,
    "108": CLAWBACK,
    "109": Meaning(FUTURES, "fee", "Fee"),  # of a liquidation
    "117": CLAWBACK,
    "118": CONVERSION,
    "119": CONVERSION,
    "170": DELIVERY,
    "171": DELIVERY,
    "172": DELIVERY,
    "173": FUNDING,
    "174": FUNDING,
    "210": BORROWED,
    "211": REPAID,
    "212": BORROWED,
    "213": REPAID,
    "250": SHARED,
    "251": REBATE,
    "252": SHARED,
    "284": CUSTODY,
    "285": CUSTODY,
    "286": CUSTODY,
    "287": CUSTODY,
    "290": CONVERSION,
    "293": INTEREST,
    "294": INTEREST,
    "295": INTEREST,
    "355": SETTLEMENT,
    "376": CONVERSION,
    "377": CONVERSION,
    "379": CONVERSION,
    "380": CONVERSION,
    "381": YIELD,  # coins that are lent by themselves
}
# The type of each subtype; exports contain only the subtype.
_SUBTYPES_OF: Final[dict[str, Iterable[int]]] = {
    "1": (11, 12, 290),
    "2": range(1, 7),
    "3": (112, 113, 170, 171, 172),
    "4": (16, 17, 114, 115),
    "5": (*range(100, 108), 109, 110, 111),
    "6": (160, 161, 162),
    "7": (9, 14, 293),
    "8": (173, 174),
    "9": range(125, 129),
    "10": (108, 117),
    "11": (118, 119),
    "12": range(200, 204),
    "13": (131, 132),
    "14": range(204, 210),
    "15": range(210, 214),
    "16": (306, 307),
    "18": (280, 281, 282),
    "22": (308, 309, 312),
    "24": range(270, 276),
    "26": range(296, 300),
    "27": (318, 319),
    "28": (236, 237),
    "29": (224, 225),
    "30": (320, 321),
    "32": (324, 325, 326, 327, 328, 329),
    "33": (303,),
    "34": (355,),
    "250": (250,),
    "251": (251,),
    "381": (381,),
}
SUBTYPES: Final = {str(code): kind for kind, codes in _SUBTYPES_OF.items() for code in codes}
# Subtypes whose type is undocumented: their meaning follows from the subtype alone.
STANDALONE: Final = frozenset(
    {"250", "251", "252", "284", "285", "286", "287", "290", "293", "294", "295", "355"}
    | {"376", "377", "379", "380", "381"}
)
# The meaning of a fill on a spot market, by the meaning for a contract.
OF_SPOT: Final = {
    CONTRACT: TRADE,
    LIQUIDATION: Meaning(TRADES, "liquidation", "Liquidation"),
    DELEVERAGED: Meaning(TRADES, "adl", "Auto-Deleveraging"),
}
SPOT_KINDS: Final = frozenset({"SPOT", "MARGIN"})
CONTRACT_KINDS: Final = frozenset({"SWAP", "FUTURES", "OPTION"})
FILLS: Final = frozenset({"2", "5", "9", "13", "14", "24", "30", "32"})  # types of fills
EXCHANGED: Final = frozenset({"4", "11", "27", "28", "29"})  # types of which two coins move
BUYS: Final = frozenset({"1", "3", "6", "320"})
SELLS: Final = frozenset({"2", "4", "5", "321"})
CLOSES: Final = frozenset({"5", "6"})

# The funding account -----------------------------------------------------------------------------


def _each(meaning: "Meaning | Signed", codes: Iterable[int]) -> "dict[str, Meaning | Signed]":
    return {str(code): meaning for code in codes}


FROM_TRADING, TO_TRADING = "130", "131"
DEPOSITED, WITHDRAWN, RETURNED, CHARGED, RECHARGED = "1", "2", "13", "221", "222"
FUNDING_CONVERTS: Final = frozenset({"61", "135", "136", "187", "188", "272", "273"})
FUNDING_TYPES: Final[dict[str, Meaning | Signed]] = {
    **_each(DEPOSIT, (1,)),
    **_each(WITHDRAWAL, (2, 13)),
    **_each(Meaning(FEES, "fee", "Fee", "network"), (221,)),  # of a withdrawal
    **_each(Meaning(FEES, "fee_refund", "Fee Refund", "network"), (222,)),
    # Between accounts of one owner, and the wallets of before 2021.
    **_each(TRANSFER, (18, 19, 20, 21, 22, 23, 33, 34, 37, 38, 55, 56, 59, 60, 62, 63)),
    **_each(TRANSFER, (130, 131, 361, 372, 373, 476, 477)),
    **_each(CUSTODY, (264, *range(284, 290), 303)),
    **_each(CONVERSION, (int(code) for code in FUNDING_CONVERTS)),
    **_each(BOUGHT, (116, 117, 118, 119, 120, 121, 122, 123, 193, 200)),
    # Funds in products, and their yield.
    **_each(EARNED, (75, 76, 78, 79, 80, 81, 82, 90, 91, 124, 127, 128, 129, 137, 138)),
    **_each(EARNED, (160, 161, 162, 163, 202, 203, 204, 205, 207, 208, 209, 210, 211)),
    **_each(EARNED, (225, 226, 227, 228, *range(240, 244), *range(249, 253), 270)),
    **_each(EARNED, (304, 305, 306, 329, 330, 331, 332, 339, 340, 341, 342, 348, 349, 509, 511)),
    **_each(EARNED, range(92, 116)),  # lending of before 2021
    **_each(YIELD, (83, 85, 86, 87, 89, 126, 139, 232, 307, 308, 309, 328, 343, 344, 350)),
    **_each(YIELD, (408, 516)),
    **_each(LENT, (400,)),
    **_each(DROPPED, (28, 77, 181, 229)),
    **_each(GIFT, (48, 49, 50, 51, 52, 53, 54, 72, 73, 74, 88, 125, 169, 174, 182, 183, 184)),
    **_each(GIFT, (185, 186, 189, 271, 299, 313, 314, 315, 333, 354)),
    **_each(GIFT, (150, 151, 152, 153, 154, 155, 156, 157, 172, 233)),
    **_each(REBATE, (41, 42, 68, 69, 173, 300)),
    **_each(FEE, (84,)),
    **_each(SHARED, (223, 224, 263, 265, 266)),
    **_each(LOAN, (175, 177, 178, 180, 212, 213, 214, 215, 216, 219, 336, 338)),
    **_each((BORROWED, REPAID), (176, 179, 217, 218, 345, 351)),
    **_each(INTEREST, (346,)),
    **_each(Meaning(LOANS, "fee", "Fee"), (347,)),
    **_each(ADJUSTMENT, (47, 132, 133, 134, 143, 144, 145, 146, 147)),
    **_each(ADJUSTMENT, (195, 196, 197, 198, 199, 220, 230)),
    **_each(CONVERSION, (311,)),  # small balances, from the trading account
}
# The other side of a transfer, where the code shows it.
OUTSIDE: Final = {
    "20": "SUB_ACCOUNT", "21": "SUB_ACCOUNT", "22": "MAIN_ACCOUNT", "23": "MAIN_ACCOUNT",
    "130": "TRADING", "131": "TRADING", "361": "SUB_ACCOUNT",
    "476": "CLOUD_EXCHANGE", "477": "CLOUD_EXCHANGE",
}  # fmt: skip


@lru_cache(maxsize=CODES_MAX)
def trading_meaning(kind: str, subtype: str, inst_type: str, incoming: bool) -> Meaning:
    """The meaning of a bill of the trading account."""
    if kind in TRADING_TYPES or subtype in STANDALONE:
        found = TRADING_SUBTYPES.get(subtype) or TRADING_TYPES.get(kind, UNKNOWN)
    else:
        found = UNKNOWN
    meaning = found if isinstance(found, Meaning) else found[not incoming]
    if inst_type not in CONTRACT_KINDS:
        return OF_SPOT.get(meaning, meaning)
    return meaning


def funding_meaning(kind: str, incoming: bool) -> Meaning:
    """The meaning of a bill of the funding account."""
    found = FUNDING_TYPES.get(kind, UNKNOWN)
    return found if isinstance(found, Meaning) else found[not incoming]
