"""What an endpoint of Bybit's is: its path, how often it may be asked, how a range is given.

Limits: https://bybit-exchange.github.io/docs/v5/rate-limit (start values are a fifth or so of the
table's; the exchange's own headers raise them). Windows and how far back: the page of each path,
see `docs/reference/transactions.md` for the list of what Bybit leaves open and how we decided.
"""

from typing import Final, NamedTuple

from msgspec import Struct

from onebook.model import DAY_MS
from onebook.transactions.adapter import Source
from onebook.transactions.bybit.rows import Mapper
from onebook.transactions.limits import Rate

WEEK_MS: Final = 7 * DAY_MS
MONTH_MS: Final = 30 * DAY_MS
TWO_YEARS_MS: Final = 730 * DAY_MS

BEGAN_MS: Final = 1_519_862_400_000  # 2018-03-01: Bybit opened that month
# A closing order can rest before it fills; Bybit does not say which time the filter goes by.
CLOSED_PNL_LAG_MS: Final = WEEK_MS

EXECUTIONS: Final = "/v5/execution/list"
ORDERS: Final = "/v5/order/history"
CLOSED_PNL: Final = "/v5/position/closed-pnl"
LEDGER: Final = "/v5/account/transaction-log"
WALLET: Final = "/v5/account/wallet-balance"
ACCOUNT: Final = "/v5/account/info"
FUND_WALLET: Final = "/v5/asset/transfer/query-account-coins-balance"
FUND_LEDGER: Final = "/v5/asset/fundinghistory"
DEPOSITS: Final = "/v5/asset/deposit/query-record"
INTERNAL_DEPOSITS: Final = "/v5/asset/deposit/query-internal-record"
WITHDRAWALS: Final = "/v5/asset/withdraw/query-record"
TRANSFERS: Final = "/v5/asset/transfer/query-inter-transfer-list"
UNIVERSAL_TRANSFERS: Final = "/v5/asset/transfer/query-universal-transfer-list"
DELIVERIES: Final = "/v5/asset/delivery-record"
SETTLEMENTS: Final = "/v5/asset/settlement-record"
LEVER_ORDERS: Final = "/v5/spot-lever-token/order-record"
CONTRACT_LEDGER: Final = "/v5/account/contract-transaction-log"
FORMER_EXECUTIONS: Final = "/v5/pre-upgrade/execution/list"
FORMER_ORDERS: Final = "/v5/pre-upgrade/order/history"
FORMER_CLOSED_PNL: Final = "/v5/pre-upgrade/position/closed-pnl"
FORMER_LEDGER: Final = "/v5/pre-upgrade/account/transaction-log"
FORMER_SETTLEMENTS: Final = "/v5/pre-upgrade/asset/settlement-record"
API_KEY: Final = "/v5/user/query-api"
INSTRUMENTS: Final = "/v5/market/instruments-info"

MINUTE_S: Final = 60.0
IP_RATE: Final = Rate(500, 5.0)  # the table has 600; a breach costs ten minutes
RATES: Final = {
    EXECUTIONS: Rate(50, 1.0, start=10),
    ORDERS: Rate(50, 1.0, start=10),
    CLOSED_PNL: Rate(50, 1.0, start=10),
    LEDGER: Rate(25, 1.0, start=10),
    WALLET: Rate(50, 1.0, start=10),
    ACCOUNT: Rate(50, 1.0, start=10),
    FUND_WALLET: Rate(5, 1.0),
    FUND_LEDGER: Rate(30, 1.0, start=10),
    DEPOSITS: Rate(100, MINUTE_S),
    INTERNAL_DEPOSITS: Rate(300, 1.0, start=10),
    WITHDRAWALS: Rate(300, MINUTE_S),
    TRANSFERS: Rate(60, MINUTE_S),
    UNIVERSAL_TRANSFERS: Rate(5, 1.0),
    DELIVERIES: Rate(50, 1.0, start=10),
    SETTLEMENTS: Rate(50, 1.0, start=10),
    LEVER_ORDERS: Rate(10, 1.0),
    # Not in the table: we begin at what ccxt allows itself.
    CONTRACT_LEDGER: Rate(50, 1.0, start=10),
    FORMER_EXECUTIONS: Rate(50, 1.0, start=10),
    FORMER_ORDERS: Rate(50, 1.0, start=10),
    FORMER_CLOSED_PNL: Rate(50, 1.0, start=10),
    FORMER_LEDGER: Rate(50, 1.0, start=10),
    FORMER_SETTLEMENTS: Rate(50, 1.0, start=10),
    API_KEY: Rate(10, 1.0),
    INSTRUMENTS: Rate(20, 1.0),
}


class Times(NamedTuple):
    """How an endpoint takes a range of time."""

    start: str = "startTime"
    end: str = "endTime"
    unit_ms: int = 1


class Endpoint(Struct, frozen=True, kw_only=True):
    """A source of ours as Bybit offers it.

    Args:
        source: How it is walked.
        path: Where it is.
        fixed: Parameters that are always sent.
        mapper: How a row becomes a record.
        rows: Where the rows are in `result`.
        category: What Bybit calls the market; every category's markets are loaded where it is "*".
        permission: What the key needs, as `query-api` lists it; any of these.
        optional: Whether a failure only means that there is nothing.
        not_in: The modes of an account (`unifiedMarginStatus`) in which it has nothing to say.
        by_symbol: It must be asked for each symbol; those that were traded are found first.
        ranged: Whether it takes a range of time; without, its whole list is read.
        sure_ms: Where rows appear, how far back from now it is sure to hold them all.
        id_field: The field of a row's id where rows may have none: equal ones of one instant are
            then events of their own.
        witness: Its rows only prove that there was something that Bybit no longer shows.
    """

    source: Source
    path: str
    fixed: tuple[tuple[str, str], ...]
    mapper: Mapper
    rows: str = "list"
    category: str = ""
    times: Times = Times()
    permission: tuple[str, ...] = ()
    optional: bool = False
    not_in: frozenset[int] = frozenset()
    by_symbol: bool = False
    ranged: bool = True
    sure_ms: int | None = None
    id_field: str = ""
    witness: bool = False


SPOT_PERMISSION: Final = ("SpotTrade",)
FUTURES_PERMISSION: Final = ("Order", "Position", "DerivativesTrade")
WALLET_PERMISSION: Final = ("AccountTransfer", "SubMemberTransfer", "SubMemberTransferList")
LOADED_CATEGORIES: Final = ("spot", "linear", "inverse")
