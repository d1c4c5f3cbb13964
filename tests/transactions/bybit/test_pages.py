"""Bybit's pages: query strings, rows, and unreadable parts."""

from typing import Any, Final

import pytest

from onebook.transactions.adapter import Page, SourceFailed, Window
from onebook.transactions.bybit.endpoints import ENDPOINTS
from onebook.transactions.bybit.pages import (
    as_evidence,
    cursor_parameter,
    query_of,
    read_row,
    read_rows,
    rows_of,
    with_holder,
)
from onebook.transactions.record import Holder, Status
from transactions.bybit.native import SPOT, fill, fund_row, line, order
from transactions.test_record import record

WINDOW = Window(1_700_000_000_000, 1_700_001_000_000, 1_700_000_999_999)


def test_a_page_is_asked_for_with_both_bounds_and_its_size() -> None:
    assert query_of(ENDPOINTS["spot_fills"], WINDOW, "") == (
        "category=spot&startTime=1700000000000&endTime=1700000999999&limit=100"
    )


def test_bounds_are_inclusive_at_the_precision_of_the_endpoint() -> None:
    query = query_of(ENDPOINTS["funding_ledger"], WINDOW, "", rows=20)
    assert query == "createTimeFrom=1700000000&createTimeTo=1700000999&limit=20"


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [("", ""), ("a%3D", "&cursor=a%3D"), ("a=", "&cursor=a%3D")],
)
def test_a_cursor_goes_back_as_it_came(cursor: str, expected: str) -> None:
    assert cursor_parameter(cursor) == expected


def test_a_row_that_cannot_be_read_is_shown_and_counted() -> None:
    found, read = read_row({"nothing": 1}, ENDPOINTS["spot_fills"], SPOT)
    assert not read
    assert (found.kind, found.status) == ("other", Status.UNKNOWN)


AT, AT_S = "1700000000000", "1700000000"
MOVES: Final[dict[str, dict[str, Any]]] = {
    "chain_deposits": {"id": "1", "coin": "BTC", "amount": "1", "status": 3, "successAt": AT},
    "internal_deposits": {
        "id": "1", "coin": "BTC", "amount": "1", "status": 2, "createdTime": AT_S,
    },
    "withdrawals": {"withdrawId": "1", "coin": "BTC", "amount": "1", "createTime": AT},
    "internal_transfers": {"transferId": "1", "coin": "BTC", "amount": "1", "timestamp": AT},
    "spot_fills": fill(),
    "linear_fills": fill(execType="Funding", execFee="1"),
    "spot_orders": order(createdTime=AT),
    "unified_ledger": line(transactionTime=AT),
    "funding_ledger": fund_row(createTime=AT_S),
    "linear_deliveries": {"symbol": "BTCUSDT", "deliveryTime": AT, "deliveryRpl": "1"},
    "usdc_sessions": {"symbol": "BTCPERP", "createdTime": AT, "realisedPnl": "1"},
    "linear_closed_pnl": {
        "symbol": "BTCUSDT", "orderId": "1", "closedPnl": "1", "updatedTime": AT,
    },
    "token_orders": {
        "ltCoin": "BTC3L", "valueCoin": "USDT", "amount": 5, "value": "10", "ltOrderType": 2,
        "ltOrderStatus": 1, "orderId": 7, "orderTime": AT,
    },
}  # fmt: skip


@pytest.mark.parametrize("source", MOVES)
def test_a_time_in_the_other_unit_is_unreadable_and_keeps_its_place(source: str) -> None:
    """The page of each list names one unit; seconds where it says ms were lost in 1970."""
    endpoint, row = ENDPOINTS[source], MOVES[source]
    other = {AT: AT_S, AT_S: AT}
    turned = {name: other.get(value, value) for name, value in row.items()}
    assert turned != row
    window = Window(int(AT) - 86_400_000, int(AT) + 86_400_000, int(AT) + 86_399_999)
    (record,), unreadable = read_rows([turned], endpoint, SPOT, window)
    assert unreadable == 1
    assert record.status is Status.UNKNOWN
    assert int(AT) <= record.timestamp < int(AT) + 1_000, "of the second that is said"


@pytest.mark.parametrize("value", ["", None])
@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("chain_deposits", "id"), ("chain_deposits", "coin"), ("chain_deposits", "amount"),
        ("internal_deposits", "id"), ("internal_deposits", "coin"),
        ("internal_deposits", "amount"), ("withdrawals", "withdrawId"), ("withdrawals", "coin"),
        ("withdrawals", "amount"), ("internal_transfers", "transferId"),
        ("internal_transfers", "coin"), ("internal_transfers", "amount"),
        ("spot_fills", "execId"), ("spot_fills", "execQty"), ("linear_fills", "execFee"),
        ("spot_orders", "orderId"), ("unified_ledger", "currency"), ("unified_ledger", "change"),
        ("funding_ledger", "currency"), ("funding_ledger", "txnAmt"),
        ("funding_ledger", "ioDirection"), ("linear_deliveries", "deliveryRpl"),
        ("funding_ledger", "createTime"), ("usdc_sessions", "realisedPnl"),
        ("linear_closed_pnl", "orderId"), ("linear_closed_pnl", "closedPnl"),
        ("token_orders", "orderId"), ("token_orders", "ltCoin"), ("token_orders", "amount"),
    ],
)  # fmt: skip
def test_a_row_without_what_moved_is_unreadable_not_a_move_of_nothing(
    source: str, name: str, value: str | None
) -> None:
    """And without its id it would be one with every other row without one."""
    endpoint = ENDPOINTS[source]
    assert read_row(MOVES[source], endpoint, SPOT)[1]
    rows = [MOVES[source] | {name: value, "note": note} for note in "ab"]
    read, unreadable = read_rows(rows, endpoint, SPOT, WINDOW)
    assert unreadable == 2
    assert len({record.transactionId for record in read}) == 2
    assert {record.status for record in read} == {Status.UNKNOWN}


@pytest.mark.parametrize("source", ["chain_deposits", "withdrawals", "funding_ledger"])
def test_an_amount_whose_direction_is_given_elsewhere_has_no_sign(source: str) -> None:
    field = "txnAmt" if source == "funding_ledger" else "amount"
    assert not read_row(MOVES[source] | {field: "-1"}, ENDPOINTS[source], SPOT)[1]


def test_a_way_that_is_neither_in_nor_out_is_not_guessed() -> None:
    assert not read_row(fund_row(ioDirection="X"), ENDPOINTS["funding_ledger"], SPOT)[1]


class TestEqualRowsWithoutAnId:
    """Equal rows of one page are separate events; rows repeated by another page are not."""

    ENDPOINT = ENDPOINTS["funding_ledger"]

    def ids(self, *rows: Any) -> list[str]:
        read, _ = read_rows(list(rows), self.ENDPOINT, SPOT, WINDOW)
        return [record.transactionId for record in read]

    def test_each_counts(self) -> None:
        rows = [fund_row(createTime=AT_S, currcCursor="") for _ in range(3)]
        assert len(set(self.ids(*rows))) == 3

    def test_the_same_page_has_the_same_ids(self) -> None:
        rows = [fund_row(createTime=AT_S, currcCursor="", afterAmt=after) for after in "2232"]
        assert self.ids(*rows) == self.ids(*rows)
        assert self.ids(rows[0]) == self.ids(*rows)[:1]

    def test_an_id_that_is_repeated_is_one_event(self) -> None:
        assert len(set(self.ids(*[fund_row(createTime=AT_S)] * 2))) == 1


@pytest.mark.parametrize("rows", [{}, "", 0, False])
def test_rows_that_are_no_list_are_not_an_empty_list(rows: Any) -> None:
    assert rows_of(ENDPOINTS["withdrawals"], {"rows": None}) == ([], "")
    with pytest.raises(SourceFailed):
        rows_of(ENDPOINTS["withdrawals"], {"rows": rows})


class TestAnUnreadableRowKeepsItsPlace:
    """The time is taken from another field of the row, or from its neighbours."""

    LATE = WINDOW.to_ms - 1

    def times(self, *rows: Any, source: str = "spot_fills") -> list[int]:
        read, unreadable = read_rows(list(rows), ENDPOINTS[source], SPOT, WINDOW)
        assert unreadable == sum(record.kind == "other" for record in read)
        return [record.timestamp for record in read]

    def test_its_own_time_counts(self) -> None:
        row = fill(execTime=str(self.LATE - 5)) | {"execPrice": "nonsense"}
        assert self.times(fill(execTime=str(self.LATE)), row) == [self.LATE, self.LATE - 5]

    @pytest.mark.parametrize("at", ["nonsense", "99999999999999999999", "", [], None])
    def test_without_one_it_stands_beside_the_row_before_it(self, at: Any) -> None:
        rows = [fill(execTime=str(self.LATE - n)) for n in range(3)]
        rows[1]["execTime"] = at
        assert self.times(*rows) == [self.LATE, self.LATE, self.LATE - 2]

    def test_the_first_of_a_page_stands_where_the_page_begins(self) -> None:
        after = fill(execTime=str(self.LATE - 2))
        assert self.times(None, after) == [WINDOW.seen_ms, self.LATE - 2]

    def test_a_time_in_seconds_is_one(self) -> None:
        row = {"currency": "BTC", "ioDirection": "I", "txnAmt": "much", "createTime": "1700000500"}
        assert self.times(row, source="funding_ledger") == [1_700_000_500_000]

    def test_nothing_but_nonsense_stands_there_too(self) -> None:
        assert self.times({"nothing": 1}) == [WINDOW.seen_ms]

    def test_where_rows_are_in_no_order_of_times_neighbours_say_nothing(self) -> None:
        credited = {"coin": "BTC", "amount": "1", "successAt": str(self.LATE), "status": 3}
        assert self.times(credited, {}, source="chain_deposits")[1] == SPOT.fallback_time_ms


def test_a_holder_is_named_once() -> None:
    assert with_holder(record(account=Holder("FUND", None)), "7").account == Holder("FUND", "7")
    assert with_holder(record(account=Holder("FUND", "1")), "7").account == Holder("FUND", "1")
    assert with_holder(record(account=None), None).account is None


def test_a_witness_gives_no_record_but_the_time_below_which_more_was() -> None:
    page = as_evidence(Page([record(timestamp=5, updated_at=9)], 1, "next"))
    assert (page.records, page.kept_from_ms, page.cursor) == ([], 10, "")
    pending = as_evidence(Page([record(timestamp=5, status=Status.PENDING)], 1, "next"))
    assert (pending.kept_from_ms, pending.cursor) == (None, "next")
