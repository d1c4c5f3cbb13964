"""Sends requests to an exchange: connections, limits, retries, circuit breaker, clock.

No rule of an exchange is here: `ExchangeApi` says how a request is signed and what an answer means.
The query string is built once, signed and sent byte for byte: clients that quote it again break the
signature on cursors. No message text of an exchange leaves this module.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
from msgspec import Struct
from msgspec.structs import replace

from onebook.backoff import TryAgain, retried
from onebook.clock import Clock
from onebook.inflate import TooLong, Uninflatable
from onebook.rest import Answer, NoCookies, Wire
from onebook.transactions import metrics
from onebook.transactions.adapter import (
    AdapterEntry,
    CursorGone,
    FailureReason,
    RequestVerdict,
    SourceFailed,
    TooOld,
)
from onebook.transactions.address import AddressWindow
from onebook.transactions.credentials import Credentials
from onebook.transactions.limits import (
    ATTEMPTS_MAX,
    Circuit,
    Rate,
    Retries,
    SharedLimit,
    Slots,
    Waits,
)

CONNECTIONS_MAX: Final = 20
BODY_BYTES_MAX: Final = 8 * 1024 * 1024  # an instrument list of one category is about 1 MB
OFFSET_MAX_AGE_S: Final = 300.0
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 10.0
TOTAL_S: Final = 30.0  # one attempt with its whole body, however slowly it comes


class ExchangeApi(Struct, frozen=True, kw_only=True):
    """Documented limits of an exchange's REST API, and the functions that sign and read; pure.

    Args:
        rates: The limit of each path (or `Call.rate`), counted per account.
        address_rate: The limit of all requests of this address together.
        circuit_s: Seconds without requests after a rate-limit breach or a ban.
        sign: Returns a call with its authentication, from the call, credentials and a stamp. The
            query string of the call is already as it goes over the wire. The stamp is the time of
            the request by the exchange's clock, Unix ms; where stamps must rise, it is higher than
            that of any earlier request of the key.
        read: Interprets an answer by its status, headers and body.
        rising: Whether the stamp of each request of a key must be higher than the one before it
            (a nonce): requests are then sent strictly one after the other.
        connections_max: Maximum open connections.
        body_bytes_max: Maximum size of an answer.
    """

    rates: Mapping[str, Rate]
    address_rate: Rate
    circuit_s: float
    sign: Callable[["Call", Credentials, int], "Call"]
    read: Callable[[int, Mapping[str, str], bytes], "Reply"]
    rising: bool = False
    connections_max: int = CONNECTIONS_MAX
    body_bytes_max: int = BODY_BYTES_MAX


class Call(Struct, frozen=True):
    """One request.

    Args:
        path: Its path below the address of the environment.
        query: Its query string, quoted.
        rate: The limit it counts in, a key of `ExchangeApi.rates`; "": the path.
    """

    path: str
    query: str = ""
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] = {}
    rate: str = ""


class Then(StrEnum):
    """The client's reaction to a failure reported in an answer."""

    RAISE = "raise"
    RETRY = "retry"  # after a backoff
    RETRY_NOW = "retry_now"  # the limit (`block_s`) or the corrected clock makes the difference
    STOP = "stop"  # open the circuit
    TOO_OLD = "too_old"
    CURSOR_GONE = "cursor_gone"  # the cursor of an earlier answer has expired


class Reply(Struct, frozen=True, kw_only=True):
    """An interpreted answer.

    Args:
        value: The decoded result; set if `failure` is None.
        server_ms: The exchange's time, Unix ms; 0 if not stated.
        clock_ms: The exchange's time if it refused ours; None otherwise.
        limit: The exchange's own figure for the limit of the path; None if not stated.
        block_s: Seconds without further requests to the path.
        failure: The failure, if any.
        then: What the client does about it.
    """

    value: Any = None
    server_ms: int = 0
    clock_ms: int | None = None
    limit: int | None = None
    block_s: float = 0.0
    failure: SourceFailed | None = None
    then: Then = Then.RAISE


class Outcome(Struct, frozen=True):
    """Meaning of a status or error code of an exchange.

    Args:
        message: A sentence for people; holds nothing of what the exchange said.
        retryable: Whether asking again may help.
        fatal: Whether nothing of this account can be read.
    """

    reason: FailureReason
    message: str
    retryable: bool = False
    fatal: bool = False

    def failure(self, code: int | None = None) -> SourceFailed:
        """As the failure of a source, with the exchange's own code."""
        return SourceFailed(
            self.reason,
            self.message,
            exchange_code=code,
            retryable=self.retryable,
            fatal=self.fatal,
        )

    def reply(self, code: int | None = None, **more: Any) -> Reply:
        """As a reply that is retried if that may help."""
        then = Then.RETRY if self.retryable else Then.RAISE
        return Reply(failure=self.failure(code), then=then, **more)


class ClockOffset:
    """Offset of the exchange's clock to ours, measured by the fastest answer."""

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
        api: The limits of the exchange.
        reserve: Share of each long limit that one API key leaves to others; see `SharedLimit`.
    """

    def __init__(
        self, base_url: str, api: ExchangeApi, *, clock: Clock, reserve: float = 0.0
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.offset = ClockOffset()
        self.verdict: RequestVerdict | None = None
        self._api = api
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
                self._api.rates[name], self._clock, reserve=self._reserve
            )
        return self._limits[key]

    @asynccontextmanager
    async def ordered(self, account: str, *, key: str) -> AsyncIterator[None]:
        """Hold the account where its requests go one after the other; API keys take turns."""
        if not (self._api.rising and account):
            yield
            return
        order = self._orders.setdefault(account, Slots(1, spare=False))
        async with order.slot(key):
            yield

    def stamp(self, account: str) -> int:
        """The time of the next request by the exchange's clock; where it must rise, it does."""
        at_ms = self._clock.wall_ms() + self.offset.ms
        if self._api.rising:
            at_ms = max(at_ms, self._stamps.get(account, 0) + 1)
            self._stamps[account] = at_ms
        return at_ms


class ExchangeClient:
    """The HTTP client of one exchange: one pool, circuit and address limit for all environments.

    Args:
        entry: The exchange's name, for metrics, logs and messages.
        api: Its limits, and how it is spoken to.
        clock: Time and sleeping.
        transport: In place of the connection pool.
        random: For jitter.
        spare: Whether connections are kept free for API keys that are not asking yet.
        shared: The file by which the processes of this machine share the limit of its address.
    """

    def __init__(
        self,
        entry: AdapterEntry,
        api: ExchangeApi,
        clock: Clock,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        random: Random | None = None,
        spare: bool = True,
        shared: Path | None = None,
    ) -> None:
        self.clock = clock
        self.random = random or Random()  # noqa: S311  # jitter
        self.waits = Waits(clock)
        self._api = api
        self._entry = entry
        self._circuit = Circuit(api.circuit_s, clock)
        self._stopped_by: SourceFailed | None = None
        self._address_limit = SharedLimit(api.address_rate, clock)
        self._address_window = AddressWindow(api.address_rate, clock, shared, display=entry.display)
        self._slots = Slots(api.connections_max, spare=spare)
        self._log = logging.getLogger(f"onebook.transactions.{entry.name}")
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=api.connections_max),
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
        """Connections in use."""
        return self._wire.in_use

    def host(self, base_url: str, *, reserve: float = 0.0) -> ExchangeHost:
        """An environment of the exchange."""
        return ExchangeHost(base_url, self._api, clock=self.clock, reserve=reserve)

    async def close(self) -> None:
        """Cancel running requests and close every connection."""
        await self._wire.close()
        self._address_window.close()

    async def ask(
        self,
        host: ExchangeHost,
        call: Call,
        *,
        credentials: Credentials | None,
        retries: Retries,
    ) -> Reply:
        """Send a request, and again while that may help; the reply has no failure.

        Raises:
            SourceFailed: The exchange does not answer, or refuses.
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
            metrics.RETRIES.labels(self._entry.name).inc()
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
        at_ms = self.clock.wall_ms()
        if failure is None:
            return RequestVerdict(at_ms)
        return RequestVerdict(at_ms, failure.reason.value, failure.message)

    async def _attempt(
        self, host: ExchangeHost, call: Call, credentials: Credentials | None, *, key: str
    ) -> Reply:
        account = credentials.api_key if credentials else ""
        limit = host.limit(call, account)
        came_s = self.clock.monotonic()
        await limit.acquire(self.waits, key=key)
        await self._address_limit.acquire(self.waits, key=key)
        metrics.WAITED.labels(self._entry.name).inc(max(0.0, self.clock.monotonic() - came_s))
        async with host.ordered(account, key=key):
            self._raise_if_stopped()
            # The address last: its places are for requests that are sent at once.
            async with self._slots.slot(key), self._address_window.request(self.waits):
                self._raise_if_stopped()
                with self.waits.in_flight(), self._counted():
                    return await self._ask(host, call, credentials, limit=limit)

    async def _ask(
        self, host: ExchangeHost, call: Call, credentials: Credentials | None, *, limit: SharedLimit
    ) -> Reply:
        clock = self.clock
        sent_ms, sent_s = clock.wall_ms(), clock.monotonic()
        answer = await self._send(self._request(host, call, credentials))
        # Many large pages may arrive at once: one is decoded in each turn of the event loop.
        async with self._turn:
            await asyncio.sleep(0)
        reply = self._api.read(answer.status, answer.headers, answer.body)
        now_s = clock.monotonic()
        if reply.server_ms:
            way_s = now_s - sent_s
            host.offset.observe(reply.server_ms, sent_ms=sent_ms, way_s=way_s, now_s=now_s)
        if reply.limit is not None:
            limit.lower(reply.limit)
        if reply.block_s > 0:
            limit.block(reply.block_s)
        if reply.clock_ms is not None:
            host.offset.corrected(reply.clock_ms, now_ms=clock.wall_ms())
        if reply.failure is not None:
            self._raise(reply.failure, reply.then)
        return reply

    def _request(
        self, host: ExchangeHost, call: Call, credentials: Credentials | None
    ) -> httpx.Request:
        if credentials is not None:
            # Sign the query string as it goes over the wire: httpx may have quoted it.
            wire = _url(host, call).query.decode("ascii")
            stamp = host.stamp(credentials.api_key)
            call = self._api.sign(replace(call, query=wire), credentials, stamp)
        return self._http.build_request(
            call.method, _url(host, call), headers=dict(call.headers), content=call.body or None
        )

    async def _send(self, request: httpx.Request) -> Answer:
        try:
            return await self._wire.answer(
                request, bytes_max=self._api.body_bytes_max, total_s=TOTAL_S
            )
        except TooLong:
            message = f"{self._entry.display}'s answer is larger than the limit."
            raise SourceFailed(FailureReason.UNREADABLE, message) from None
        except (httpx.TransportError, Uninflatable, TimeoutError) as error:
            self._log.debug("%s: %s", request.url.path, type(error).__name__)
            message = f"{self._entry.display} cannot be reached."
            raise TryAgain(
                SourceFailed(FailureReason.UNREACHABLE, message, retryable=True)
            ) from None

    def _raise(self, failure: SourceFailed, then: Then) -> None:
        """Raise what `then` stands for."""
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
        """Open the circuit: send nothing for a while."""
        name, circuit_s = self._entry.name, self._api.circuit_s
        self._log.warning(
            "%s refused this address: no requests for %d s", self._entry.display, circuit_s
        )
        self._stopped_by = failure
        self._circuit.trip()
        self._address_window.refuse(circuit_s)
        metrics.TRIPS.labels(name).inc()
        metrics.OPEN_UNTIL.labels(name).set(self.clock.wall_ms() / 1_000 + circuit_s)

    def _raise_if_stopped(self) -> None:
        left_s, failure = self._circuit.left_s(), self._stopped_by
        if left_s <= 0 or failure is None:
            left_s = self._address_window.refused_s(self._api.circuit_s)
            message = f"{self._entry.display} refused this machine's address a while ago."
            failure = SourceFailed(FailureReason.CIRCUIT_OPEN, message)
        if left_s > 0:
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
        outcome = metrics.CANCELLED
        try:
            yield
            outcome = metrics.OK
        except TryAgain as again:
            if isinstance(again.failure, SourceFailed):
                outcome = again.failure.reason.value
            raise
        except SourceFailed as failure:
            outcome = failure.reason.value
            raise
        except TooOld:
            outcome = metrics.TOO_OLD
            raise
        except CursorGone:
            outcome = metrics.CURSOR_GONE
            raise
        finally:
            metrics.REQUESTS.labels(self._entry.name, outcome).inc()


def _url(host: ExchangeHost, call: Call) -> httpx.URL:
    return httpx.URL(f"{host.base_url}{call.path}?{call.query}")


def _spent(failure: SourceFailed) -> SourceFailed:
    return SourceFailed(
        FailureReason.BUDGET_SPENT,
        f"{failure.message} Too many retries; try again later.",
        exchange_code=failure.exchange_code,
        retryable=True,
    )
