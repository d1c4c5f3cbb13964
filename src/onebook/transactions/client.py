"""Sends requests to an exchange: connections, limits, retries, circuit breaker, clock.

It contains no exchange-specific rule: an `ExchangeApi` signs requests and interprets answers. The
query string is built once, signed and sent byte for byte, because quoting it again would break the
signature on cursors. No message text of an exchange leaves this module.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
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
from onebook.rest import Answer, NoCookies, Wire, trusted_authorities
from onebook.transactions import metrics
from onebook.transactions.adapter import (
    HOST_FIELD,
    KEY_FIELD,
    AdapterEntry,
    CursorGone,
    Environment,
    FailureReason,
    RequestVerdict,
    SourceFailed,
    TooOld,
)
from onebook.transactions.address import windows_of
from onebook.transactions.credentials import Credentials
from onebook.transactions.limits import ATTEMPTS_MAX, Circuit, Retries, Slots, Waits
from onebook.transactions.nonces import Nonces
from onebook.transactions.pools import CostLimit, Pool, Pools, PoolScope, PoolState, UnitGrant

CONNECTIONS_MAX: Final = 20
BODY_BYTES_MAX: Final = 8 * 1024 * 1024  # an instrument list of one category is about 1 MB
OFFSET_MAX_AGE_S: Final = 300.0
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 10.0
TOTAL_S: Final = 30.0  # one attempt including its body, however slowly it arrives
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}  # headers of a form body


class ExchangeApi(Struct, frozen=True, kw_only=True):
    """Documented limits of an exchange's REST API, and its pure functions that sign and read.

    Args:
        limits: The rule of every pool, by pool name.
        costs: Returns the units that a call costs, by pool, the narrowest pool first.
        circuit_s: Seconds without requests after a rate-limit breach or a ban, unless the answer
            states another time.
        sign: Returns a call with its authentication, from the call, credentials and a stamp. The
            call's query string is already in its final form. The stamp is the time of the request
            by the exchange's clock, Unix ms; with `rising` it is a nonce.
        read: Interprets an answer: call, status, headers and body.
        rising: Whether the stamp of each request of a key must be higher than the previous one:
            stamps are then nonces in Unix nanoseconds (`nonces`), and the requests of a key are
            sent strictly one after the other, across all processes of this machine.
        headers: Headers of every request to an environment, such as the one that marks a demo
            account.
        connections_max: Maximum open connections.
        body_bytes_max: Maximum size of an answer.
    """

    limits: Mapping[str, CostLimit]
    costs: Callable[["Call"], Mapping[str, float]]
    circuit_s: float
    sign: Callable[["Call", Credentials, int], "Call"]
    read: Callable[["Call", int, Mapping[str, str], bytes], "Reply"]
    rising: bool = False
    headers: Mapping[Environment, Mapping[str, str]] = {}
    connections_max: int = CONNECTIONS_MAX
    body_bytes_max: int = BODY_BYTES_MAX


class Call(Struct, frozen=True):
    """One request.

    Args:
        path: Its path below the address of the host.
        query: Its query string, quoted.
        host: The name of the host in `AdapterEntry.hosts`; "": the host named in the credentials,
            else the first.
        key: The credential field with the key that authenticates it.
    """

    path: str
    query: str = ""
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] = {}
    host: str = ""
    key: str = KEY_FIELD.name


class Then(StrEnum):
    """The client's reaction to a failure reported in an answer."""

    RAISE = "raise"
    RETRY = "retry"  # after a backoff
    RETRY_NOW = "retry_now"  # after `block_s` or with the corrected clock
    RETRY_ONCE = "retry_once"  # immediately, if this was the first attempt
    STOP = "stop"  # open the circuit of `Reply.stops`
    TOO_OLD = "too_old"
    CURSOR_GONE = "cursor_gone"  # the cursor of an earlier answer has expired


class Reply(Struct, frozen=True, kw_only=True):
    """An interpreted answer.

    Args:
        value: The decoded result; set if `failure` is None.
        server_ms: The exchange's time, Unix ms; 0 if not stated.
        clock_ms: The exchange's time if it refused ours; None otherwise.
        pools: The pool states that the answer reports, by pool name.
        user: The exchange's id of the user, if stated: keys of one user share the pools that count
            by user.
        failure: The failure, if any.
        then: The client's reaction to the failure.
        stop_s: With `Then.STOP`: seconds without requests; 0: `ExchangeApi.circuit_s`.
        stops: With `Then.STOP`: whether this address or only the key of the call must stop.
    """

    value: Any = None
    server_ms: int = 0
    clock_ms: int | None = None
    pools: Mapping[str, PoolState] = {}
    user: str = ""
    failure: SourceFailed | None = None
    then: Then = Then.RAISE
    stop_s: float = 0.0
    stops: PoolScope = PoolScope.ADDRESS


class Outcome(Struct, frozen=True):
    """The meaning of a status or error code of an exchange.

    Args:
        message: A sentence for people, without text of the exchange.
        retryable: Whether a retry may succeed.
        fatal: Whether no source of this account can be read.
    """

    reason: FailureReason
    message: str
    retryable: bool = False
    fatal: bool = False

    def failure(self, code: int | str | None = None) -> SourceFailed:
        """Convert to a `SourceFailed` with the exchange's own code."""
        return SourceFailed(
            self.reason,
            self.message,
            exchange_code=code,
            retryable=self.retryable,
            fatal=self.fatal,
        )

    def reply(self, code: int | str | None = None, **more: Any) -> Reply:
        """Convert to a reply that is retried if a retry may succeed."""
        then = Then.RETRY if self.retryable else Then.RAISE
        return Reply(failure=self.failure(code), then=then, **more)


class ClockOffset:
    """Offset of the exchange's clock from ours, taken from the fastest answer."""

    def __init__(self) -> None:
        self.ms = 0
        self._way_s = float("inf")
        self._at_s = float("-inf")

    def observe(self, server_ms: int, *, sent_ms: int, way_s: float, now_s: float) -> None:
        """Add the exchange's time from one answer; `way_s` is the round-trip time."""
        if way_s <= self._way_s or now_s - self._at_s > OFFSET_MAX_AGE_S:
            self.ms = server_ms - sent_ms - round(way_s * 500)
            self._way_s, self._at_s = way_s, now_s

    def corrected(self, server_ms: int, *, now_ms: int) -> None:
        """Adopt the exchange's time after it refused ours."""
        self.ms = server_ms - now_ms
        self._way_s = float("inf")


class ExchangeSite:
    """State shared by all requests to one environment of an exchange.

    Args:
        environment: The environment.
        hosts: The address of each host by its name; the first is the default.
        nonces: Generates the stamps of keys that need nonces.
    """

    def __init__(
        self,
        environment: Environment,
        hosts: Mapping[str, str],
        *,
        clock: Clock,
        nonces: Nonces | None = None,
    ) -> None:
        self.environment = environment
        self.hosts = {name: url.rstrip("/") for name, url in hosts.items()}
        self.verdict: RequestVerdict | None = None
        self._clock = clock
        self._nonces = nonces
        self._offsets = {name: ClockOffset() for name in hosts}
        self._orders: dict[str, Slots] = {}

    def host_of(self, call: Call, credentials: Credentials | None) -> str:
        """Return the host name of a call.

        Raises:
            SourceFailed: The credentials name a host that the environment does not have.
        """
        name = call.host or (credentials.fields.get(HOST_FIELD.name) if credentials else None)
        if not name:
            return next(iter(self.hosts))
        if name not in self.hosts:
            raise SourceFailed(
                FailureReason.NO_CREDENTIALS,
                f"The stored credentials name an unknown host; known: {', '.join(self.hosts)}.",
                fatal=True,
            )
        return name

    def offset(self, host: str) -> ClockOffset:
        """The offset of a host's clock."""
        return self._offsets[host]

    @asynccontextmanager
    async def stamping(
        self, host: str, account: str, *, key: str
    ) -> AsyncIterator[Callable[[], int]]:
        """Return a context with the function that generates the stamps of an account's requests.

        If stamps must rise, the context locks the account: its requests are sent one after the
        other, and API keys take turns.
        """
        if self._nonces is None or not account:
            yield lambda: self._clock.wall_ms() + self._offsets[host].ms
            return
        order = self._orders.setdefault(account, Slots(1, spare=False))
        async with order.slot(key), self._nonces.turn(account) as turn:
            yield turn.nonce


class ExchangeClient:
    """The HTTP client of one exchange: one pool of connections, limits and circuits for all
    environments.

    Args:
        entry: The exchange's facts; its name appears in metrics, logs and messages.
        api: Its limits, signatures and interpretation of answers.
        clock: Time and sleeping.
        transport: Replaces the connection pool.
        random: For jitter.
        reserve: Share of each long limit that one API key leaves to others; see `Pool`. If it is
            not 0, some connections are also kept free for API keys without requests.
        limit_factor: Factor of the rate limits of accounts.
        shared_folder: The folder of `Nonces` and `AddressWindow`.
    """

    def __init__(
        self,
        entry: AdapterEntry,
        api: ExchangeApi,
        clock: Clock,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        random: Random | None = None,
        reserve: float = 0.1,
        limit_factor: float = 1.0,
        shared_folder: Path | None = None,
    ) -> None:
        self.clock = clock
        self.random = random or Random()  # noqa: S311  # jitter
        self.waits = Waits(clock)
        self._api = api
        self._entry = entry
        self._circuits: dict[str, Circuit] = {}  # by key; "" is this address
        self._pools = Pools(api.limits, clock, reserve=reserve, factor=limit_factor)
        self._windows = windows_of(entry.name, api.limits, clock, shared_folder)
        self._nonces = Nonces(shared_folder, entry.name, clock) if api.rising else None
        self._slots = Slots(api.connections_max, spare=reserve > 0)
        self._log = logging.getLogger(f"onebook.transactions.{entry.name}")
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=api.connections_max),
            follow_redirects=False,
            transport=transport,
            headers={"Accept": "application/json", "User-Agent": "onebook"},
            verify=trusted_authorities(environment=False),
            trust_env=False,
            cookies=NoCookies(),
        )
        self._wire = Wire(self._http)
        self._turn = asyncio.Lock()

    @property
    def connections_in_use(self) -> int:
        """Connections in use."""
        return self._wire.in_use

    def site(self, environment: Environment, hosts: Mapping[str, str]) -> ExchangeSite:
        """Return an environment of the exchange, with the address of each host."""
        return ExchangeSite(environment, hosts, clock=self.clock, nonces=self._nonces)

    async def close(self) -> None:
        """Cancel running requests and close every connection."""
        await self._wire.close()
        for window in self._windows.values():
            window.close()

    async def ask(
        self,
        site: ExchangeSite,
        call: Call,
        *,
        credentials: Credentials | None,
        retries: Retries,
        noted: bool = True,
    ) -> Reply:
        """Send a request, retrying temporary failures; return a successful reply.

        Args:
            noted: Whether the result decides the site's availability: for the first account.

        Raises:
            SourceFailed: The exchange does not answer, or refuses the request.
            TooOld: The range reaches further back than the exchange keeps.
            CursorGone: The exchange no longer accepts the cursor of the call.
        """
        try:
            reply = await self._tried(site, call, credentials, retries, noted=noted)
        except SourceFailed as failure:
            if noted and credentials is not None and (failure.fatal or failure.retryable):
                site.verdict = self._verdict(failure)
            raise
        if noted and credentials is not None:
            site.verdict = self._verdict()
        return reply

    async def _tried(
        self,
        site: ExchangeSite,
        call: Call,
        credentials: Credentials | None,
        retries: Retries,
        *,
        noted: bool,
    ) -> Reply:
        def failed(number: int, again: TryAgain) -> float:
            failure = again.failure
            assert isinstance(failure, SourceFailed)
            retries.failed(failure)
            # Two failures are not a coincidence, and the caller may stop before the last retry.
            if noted and number > 1:
                site.verdict = self._verdict(failure)
            if number == ATTEMPTS_MAX:
                raise failure
            if not retries.spend():
                raise _spent(failure)
            metrics.RETRIES.labels(self._entry.name).inc()
            return retries.backoff_s(number - 1) if again.wait_s is None else again.wait_s

        reply = await retried(
            lambda _: self._attempt(site, call, credentials, retries),
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
        self, site: ExchangeSite, call: Call, credentials: Credentials | None, retries: Retries
    ) -> Reply:
        key, background = retries.key, retries.background
        account = credentials.field(call.key) if credentials else ""
        host = site.host_of(call, credentials)
        came_s = self.clock.monotonic()
        granted: dict[str, tuple[Pool, UnitGrant]] = {}
        costs = self._api.costs(call)
        with retries.queued():
            for name, units in costs.items():
                pool = self._pools.pool(name, site.environment, account)
                grant = await pool.acquire(self.waits, key=key, units=units, background=background)
                granted[name] = pool, grant
        metrics.WAITED.labels(self._entry.name).inc(max(0.0, self.clock.monotonic() - came_s))
        async with site.stamping(host, account, key=key) as stamp:
            self._raise_if_stopped(account)
            async with self._slots.slot(key), AsyncExitStack() as stack:
                # Last, because they count requests when they are sent.
                for name, window in self._windows.items():
                    if name in costs:
                        await stack.enter_async_context(window.request(costs[name], self.waits))
                self._raise_if_stopped(account)
                with self.waits.in_flight(), self._counted():
                    request = self._request(site, host, call, credentials, stamp)
                    reply = await self._ask(site.offset(host), call, request)
                    self._observe(reply, account, granted)
                    if reply.failure is not None:
                        self._raise(reply, account)
                    return reply

    async def _ask(self, offset: ClockOffset, call: Call, request: httpx.Request) -> Reply:
        clock = self.clock
        sent_ms, sent_s = clock.wall_ms(), clock.monotonic()
        answer = await self._send(request)
        # Many large pages may arrive together: decode one per turn of the event loop.
        async with self._turn:
            await asyncio.sleep(0)
        reply = self._api.read(call, answer.status, answer.headers, answer.body)
        now_s = clock.monotonic()
        if reply.server_ms:
            way_s = now_s - sent_s
            offset.observe(reply.server_ms, sent_ms=sent_ms, way_s=way_s, now_s=now_s)
        if reply.clock_ms is not None:
            offset.corrected(reply.clock_ms, now_ms=clock.wall_ms())
        return reply

    def _observe(
        self, reply: Reply, account: str, granted: Mapping[str, tuple[Pool, UnitGrant]]
    ) -> None:
        """Correct the pools of a call by its answer."""
        for name, (pool, grant) in granted.items():
            pool.observe(reply.pools.get(name, _AS_PLANNED), grant)
        if reply.user and account:
            self._pools.learn_user(account, reply.user)

    def _request(
        self,
        site: ExchangeSite,
        host: str,
        call: Call,
        credentials: Credentials | None,
        stamp: Callable[[], int],
    ) -> httpx.Request:
        base_url = site.hosts[host]
        url = _url(base_url, call)
        if credentials is not None:
            # Sign the query string in its final form: httpx may have quoted it.
            call = replace(call, query=url.query.decode("ascii"))
            signed = self._api.sign(call, credentials, stamp())
            if (signed.path, signed.query) != (call.path, call.query):
                url = _url(base_url, signed)
            call = signed
        headers = {**self._api.headers.get(site.environment, {}), **call.headers}
        return self._http.build_request(
            call.method, url, headers=headers, content=call.body or None
        )

    async def _send(self, request: httpx.Request) -> Answer:
        try:
            return await self._wire.answer(
                request, bytes_max=self._api.body_bytes_max, total_s=TOTAL_S
            )
        except TooLong:
            message = f"{self._entry.display}'s answer exceeds the size limit."
            raise SourceFailed(FailureReason.UNREADABLE, message) from None
        except (httpx.TransportError, Uninflatable, TimeoutError) as error:
            self._log.debug("%s: %s", request.url.path, type(error).__name__)
            message = f"{self._entry.display} is unreachable."
            raise TryAgain(
                SourceFailed(FailureReason.UNREACHABLE, message, retryable=True)
            ) from None

    def _raise(self, reply: Reply, account: str) -> None:
        """Raise the exception of a failed reply."""
        failure, then = reply.failure, reply.then
        assert failure is not None
        if then is Then.TOO_OLD:
            raise TooOld
        if then is Then.CURSOR_GONE:
            raise CursorGone
        if then is Then.RETRY:
            raise TryAgain(failure)
        if then is Then.RETRY_NOW:
            raise TryAgain(failure, wait_s=0.0)
        if then is Then.RETRY_ONCE:
            raise TryAgain(failure, wait_s=0.0, once=True)
        if then is Then.STOP:
            self._stop(failure, reply, account)
            self._raise_if_stopped(account)
        raise failure

    def _stop(self, failure: SourceFailed, reply: Reply, account: str) -> None:
        """Open a circuit: send no requests for some time."""
        name, stop_s = self._entry.name, reply.stop_s or self._api.circuit_s
        whole = reply.stops is PoolScope.ADDRESS
        self._log.warning(
            "%s refused this %s: no requests for %d s",
            self._entry.display, "address" if whole else "key", stop_s,
        )  # fmt: skip
        circuit = self._circuits.setdefault("" if whole else account, Circuit(self.clock))
        circuit.trip(stop_s, failure)
        for window in self._windows.values() if whole else ():
            window.refuse(stop_s)
        metrics.TRIPS.labels(name).inc()
        metrics.OPEN_UNTIL.labels(name).set(self.clock.wall_ms() / 1_000 + stop_s)

    def _raise_if_stopped(self, account: str) -> None:
        self._learn_refusal()
        for owner in dict.fromkeys(("", account)):
            circuit = self._circuits.get(owner)
            if circuit is None or circuit.failure is None or (left_s := circuit.left_s()) <= 0:
                continue
            raise SourceFailed(
                FailureReason.CIRCUIT_OPEN,
                circuit.failure.message,
                exchange_code=circuit.failure.exchange_code,
                retryable=True,
                retry_after_s=left_s,
            )

    def _learn_refusal(self) -> None:
        """Open the circuit of this address if the exchange refused it to another process."""
        left_s = max((each.refused_s() for each in self._windows.values()), default=0.0)
        circuit = self._circuits.get("")
        if left_s > 0 and (circuit is None or circuit.left_s() <= 0):
            message = f"{self._entry.display} has refused this address; requests are paused."
            failure = SourceFailed(FailureReason.CIRCUIT_OPEN, message)
            self._circuits.setdefault("", Circuit(self.clock)).trip(left_s, failure)

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


_AS_PLANNED: Final = PoolState()


def _url(base_url: str, call: Call) -> httpx.URL:
    return httpx.URL(f"{base_url}{call.path}?{call.query}")


def _spent(failure: SourceFailed) -> SourceFailed:
    return SourceFailed(
        FailureReason.BUDGET_SPENT,
        f"{failure.message} Too many retries; try again later.",
        exchange_code=failure.exchange_code,
        retryable=True,
    )
