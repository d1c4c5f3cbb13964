"""Asking Bybit: signed GETs, its clock, its limits, its errors. It never writes to an account.

- Error codes: https://bybit-exchange.github.io/docs/v5/error
- Limits and their headers: https://bybit-exchange.github.io/docs/v5/rate-limit

The query string is built once, signed and sent byte for byte: clients that quote it again break
the signature on cursors. Bybit's messages stay here: 10004 repeats the API key.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from random import Random
from typing import Any, Final

import httpx
from msgspec import MsgspecError, Struct, json

from onebook.rest import Answer, BodyTooLarge, Wire
from onebook.transactions import counters
from onebook.transactions.adapter import Verdict
from onebook.transactions.budget import ATTEMPTS_MAX, Circuit, Limit, Retries, Waits
from onebook.transactions.bybit.paths import IP_RATE, RATES
from onebook.transactions.bybit.signing import signed
from onebook.transactions.clock import Clock
from onebook.transactions.credentials import Credentials
from onebook.transactions.failures import Reason, SourceFailed, TooOld
from onebook.transactions.fairness import Slots

NAME: Final = "bybit"  # in what is counted
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 10.0
TOTAL_S: Final = 30.0  # one attempt with its whole body, however slowly it comes
BODY_BYTES_MAX: Final = 8 * 1024 * 1024  # instruments of a category are about 1 MB
CIRCUIT_S: Final = 600.0  # "terminate all sessions and wait for at least 10 minutes"
CONNECTIONS_MAX: Final = 20
OFFSET_MAX_AGE_S: Final = 300.0

log = logging.getLogger("onebook.transactions.bybit")


class Envelope(Struct, frozen=True):
    """What every answer is wrapped in; `retMsg` is for us alone."""

    retCode: int  # noqa: N815
    retMsg: str | None = None  # noqa: N815
    result: Any = None
    time: int = 0


class Refusal(Struct, frozen=True):
    """What a code of Bybit's means to a reader of history."""

    reason: Reason
    message: str
    retryable: bool = False
    fatal: bool = False


_BAD_KEY = Refusal(Reason.AUTHENTICATION_FAILED, "Bybit does not know the API key.", fatal=True)
_BUSY = Refusal(Reason.EXCHANGE_ERROR, "Bybit could not answer in time.", retryable=True)
_REGION = Refusal(
    Reason.AUTHENTICATION_FAILED, "Bybit does not serve this account from here.", fatal=True
)
_EXPIRED = Refusal(Reason.AUTHENTICATION_FAILED, "The API key has expired at Bybit.", fatal=True)
_REFUSED = Refusal(Reason.EXCHANGE_ERROR, "Bybit refused the request.")
_WRONG_MODE = Refusal(Reason.EXCHANGE_ERROR, "Bybit does not offer this to the account's mode.")
_NOT_OFFERED = Refusal(Reason.NOT_OFFERED, "Bybit does not offer this to this kind of account.")
_LOCATION = Refusal(
    Reason.LOCATION_REFUSED,
    "Bybit does not serve the country that this server's address is in.",
    fatal=True,
)
_CLOCK_OFF = Refusal(
    Reason.EXCHANGE_ERROR, "Bybit did not accept the time of the request.", retryable=True
)

LIMITED: Final = 10006
CLOCK_OFF: Final = 10002
REQUEST_EXPIRED: Final = -1  # "request expired: o@0, now[] diff[]"
BAD_PARAMETER: Final = 10001
IP_LIMITED: Final = 10018  # since 2025-09 an HTTP 403
REFUSALS: Final[Mapping[int, Refusal]] = {
    429: _BUSY,
    10000: _BUSY,
    10016: _BUSY,
    131001: _BUSY,
    131003: _BUSY,
    131200: _BUSY,
    131201: _BUSY,
    131230: _BUSY,
    CLOCK_OFF: _CLOCK_OFF,
    REQUEST_EXPIRED: _CLOCK_OFF,
    LIMITED: Refusal(Reason.RATE_LIMITED, "Bybit's rate limit is used up.", retryable=True),
    10003: _BAD_KEY,
    10004: Refusal(Reason.AUTHENTICATION_FAILED, "Bybit did not accept the signature.", fatal=True),
    10007: _BAD_KEY,
    10008: _REGION,
    10009: _REGION,
    10024: _REGION,
    10027: _REGION,
    10010: Refusal(
        Reason.AUTHENTICATION_FAILED,
        "The API key is bound to other addresses; the operator must add this one.",
        fatal=True,
    ),
    10005: Refusal(Reason.PERMISSION_DENIED, "The API key has no permission for this."),
    10017: _NOT_OFFERED,
    10020: _WRONG_MODE,
    10028: _WRONG_MODE,
    100028: _NOT_OFFERED,
    182200: _WRONG_MODE,
    33004: _EXPIRED,
    -2015: _EXPIRED,
}
HTTP_FORBIDDEN, HTTP_NOT_FOUND, HTTP_UNAUTHORIZED, HTTP_TOO_MANY = 403, 404, 401, 429

_COUNTRY = re.compile(rb"from your country", re.IGNORECASE)  # CloudFront's page
_TOO_OLD = re.compile(r"2 years", re.IGNORECASE)
_SERVER_TIME = re.compile(r"server_timestamp\[(\d{13})\]")


class Retry(Exception):
    """This attempt failed in a way that another may not; holds how it would end if none is left."""

    def __init__(self, failure: SourceFailed, *, wait_s: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.wait_s = wait_s


class Offset:
    """How far the exchange's clock is ahead of ours, from the answer with the shortest way."""

    def __init__(self) -> None:
        self.ms = 0
        self._way_s = float("inf")
        self._at_s = float("-inf")

    def heard(self, server_ms: int, *, sent_ms: int, way_s: float, now_s: float) -> None:
        """Take one answer's time in; `way_s` is how long asking and answering took."""
        if way_s <= self._way_s or now_s - self._at_s > OFFSET_MAX_AGE_S:
            self.ms = server_ms - sent_ms - round(way_s * 500)
            self._way_s, self._at_s = way_s, now_s

    def corrected(self, server_ms: int, *, now_ms: int) -> None:
        """Take the exchange's word for it: it refused our time."""
        self.ms = server_ms - now_ms
        self._way_s = float("inf")


class Host:
    """One environment of Bybit: its address, its clock, and how much we may ask."""

    def __init__(self, base_url: str, *, clock: Clock, reserve: float = 0.0) -> None:
        self.base_url = base_url.rstrip("/")
        self.offset = Offset()
        self.verdict: Verdict | None = None
        self._clock = clock
        self._reserve = reserve
        self._limits: dict[tuple[str, str], Limit] = {}

    def limit(self, path: str, account: str) -> Limit:
        """The limit of a path: Bybit counts by user, we by key."""
        key = (path, account)
        if key not in self._limits:
            self._limits[key] = Limit(RATES[path], self._clock, reserve=self._reserve)
        return self._limits[key]


class Client:
    """The way to Bybit: one connection pool, one circuit and one limit by address for all hosts.

    Args:
        clock: Wall clock, monotonic clock and waiting.
        transport: In place of the connection pool.
        random: For jitter.
        spare: Whether connections are kept free for API keys that are not asking yet.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        random: Random | None = None,
        spare: bool = True,
    ) -> None:
        self.clock = clock
        self.random = random or Random()  # noqa: S311  # jitter
        self.circuit = Circuit(CIRCUIT_S, clock)
        self.waits = Waits(clock)
        self._ip_limit = Limit(IP_RATE, clock)
        self._slots = Slots(CONNECTIONS_MAX, spare=spare)
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
            follow_redirects=False,
            transport=transport,
            headers={"Accept": "application/json", "User-Agent": "onebook"},
            trust_env=False,
        )
        self._wire = Wire(self._http)

    @property
    def connections_in_use(self) -> int:
        """How many connections are assigned to a request."""
        return self._wire.in_use

    async def close(self) -> None:
        """Cancel what is under way and close every connection."""
        await self._wire.close()

    async def get(
        self,
        host: Host,
        path: str,
        query: str,
        *,
        credentials: Credentials | None,
        retries: Retries,
    ) -> Envelope:
        """Ask once, and again while it may help.

        Raises:
            SourceFailed: There is no answer to be had.
            TooOld: The range reaches further back than Bybit keeps.
        """
        try:
            envelope = await self._tried(host, path, query, credentials, retries)
        except SourceFailed as failure:
            if credentials is not None and (failure.fatal or failure.retryable):
                host.verdict = self._verdict(failure)
            raise
        if credentials is not None:
            host.verdict = self._verdict()
        return envelope

    async def _tried(
        self, host: Host, path: str, query: str, credentials: Credentials | None, retries: Retries
    ) -> Envelope:
        for attempt in range(ATTEMPTS_MAX):
            try:
                envelope = await self._attempt(host, path, query, credentials, key=retries.key)
            except Retry as retry:
                retries.failed(retry.failure)
                if attempt:  # twice is no accident, and whoever asked may leave before the last
                    host.verdict = self._verdict(retry.failure)
                if attempt == ATTEMPTS_MAX - 1:
                    raise retry.failure from None
                if not retries.spend():
                    raise _spent(retry.failure) from None
                counters.RETRIES.labels(NAME).inc()
                wait_s = retries.backoff_s(attempt) if retry.wait_s is None else retry.wait_s
                await self.clock.sleep(wait_s)
            else:
                retries.succeeded()
                return envelope
        raise AssertionError("the last attempt returns or raises")

    def _verdict(self, failure: SourceFailed | None = None) -> Verdict:
        at_ms = self.clock.now_ms()
        if failure is None:
            return Verdict(at_ms)
        return Verdict(at_ms, failure.reason.value, failure.message)

    async def _attempt(
        self, host: Host, path: str, query: str, credentials: Credentials | None, *, key: str
    ) -> Envelope:
        limit = host.limit(path, credentials.api_key if credentials else "")
        came_s = self.clock.now_s()
        await limit.take(self.waits, key=key)
        await self._ip_limit.take(self.waits, key=key)
        counters.WAITED.labels(NAME).inc(max(0.0, self.clock.now_s() - came_s))
        if (left_s := self.circuit.left_s()) > 0:
            raise _circuit_open(left_s)
        with self.waits.asking():
            async with self._slots.slot(key):
                with _counted():
                    return await self._ask(host, path, query, credentials, limit=limit)

    async def _ask(
        self,
        host: Host,
        path: str,
        query: str,
        credentials: Credentials | None,
        *,
        limit: Limit,
    ) -> Envelope:
        clock = self.clock
        sent_ms, sent_s = clock.now_ms(), clock.now_s()
        request = self._request(host, path, query, credentials, sent_ms=sent_ms)
        status, headers, body = await self._send(request)
        envelope = self._open(status, body)
        now_s = clock.now_s()
        if envelope.time:
            host.offset.heard(envelope.time, sent_ms=sent_ms, way_s=now_s - sent_s, now_s=now_s)
        obey(limit, headers, envelope)
        if envelope.retCode != 0:
            self._refused(host, envelope)
        return envelope

    def _request(
        self,
        host: Host,
        path: str,
        query: str,
        credentials: Credentials | None,
        *,
        sent_ms: int,
    ) -> httpx.Request:
        request = self._http.build_request("GET", f"{host.base_url}{path}?{query}")
        if credentials is not None:
            # What is signed is what goes over the wire, not what we meant to send.
            wire = request.url.query.decode("ascii")
            at_ms = sent_ms + host.offset.ms
            request.headers.update(signed(credentials, wire, at_ms=at_ms))
        return request

    async def _send(self, request: httpx.Request) -> Answer:
        try:
            return await self._wire.answer(request, bytes_max=BODY_BYTES_MAX, total_s=TOTAL_S)
        except (httpx.TransportError, httpx.DecodingError, TimeoutError) as error:
            log.debug("%s: %s", request.url.path, type(error).__name__)
            raise Retry(_unreachable()) from None
        except BodyTooLarge:
            raise SourceFailed(
                Reason.UNREADABLE, "Bybit's answer is larger than believable."
            ) from None

    def _open(self, status: int, body: bytes) -> Envelope:
        """The envelope of an answer, or what its HTTP status means."""
        if status == HTTP_FORBIDDEN and _COUNTRY.search(body):
            raise _failed(_LOCATION, status)
        if status == HTTP_FORBIDDEN:
            log.warning("Bybit answered 403: nothing is asked for %d s", CIRCUIT_S)
            raise self._tripped()
        if status == HTTP_TOO_MANY or status >= 500:
            raise Retry(_failed(_BUSY, status))
        if status == HTTP_NOT_FOUND:
            raise _failed(_NOT_OFFERED, status)
        if status == HTTP_UNAUTHORIZED:
            raise _failed(_BAD_KEY, status)
        if status != 200:
            raise _failed(_REFUSED, status)
        try:
            return _decoder.decode(body)
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            raise Retry(
                SourceFailed(Reason.UNREADABLE, "Bybit's answer is not JSON.", retryable=True)
            ) from None

    def _refused(self, host: Host, envelope: Envelope) -> None:
        """Raise what a code other than 0 means."""
        code, said = envelope.retCode, envelope.retMsg or ""
        if code == BAD_PARAMETER and _TOO_OLD.search(said):
            raise TooOld
        if code == IP_LIMITED:
            raise self._tripped()
        failure = _failed(REFUSALS.get(code, _REFUSED), code)
        if code == CLOCK_OFF:
            told = _SERVER_TIME.search(said)
            server_ms = int(told[1]) if told else envelope.time
            host.offset.corrected(server_ms, now_ms=self.clock.now_ms())
            raise Retry(failure, wait_s=0.0)
        if code == LIMITED:
            raise Retry(failure, wait_s=0.0)  # the limit itself waits, see `obey`
        if failure.retryable:
            raise Retry(failure)
        raise failure

    def _tripped(self) -> SourceFailed:
        """Ask nothing from now on, and how to say so."""
        self.circuit.trip()
        counters.TRIPS.labels(NAME).inc()
        counters.OPEN_UNTIL.labels(NAME).set(self.clock.now_ms() / 1_000 + CIRCUIT_S)
        return _circuit_open(CIRCUIT_S)


@contextmanager
def _counted() -> Iterator[None]:
    """Count a request by what came of it."""
    outcome = counters.CANCELLED
    try:
        yield
        outcome = counters.OK
    except Retry as retry:
        outcome = retry.failure.reason.value
        raise
    except SourceFailed as failure:
        outcome = failure.reason.value
        raise
    except TooOld:
        outcome = counters.TOO_OLD
        raise
    finally:
        counters.REQUESTS.labels(NAME, outcome).inc()


def obey(limit: Limit, headers: Mapping[str, str], envelope: Envelope) -> None:
    """Follow what an answer says about the limit of its path."""
    told, reset_ms = (
        _digits(headers, "x-bapi-limit"),
        _digits(headers, "x-bapi-limit-reset-timestamp"),
    )
    if told is not None:
        limit.told(told)
    # Both times are the exchange's, so our clock does not matter.
    wait_s = (reset_ms - envelope.time) / 1_000 if reset_ms and envelope.time else 0.0
    if envelope.retCode == LIMITED:
        limit.block(wait_s if wait_s > 0 else 1.0)
    elif _digits(headers, "x-bapi-limit-status") == 0 and wait_s > 0:
        limit.block(wait_s)


def _digits(headers: Mapping[str, str], name: str) -> int | None:
    value = headers.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 16 else None


def _failed(refusal: Refusal, code: int) -> SourceFailed:
    return SourceFailed(
        refusal.reason,
        refusal.message,
        exchange_code=code,
        retryable=refusal.retryable,
        fatal=refusal.fatal,
    )


def _unreachable() -> SourceFailed:
    return SourceFailed(Reason.UNREACHABLE, "Bybit cannot be reached.", retryable=True)


def _circuit_open(left_s: float) -> SourceFailed:
    return SourceFailed(
        Reason.CIRCUIT_OPEN,
        "Bybit has had enough requests from this address; nothing is asked for ten minutes.",
        exchange_code=HTTP_FORBIDDEN,
        retryable=True,
        retry_after_s=left_s,
    )


def _spent(failure: SourceFailed) -> SourceFailed:
    return SourceFailed(
        Reason.BUDGET_SPENT,
        f"{failure.message} Too many retries were needed; ask again later.",
        exchange_code=failure.exchange_code,
        retryable=True,
    )


_decoder = json.Decoder(Envelope, float_hook=Decimal)
