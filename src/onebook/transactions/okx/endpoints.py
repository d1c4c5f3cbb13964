"""Facts of OKX: its types, sources and permissions, and how it books events.

- Trading bills: https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-last-7-days
- Trading bills of three months: https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-last-3-months
- Funding bills: https://www.okx.com/docs-v5/en/#funding-account-rest-api-asset-bills-details
- Fills: https://www.okx.com/docs-v5/en/#order-book-trading-trade-get-transaction-details-last-3-months

There are two accounts, each with a ledger back to 2021-02-01. A list has three months of trading
bills; older ones are in quarterly files, which OKX makes on request (`exports`).
"""

from typing import Final

from msgspec.structs import replace

from onebook.model import DAY_MS
from onebook.transactions.adapter import (
    HOST_FIELD,
    KEY_FIELD,
    PASSPHRASE_FIELD,
    SECRET_FIELD,
    AdapterEntry,
    Bookkeeping,
    CheckId,
    Environment,
    EventType,
    Source,
    Unproven,
)
from onebook.transactions.okx.events import JOIN_MS
from onebook.transactions.okx.instruments import DATED, OPTION, SPOT, SWAP
from onebook.transactions.okx.matching import DEPOSIT_LIST, WITHDRAWAL_LIST
from onebook.transactions.okx.rows import FUNDING, TRADING
from onebook.transactions.okx.words import (
    CONVERSIONS,
    DEPOSITS,
    EARN,
    FEES,
    FIAT,
    FUTURES,
    HOLDINGS,
    LEDGER,
    LOANS,
    OTHERS,
    TRADES,
    TRANSFERS,
    WITHDRAWALS,
)

BEGAN_MS: Final = 1_483_228_800_000  # 2017-01-01: OKX opened, as OKEx
BILLS_BEGIN_MS: Final = 1_612_137_600_000  # 2021-02-01: funding bills go back no further
LIFE_MS: Final = 100 * 365 * DAY_MS
RECENT_MS: Final = 7 * DAY_MS  # of trading bills, in the faster list
# "Three months" are at least 89 days; claiming more could silently miss a day.
ARCHIVE_MS: Final = 89 * DAY_MS
FUNDING_RECENT_MS: Final = 28 * DAY_MS  # "one month", of the faster list
LAG_MS: Final = 1_000  # bills are ordered by id; their times can be some milliseconds lower
PAGE_ROWS: Final = 100

TYPES: Final = (
    HOLDINGS,
    DEPOSITS,
    WITHDRAWALS,
    TRADES,
    CONVERSIONS,
    FIAT,
    FUTURES,
    TRANSFERS,
    EARN,
    LOANS,
    FEES,
    OTHERS,
    LEDGER,
)
TRADING_VIEWS: Final = (
    TRADES, CONVERSIONS, FUTURES, TRANSFERS, EARN, LOANS, FEES, OTHERS, LEDGER,
)  # fmt: skip
FUNDING_VIEWS: Final = (
    DEPOSITS, WITHDRAWALS, CONVERSIONS, FIAT, TRANSFERS, EARN, LOANS, FEES, OTHERS, LEDGER,
)  # fmt: skip

# Queries; the reader recognises them by these.
TRADING_BILLS, FUNDING_LEDGER = "trading_bills", "funding_bills"
SPOT_FILLS, CONTRACT_FILLS, CONVERT_LIST = "spot_fills", "contract_fills", "converts"
TRADING_HOLDINGS, FUNDING_HOLDINGS = "trading_holdings", "funding_holdings"
EARN_HOLDINGS = "earn_holdings"
JOINT: Final = "bills"
# The list of fills is read separately for each kind of instrument.
BRANCHES: Final = {
    TRADES: ("SPOT", "MARGIN"),
    FUTURES: ("SWAP", "FUTURES", "OPTION"),
}


def _trading(kind: str) -> Source:
    return Source(
        name=f"{TRADING_BILLS}_{kind}",
        type=kind,
        window_ms=RECENT_MS - DAY_MS,  # the newest window is in the faster list
        lag_ms=LAG_MS,
        begins_ms=BILLS_BEGIN_MS,
        page_rows=PAGE_ROWS,
        walk=TRADING_BILLS,
        join_ms=JOIN_MS,
        joint=JOINT,
    )


def _funding(kind: str) -> Source:
    return Source(
        name=f"{FUNDING_LEDGER}_{kind}",
        type=kind,
        window_ms=LIFE_MS,
        lag_ms=LAG_MS,
        begins_ms=BILLS_BEGIN_MS,
        page_rows=PAGE_ROWS,
        walk=FUNDING_LEDGER,
        join_ms=JOIN_MS,
        joint=JOINT,
    )


def _fills(name: str, kind: str) -> Source:
    """The list of fills adds details to bills, and does not limit their coverage."""
    return Source(
        name=name,
        type=kind,
        window_ms=ARCHIVE_MS,
        lag_ms=LAG_MS,
        begins_ms=BILLS_BEGIN_MS,
        page_rows=PAGE_ROWS,
        join_ms=JOIN_MS,
        joint=JOINT,
        branched=True,
    )


def _listed(name: str, kind: str) -> Source:
    """Rows by time, newest first."""
    return Source(name=name, type=kind, window_ms=LIFE_MS, begins_ms=BEGAN_MS, page_rows=PAGE_ROWS)


_SOURCES: Final = (
    Source(name=TRADING_HOLDINGS, type=HOLDINGS, window_ms=0),
    Source(name=FUNDING_HOLDINGS, type=HOLDINGS, window_ms=0),
    Source(name=EARN_HOLDINGS, type=HOLDINGS, window_ms=0),
    *(_trading(kind) for kind in TRADING_VIEWS),
    *(_funding(kind) for kind in FUNDING_VIEWS),
    _fills(SPOT_FILLS, TRADES),
    _fills(CONTRACT_FILLS, FUTURES),
    replace(
        _listed(CONVERT_LIST, CONVERSIONS),
        lag_ms=LAG_MS,
        begins_ms=BILLS_BEGIN_MS,
        join_ms=JOIN_MS,
        joint=JOINT,
    ),
    _listed(DEPOSIT_LIST, DEPOSITS),
    _listed(WITHDRAWAL_LIST, WITHDRAWALS),
)
SOURCES: Final = {source.name: source for source in _SOURCES}


def _of(*types: str) -> tuple[str, ...]:
    return tuple(name for name, source in SOURCES.items() if source.type in types)


SOURCES_BY_TYPE: Final = {kind: _of(kind) for kind in TYPES} | {
    "spot_trades": _of(TRADES),
    "derivatives": _of(FUTURES),
    "balances": _of(HOLDINGS),
}

_SHORT_LIST: Final = "OKX's list of fills can end before its bills do."
COMPARED: Final = frozenset({CheckId.SPOT_FILLS, CheckId.FUTURES_FILLS})
BOOKKEEPING: Final = Bookkeeping(
    trades=TRADES,
    spot=SPOT,
    contracts={SWAP: FUTURES, DATED: FUTURES, OPTION: FUTURES},
    lines_name_events=True,
    disorder_ms=LAG_MS,
    compared=COMPARED,
    # Bills name the deposit or withdrawal that they belong to, as they name every event.
    without=frozenset({CheckId.ORDERS, CheckId.CLOSED_PNL, CheckId.SETTLEMENTS, CheckId.TRANSFERS})
    | {CheckId.DEPOSITS, CheckId.WITHDRAWALS},
    held=frozenset({TRADING, FUNDING}),
    unproven=(
        (
            EventType.LEDGER,
            Unproven(
                "the types of bills, and which bills form one event",
                "The balance chain proves neither; fills are compared with the list of fills.",
            ),
        ),
        (
            EventType.DEPOSITS,
            Unproven(
                "transactions, networks and addresses of deposits and withdrawals",
                "Only one list contains them; bills are compared by coin, amount and time.",
            ),
        ),
        (
            EventType.DEPOSITS,
            Unproven(
                "orders of banks that are pending, failed or cancelled",
                "They moved nothing; answers contain a deposit from a bank once it has a bill.",
            ),
        ),
        (
            EARN,
            Unproven(
                "earnings of Simple Earn before they are redeemed",
                "OKX lists them for a month, without ids or balances; they are not records.",
            ),
        ),
        (
            EventType.HOLDINGS,
            Unproven("balances in Earn", "Ledgers contain only deposits and redemptions."),
        ),
    ),
    reasons=dict.fromkeys(COMPARED, _SHORT_LIST),
    withheld={
        HOLDINGS: "OKX reports no past balances.",
    },
)

GLOBAL, EEA, US = "global", "eea", "us"
HOSTS: Final = {
    GLOBAL: "https://www.okx.com",
    EEA: "https://eea.okx.com",
    US: "https://us.okx.com",
}

_BANK_ORDERS: Final = (
    "Orders of banks that are pending, failed or cancelled are omitted: they moved nothing, and OKX"
    " has no bill of them."
)
_SAVINGS: Final = (
    "Earnings of Simple Earn before they are redeemed are omitted: OKX lists them for a month,"
    " without ids or balances."
)

ENTRY: Final = AdapterEntry(
    name="okx",
    reference="transactions-okx",
    display="OKX",
    types=TYPES,
    sources_by_type=SOURCES_BY_TYPE,
    advice=(
        "At OKX, under Profile > API, create a key that only Onebook uses, with the permission "
        "Read, not Trade and not Withdraw, bound to the address of this server; it requires a "
        "passphrase. Create a key for demo trading in demo trading."
    ),
    default=(
        DEPOSITS,
        WITHDRAWALS,
        TRADES,
        CONVERSIONS,
        FIAT,
        FUTURES,
        TRANSFERS,
        EARN,
        LOANS,
        FEES,
        OTHERS,
    ),
    hosts={Environment.MAINNET: HOSTS, Environment.DEMO: HOSTS},
    bookkeeping=BOOKKEEPING,
    omitted=dict.fromkeys((DEPOSITS, WITHDRAWALS), _BANK_ORDERS) | {EARN: _SAVINGS},
    singular={
        TRADES: "trade",
        CONVERSIONS: "conversion",
        FUTURES: "future",
        LOANS: "loan",
        FEES: "fee",
    },
    fields=(
        KEY_FIELD,
        SECRET_FIELD,
        PASSPHRASE_FIELD,
        replace(
            HOST_FIELD,
            label="Region (empty: detected)",
            choices=tuple(HOSTS),
        ),
    ),
)
