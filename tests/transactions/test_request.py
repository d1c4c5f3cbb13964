"""The request of endpoint 10."""

from typing import Any

import pytest
from pydantic import ValidationError

from onebook.errors import InvalidDateRange, InvalidRequest, InvalidTransactionTypes
from onebook.model import DAY_MS
from onebook.transactions.bybit import BYBIT
from onebook.transactions.cursor import Cursors
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.request import LIMIT_DEFAULT, Query, TransactionsRequest, plan

NOW_MS = 1_763_000_000_000


def read(body: str) -> TransactionsRequest:
    return TransactionsRequest.model_validate_json(body, strict=True)


def test_names_are_read_in_any_case_and_whole_numbers_in_any_form() -> None:
    request = read('{"exchange": " ByBit ", "limit": 5.0, "start_time": 1700000000000.0}')
    assert (request.exchange, request.limit, request.start_time) == (
        "bybit", 5, 1_700_000_000_000,
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(TransactionsRequest.model_fields) - {"exchange"}))
def test_null_means_absent(name: str) -> None:
    assert read(f'{{"exchange": "bybit", "{name}": null}}') == read('{"exchange": "bybit"}')


@pytest.mark.parametrize(
    "field", ['"limit": 1.5', '"start_time": "2024-01-01"', '"credentials": {}', '"testnet": 1']
)
def test_what_is_no_request(field: str) -> None:
    with pytest.raises(ValidationError):
        read(f'{{"exchange": "bybit", {field}}}')


def test_it_does_not_change() -> None:
    request: Any = TransactionsRequest(exchange="bybit")
    with pytest.raises(ValidationError):
        request.limit = 5


def planned(*, streamed: bool = False, **fields: Any) -> Query:
    request = TransactionsRequest(exchange="bybit", **fields)
    return plan(
        request, ExchangeAdapter(BYBIT), Cursors(b"s"), key_id="k", now_ms=NOW_MS, streamed=streamed
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
        (
            {"transaction_types": ["nonsense"]},
            InvalidTransactionTypes,
            "Bybit has no transaction type 'nonsense'; its types: holdings",
        ),
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
