"""The facts of Bybit's paths."""

from onebook.transactions.bybit.endpoints import ENDPOINTS
from onebook.transactions.bybit.paths import ACCOUNT, API_KEY, INSTRUMENTS, RATES


def test_every_path_that_is_asked_has_a_limit() -> None:
    asked = {endpoint.path for endpoint in ENDPOINTS.values()} | {ACCOUNT, API_KEY, INSTRUMENTS}
    assert asked == set(RATES)


def test_a_limit_begins_no_higher_than_its_table() -> None:
    assert all(rate.start <= rate.count for rate in RATES.values())
