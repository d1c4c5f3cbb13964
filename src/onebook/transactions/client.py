"""Sends requests to an exchange: connections, limits, retries, circuit breaker, clock.

No rule of an exchange is here: how a request is signed and what an answer means is its
`upstream.ExchangeApi`. The query string is built once, signed and sent byte for byte: clients that
quote it again break the signature on cursors. No message text of an exchange leaves this module.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

import httpx
from msgspec.structs import replace

from onebook.backoff import TryAgain, retried
from onebook.inflate import TooLong, Uninflatable
from onebook.rest import Answer, NoCookies, Wire
from onebook.transactions import counters
from onebook.transactions.adapter import RequestVerdict
from onebook.transactions.budget import ATTEMPTS_MAX, Circuit, Retries, SharedLimit, Waits
from onebook.transactions.clock import ServiceClock
from onebook.transactions.credentials import Credentials
from onebook.transactions.failures import CursorGone, FailureReason, SourceFailed, TooOld
from onebook.transactions.fairness import Slots
from onebook.transactions.host import ExchangeHost
from onebook.transactions.upstream import Call, ExchangeApi, Reply, Then

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 10.0
TOTAL_S: Final = 30.0  # one attempt with its whole body, however slowly it comes


class ExchangeClient:
    """The HTTP client of one exchange: one pool, circuit and address limit for all environments.

    Args:
        api: How the exchange is asked and how it answers.
        clock: Wall clock, monotonic clock and waiting.
        transport: In place of the connection pool.
        random: For jitter.
        spare: Whether connections are kept free for API keys that are not asking yet.
    """

    def __init__(
        self,
        api: ExchangeApi,
        clock: ServiceClock,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        random: Random | None = None,
        spare: bool = True,
    ) -> None:
        facts = api.facts
        self.clock = clock
        self.random = random or Random()  # noqa: S311  # jitter
        self.waits = Waits(clock)
        self._api = api
        self._facts = facts
        self._circuit = Circuit(facts.circuit_s, clock)
        self._stopped_by: SourceFailed | None = None
        self._address_limit = SharedLimit(facts.address_rate, clock)
        self._slots = Slots(facts.connections_max, spare=spare)
        self._log = logging.getLogger(f"onebook.transactions.{facts.name}")
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=facts.connections_max),
            follow_redirects=False,
            transport=transport,
            headers={"Accept": "application/json", "User-Agent": "onebook"},
            trust_env=False,
            cookies=NoCookies(),
        )
        self._wire = Wire(self._http)
        self._turn = asyncio.Lock()

    @property
    def connections_in_use(self) -> int:
        """How many connections are assigned to a request."""
        return self._wire.in_use

    def host(self, base_url: str, *, reserve: float = 0.0) -> ExchangeHost:
        """An environment of the exchange."""
        return ExchangeHost(base_url, self._facts, clock=self.clock, reserve=reserve)

    async def close(self) -> None:
        """Cancel what is under way and close every connection."""
        await self._wire.close()

    async def ask(
        self,
        host: ExchangeHost,
        call: Call,
        *,
        credentials: Credentials | None,
        retries: Retries,
    ) -> Reply:
        """Ask once, and again while it may help; the reply has no failure.

        Raises:
            SourceFailed: There is no answer to be had.
            TooOld: The range reaches further back than the exchange keeps.
            CursorGone: The exchange no longer accepts the cursor of the call.
        """
        try:
            reply = await self._tried(host, call, credentials, retries)
        except SourceFailed as failure:
            if credentials is not None and (failure.fatal or failure.retryable):
                host.verdict = self._verdict(failure)
            raise
        if credentials is not None:
            host.verdict = self._verdict()
        return reply

    async def _tried(
        self, host: ExchangeHost, call: Call, credentials: Credentials | None, retries: Retries
    ) -> Reply:
        def failed(number: int, again: TryAgain) -> float:
            failure = again.failure
            assert isinstance(failure, SourceFailed)
            retries.failed(failure)
            if number > 1:  # twice is no accident, and the caller may leave before the last
                host.verdict = self._verdict(failure)
            if number == ATTEMPTS_MAX:
                raise failure
            if not retries.spend():
                raise _spent(failure)
            counters.RETRIES.labels(self._facts.name).inc()
            return retries.backoff_s(number - 1) if again.wait_s is None else again.wait_s

        reply = await retried(
            lambda _: self._attempt(host, call, credentials, key=retries.key),
            attempts_max=ATTEMPTS_MAX,
            failed=failed,
            sleep=self.clock.sleep,
        )
        retries.succeeded()
        return reply

    def _verdict(self, failure: SourceFailed | None = None) -> RequestVerdict:
        at_ms = self.clock.now_ms()
        if failure is None:
            return RequestVerdict(at_ms)
        return RequestVerdict(at_ms, failure.reason.value, failure.message)

    async def _attempt(
        self, host: ExchangeHost, call: Call, credentials: Credentials | None, *, key: str
    ) -> Reply:
        account = credentials.api_key if credentials else ""
        limit = host.limit(call, account)
        came_s = self.clock.now_s()
        await limit.take(self.waits, key=key)
        await self._address_limit.take(self.waits, key=key)
        counters.WAITED.labels(self._facts.name).inc(max(0.0, self.clock.now_s() - came_s))
        async with host.ordered(account, key=key):
            self._raise_if_stopped()
            with self.waits.asking():
                async with self._slots.slot(key):
                    with self._counted():
                        return await self._ask(host, call, credentials, limit=limit)

    async def _ask(
        self, host: ExchangeHost, call: Call, credentials: Credentials | None, *, limit: SharedLimit
    ) -> Reply:
        clock = self.clock
        sent_ms, sent_s = clock.now_ms(), clock.now_s()
        answer = await self._send(self._request(host, call, credentials))
        # Many large pages may arrive at once: one is decoded in each turn of the event loop.
        async with self._turn:
            await asyncio.sleep(0)
        reply = self._api.read(answer.status, answer.headers, answer.body)
        now_s = clock.now_s()
        if reply.server_ms:
            way_s = now_s - sent_s
            host.offset.observe(reply.server_ms, sent_ms=sent_ms, way_s=way_s, now_s=now_s)
        if reply.limit is not None:
            limit.lower(reply.limit)
        if reply.block_s > 0:
            limit.block(reply.block_s)
        if reply.clock_ms is not None:
            host.offset.corrected(reply.clock_ms, now_ms=clock.now_ms())
        if reply.failure is not None:
            self._raise(reply.failure, reply.then)
        return reply

    def _request(
        self, host: ExchangeHost, call: Call, credentials: Credentials | None
    ) -> httpx.Request:
        if credentials is not None:
            # What is signed is what goes over the wire, not what we meant to send.
            wire = _url(host, call).query.decode("ascii")
            stamp = host.stamp(credentials.api_key)
            call = self._api.sign(replace(call, query=wire), credentials, stamp=stamp)
        return self._http.build_request(
            call.method, _url(host, call), headers=dict(call.headers), content=call.body or None
        )

    async def _send(self, request: httpx.Request) -> Answer:
        facts = self._facts
        try:
            return await self._wire.answer(request, bytes_max=facts.body_bytes_max, total_s=TOTAL_S)
        except TooLong:
            message = f"{facts.display}'s answer is larger than the limit."
            raise SourceFailed(FailureReason.UNREADABLE, message) from None
        except (httpx.TransportError, Uninflatable, TimeoutError) as error:
            self._log.debug("%s: %s", request.url.path, type(error).__name__)
            message = f"{facts.display} cannot be reached."
            raise TryAgain(
                SourceFailed(FailureReason.UNREACHABLE, message, retryable=True)
            ) from None

    def _raise(self, failure: SourceFailed, then: Then) -> None:
        """Do what an answer asks for; `Then` names every way."""
        if then is Then.TOO_OLD:
            raise TooOld
        if then is Then.CURSOR_GONE:
            raise CursorGone
        if then is Then.RETRY:
            raise TryAgain(failure)
        if then is Then.RETRY_NOW:
            raise TryAgain(failure, wait_s=0.0)
        if then is Then.STOP:
            self._stop(failure)
            self._raise_if_stopped()
        raise failure

    def _stop(self, failure: SourceFailed) -> None:
        """Ask nothing from now on."""
        name, circuit_s = self._facts.name, self._facts.circuit_s
        self._log.warning(
            "%s refused this address: no requests for %d s", self._facts.display, circuit_s
        )
        self._stopped_by = failure
        self._circuit.trip()
        counters.TRIPS.labels(name).inc()
        counters.OPEN_UNTIL.labels(name).set(self.clock.now_ms() / 1_000 + circuit_s)

    def _raise_if_stopped(self) -> None:
        left_s, failure = self._circuit.left_s(), self._stopped_by
        if left_s <= 0 or failure is None:
            return
        raise SourceFailed(
            FailureReason.CIRCUIT_OPEN,
            failure.message,
            exchange_code=failure.exchange_code,
            retryable=True,
            retry_after_s=left_s,
        )

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a request by its outcome."""
        outcome = counters.CANCELLED
        try:
            yield
            outcome = counters.OK
        except TryAgain as again:
            if isinstance(again.failure, SourceFailed):
                outcome = again.failure.reason.value
            raise
        except SourceFailed as failure:
            outcome = failure.reason.value
            raise
        except TooOld:
            outcome = counters.TOO_OLD
            raise
        except CursorGone:
            outcome = counters.CURSOR_GONE
            raise
        finally:
            counters.REQUESTS.labels(self._facts.name, outcome).inc()


def _url(host: ExchangeHost, call: Call) -> httpx.URL:
    return httpx.URL(f"{host.base_url}{call.path}?{call.query}")


def _spent(failure: SourceFailed) -> SourceFailed:
    return SourceFailed(
        FailureReason.BUDGET_SPENT,
        f"{failure.message} Too many retries were needed; ask again later.",
        exchange_code=failure.exchange_code,
        retryable=True,
    )
