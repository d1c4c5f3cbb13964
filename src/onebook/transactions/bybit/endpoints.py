"""Bybit's endpoints, rate limits, types and bookkeeping, as tables of facts.

Limits: https://bybit-exchange.github.io/docs/v5/rate-limit (we start at about a fifth of the
table's values; the exchange's own headers raise them). Windows and retention: the page of each
path. `docs/reference/transactions.md` lists what Bybit leaves open and what we decided.

Former account modes, classic and the inverse contracts of UTA 1.0:

- https://bybit-exchange.github.io/docs/v5/acct-mode
- https://bybit-exchange.github.io/docs/v5/pre-upgrade/order-list, and the pages next to it
- https://bybit-exchange.github.io/docs/v5/account/contract-transaction-log

The fills, closed positions and orders from before an account's upgrade are only available under
`/v5/pre-upgrade/*`; an account of UTA 1.0 has a separate ledger for its inverse contracts. Bybit
reports the current mode of an account (`unifiedMarginStatus`), but not its former modes or when it
changed. So every account that could have such rows is queried, and most answers are empty.

Bybit's API lacks the ledgers of spot and USDT contracts of a classic account and, after the upgrade
to UTA 2.0, the ledger of inverse contracts. Fills prove that they existed. Such a *witness* source
yields no record; its newest row marks the time before which the coverage of its type ends.

What the pages leave open, and our conservative choice:

- Retention: two years, as for Bybit's other lists. For USDC contracts, "the recent 6 months": if
such rows appear, coverage begins 180 days ago.
- Fills without a symbol: the page includes USDC contracts, as does only one other, that of orders.
- Windows of the USDC ledger: not stated, so seven days as elsewhere.
- Closed positions need a symbol: we use the symbols of the fills from a week before a window to a
  week after it, because the filter may use a row's creation or its last change.
- The settlement list takes no times: it is read completely.
- Deliveries before the upgrade are of options, for which we have no type.
"""

from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from onebook.model import DAY_MS, SECOND_MS
from onebook.transactions.adapter import (
    KEY_FIELD,
    SECRET_FIELD,
    AdapterEntry,
    Bookkeeping,
    CheckId,
    Environment,
    EventType,
    Source,
    Unproven,
)
from onebook.transactions.bybit import funds, ledger, trades
from onebook.transactions.bybit.rows import EXCHANGE, Context, Mapper
from onebook.transactions.mapping import Row
from onebook.transactions.pools import CostLimit, PoolScope
from onebook.transactions.record import Holder, Record

WEEK_MS: Final = 7 * DAY_MS
MONTH_MS: Final = 30 * DAY_MS
TWO_YEARS_MS: Final = 730 * DAY_MS

BEGAN_MS: Final = 1_519_862_400_000  # 2018-03-01: Bybit opened in that month
# A closing order can rest before it fills; Bybit does not say which of the times its filter uses.
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
ADDRESS: Final = "address"
PATH_LIMITS: Final = {
    EXECUTIONS: CostLimit(50, 1.0, start=10),
    ORDERS: CostLimit(50, 1.0, start=10),
    CLOSED_PNL: CostLimit(50, 1.0, start=10),
    LEDGER: CostLimit(25, 1.0, start=10),
    WALLET: CostLimit(50, 1.0, start=10),
    ACCOUNT: CostLimit(50, 1.0, start=10),
    FUND_WALLET: CostLimit(5, 1.0),
    FUND_LEDGER: CostLimit(30, 1.0, start=10),
    DEPOSITS: CostLimit(100, MINUTE_S),
    INTERNAL_DEPOSITS: CostLimit(300, 1.0, start=10),
    WITHDRAWALS: CostLimit(300, MINUTE_S),
    TRANSFERS: CostLimit(60, MINUTE_S),
    UNIVERSAL_TRANSFERS: CostLimit(5, 1.0),
    DELIVERIES: CostLimit(50, 1.0, start=10),
    SETTLEMENTS: CostLimit(50, 1.0, start=10),
    LEVER_ORDERS: CostLimit(10, 1.0),
    # Not in the table: we start with ccxt's limit.
    CONTRACT_LEDGER: CostLimit(50, 1.0, start=10),
    FORMER_EXECUTIONS: CostLimit(50, 1.0, start=10),
    FORMER_ORDERS: CostLimit(50, 1.0, start=10),
    FORMER_CLOSED_PNL: CostLimit(50, 1.0, start=10),
    FORMER_LEDGER: CostLimit(50, 1.0, start=10),
    FORMER_SETTLEMENTS: CostLimit(50, 1.0, start=10),
    API_KEY: CostLimit(10, 1.0),
    INSTRUMENTS: CostLimit(20, 1.0),
}
# The table allows 600 per address; a breach costs ten minutes.
LIMITS: Final = {**PATH_LIMITS, ADDRESS: CostLimit(500, 5.0, scope=PoolScope.ADDRESS)}
CLASSIC: Final = frozenset({1})
BEFORE_UTA_2: Final = frozenset({1, 3, 4})
UTA_2: Final = frozenset({5, 6})
HALF_YEAR_MS: Final = 180 * DAY_MS

SPOT_WALLET: Final = Holder("SPOT", None)
USDC_WALLET: Final = Holder("OPTION", None)  # also the name of the classic USDC account
# 2025-10-01: leverage tokens ended on 2025-07-04, and their list of orders with them. The ledger
# continues, because leftover tokens are redeemed.
LEVER_ENDED_MS: Final = 1_759_276_800_000
# Bybit filters deposits by creation and only shows when they were credited: immediately, or after a
# check that can take weeks. The default range and a month before it take two windows, as many as
# the range and a week before it.
DEPOSIT_LAG_MS: Final = MONTH_MS


class Times(NamedTuple):
    """Names of an endpoint's time range parameters."""

    start: str = "startTime"
    end: str = "endTime"
    unit_ms: int = 1


class Endpoint(Struct, frozen=True, kw_only=True):
    """The Bybit endpoint behind a source.

    Args:
        source: Its facts for the walker.
        path: Its path.
        fixed: Parameters that are always sent.
        mapper: Maps a row to a record.
        rows: Name of the list of rows in `result`.
        category: Bybit's category of markets; "*" loads the markets of every category.
        permission: Permissions as listed by `query-api`; the key needs one of them.
        optional: Whether a failure only means that there are no rows.
        not_in: The account modes (`unifiedMarginStatus`) in which it has no rows.
        by_symbol: Whether it needs a query per symbol; the traded symbols are found first.
        ranged: Whether it takes a time range; if not, the entire list is read.
        complete_for_ms: If there are rows: how far back from now they are certainly complete.
        id_field: The id field of a row, if rows may lack it: equal rows of the same time are then
            separate events.
        witness: Whether its rows only prove that Bybit no longer shows other ones.
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
    complete_for_ms: int | None = None
    id_field: str = ""
    witness: bool = False


SPOT_PERMISSION: Final = ("SpotTrade",)
FUTURES_PERMISSION: Final = ("Order", "Position", "DerivativesTrade")
WALLET_PERMISSION: Final = ("AccountTransfer", "SubMemberTransfer", "SubMemberTransferList")
LOADED_CATEGORIES: Final = ("spot", "linear", "inverse")


def former_fill(row: Row, context: Context) -> Record:
    """Map a fill or funding payment to the wallet that its contract used at the time."""
    return _of_contract(trades.execution(row, context))


def former_closed_pnl(row: Row, context: Context) -> Record:
    """Map the realised P&L of an order that closed a position."""
    return _of_contract(trades.closed_pnl(row, context))


def former_settlement(row: Row, context: Context) -> Record:
    """Map a session of a USDC contract."""
    return _of_contract(trades.settlement(row, context))


def usdc_line(row: Row, context: Context) -> Record:
    """Map a ledger line of the classic USDC account; its rows have no id."""
    return replace(ledger.ledger(row, context), account=USDC_WALLET)


def former_spot_fill(row: Row, context: Context) -> Record:
    """Map a fill of a spot order to the wallet that spot used at the time."""
    return replace(trades.execution(row, context), account=SPOT_WALLET)


def former_order(row: Row, context: Context) -> Record:
    """Map a spot order."""
    return replace(trades.order(row, context), account=SPOT_WALLET)


def _of_contract(record: Record) -> Record:
    market = record.instrument
    in_usdc = market is not None and market.settle == "USDC"
    return replace(record, account=USDC_WALLET if in_usdc else ledger.CONTRACT_WALLET)


def _former_source(name: str, kind: str, **differs: Any) -> Source:
    facts: dict[str, Any] = {"window_ms": WEEK_MS, "keeps_ms": TWO_YEARS_MS, "begins_ms": BEGAN_MS}
    return Source(name=name, type=kind, **(facts | differs))


def _former_fills(name: str, kind: str, category: str, **differs: Any) -> Endpoint:
    facts: dict[str, Any] = {
        "mapper": former_fill,
        "not_in": CLASSIC,
        "permission": FUTURES_PERMISSION,
    }
    return Endpoint(
        source=_former_source(name, kind, page_rows=100, page_rows_least=50),
        path=FORMER_EXECUTIONS,
        fixed=(("category", category),),
        category=category,
        **(facts | differs),
    )


def _former_closed_pnl(name: str, kind: str, category: str) -> Endpoint:
    return Endpoint(
        source=_former_source(name, kind, page_rows=100, lag_ms=CLOSED_PNL_LAG_MS),
        path=FORMER_CLOSED_PNL,
        fixed=(("category", category),),
        mapper=former_closed_pnl,
        category=category,
        permission=FUTURES_PERMISSION,
        not_in=CLASSIC,
        by_symbol=True,
    )


def _former_spot_fills(name: str, kind: str, **differs: Any) -> Endpoint:
    facts: dict[str, Any] = {"mapper": former_spot_fill, "permission": SPOT_PERMISSION}
    return _former_fills(name, kind, "spot", **(facts | differs))


def _usdc_book(name: str, category: str) -> Endpoint:
    """One half of the classic USDC account's ledger; no query returns both."""
    return Endpoint(
        source=_former_source(name, "ledger"),
        path=FORMER_LEDGER,
        fixed=(("category", category),),
        mapper=usdc_line,
        category="*",
        permission=FUTURES_PERMISSION,
        not_in=CLASSIC,
        complete_for_ms=HALF_YEAR_MS,
    )


def _book(name: str, category: str) -> Endpoint:
    """A ledger that is only read for the proof; the answer is complete without it."""
    return _former_fills(name, "ledger", category, not_in=BEFORE_UTA_2, witness=True, optional=True)


FORMER: Final = (
    _former_spot_fills("former_spot_fills", "spot_orders"),
    Endpoint(
        source=_former_source("former_spot_orders", "spot_orders"),
        path=FORMER_ORDERS,
        fixed=(("category", "spot"),),
        mapper=former_order,
        category="spot",
        permission=SPOT_PERMISSION,
        not_in=CLASSIC,
    ),
    _former_fills("former_linear_fills", "futures_linear", "linear"),
    _former_closed_pnl("former_linear_closed_pnl", "futures_linear", "linear"),
    Endpoint(
        source=_former_source(
            "former_usdc_sessions", "futures_linear", window_ms=TWO_YEARS_MS, untimed=True
        ),
        path=FORMER_SETTLEMENTS,
        fixed=(("category", "linear"),),
        mapper=former_settlement,
        category="linear",
        permission=FUTURES_PERMISSION,
        not_in=CLASSIC,
        ranged=False,
        complete_for_ms=HALF_YEAR_MS,
    ),
    _former_fills("former_inverse_fills", "futures_inverse", "inverse"),
    _former_closed_pnl("former_inverse_closed_pnl", "futures_inverse", "inverse"),
    Endpoint(
        source=_former_source("contract_ledger", "ledger", page_rows_least=20),
        path=CONTRACT_LEDGER,
        fixed=(),
        mapper=ledger.contract_ledger,
        category="*",
        permission=FUTURES_PERMISSION,
        not_in=UTA_2,
    ),
    _usdc_book("former_usdc_ledger", "linear"),
    _usdc_book("former_option_ledger", "option"),
    _former_spot_fills("former_spot_book", "ledger", witness=True, optional=True),
    _book("former_linear_book", "linear"),
    _book("former_inverse_book", "inverse"),
)


def _executions(
    name: str, kind: str, category: str, *more: tuple[str, str], **differs: Any
) -> Endpoint:
    return Endpoint(
        source=Source(
            name=name, type=kind, window_ms=WEEK_MS, keeps_ms=TWO_YEARS_MS, begins_ms=BEGAN_MS,
            page_rows=100, **differs,
        ),
        path=EXECUTIONS,
        fixed=(("category", category), *more),
        mapper=trades.execution,
        category=category,
        permission=SPOT_PERMISSION if category == "spot" else FUTURES_PERMISSION,
    )  # fmt: skip


def _closed_pnl(name: str, kind: str, category: str) -> Endpoint:
    return Endpoint(
        source=Source(
            name=name, type=kind, window_ms=WEEK_MS, lag_ms=CLOSED_PNL_LAG_MS,
            keeps_ms=TWO_YEARS_MS, begins_ms=BEGAN_MS, page_rows=100, page_rows_least=50,
        ),
        path=CLOSED_PNL,
        fixed=(("category", category),),
        mapper=trades.closed_pnl,
        category=category,
        permission=FUTURES_PERMISSION,
    )  # fmt: skip


def _deliveries(name: str, kind: str, category: str) -> Endpoint:
    return Endpoint(
        source=Source(
            name=name, type=kind, window_ms=MONTH_MS, keeps_ms=TWO_YEARS_MS, begins_ms=BEGAN_MS,
            page_rows_least=20,
        ),
        path=DELIVERIES,
        fixed=(("category", category),),
        mapper=trades.delivery,
        category=category,
        permission=WALLET_PERMISSION + FUTURES_PERMISSION,
    )  # fmt: skip


def _tokens(name: str, ledger_type: str) -> Endpoint:
    return Endpoint(
        source=Source(
            name=name, type="leverage_token_trades", window_ms=WEEK_MS, keeps_ms=TWO_YEARS_MS,
            begins_ms=BEGAN_MS,
        ),
        path=LEDGER,
        fixed=(("accountType", "UNIFIED"), ("type", ledger_type)),
        mapper=ledger.token_line,
    )  # fmt: skip


def _transfers(name: str, path: str) -> Endpoint:
    return Endpoint(
        source=Source(
            name=name, type="transfers", window_ms=WEEK_MS, grain_ms=SECOND_MS, lag_ms=SECOND_MS,
            begins_ms=BEGAN_MS, page_rows_least=20,
        ),
        path=path,
        fixed=(),
        mapper=funds.transfer,
        permission=WALLET_PERMISSION,
    )  # fmt: skip


_ENDPOINTS: Final = (
    Endpoint(
        source=Source(name="unified_wallet", type="holdings", window_ms=0),
        path=WALLET,
        fixed=(("accountType", "UNIFIED"),),
        mapper=funds.unified_balance,
        rows="coin",
    ),
    Endpoint(
        source=Source(name="funding_wallet", type="holdings", window_ms=0),
        path=FUND_WALLET,
        fixed=(("accountType", "FUND"),),
        mapper=funds.funding_balance,
        rows="balance",
        permission=WALLET_PERMISSION,
    ),
    Endpoint(
        source=Source(
            name="chain_deposits", type="deposits", window_ms=MONTH_MS, grain_ms=SECOND_MS,
            lag_ms=DEPOSIT_LAG_MS, begins_ms=BEGAN_MS, page_rows_least=50, untimed=True,
        ),
        path=DEPOSITS,
        fixed=(),
        mapper=funds.deposit,
        rows="rows",
        permission=WALLET_PERMISSION,
    ),
    Endpoint(
        source=Source(
            name="internal_deposits", type="deposits", window_ms=MONTH_MS, grain_ms=SECOND_MS,
            lag_ms=SECOND_MS, begins_ms=BEGAN_MS, page_rows_least=50, untimed=True,
        ),
        path=INTERNAL_DEPOSITS,
        fixed=(),
        mapper=funds.internal_deposit,
        rows="rows",
        permission=WALLET_PERMISSION,
    ),
    Endpoint(
        source=Source(
            name="withdrawals", type="withdrawals", window_ms=MONTH_MS, grain_ms=SECOND_MS,
            lag_ms=SECOND_MS, begins_ms=BEGAN_MS, page_rows_least=50,
        ),
        path=WITHDRAWALS,
        fixed=(("withdrawType", "2"),),  # the default would hide withdrawals to Bybit users
        mapper=funds.withdrawal,
        rows="rows",
        permission=WALLET_PERMISSION,
    ),
    _executions("spot_fills", "spot_orders", "spot", page_rows_least=50),
    Endpoint(
        # Orders without fills are missing from results older than a day, so a short page proves
        # nothing.
        source=Source(
            name="spot_orders", type="spot_orders", window_ms=WEEK_MS, keeps_ms=TWO_YEARS_MS,
            begins_ms=BEGAN_MS,
        ),
        path=ORDERS,
        fixed=(("category", "spot"),),
        mapper=trades.order,
        category="spot",
        permission=SPOT_PERMISSION,
    ),
    # It is undocumented whether the first query includes USDC contracts. Their outlet drops
    # duplicates by id, and stops both at a failure of one: a retry would deliver fills again.
    _executions(
        "linear_fills", "futures_linear", "linear", joint="linear_fills", page_rows_least=50
    ),
    _executions(
        "linear_usdc_fills", "futures_linear", "linear", ("settleCoin", "USDC"),
        joint="linear_fills",
    ),
    _closed_pnl("linear_closed_pnl", "futures_linear", "linear"),
    _deliveries("linear_deliveries", "futures_linear", "linear"),
    Endpoint(
        source=Source(
            name="usdc_sessions", type="futures_linear", window_ms=MONTH_MS,
            keeps_ms=TWO_YEARS_MS, begins_ms=BEGAN_MS, page_rows_least=20,
        ),
        path=SETTLEMENTS,
        fixed=(("category", "linear"),),
        mapper=trades.settlement,
        category="linear",
        permission=WALLET_PERMISSION + FUTURES_PERMISSION,
    ),
    _executions("inverse_fills", "futures_inverse", "inverse", page_rows_least=50),
    _closed_pnl("inverse_closed_pnl", "futures_inverse", "inverse"),
    _deliveries("inverse_deliveries", "futures_inverse", "inverse"),
    Endpoint(
        source=Source(
            name="unified_ledger", type="ledger", window_ms=WEEK_MS, keeps_ms=TWO_YEARS_MS,
            begins_ms=BEGAN_MS, page_rows_least=20,
        ),
        path=LEDGER,
        fixed=(("accountType", "UNIFIED"),),
        mapper=ledger.ledger,
        category="*",
    ),
    Endpoint(
        source=Source(
            name="funding_ledger", type="ledger", window_ms=WEEK_MS, grain_ms=SECOND_MS,
            lag_ms=SECOND_MS, begins_ms=BEGAN_MS, page_rows=100, page_rows_least=10,
        ),
        path=FUND_LEDGER,
        fixed=(),
        mapper=ledger.funding_line,
        id_field=ledger.FUND_ID,
        times=Times("createTimeFrom", "createTimeTo", SECOND_MS),
        permission=WALLET_PERMISSION,
    ),
    _tokens("token_subscriptions", "TOKENS_SUBSCRIPTION"),
    _tokens("token_redemptions", "TOKENS_REDEMPTION"),
    Endpoint(
        source=Source(
            name="token_orders", type="leverage_token_trades", window_ms=MONTH_MS,
            keeps_ms=TWO_YEARS_MS, begins_ms=BEGAN_MS, ends_ms=LEVER_ENDED_MS, page_rows=500,
            page_rows_least=100,
        ),
        path=LEVER_ORDERS,
        fixed=(),
        mapper=funds.leverage_token,
        optional=True,
    ),
    _transfers("internal_transfers", TRANSFERS),
    _transfers("universal_transfers", UNIVERSAL_TRANSFERS),
)  # fmt: skip

ENDPOINTS: Final = {endpoint.source.name: endpoint for endpoint in (*_ENDPOINTS, *FORMER)}
SOURCES: Final = {name: endpoint.source for name, endpoint in ENDPOINTS.items()}

TYPES: Final = (
    "holdings",
    "deposits",
    "withdrawals",
    "spot_orders",
    "futures_linear",
    "futures_inverse",
    "ledger",
    "leverage_token_trades",
    "transfers",
)


_MOVE_LEFT: Final = (
    "Bybit also books moves that no list contains: at an upgrade, to and from bots, copy trading "
    "and other products; or the transfer between users is lost."
)
BOOKKEEPING: Final = Bookkeeping(
    trades="spot_orders",
    contracts={"linear": "futures_linear", "inverse": "futures_inverse"},
    tokens="leverage_token_trades",
    trading_wallet="UNIFIED",
    funding_wallet="FUND",
    held=frozenset({"UNIFIED", "FUND"}),
    unheld=Unproven(
        "the closing balance of the wallets CONTRACT, SPOT and OPTION",
        "Their holdings are not read, so only their ledger balances are proven.",
    ),
    unproven=(
        (
            EventType.FUTURES,
            Unproven(
                "`closedPnl` of positions without `openFee` and `closeFee`",
                "Bybit did not report them before 2025-06-24; the P&L before fees is "
                "compared instead.",
            ),
        ),
        (
            EventType.LEDGER,
            Unproven(
                "events before the start of the ledger's coverage",
                "Bybit no longer shows the ledgers of wallets closed by an upgrade.",
            ),
        ),
    ),
    reasons={
        CheckId.ORDERS: "Their orders are older than the range, or lost: Bybit filters orders by "
        "creation time.",
        CheckId.SETTLEMENTS: "Bybit does not say whether `deliveryRpl` is before fees.",
    }
    | dict.fromkeys(
        (
            CheckId.SPOT_FILLS,
            CheckId.FUTURES_FILLS,
            CheckId.TRANSFERS,
            CheckId.DEPOSITS,
            CheckId.WITHDRAWALS,
            CheckId.LEVERAGE_TOKENS,
        ),
        _MOVE_LEFT,
    ),
)


def _of(*types: str) -> tuple[str, ...]:
    return tuple(name for name, source in SOURCES.items() if source.type in types)


_FILLS: Final = ("spot_fills", "former_spot_fills")  # without the state of their orders
_FUTURES: Final = _of("futures_linear", "futures_inverse")
SOURCES_BY_TYPE: Final = {kind: _of(kind) for kind in TYPES} | {
    "trades": _FILLS,
    "spot_trades": _FILLS,
    "futures": _FUTURES,
    "derivatives": _FUTURES,
    "balances": _of("holdings"),
}
ENTRY: Final = AdapterEntry(
    name=EXCHANGE,
    display="Bybit",
    types=TYPES,
    sources_by_type=SOURCES_BY_TYPE,
    hosts={
        Environment.MAINNET: {"": "https://api.bybit.com"},
        Environment.TESTNET: {"": "https://api-testnet.bybit.com"},
    },
    bookkeeping=BOOKKEEPING,
    singular={
        "spot_orders": "trade",
        "futures_linear": "future",
        "futures_inverse": "future",
        "leverage_token_trades": "leverage_token_trade",
    },
    fields=(KEY_FIELD, replace(SECRET_FIELD, from_file=True)),  # an operator-made RSA key
    advice=(
        "At Bybit, under API, create a read-only key with the permissions Wallet, Spot and "
        "Contract, bound to the address of this server; otherwise it expires after 90 days."
    ),
    default=(
        "deposits",
        "withdrawals",
        "spot_orders",
        "futures",
        "leverage_token_trades",
        "transfers",
    ),
)
