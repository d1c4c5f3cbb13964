"""Every Bybit endpoint that history is read from: the facts, as a table."""

from typing import Any, Final

from msgspec.structs import replace

from onebook.model import SECOND_MS
from onebook.transactions.adapter import KEY_FIELD, SECRET_FIELD, AdapterEntry, Source
from onebook.transactions.bybit import closings, funds, ledger, trades
from onebook.transactions.bybit.books import BOOKS
from onebook.transactions.bybit.former import FORMER
from onebook.transactions.bybit.paths import (
    BEGAN_MS,
    CLOSED_PNL,
    CLOSED_PNL_LAG_MS,
    DELIVERIES,
    DEPOSITS,
    EXECUTIONS,
    FUND_LEDGER,
    FUND_WALLET,
    FUTURES_PERMISSION,
    INTERNAL_DEPOSITS,
    LEDGER,
    LEVER_ORDERS,
    MONTH_MS,
    ORDERS,
    SETTLEMENTS,
    SPOT_PERMISSION,
    TRANSFERS,
    TWO_YEARS_MS,
    UNIVERSAL_TRANSFERS,
    WALLET,
    WALLET_PERMISSION,
    WEEK_MS,
    WITHDRAWALS,
    Endpoint,
    Times,
)
from onebook.transactions.bybit.rows import EXCHANGE

# 2025-10-01: leverage tokens ended on 2025-07-04, and their list of orders with them. Lines of the
# ledger go on: what was left over is redeemed.
LEVER_ENDED_MS: Final = 1_759_276_800_000
# Bybit filters deposits by their creation and shows only when they were credited: at once, or after
# a check that can take weeks. The default range and a month before it are two windows, as it and a
# week before it are.
DEPOSIT_LAG_MS: Final = MONTH_MS


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
        mapper=closings.closed_pnl,
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
        mapper=closings.delivery,
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
        # Orders without fills are left out of what is older than a day: a short page of what is
        # left proves nothing.
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
    _executions("linear_fills", "futures_linear", "linear", page_rows_least=50),
    # Whether the query above holds USDC contracts is not documented; duplicates go by id.
    _executions("linear_usdc_fills", "futures_linear", "linear", ("settleCoin", "USDC")),
    _closed_pnl("linear_closed_pnl", "futures_linear", "linear"),
    _deliveries("linear_deliveries", "futures_linear", "linear"),
    Endpoint(
        source=Source(
            name="usdc_sessions", type="futures_linear", window_ms=MONTH_MS,
            keeps_ms=TWO_YEARS_MS, begins_ms=BEGAN_MS, page_rows_least=20,
        ),
        path=SETTLEMENTS,
        fixed=(("category", "linear"),),
        mapper=closings.settlement,
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


def _of(*types: str) -> tuple[str, ...]:
    return tuple(name for name, source in SOURCES.items() if source.type in types)


_FILLS: Final = ("spot_fills", "former_spot_fills")  # without the state of their orders
_FUTURES: Final = _of("futures_linear", "futures_inverse")
WORDS: Final = {kind: _of(kind) for kind in TYPES} | {
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
    words=WORDS,
    books=BOOKS,
    singular={
        "spot_orders": "trade",
        "futures_linear": "future",
        "futures_inverse": "future",
        "leverage_token_trades": "leverage_token_trade",
    },
    fields=(KEY_FIELD, replace(SECRET_FIELD, from_file=True)),  # an RSA key that the operator made
    default=(
        "deposits",
        "withdrawals",
        "spot_orders",
        "futures",
        "leverage_token_trades",
        "transfers",
    ),
)
