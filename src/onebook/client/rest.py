"""REST requests of one API key, with automatic session renewal, retries and error codes."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Self
from urllib.parse import quote

import httpx

from onebook.client.failures import (
    BACKOFF_BASE_S,
    NEXT_ATTEMPT,
    NO_CLOSE_FRAME,
    OPEN_TIMEOUT_S,
    TRANSIENT_STATUSES,
    Refused,
    ServiceError,
    Unavailable,
    connect_failed,
    pause_s,
    place_of,
    shown,
)
from onebook.client.loops import OneLoop
from onebook.client.shapes import AUTHENTICATED, FEES, PAGE, USAGE, exact, require
from onebook.inflate import ACCEPTED, TooLong, Uninflatable, read_body

ATTEMPTS_MAX = 5
WAIT_MAX_S = 60.0  # a longer Retry-After is raised instead of waited for
READ_TIMEOUT_S = 90.0  # an answer with transactions may take the service a minute
LINES_TIMEOUT_S = 900.0  # between lines: an exchange may ban the service for ten minutes
BODY_BYTES_MAX = 64 << 20
LOST = (httpx.ReadError, httpx.WriteError)  # on an open connection

log = logging.getLogger("onebook.client")

_USAGE = "/data-usage/"
_RENEWED = frozenset(("session_expired", "invalid_session"))


class _NoKeys(logging.Filter):
    """Drops httpx's log records, because their request paths would show an API key."""

    def filter(self, record: logging.LogRecord) -> bool:
        return _USAGE not in record.getMessage()


_NO_KEYS = _NoKeys()


@cache
def _authorities() -> ssl.SSLContext:
    """The system's certificate authorities, read once: parsing them takes 20 ms."""
    return ssl.create_default_context()


class RestClient:
    """The HTTP side of a client; must be closed.

    Args:
        base: The address of the API, such as https://books.example/api/v1.
        api_key: The key that sessions are opened with.
        attempts_max: Maximum attempts of one request.
        ssl_context: Trusted authorities; the system's by default.
    """

    def __init__(
        self,
        base: str,
        api_key: str,
        *,
        attempts_max: int = ATTEMPTS_MAX,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._base = base
        self._api_key = api_key
        self._attempts_max = attempts_max
        self._token: str | None = None
        self._session = asyncio.Lock()
        self._loop = OneLoop()
        logging.getLogger("httpx").addFilter(_NO_KEYS)  # repeated calls have no effect
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=OPEN_TIMEOUT_S),
            verify=ssl_context or _authorities(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        self._loop.require()
        await self._http.aclose()

    async def get(self, path: str, *, session: bool = False) -> Any:
        """Answer a GET request; see `_asked` for what is raised."""
        return await self._asked("GET", path, None, session=session)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Answer a POST request with a session; see `_asked` for what is raised."""
        return await self._asked("POST", path, body, session=True)

    async def fees(self, table: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the fee table of the key, after replacing it if one is given."""
        body = None if table is None else {"fees": dict(table)}
        method = "GET" if body is None else "PUT"
        answer = await self._asked(method, "/fees", body, session=True)
        require_field(self._base, answer, "fees")
        require("fee table", answer, FEES)
        return dict(answer["fees"])

    async def transactions(self, body: Mapping[str, Any]) -> Any:
        """One page of transactions."""
        answer = await self.post("/transactions", body)
        require_field(self._base, answer, "transactions")
        require("page of transactions", answer, PAGE)
        return answer

    async def transaction_lines(self, body: Mapping[str, Any]) -> AsyncGenerator[bytes]:
        """Yield every record of a range as a line, as sent by the service, and the summary line.

        Unlike other requests it is not retried, because lines have already been yielded.

        Raises:
            Refused, Unavailable: See `_asked`.
        """
        self._loop.require()
        token = await self._authenticated()
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
        url, timeout = (
            f"{self._base}/transactions",
            httpx.Timeout(LINES_TIMEOUT_S, connect=OPEN_TIMEOUT_S),
        )
        with self._in_words():
            async with self._http.stream(
                "POST", url, json={**body, "format": "jsonl"}, headers=headers, timeout=timeout
            ) as response:
                if not response.is_success:
                    _parsed(self._base, response, await _body(response))
                rest = b""
                async for part in response.aiter_raw():
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        yield line

    async def usage(self) -> Any:
        """The usage report; errors omit the path, because it contains the key."""
        report = await self.get(f"{_USAGE}{quote(self._api_key, safe='')}")
        require_field(self._base, report, "data_usage")
        require("usage report", report, USAGE)
        return report

    async def _asked(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, session: bool
    ) -> Any:
        """Send a request, with retries: new session, Retry-After, full jitter.

        Raises:
            Refused: The service refuses the request, with the service's code.
            Unavailable: All attempts failed; a later one may succeed.
        """
        self._loop.require()
        renewed = False
        attempt = 0
        while True:
            token = await self._authenticated() if session else None
            try:
                return await self._answer(method, path, body, token)
            except Refused as error:
                if token is None or renewed or error.code not in _RENEWED:
                    raise
                renewed = True
                self._token = None if self._token == token else self._token
            except Unavailable as error:
                attempt += 1
                wait_s = pause_s(NO_CLOSE_FRAME, attempt, error.retry_after_s)
                if attempt >= self._attempts_max or wait_s > WAIT_MAX_S:
                    raise
                level = logging.WARNING if attempt == 1 else logging.DEBUG
                log.log(level, NEXT_ATTEMPT, error.message, wait_s)
                await asyncio.sleep(wait_s)

    async def _authenticated(self) -> str:
        async with self._session:
            if self._token is None:
                body = {"api_key": self._api_key}
                answer = await self._asked("POST", "/authenticate", body, session=False)
                require_field(self._base, answer, "session_token")
                require("session", answer, AUTHENTICATED)
                self._token = answer["session_token"]
            return self._token

    async def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None, token: str | None
    ) -> Any:
        url = self._base + path
        headers = {"Accept-Encoding": ACCEPTED}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with self._in_words():
            async with self._http.stream(method, url, json=body, headers=headers) as response:
                content = await _body(response)
        return _parsed(self._base, response, content)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Convert httpx's exceptions to those of this client."""
        try:
            yield
        except httpx.InvalidURL as error:
            raise Refused("invalid_url", f"{shown(self._base)} cannot be used: {error}.") from None
        except (httpx.RemoteProtocolError, Uninflatable) as error:
            why = f"{place_of(self._base)} sent an invalid HTTP response: {str(error).rstrip('.')}."
            raise Unavailable("no_answer", why) from None
        except httpx.TransportError as error:
            cause = _cause(error)
            if isinstance(error, LOST) and isinstance(cause, ConnectionError):
                why = f"{place_of(self._base)} closed the connection before answering."
                raise Unavailable("no_answer", why) from None
            code, sentence, wait_s = connect_failed(self._base, cause)
            raise Unavailable(code, sentence, retry_after_s=wait_s) from None


async def _body(response: httpx.Response) -> bytes:
    """Read and inflate a body up to the size limit, which httpx does not support."""
    encodings = response.headers.get_list("content-encoding")
    try:
        return await read_body(response.aiter_raw(), encodings, bytes_max=BODY_BYTES_MAX)
    except TooLong:
        raise Refused(
            "answer_too_large",
            f"The answer is longer than {BODY_BYTES_MAX:,} bytes: request fewer records.",
        ) from None


def _cause(error: httpx.TransportError) -> Exception:
    """The socket exception behind an httpx exception, if any."""
    if isinstance(error, httpx.TimeoutException):
        return TimeoutError()
    cause: Exception = error
    found: BaseException | None = error
    while found is not None:  # the innermost: the outer ones only say that all attempts failed
        if isinstance(found, OSError):
            cause = found
        inner = found.exceptions[0] if isinstance(found, BaseExceptionGroup) else None
        found = inner or found.__cause__ or found.__context__
    return cause


def _parsed(base: str, response: httpx.Response, content: bytes) -> Any:
    """The JSON of an answer, without binary floats.

    Raises:
        Refused, Unavailable: The answer is an error.
    """
    status = response.status_code
    try:
        answer = exact(content)
    except ValueError:
        answer = None
    if response.is_success and answer is not None:
        return answer
    if isinstance(answer, dict) and isinstance(answer.get("error"), str):
        raise service_error(answer, status, response.headers.get("Retry-After"))
    if isinstance(answer, dict) and answer.get("authenticated") is False:
        raise Refused("invalid_session", str(answer.get("message")))
    kind = Unavailable if status in TRANSIENT_STATUSES else Refused
    raise kind(
        f"http_{status}",
        f"{shown(base)} returned HTTP {status} without Onebook's JSON: check the URL.",
    )


def require_field(base: str, answer: Any, name: str) -> None:
    """Raise Refused if the answer lacks a field that the service always sends."""
    if not isinstance(answer, dict) or name not in answer:
        raise Refused("not_onebook", f"{shown(base)} is not an Onebook service: check the URL.")


def service_error(answer: Mapping[str, Any], status: int, retry_after: str | None) -> ServiceError:
    """The exception of an error body."""
    details = {
        name: value
        for name, value in answer.items()
        if name not in ("success", "error", "message", "timestamp")
    }
    try:
        wait_s = None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:
        wait_s = BACKOFF_BASE_S
    final = status not in TRANSIENT_STATUSES or answer["error"] == "data_limit_exceeded"
    kind = Refused if final else Unavailable
    message = str(answer.get("message") or f"The service returned HTTP {status}.")
    return kind(answer["error"], message, details=details, retry_after_s=wait_s)
