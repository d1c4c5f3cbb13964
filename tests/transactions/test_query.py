"""What a request stands for."""

from typing import Any

import pytest

from onebook.errors import InvalidDateRange, InvalidRequest, InvalidTransactionTypes
from onebook.model import DAY_MS
from onebook.transactions.bybit import BybitAdapter
from onebook.transactions.cursor import Cursors
from onebook.transactions.query import LIMIT_DEFAULT, Query, plan
from onebook.transactions.request import TransactionsRequest

NOW_MS = 1_763_000_000_000


def planned(*, streamed: bool = False, **fields: Any) -> Query:
    request = TransactionsRequest(exchange="bybit", **fields)
    return plan(
        request, BybitAdapter(), Cursors(b"s"), key_id="k", now_ms=NOW_MS, streamed=streamed
    )


def test_defaults_are_thirty_days_and_a_thousand_records() -> None:
    query = planned()
    assert (query.from_ms, query.to_ms) == (NOW_MS - 30 * DAY_MS, NOW_MS)
    assert query.limit == LIMIT_DEFAULT
    assert planned(streamed=True).limit is None


def test_words_become_sources_each_once_in_the_adapters_order() -> None:
    assert planned(transaction_types=["trades", "spot_orders", "trades"]).sources == (
        "spot_fills", "spot_orders", "former_spot_fills", "former_spot_orders",
    )  # fmt: skip


def test_an_empty_cursor_is_the_first_page() -> None:
    assert planned(cursor="").state is None


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"transaction_types": ["nonsense"]}, InvalidTransactionTypes, "not known"),
        ({"start_time": NOW_MS, "end_time": NOW_MS - 1}, InvalidDateRange, "after end_time"),
        ({"start_time": NOW_MS + 1}, InvalidDateRange, "start_time"),
        ({"start_time": 1_700_000_000}, InvalidRequest, "looks like seconds"),
        ({"limit": 0}, InvalidRequest, "between 1 and 10,000"),
        ({"limit": 10_001}, InvalidRequest, "between 1 and 10,000"),
        ({"cursor": "nonsense"}, InvalidRequest, "not a cursor"),
    ],
)
def test_what_cannot_be_executed(fields: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        planned(**fields)
