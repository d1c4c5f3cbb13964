"""Whether the interface of an exchange can work now."""

from typing import Any

import pytest

from onebook.errors import ConfigError, ServiceUnavailable
from onebook.transactions.adapter import RequestVerdict
from onebook.transactions.standing import KEPT_S, ExchangeStanding, Standings


class Scripted:
    """An adapter, a vault and a clock, as far as standings look at them."""

    def __init__(self) -> None:
        self.stored: Any = object()
        self.said: RequestVerdict | None = None
        self.now_s = 0.0
        self.asked = 0

    def verdict(self, environment: str) -> RequestVerdict | None:
        return self.said

    async def get(self, exchange: str, environment: str) -> object | None:
        self.asked += 1
        if isinstance(self.stored, Exception):
            raise self.stored
        return self.stored

    def standings(self) -> Standings:
        return Standings({"x": self}, self.get, lambda: self.now_s)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("stored", "failure", "expected"),
    [
        (object(), None, ExchangeStanding.OPERATIONAL),
        (None, None, ExchangeStanding.MISSING),
        (ConfigError("no key"), None, ExchangeStanding.MISSING),
        (ServiceUnavailable("away"), None, ExchangeStanding.UNKNOWN),
        (object(), "authentication_failed", ExchangeStanding.REFUSED),
        (object(), "circuit_open", ExchangeStanding.UNREACHABLE),
        (object(), "exchange_error", ExchangeStanding.OPERATIONAL),
    ],
)
async def test_a_standing(stored: Any, failure: str | None, expected: ExchangeStanding) -> None:
    here = Scripted()
    here.stored = stored
    here.said = RequestVerdict(0, failure)
    assert await here.standings().all() == {"x": expected}


async def test_the_vault_is_looked_into_once_in_a_while() -> None:
    here = Scripted()
    standings = here.standings()
    for now_s in (0.0, KEPT_S / 2, KEPT_S):
        here.now_s = now_s
        await standings.all()
    assert here.asked == 2
