"""Classifies failures: the cause in one sentence, and whether a retry can help.

Close codes: 40xx are final; 41xx need backoff; after 42xx, reconnect at the time given.
Pure: exceptions and numbers in, sentences and pauses out.
"""

import os
import random
import socket
import ssl
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidStatus,
    InvalidURI,
    ProxyError,
)

from onebook.orderbook import BookProblem

BACKOFF_BASE_S = 0.25
BACKOFF_BUSY_S = 1.0
BACKOFF_MAX_S = 30.0
RETRY_AFTER_MAX_S = 3_600.0
OPEN_TIMEOUT_S = 10.0

FINAL_CODES = range(4000, 4100)
BUSY_CODES = range(4100, 4200)
DRAINING_CODES = range(4200, 4300)
NO_CLOSE_FRAME = 1006
PROTOCOL_ERROR = "protocol_error"  # a message has an unexpected shape
# Consecutive connections with an invalid message before the client gives up: the first one may have
# been damaged on its way, but a service of another version sends them forever.
INVALID_MAX = 3
INCOMPATIBLE = "The versions of client and service may be incompatible."
NEXT_ATTEMPT = "%s Next attempt in %.1f s."  # a log line: the cause, seconds
PORTS = {"ws": 80, "wss": 443, "http": 80, "https": 443}
PROXIES = {  # variables that websockets and httpx read, without their suffix _PROXY
    "ws": ("ws", "socks", "https", "http"),
    "wss": ("wss", "socks", "https"),
    "http": ("http", "all"),
    "https": ("https", "all"),
}
# HTTP statuses before the upgrade that are temporary.
TRANSIENT_STATUSES = frozenset((408, 425, 429, *range(500, 600)))


class ServiceError(Exception):
    """Base of the client's exceptions: `code` for programs, the message for people.

    Args:
        code: The service's error code, a close code as text, or a code listed in a subclass.
        message: One sentence.
        details: Further fields of the service's error, such as `supported_exchanges`.
        retry_after_s: Seconds after which the service suggests a retry, or None.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})
        self.retry_after_s = retry_after_s


class Refused(ServiceError):
    """A retry would fail in the same way.

    Codes of this client: invalid_url, untrusted_certificate, no_tls, http_<status>, not_websocket,
    not_onebook, answer_too_large, incomplete, protocol_error (on several connections in a row).
    """


class Unavailable(ServiceError):
    """A temporary failure; a retry may succeed.

    Codes of this client: unreachable, unknown_host, timeout, http_<status>, no_handshake,
    no_answer, no_progress, protocol_error.
    """


class InvalidStreak:
    """Counts the consecutive connections that ended with an invalid message."""

    def __init__(self) -> None:
        self._count = 0

    def reset(self) -> None:
        """Start again, because a connection has worked."""
        self._count = 0

    def ended(self, code: str, sentence: str) -> None:
        """Count the end of a connection.

        Raises:
            Refused: The next connections would end in the same way.
        """
        self._count = self._count + 1 if code == PROTOCOL_ERROR else 0
        if self._count >= INVALID_MAX:
            raise Refused(code, f"{sentence} {INCOMPATIBLE}")


def has_host(url: str, schemes: Collection[str]) -> bool:
    """Whether a URL has one of these schemes and a valid host and port."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host.encode("idna")  # as the look-up does: it raises if a label is empty or too long
        return bool(host) and host.isprintable() and parts.scheme in schemes and parts.port != 0
    except ValueError:  # includes UnicodeError
        return False


def shown(url: str) -> str:
    """A URL without query and user, which may contain a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def place_of(url: str) -> str:
    """Host and port of a URL."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or PORTS[parts.scheme]}"


def connect_failed(url: str, error: Exception) -> tuple[str, str, float | None]:
    """Classify a connection failure: code, message, seconds to wait on the service's request.

    Raises:
        Refused: Connecting again would fail in the same way.
    """
    parts = urlsplit(url)
    place, proxy = place_of(url), _proxy(parts)
    match error:
        case ssl.SSLCertVerificationError():
            raise Refused(
                "untrusted_certificate",
                f"The certificate of {place} is not trusted: {error.verify_message}. "
                "To trust its issuer, set SSL_CERT_FILE to the issuer's PEM file.",
            ) from None
        case ssl.SSLError() if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            raise Refused(
                "no_tls", f"{place} does not speak TLS: use ws:// or http:// instead."
            ) from None
        case ssl.SSLError():  # its errno is from OpenSSL, not from the system
            reason = (error.reason or str(error)).replace("_", " ").lower()
            return "unreachable", f"The TLS handshake with {place} failed: {reason}.", None
        case InvalidStatus():
            return _status(shown(url), error)
        case InvalidMessage():
            return "no_handshake", f"{place} closed the connection during the handshake.", None
        case InvalidURI() | InvalidProxy():
            raise Refused("invalid_url", f"{shown(url)} cannot be used: {error}.") from None
        case ProxyError():
            return "unreachable", f"Cannot reach {place}: {error}.{proxy}", None
        case InvalidHandshake():
            raise Refused("not_websocket", f"{shown(url)} is not a WebSocket: {error}.") from None
        case TimeoutError():
            return "timeout", f"{place} does not answer in time.{proxy}", None
        case socket.gaierror():
            return (
                "unknown_host",
                f"Unknown host name {parts.hostname!r}.{proxy}",
                None,
            )
        case ConnectionRefusedError():
            return "unreachable", f"Connection refused by {place}.{proxy}", None
        case ConnectionResetError() | ConnectionAbortedError():
            return "unreachable", f"{place} closed the connection during the handshake.", None
        case OSError(errno=int(number)):
            return (
                "unreachable",
                f"Cannot reach {place}: {os.strerror(number)}.{proxy}",
                None,
            )
        case _:
            reason = str(error).rstrip(".") or type(error).__name__
            return "unreachable", f"Cannot reach {place}: {reason}.{proxy}", None


def _proxy(parts: SplitResult) -> str:
    """An additional sentence if the environment sets a proxy, which may be what failed."""
    proxies = getproxies()
    named = [name for name in PROXIES[parts.scheme] if proxies.get(name)]
    if not named or proxy_bypass(parts.hostname or ""):
        return ""
    names = " or ".join(f"{name.upper()}_PROXY" for name in named)
    return f" A proxy is configured in the environment ({names}); use NO_PROXY to bypass it."


def _status(url: str, error: InvalidStatus) -> tuple[str, str, float | None]:
    status = error.response.status_code
    code = f"http_{status}"
    if status not in TRANSIENT_STATUSES:
        raise Refused(
            code,
            f"{url} returned HTTP {status} instead of a WebSocket handshake: check the path "
            "(default /api/v1/ws).",
        ) from None
    try:
        wait_s = min(RETRY_AFTER_MAX_S, max(0.0, float(error.response.headers["Retry-After"])))
    except (LookupError, ValueError):
        wait_s = None
    return (
        code,
        (f"{url} returned HTTP {status}: the service cannot accept this client at the moment."),
        wait_s,
    )


def closed(error: ConnectionClosed, cause: BookProblem | None) -> tuple[str, str, int]:
    """Classify a closed connection: code, message, close code.

    Args:
        error: How the connection ended.
        cause: The last error message of the service, which often precedes a close.

    Raises:
        Refused: The close code is final.
    """
    number = error.rcvd.code if error.rcvd else NO_CLOSE_FRAME
    reason = error.rcvd.reason if error.rcvd else ""
    if cause is not None:
        code, sentence = cause.code, cause.message
    elif error.rcvd:
        code, sentence = (
            str(number),
            reason or f"The service closed the connection with code {number}.",
        )
    else:
        code, sentence = str(number), "The connection was lost."
    if number in FINAL_CODES:
        raise Refused(code, sentence) from None
    return code, sentence, number


def pause_s(
    number: int,
    attempt: int,
    given_s: float | None = None,
    *,
    draw: Callable[[], float] = random.random,
) -> float:
    """Seconds until the next attempt: exponential backoff with jitter, or the service's own value.

    Args:
        number: The close code; NO_CLOSE_FRAME if no connection was opened.
        attempt: Failures in a row before this one.
        given_s: The service's `reconnect_in_ms` or Retry-After.
        draw: A random number from 0 to 1.
    """
    base_s = BACKOFF_BUSY_S if number in BUSY_CODES else BACKOFF_BASE_S
    ceiling_s = min(BACKOFF_MAX_S, base_s * 2.0 ** min(attempt, 16))
    if number in DRAINING_CODES and given_s is not None:
        return given_s
    if number in BUSY_CODES:
        return ceiling_s * (1 + draw()) / 2
    return max(given_s or 0.0, ceiling_s * draw())
