"""Facts of Kraken: its types, sources, paths and permissions, and how it books events.

- Ledger: https://docs.kraken.com/api-reference/account-data/get-ledgers-info
- Trades: https://docs.kraken.com/api-reference/account-data/get-trades-history
- Deposits: https://docs.kraken.com/api-reference/funding/get-status-of-recent-deposits
- Withdrawals: https://docs.kraken.com/api-reference/funding/get-status-of-recent-withdrawals
- Balances: https://docs.kraken.com/api-reference/account-data/get-extended-balance
- Key: https://docs.kraken.com/api-reference/account-data/get-api-key-info
- Futures log: https://docs.kraken.com/api-reference/account-history/get-account-log
- Futures balances: https://docs.kraken.com/api-reference/account-information/get-wallets

Two ledgers contain every movement: spot and futures, each on its own host with its own key. They
are kept for ever and accept any range, so each is read in a single window: an empty window would
cost six seconds of the rate limit. The other lists only add details.
"""

from typing import Final

from msgspec.structs import replace

from onebook.model import DAY_MS, SECOND_MS
from onebook.transactions.adapter import (
    KEY_FIELD,
    SECRET_FIELD,
    AdapterEntry,
    Bookkeeping,
    CheckId,
    CredentialField,
    Environment,
    EventType,
    Source,
    Unproven,
)
from onebook.transactions.kraken import events, futures
from onebook.transactions.kraken.api import (
    FUTURES_HOST,
    FUTURES_KEY,
    FUTURES_SECRET,
    SPOT_HOST,
)
from onebook.transactions.kraken.words import (
    CONVERSIONS,
    DEPOSITS,
    EARN,
    FEES,
    FUTURES,
    HOLDINGS,
    LEDGER,
    MARGIN,
    OTHERS,
    TRADES,
    TRANSFERS,
    WITHDRAWALS,
)

BEGAN_MS: Final = 1_306_886_400_000  # 2011-06-01; Kraken was founded in July 2011
LIFE_MS: Final = 100 * 365 * DAY_MS

# Paths
LEDGERS: Final = "/0/private/Ledgers"
TRADES_HISTORY: Final = "/0/private/TradesHistory"
DEPOSIT_STATUS: Final = "/0/private/DepositStatus"
WITHDRAW_STATUS: Final = "/0/private/WithdrawStatus"
KEY_INFO: Final = "/0/private/GetApiKeyInfo"
ACCOUNT_LOG: Final = "/api/history/v3/account-log"
FUTURES_ACCOUNTS: Final = "/derivatives/api/v3/accounts"

TYPES: Final = (
    HOLDINGS,
    DEPOSITS,
    WITHDRAWALS,
    TRADES,
    CONVERSIONS,
    MARGIN,
    FUTURES,
    TRANSFERS,
    EARN,
    FEES,
    OTHERS,
    LEDGER,
)
LEDGER_VIEWS: Final = (
    DEPOSITS, WITHDRAWALS, TRADES, CONVERSIONS, MARGIN, TRANSFERS, EARN, FEES, OTHERS, LEDGER,
)  # fmt: skip
LOG_VIEWS: Final = (FUTURES, CONVERSIONS, TRANSFERS, FEES, OTHERS, LEDGER)
# The ledger's own filters; other types have none.
FILTERS: Final = {DEPOSITS: "deposit", WITHDRAWALS: "withdrawal", TRADES: "trade"}

# Queries; the reader recognises them by these.
SPOT_LEDGER, TRADE_LIST, FUTURES_LOG = "ledgers", "trade_list", "account_log"
DEPOSIT_LIST, WITHDRAWAL_LIST = "deposit_list", "withdrawal_list"
SPOT_HOLDINGS, FUTURES_HOLDINGS = "spot_holdings", "futures_holdings"


def _paged(walk: str, kind: str) -> Source:
    """A source paged by offset, fifty rows a page, whose rows are joined with the other list."""
    return Source(
        name=f"{walk}_{kind}",
        type=kind,
        window_ms=LIFE_MS,
        begins_ms=BEGAN_MS,
        grain_ms=SECOND_MS,
        page_rows=50,
        sized=False,
        walk=walk,
        join_ms=events.JOIN_MS,
        joint=SPOT_LEDGER,
    )


def _listed(name: str, kind: str) -> Source:
    return Source(
        name=name,
        type=kind,
        window_ms=LIFE_MS,
        begins_ms=BEGAN_MS,
        grain_ms=SECOND_MS,
        page_rows=500,
        sized=False,
    )


def _logged(kind: str) -> Source:
    return Source(
        name=f"{FUTURES_LOG}_{kind}",
        type=kind,
        window_ms=LIFE_MS,
        begins_ms=BEGAN_MS,
        page_rows=5_000,
        walk=FUTURES_LOG,
        join_ms=futures.JOIN_MS,
        needs=FUTURES_KEY,
    )


_SOURCES: Final = (
    Source(name=SPOT_HOLDINGS, type=HOLDINGS, window_ms=0),
    Source(name=FUTURES_HOLDINGS, type=HOLDINGS, window_ms=0, needs=FUTURES_KEY),
    *(_paged(SPOT_LEDGER, kind) for kind in LEDGER_VIEWS),
    *(_paged(TRADE_LIST, kind) for kind in (TRADES, MARGIN)),
    _listed(DEPOSIT_LIST, DEPOSITS),
    _listed(WITHDRAWAL_LIST, WITHDRAWALS),
    *(_logged(kind) for kind in LOG_VIEWS),
)
SOURCES: Final = {source.name: source for source in _SOURCES}


def _of(*types: str) -> tuple[str, ...]:
    return tuple(name for name, source in SOURCES.items() if source.type in types)


SOURCES_BY_TYPE: Final = {kind: _of(kind) for kind in TYPES} | {
    "spot_trades": _of(TRADES),
    "derivatives": _of(FUTURES, MARGIN),
    "balances": _of(HOLDINGS),
}

_SHORT_LIST: Final = (
    "Kraken's own lists may differ from each other; only its ledger shows what moved."
)
COMPARED: Final = frozenset({CheckId.SPOT_FILLS, CheckId.DEPOSITS, CheckId.WITHDRAWALS})
BOOKKEEPING: Final = Bookkeeping(
    trades=TRADES,
    lines_name_events=True,
    compared=COMPARED,
    without=frozenset({CheckId.ORDERS, CheckId.TRANSFERS}),
    held=None,
    unproven=(
        (
            EventType.LEDGER,
            Unproven(
                "types of ledger rows, and which rows form one event",
                "The balance chain proves neither; trades are compared with the list of trades.",
            ),
        ),
        (
            EventType.DEPOSITS,
            Unproven(
                "transactions, networks and addresses of deposits and withdrawals",
                "Only one list contains them, and it may be incomplete.",
            ),
        ),
    ),
    reasons=dict.fromkeys(COMPARED, _SHORT_LIST),
)

# Permissions of a key: https://docs.kraken.com/api/docs/guides/spot-api-keys
QUERY_FUNDS, QUERY_LEDGER, QUERY_TRADES = "query-funds", "query-ledger", "query-closed-trades"
NEEDED: Final = {
    QUERY_FUNDS: (HOLDINGS,),
    QUERY_LEDGER: LEDGER_VIEWS,
    QUERY_TRADES: (),  # trades then lack their price
}
WITHDRAWING: Final = frozenset(
    {"withdraw-funds", "add-withdraw-address", "update-withdraw-address"}
)
TRADING: Final = frozenset({"modify-trades", "close-trades"})
# Permissions that a read-only service must not have, in words.
HARMFUL: Final = {
    "withdraw-funds": "withdraw funds",
    "add-withdraw-address": "add withdrawal addresses",
    "update-withdraw-address": "change withdrawal addresses",
    "modify-trades": "place and change orders",
    "close-trades": "cancel orders",
    "add-funds": "create deposit addresses",
    "earn-funds": "allocate funds to Earn",
}

ENTRY: Final = AdapterEntry(
    name="kraken",
    reference="transactions-kraken",
    display="Kraken",
    types=TYPES,
    sources_by_type=SOURCES_BY_TYPE,
    advice=(
        "At Kraken, under Settings > API, create a key that only Onebook uses, with the "
        "permissions Query funds, Query closed orders & trades, Query ledger entries and, for live "
        "transactions, WebSocket interface, without dates. For futures, create another at Kraken "
        "Futures: General API read only, Withdrawal API no access; Kraken does not report what "
        "such a key may do, so this is not checked."
    ),
    default=(
        DEPOSITS, WITHDRAWALS, TRADES, CONVERSIONS, MARGIN, FUTURES, TRANSFERS, EARN, FEES, OTHERS,
    ),
    hosts={
        Environment.MAINNET: {
            SPOT_HOST: "https://api.kraken.com",
            FUTURES_HOST: "https://futures.kraken.com",
        }
    },
    bookkeeping=BOOKKEEPING,
    singular={
        TRADES: "trade",
        CONVERSIONS: "conversion",
        MARGIN: "margin",
        FUTURES: "future",
        EARN: "earn",
        FEES: "fee",
    },
    fields=(
        KEY_FIELD,
        replace(SECRET_FIELD, label="Private key"),
        CredentialField(FUTURES_KEY, "Futures API key (empty: no futures)", optional=True),
        CredentialField(
            FUTURES_SECRET, "Futures private key", optional=True, follows=FUTURES_KEY
        ),
    ),
)  # fmt: skip
