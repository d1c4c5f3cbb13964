"""The request of endpoint 10."""

from typing import Any

import pytest
from pydantic import ValidationError

from onebook.transactions.request import TransactionsRequest


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
