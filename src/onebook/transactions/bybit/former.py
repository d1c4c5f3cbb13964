"""Mapping of rows from former account modes: classic, and the inverse contracts of UTA 1.0.


- https://bybit-exchange.github.io/docs/v5/acct-mode
- https://bybit-exchange.github.io/docs/v5/pre-upgrade/order-list, and the pages beside it
- https://bybit-exchange.github.io/docs/v5/account/contract-transaction-log

An upgraded account's fills, closed positions and orders of the time before stand only under
`/v5/pre-upgrade/*`; an account of UTA 1.0 keeps the book of its inverse contracts apart. Bybit
says what mode an account is in (`unifiedMarginStatus`), not which ones it was in nor when it
changed: so every account that could have rows is asked, and most answer with none.

Some of it is not in Bybit's API: the books of spot and USDT contracts of a classic account, and,
after the upgrade to UTA 2.0, the book of inverse contracts. Fills prove that they were there. Such
a *witness* brings no record; its newest row is the time before which the coverage of its type ends.

What the pages leave open, and the careful answer:

- How far back: two years, as everywhere. Contracts in USDC "the recent 6 months": where their rows
  appear, nothing older than 180 days counts as covered.
- Fills without a symbol: the page names USDC contracts among them, only that of orders does not.
- Windows of the USDC book: not stated, so seven days as everywhere.
- Closed positions need a symbol: those of the fills from a week before a window to a week after
  it, because the row's filter can go by its creation or its last change.
- The settlement list takes no times: it is read whole.
- Deliveries before the upgrade are of options, which are no type of ours.
"""

from typing import Any, Final

from msgspec.structs import replace

from onebook.model import DAY_MS
from onebook.transactions.adapter import Source
from onebook.transactions.bybit import closings, ledger, trades
from onebook.transactions.bybit.paths import (
    BEGAN_MS,
    CLOSED_PNL_LAG_MS,
    CONTRACT_LEDGER,
    FORMER_CLOSED_PNL,
    FORMER_EXECUTIONS,
    FORMER_LEDGER,
    FORMER_ORDERS,
    FORMER_SETTLEMENTS,
    FUTURES_PERMISSION,
    SPOT_PERMISSION,
    TWO_YEARS_MS,
    WEEK_MS,
    Endpoint,
)
from onebook.transactions.bybit.rows import Context, Row
from onebook.transactions.record import Holder, Record

CLASSIC: Final = frozenset({1})
BEFORE_UTA_2: Final = frozenset({1, 3, 4})
UTA_2: Final = frozenset({5, 6})
HALF_YEAR_MS: Final = 180 * DAY_MS

SPOT_WALLET: Final = Holder("SPOT", None)
USDC_WALLET: Final = Holder("OPTION", None)  # so is the classic USDC account called


def fill(row: Row, context: Context) -> Record:
    """A fill or funding payment, in the wallet that the contract then had."""
    return _of_contract(trades.execution(row, context))


def closed_pnl(row: Row, context: Context) -> Record:
    """What an order that closed a position realised."""
    return _of_contract(closings.closed_pnl(row, context))


def settlement(row: Row, context: Context) -> Record:
    """A session of a USDC contract."""
    return _of_contract(closings.settlement(row, context))


def usdc_line(row: Row, context: Context) -> Record:
    """A line of the classic USDC account's book; its rows have no id."""
    return replace(ledger.ledger(row, context), account=USDC_WALLET)


def spot_fill(row: Row, context: Context) -> Record:
    """A fill of a spot order, in the wallet that spot then had."""
    return replace(trades.execution(row, context), account=SPOT_WALLET)


def order(row: Row, context: Context) -> Record:
    """A spot order."""
    return replace(trades.order(row, context), account=SPOT_WALLET)


def _of_contract(record: Record) -> Record:
    market = record.instrument
    in_usdc = market is not None and market.settle == "USDC"
    return replace(record, account=USDC_WALLET if in_usdc else ledger.CONTRACT_WALLET)


def _source(name: str, kind: str, **differs: Any) -> Source:
    facts: dict[str, Any] = {"window_ms": WEEK_MS, "keeps_ms": TWO_YEARS_MS, "begins_ms": BEGAN_MS}
    return Source(name=name, type=kind, **(facts | differs))


def _fills(name: str, kind: str, category: str, **differs: Any) -> Endpoint:
    facts: dict[str, Any] = {"mapper": fill, "not_in": CLASSIC, "permission": FUTURES_PERMISSION}
    return Endpoint(
        source=_source(name, kind, page_rows=100, page_rows_least=50),
        path=FORMER_EXECUTIONS,
        fixed=(("category", category),),
        category=category,
        **(facts | differs),
    )


def _closed_pnl(name: str, kind: str, category: str) -> Endpoint:
    return Endpoint(
        source=_source(name, kind, page_rows=100, lag_ms=CLOSED_PNL_LAG_MS),
        path=FORMER_CLOSED_PNL,
        fixed=(("category", category),),
        mapper=closed_pnl,
        category=category,
        permission=FUTURES_PERMISSION,
        not_in=CLASSIC,
        by_symbol=True,
    )


def _spot_fills(name: str, kind: str, **differs: Any) -> Endpoint:
    facts: dict[str, Any] = {"mapper": spot_fill, "permission": SPOT_PERMISSION}
    return _fills(name, kind, "spot", **(facts | differs))


def _usdc_book(name: str, category: str) -> Endpoint:
    """One half of the classic USDC account's book; there is no query for both."""
    return Endpoint(
        source=_source(name, "ledger"),
        path=FORMER_LEDGER,
        fixed=(("category", category),),
        mapper=usdc_line,
        category="*",
        permission=FUTURES_PERMISSION,
        not_in=CLASSIC,
        sure_ms=HALF_YEAR_MS,
    )


def _book(name: str, category: str) -> Endpoint:
    """A source for the proof of a book; the answer is complete without it."""
    return _fills(name, "ledger", category, not_in=BEFORE_UTA_2, witness=True, optional=True)


FORMER: Final = (
    _spot_fills("former_spot_fills", "spot_orders"),
    Endpoint(
        source=_source("former_spot_orders", "spot_orders"),
        path=FORMER_ORDERS,
        fixed=(("category", "spot"),),
        mapper=order,
        category="spot",
        permission=SPOT_PERMISSION,
        not_in=CLASSIC,
    ),
    _fills("former_linear_fills", "futures_linear", "linear"),
    _closed_pnl("former_linear_closed_pnl", "futures_linear", "linear"),
    Endpoint(
        source=_source(
            "former_usdc_sessions", "futures_linear", window_ms=TWO_YEARS_MS, untimed=True
        ),
        path=FORMER_SETTLEMENTS,
        fixed=(("category", "linear"),),
        mapper=settlement,
        category="linear",
        permission=FUTURES_PERMISSION,
        not_in=CLASSIC,
        ranged=False,
        sure_ms=HALF_YEAR_MS,
    ),
    _fills("former_inverse_fills", "futures_inverse", "inverse"),
    _closed_pnl("former_inverse_closed_pnl", "futures_inverse", "inverse"),
    Endpoint(
        source=_source("contract_ledger", "ledger", page_rows_least=20),
        path=CONTRACT_LEDGER,
        fixed=(),
        mapper=ledger.contract_ledger,
        category="*",
        permission=FUTURES_PERMISSION,
        not_in=UTA_2,
    ),
    _usdc_book("former_usdc_ledger", "linear"),
    _usdc_book("former_option_ledger", "option"),
    _spot_fills("former_spot_book", "ledger", witness=True, optional=True),
    _book("former_linear_book", "linear"),
    _book("former_inverse_book", "inverse"),
)
