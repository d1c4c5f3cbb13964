"""History endpoints of the simulated Bybit as a table: windows, page sizes, limits, cursors."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote

from msgspec import json

from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import rows
from onebook.simulator.accounts.bybit.account import Account
from onebook.simulator.accounts.bybit.generator import UTA_2
from onebook.simulator.accounts.bybit.keys import AccountRefused
from onebook.simulator.accounts.history import CursorCodec, Entry, HistoryTable


def _write_pairs(first: Entry, last: Entry) -> str:
    return quote(f"{first.at_ms}:{first.seq},{last.at_ms}:{last.seq}", safe="")


def _read_pairs(text: str) -> tuple[int, int]:
    at, _, seq = text.rpartition(",")[2].partition(":")
    return int(at), int(seq)


def _write_ids(first: Entry, last: Entry) -> str:
    return b64encode(json.encode({"minID": last.seq, "maxID": first.seq})).decode()


def _read_ids(text: str) -> tuple[int, int]:
    return -1, int(json.decode(b64decode(text, validate=True))["minID"])


def _write_number(first: Entry, last: Entry) -> str:
    return b64encode(str(last.seq).encode()).decode()


def _read_number(text: str) -> tuple[int, int]:
    return -1, int(b64decode(text, validate=True))


def _write_token(first: Entry, last: Entry) -> str:
    return quote(f"page_token={last.at_ms}-{last.seq}&", safe="")


def _write_cursor_id(first: Entry, last: Entry) -> str:
    return quote(f"cursor_id={last.at_ms}-{last.seq}&", safe="")


def _read_token(text: str) -> tuple[int, int]:
    at, _, seq = text.partition("=")[2].rstrip("&").partition("-")
    return int(at), int(seq)


TOKEN: Final = CursorCodec(_write_token, _read_token)
CURSOR_ID: Final = CursorCodec(_write_cursor_id, _read_token)
PAIRS: Final = CursorCodec(_write_pairs, _read_pairs)
IDS: Final = CursorCodec(_write_ids, _read_ids)
NUMBER: Final = CursorCodec(_write_number, _read_number)
WEEK_MS: Final = 7 * DAY_MS
MONTH_MS: Final = 30 * DAY_MS
TWO_YEARS_MS: Final = 730 * DAY_MS
HALF_YEAR_MS: Final = 180 * DAY_MS
SECOND_MS: Final = 1_000
WALLET: Final = ("AccountTransfer", "SubMemberTransfer", "SubMemberTransferList")
SPOT: Final = ("SpotTrade",)
CONTRACT: Final = ("Order", "Position", "DerivativesTrade")
Query = dict[str, str]


class ListEndpoint(NamedTuple):
    """One endpoint that lists rows by time."""

    table: Callable[[Account, Query], HistoryTable]
    row: Callable[[Entry, Account], rows.Row]
    window_ms: int
    limit: int
    limit_max: int
    codec: CursorCodec
    default_ms: int = 0  # the range if no times are given; 0: the window
    strictly: bool = False  # the range must be shorter than window_ms, not equal to it
    grain_ms: int = 1
    keeps_ms: int | None = None
    times: tuple[str, str] = ("startTime", "endTime")
    unit_ms: int = 1
    rows: str = "list"
    permission: tuple[str, ...] = ()
    wanted: Callable[[Entry, Query, int], bool] | None = None
    needs: str = ""  # a required parameter
    ranged: bool = True  # whether it accepts times
    shows_ms: int | None = None  # older rows are silently omitted


def _by_category(tables: str) -> Callable[[Account, Query], HistoryTable]:
    def table(account: Account, query: Query) -> HistoryTable:
        category = query.get("category", "")
        found = getattr(account, tables).get(category)
        if found is None:
            raise AccountRefused(181001, "category only support linear, inverse or spot")
        assert isinstance(found, HistoryTable)
        return found

    return table


def _plain(name: str) -> Callable[[Account, Query], HistoryTable]:
    def table(account: Account, query: Query) -> HistoryTable:
        found = getattr(account, name)
        assert isinstance(found, HistoryTable)
        return found

    return table


def _book_apart(account: Account, query: Query) -> HistoryTable:
    """Return the separate ledger of inverse contracts; UTA 2.0 has none and refuses."""
    if account.status == UTA_2:
        raise AccountRefused(100028, "The API endpoint is not available for unified accounts.")
    return account.contract_ledger


def _fill_wanted(entry: Entry, query: Query, now_ms: int) -> bool:
    fill = entry.facts
    asked = {
        "symbol": fill.market.symbol,
        "orderId": fill.order_id,
        "execType": fill.kind,
        "settleCoin": fill.market.settle,
        "baseCoin": fill.market.base,
    }
    return all(query[name] == value for name, value in asked.items() if query.get(name))


def _order_wanted(entry: Entry, query: Query, now_ms: int) -> bool:
    """Return whether an order is listed: one without fills is kept for a day."""
    order = entry.facts
    if query.get("orderStatus") and query["orderStatus"] != order.status:
        return False
    if query.get("symbol") and query["symbol"] != order.market.symbol:
        return False
    return bool(order.done) or now_ms - entry.at_ms < DAY_MS


def _line_wanted(entry: Entry, query: Query, now_ms: int) -> bool:
    line = entry.facts
    asked = {"type": line.kind, "currency": line.coin, "category": line.category}
    return all(query[name] == value for name, value in asked.items() if query.get(name))


def _former_line_wanted(entry: Entry, query: Query, now_ms: int) -> bool:
    """Return whether a line has the category; lines such as transfers are `linear`."""
    of_option: bool = entry.facts.category == "option"
    return of_option == (query["category"] == "option")


def _withdrawal_wanted(entry: Entry, query: Query, now_ms: int) -> bool:
    """Return whether a withdrawal has the type. 0: on chain (default); 1: to users; 2: all."""
    kind = query.get("withdrawType") or "0"
    coin = query.get("coin")
    right_kind = kind == "2" or (kind == "1") == entry.facts.internal
    return right_kind and (not coin or coin == entry.facts.coin)


def _coin_wanted(entry: Entry, query: Query, now_ms: int) -> bool:
    return not query.get("coin") or query["coin"] == entry.facts.coin


def _symbol_wanted(entry: Entry, query: Query, now_ms: int) -> bool:
    return not query.get("symbol") or query["symbol"] == entry.facts.market.symbol


def _pure(
    function: Callable[[Entry], rows.Row],
) -> Callable[[Entry, Account], rows.Row]:
    return lambda entry, account: function(entry)


LISTINGS: Final = {
    "/v5/execution/list": ListEndpoint(
        _by_category("executions"), _pure(rows.execution), WEEK_MS, 50, 100, PAIRS,
        keeps_ms=TWO_YEARS_MS, wanted=_fill_wanted,
    ),
    "/v5/order/history": ListEndpoint(
        _by_category("orders"), _pure(rows.order), WEEK_MS, 20, 50, PAIRS,
        keeps_ms=TWO_YEARS_MS, wanted=_order_wanted,
    ),
    "/v5/position/closed-pnl": ListEndpoint(
        _by_category("closed"), _pure(rows.closed_pnl), WEEK_MS, 50, 100, PAIRS,
        keeps_ms=TWO_YEARS_MS, permission=CONTRACT, wanted=_symbol_wanted,
    ),
    "/v5/account/transaction-log": ListEndpoint(
        _plain("ledger"), _pure(rows.ledger), WEEK_MS, 20, 50, PAIRS, default_ms=DAY_MS,
        keeps_ms=TWO_YEARS_MS, wanted=_line_wanted,
    ),
    "/v5/asset/fundinghistory": ListEndpoint(
        _plain("fund_ledger"), lambda e, a: rows.fund_line(e, a.uid), WEEK_MS, 10, 100, NUMBER,
        times=("createTimeFrom", "createTimeTo"), unit_ms=SECOND_MS, grain_ms=SECOND_MS,
        permission=WALLET,
    ),
    "/v5/asset/deposit/query-record": ListEndpoint(
        _plain("deposits"), _pure(rows.deposit), MONTH_MS, 50, 50, IDS, strictly=True,
        grain_ms=SECOND_MS, rows="rows", permission=WALLET, wanted=_coin_wanted,
    ),
    "/v5/asset/deposit/query-internal-record": ListEndpoint(
        _plain("internal_deposits"), lambda e, a: rows.internal_deposit(e, a.uid), MONTH_MS, 50,
        50, IDS, grain_ms=SECOND_MS, rows="rows", permission=WALLET, wanted=_coin_wanted,
    ),
    "/v5/asset/withdraw/query-record": ListEndpoint(
        _plain("withdrawals"), _pure(rows.withdrawal), MONTH_MS, 50, 50, IDS, strictly=True,
        grain_ms=SECOND_MS, rows="rows", permission=WALLET, wanted=_withdrawal_wanted,
    ),
    "/v5/asset/transfer/query-inter-transfer-list": ListEndpoint(
        _plain("transfers"), _pure(rows.transfer), WEEK_MS, 20, 50, IDS, grain_ms=SECOND_MS,
        permission=WALLET, wanted=_coin_wanted,
    ),
    "/v5/asset/transfer/query-universal-transfer-list": ListEndpoint(
        _plain("universal"), _pure(rows.universal_transfer), WEEK_MS, 20, 50, IDS,
        grain_ms=SECOND_MS, permission=WALLET, wanted=_coin_wanted,
    ),
    "/v5/asset/delivery-record": ListEndpoint(
        _by_category("deliveries"), _pure(rows.delivery), MONTH_MS, 20, 50, PAIRS,
        keeps_ms=TWO_YEARS_MS,
    ),
    "/v5/asset/settlement-record": ListEndpoint(
        _plain("sessions"), _pure(rows.session), MONTH_MS, 20, 50, PAIRS, keeps_ms=TWO_YEARS_MS,
    ),
    "/v5/spot-lever-token/order-record": ListEndpoint(
        _plain("token_orders"), _pure(rows.token_order), TWO_YEARS_MS, 100, 500, NUMBER,
    ),
    "/v5/account/contract-transaction-log": ListEndpoint(
        _book_apart, _pure(rows.contract_line), WEEK_MS, 20, 50, CURSOR_ID,
        keeps_ms=TWO_YEARS_MS, permission=CONTRACT, wanted=_line_wanted,
    ),
    "/v5/pre-upgrade/execution/list": ListEndpoint(
        _by_category("former_executions"), _pure(rows.former_execution), WEEK_MS, 50, 100, TOKEN,
        keeps_ms=TWO_YEARS_MS, wanted=_fill_wanted,
    ),
    "/v5/pre-upgrade/order/history": ListEndpoint(
        _by_category("former_orders"), _pure(rows.former_order), WEEK_MS, 20, 50, TOKEN,
        keeps_ms=TWO_YEARS_MS, wanted=_order_wanted,
    ),
    "/v5/pre-upgrade/position/closed-pnl": ListEndpoint(
        _by_category("former_closed"), _pure(rows.former_closed_pnl), WEEK_MS, 50, 100, TOKEN,
        keeps_ms=TWO_YEARS_MS, permission=CONTRACT, wanted=_symbol_wanted, needs="symbol",
    ),
    "/v5/pre-upgrade/account/transaction-log": ListEndpoint(
        _plain("usdc_ledger"), _pure(rows.former_line), WEEK_MS, 20, 50, PAIRS,
        keeps_ms=TWO_YEARS_MS, shows_ms=HALF_YEAR_MS, permission=CONTRACT,
        wanted=_former_line_wanted, needs="category",
    ),
    "/v5/pre-upgrade/asset/settlement-record": ListEndpoint(
        _plain("former_sessions"), _pure(rows.session), WEEK_MS, 20, 50, PAIRS, ranged=False,
        shows_ms=HALF_YEAR_MS, wanted=_symbol_wanted,
    ),
    "/v5/pre-upgrade/asset/delivery-record": ListEndpoint(
        _plain("former_deliveries"), _pure(rows.delivery), WEEK_MS, 20, 50, PAIRS, ranged=False,
        wanted=_symbol_wanted,
    ),
}  # fmt: skip
MINUTE_S: Final = 60.0
LIMITS: Final = {
    "/v5/execution/list": (50, 1.0),
    "/v5/order/history": (50, 1.0),
    "/v5/position/closed-pnl": (50, 1.0),
    "/v5/account/transaction-log": (25, 1.0),
    "/v5/account/wallet-balance": (50, 1.0),
    "/v5/account/info": (50, 1.0),
    "/v5/asset/fundinghistory": (30, 1.0),
    "/v5/asset/deposit/query-record": (100, MINUTE_S),
    "/v5/asset/deposit/query-internal-record": (300, 1.0),
    "/v5/asset/withdraw/query-record": (300, MINUTE_S),
    "/v5/asset/transfer/query-inter-transfer-list": (60, MINUTE_S),
    "/v5/asset/transfer/query-universal-transfer-list": (5, 1.0),
    "/v5/asset/transfer/query-account-coins-balance": (5, 1.0),
    "/v5/asset/delivery-record": (50, 1.0),
    "/v5/asset/settlement-record": (50, 1.0),
    "/v5/spot-lever-token/order-record": (50, 1.0),
    "/v5/asset/coin/query-info": (5, 1.0),
    "/v5/asset/exchange/query-convert-history": (50, 1.0),
    "/v5/user/query-api": (10, 1.0),
    # Missing from Bybit's table
    "/v5/account/contract-transaction-log": (50, 1.0),
    "/v5/pre-upgrade/execution/list": (50, 1.0),
    "/v5/pre-upgrade/order/history": (50, 1.0),
    "/v5/pre-upgrade/position/closed-pnl": (50, 1.0),
    "/v5/pre-upgrade/account/transaction-log": (50, 1.0),
    "/v5/pre-upgrade/asset/settlement-record": (50, 1.0),
    "/v5/pre-upgrade/asset/delivery-record": (50, 1.0),
}
IP_LIMIT: Final = (600, 5.0)
IP_BAN_S: Final = 600.0
TOO_OLD: Final = (
    "Can't query order earlier than 2 years, please check your params: startTime or endTime!"
)


def bounds(listing: ListEndpoint, query: Query, now_ms: int) -> tuple[int, int]:
    """Return the time range of a query.

    Raises:
        AccountRefused: The real exchange would refuse the query.
    """
    if listing.needs and not query.get(listing.needs):
        raise AccountRefused(10001, f"params error: {listing.needs} is required")
    start, end = _asked_range(listing, query, now_ms) if listing.ranged else (0, now_ms)
    return start if listing.shows_ms is None else max(start, now_ms - listing.shows_ms), end


def _asked_range(listing: ListEndpoint, query: Query, now_ms: int) -> tuple[int, int]:
    start, end = (_time(query, name, listing.unit_ms) for name in listing.times)
    span = listing.default_ms if start is None and end is None else 0
    window = span or listing.window_ms - (SECOND_MS if listing.strictly else 0)
    if start is None:
        end = now_ms if end is None else end
        start = end - window
    elif end is None:
        end = min(now_ms, start + window)
    if start > end:
        raise AccountRefused(10001, "params error: startTime should be before endTime")
    if end - start > listing.window_ms or (listing.strictly and end - start >= listing.window_ms):
        raise AccountRefused(10001, "params error: the time range is too long")
    if listing.keeps_ms is not None and start < now_ms - listing.keeps_ms:
        raise AccountRefused(10001, TOO_OLD)
    return start, end


def _time(query: Query, name: str, unit_ms: int) -> int | None:
    value = query.get(name)
    if not value:
        return None
    if not value.isdigit():
        raise AccountRefused(181006, f"{name} is not a number")
    return int(value) * unit_ms


def page_rows(listing: ListEndpoint, query: Query, *, clamps: bool) -> int:
    """Return the rows of a page; a `limit` above the maximum is cut or refused, by the mode."""
    value = query.get("limit") or str(listing.limit)
    if not value.isdigit() or int(value) < 1:
        raise AccountRefused(181011, "limit is not a number")
    if int(value) > listing.limit_max and not clamps:
        raise AccountRefused(10001, "params error: limit")
    return min(int(value), listing.limit_max)
