"""One environment of an exchange: its address, clock offset, limits and last verdict."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from onebook.transactions.adapter import RequestVerdict
from onebook.transactions.budget import SharedLimit
from onebook.transactions.clock import ServiceClock
from onebook.transactions.fairness import Slots
from onebook.transactions.upstream import ApiFacts, Call

OFFSET_MAX_AGE_S: Final = 300.0


class ClockOffset:
    """How far the exchange's clock is ahead of ours, by the fastest answer."""

    def __init__(self) -> None:
        self.ms = 0
        self._way_s = float("inf")
        self._at_s = float("-inf")

    def observe(self, server_ms: int, *, sent_ms: int, way_s: float, now_s: float) -> None:
        """Add the time of one answer; `way_s` is its round trip."""
        if way_s <= self._way_s or now_s - self._at_s > OFFSET_MAX_AGE_S:
            self.ms = server_ms - sent_ms - round(way_s * 500)
            self._way_s, self._at_s = way_s, now_s

    def corrected(self, server_ms: int, *, now_ms: int) -> None:
        """Adopt the exchange's time: it refused ours."""
        self.ms = server_ms - now_ms
        self._way_s = float("inf")


class ExchangeHost:
    """The state of one environment that all requests to it share.

    Args:
        base_url: Its address.
        facts: The limits of the exchange.
        reserve: Share of each long limit that one API key leaves to others, see `budget.Limit`.
    """

    def __init__(
        self, base_url: str, facts: ApiFacts, *, clock: ServiceClock, reserve: float = 0.0
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.offset = ClockOffset()
        self.verdict: RequestVerdict | None = None
        self._facts = facts
        self._clock = clock
        self._reserve = reserve
        self._limits: dict[tuple[str, str], SharedLimit] = {}
        self._orders: dict[str, Slots] = {}
        self._stamps: dict[str, int] = {}

    def limit(self, call: Call, account: str) -> SharedLimit:
        """The limit of a call: exchanges count by user, we by the operator's key."""
        name = call.rate or call.path
        key = (name, account)
        if key not in self._limits:
            self._limits[key] = SharedLimit(
                self._facts.rates[name], self._clock, reserve=self._reserve
            )
        return self._limits[key]

    @asynccontextmanager
    async def ordered(self, account: str, *, key: str) -> AsyncIterator[None]:
        """Hold the account where its requests go one after the other; API keys take turns."""
        if not (self._facts.rising and account):
            yield
            return
        order = self._orders.setdefault(account, Slots(1, spare=False))
        async with order.slot(key):
            yield

    def stamp(self, account: str) -> int:
        """The time of the next request by the exchange's clock; where it must rise, it does."""
        at_ms = self._clock.now_ms() + self.offset.ms
        if self._facts.rising:
            at_ms = max(at_ms, self._stamps.get(account, 0) + 1)
            self._stamps[account] = at_ms
        return at_ms
