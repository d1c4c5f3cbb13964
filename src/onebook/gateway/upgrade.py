"""WebSocket upgrades: accepts requests, or refuses them with an HTTP response.

The limits of the node and of addresses are checked first, then RFC 6455, by the sans-I/O websockets
library.
"""

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qs

import msgspec
from websockets.datastructures import Headers, MultipleValuesError
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from onebook.accounts.limits import AddressLimit, network
from onebook.clock import Clock
from onebook.config import GatewaySettings
from onebook.core import iso
from onebook.gateway.commands import shown
from onebook.gateway.frames import SharedDeflate
from onebook.logs import redact

PATH: Final = "/api/v1/ws"
VERSION: Final = "13"  # RFC 6455 section 4.4
REQUEST_END: Final = b"\r\n\r\n"
REQUEST_LINE_BYTES_MAX: Final = 8_192  # the websockets library's limit
RETRY_AFTER_MIN_S: Final = 1
RETRY_AFTER_MAX_S: Final = 10  # random up to this, so that refused clients do not return together

# Statuses of the library, with our error code and message for each.
REFUSALS: Final = {
    HTTPStatus.BAD_REQUEST: ("invalid_request", "This is not a WebSocket handshake of RFC 6455."),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        "method_not_allowed",
        "This path does not support the method; see the Allow header.",
    ),
    HTTPStatus.REQUEST_URI_TOO_LONG: (
        "request_too_large",
        "The path and query of a WebSocket upgrade are too long.",
    ),
    HTTPStatus.FORBIDDEN: (
        "origin_not_allowed",
        "This origin may not connect; the operator configures the allowed origins.",
    ),
    HTTPStatus.UPGRADE_REQUIRED: (
        "upgrade_required",
        f"This path requires a WebSocket upgrade of version {VERSION}.",
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: (
        "internal_server_error",
        "Internal error; it has been logged.",
    ),
}

# The library would log each connection; our one line at the end is enough.
library_log = logging.getLogger("onebook.gateway.websockets")
library_log.setLevel(logging.ERROR)


class UpgradeAnswer(NamedTuple):
    """The answer to an upgrade request; `slot` counts the socket for its address."""

    status: int
    data: bytes
    slot: "AddressSlot | None" = None
    packed: bool = False
    api_key: str | None = None

    @property
    def accepted(self) -> bool:
        """Whether the connection was upgraded."""
        return self.status == HTTPStatus.SWITCHING_PROTOCOLS


class Upgrader:
    """Answers the upgrade requests of all connections.

    Args:
        settings: Origins, compression, and keys in the query.
        address_limiter: Limits of connection attempts and sockets by address.
        offenders: Paces the handshakes of addresses that broke the protocol.
        clock: Time and timers.
        has_room: Whether the node accepts one more connection.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        address_limiter: "AddressLimiter",
        offenders: "Offenders",
        clock: Clock,
        has_room: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._address_limiter = address_limiter
        self._offenders = offenders
        self._clock = clock
        self._has_room = has_room
        self._extensions = [SharedDeflate()] if settings.compression_allowed else []
        # Browsers send their page's origin; programs send none and are not at risk.
        self._origins: Any = [*settings.origins, None] if settings.origins else None

    def begin(self) -> "Handshake":
        """The handshake of a new connection."""
        return Handshake(
            ServerProtocol(
                origins=self._origins,
                extensions=self._extensions,
                logger=library_log,
            )
        )

    def address(self, request: Request, peer: str) -> str:
        """The client's address."""
        return self._address_limiter.address(peer, _header(request.headers, "X-Forwarded-For"))

    def delay_s(self, address: str) -> float:
        """Seconds to delay the answer to an address."""
        if self._address_limiter.trusts(address):
            return 0.0
        return self._offenders.wait_s(address, self._clock.monotonic())

    def answer(self, handshake: "Handshake", *, address: str, peer: str) -> UpgradeAnswer:
        """Accept or refuse the upgrade request of a handshake."""
        protocol, request = handshake.protocol, handshake.request
        assert request is not None
        path, _, query = request.path.partition("?")
        slot, refusal = None, self._request_refusal(request, path)
        if refusal is None:
            slot, refusal = self._take_slot(address, peer)
        response = refusal or protocol.accept(request)
        status = HTTPStatus(response.status_code)
        if status in REFUSALS:
            response = self._problem(status, *REFUSALS[status])
        protocol.send_response(response)
        protocol.parser.close()  # it refers to the protocol, which only the collector would free
        return UpgradeAnswer(
            response.status_code,
            b"".join(protocol.data_to_send()),
            slot,
            packed=bool(protocol.extensions),
            api_key=_key_in(query) if self._settings.query_key_allowed else None,
        )

    def unreadable(self, data: bytes) -> UpgradeAnswer:
        """The answer to an unparsable request: with a body, or too many or too long lines."""
        too_long = len(data.partition(b"\r\n")[0]) > REQUEST_LINE_BYTES_MAX
        status = HTTPStatus.REQUEST_URI_TOO_LONG if too_long else HTTPStatus.BAD_REQUEST
        return UpgradeAnswer(status, self._problem(status, *REFUSALS[status]).serialize())

    def _request_refusal(self, request: Request, path: str) -> Response | None:
        """Check a request before the handshake; returns the refusal, None if it is acceptable."""
        if path.removesuffix("/") != PATH:  # like REST, ignore one trailing slash
            return self._problem(HTTPStatus.NOT_FOUND, "not_found", f"There is no {shown(path)}.")
        if _header(request.headers, "Sec-WebSocket-Version") != VERSION:
            status = HTTPStatus.UPGRADE_REQUIRED
            return self._problem(status, *REFUSALS[status])
        if not self._has_room():
            return self._problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "service_unavailable",
                "This node does not accept connections at the moment.",
                headers={"Retry-After": str(_retry_after_s())},
            )
        return None

    def _take_slot(self, address: str, peer: str) -> "tuple[AddressSlot | None, Response | None]":
        """Count a connection attempt, and the socket of an address behind a proxy."""
        refusal = self._address_limiter.attempt(address, self._clock.monotonic())
        if refusal:
            return None, self._too_many("connection attempts", refusal)
        if address == peer:  # the sockets of direct peers are counted when accepted
            return None, None
        slot = self._address_limiter.enter(address)
        if slot is None:
            refusal = self._address_limiter.socket_headers(_retry_after_s())
            return None, self._too_many("connections", refusal)
        return slot, None

    def _too_many(self, what: str, headers: Mapping[str, str]) -> Response:
        return self._problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            "rate_limit_exceeded",
            f"Too many {what} from this address; try again in {headers['Retry-After']} s.",
            headers=headers,
        )

    def _problem(
        self,
        status: HTTPStatus,
        error: str,
        message: str,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Response:
        timestamp = iso(self._clock.wall_us() // 1_000)
        fields = {"error": error, "message": redact(message), "timestamp": timestamp}
        body = msgspec.json.encode(fields)
        headers = {**headers, "Content-Type": "application/json", "Connection": "close"}
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET"
        if status is HTTPStatus.UPGRADE_REQUIRED:
            headers["Connection"] = "Upgrade, close"
            headers["Upgrade"] = "websocket"
            headers["Sec-WebSocket-Version"] = VERSION
        headers["Content-Length"] = str(len(body))
        return Response(status, status.phrase, Headers(headers), body)


class Handshake:
    """The upgrade request of one connection until it is answered."""

    __slots__ = ("_tail", "protocol", "request")

    def __init__(self, protocol: ServerProtocol) -> None:
        self.protocol = protocol
        self.request: Request | None = None
        self._tail = b""  # the last bytes, in case they begin the end of the request

    def received(self, data: bytes) -> bytes:
        """Read more of the request, until `request` is set; returns the bytes after its end."""
        seen = self._tail + data
        end = seen.find(REQUEST_END)
        length = end + len(REQUEST_END) - len(self._tail) if end >= 0 else len(data)
        self._tail = seen[-len(REQUEST_END) + 1 :]
        self.protocol.receive_data(data[:length])
        for event in self.protocol.events_received():
            self.request = cast(Request, event)
        return data[length:]

    @property
    def broken(self) -> bool:
        """Whether the bytes are not an upgrade request."""
        return self.protocol.handshake_exc is not None


def _key_in(query: str) -> str | None:
    """The last key in a query, possibly empty; None if there is none."""
    return parse_qs(query, keep_blank_values=True).get("api_key", [None])[-1]


def _retry_after_s() -> int:
    return random.randint(RETRY_AFTER_MIN_S, RETRY_AFTER_MAX_S)  # noqa: S311


def _header(headers: Headers, name: str) -> str | None:
    try:
        return headers.get(name)
    except MultipleValuesError:
        return headers.get_all(name)[-1]


UNKNOWN: Final = "unknown"


class AddressSlot:
    """One counted socket of an address, until `leave`."""

    __slots__ = ("_address", "_address_limiter")

    def __init__(self, address_limiter: "AddressLimiter", address: str) -> None:
        self._address_limiter: AddressLimiter | None = address_limiter
        self._address = address

    def leave(self) -> None:
        """Stop counting the socket; later calls have no effect."""
        address_limiter, self._address_limiter = self._address_limiter, None
        if address_limiter is not None:
            address_limiter.release(self._address)


class AddressLimiter:
    """Counts connection attempts and open sockets by address, IPv6 by /64.

    This machine and the configured proxies are trusted: a proxy's sockets count for the addresses
    in its X-Forwarded-For.
    """

    def __init__(
        self,
        connects_per_minute: int,
        forwarded_from: Iterable[str] = (),
        *,
        sockets_per_address_max: int = 0,
    ) -> None:
        self._attempts: AddressLimit | None = None
        self._sockets_max = 0
        self.limit(connects_per_minute, sockets_per_address_max)
        self._proxies = [ip_network(each, strict=False) for each in forwarded_from]
        self._sockets: dict[str, int] = {}

    def limit(self, connects_per_minute: int, sockets_per_address_max: int) -> None:
        """Change both limits; the counts are kept."""
        if not connects_per_minute:
            self._attempts = None
        elif self._attempts is None:
            self._attempts = AddressLimit("connects", connects_per_minute)
        else:
            self._attempts.per_minute = connects_per_minute
        self._sockets_max = sockets_per_address_max

    def attempt(self, address: str, now_s: float) -> dict[str, str]:
        """Count an attempt; returns the header fields of a refusal, empty if it is allowed."""
        if self._attempts is None:
            return {}
        decision = self._attempts.take(address, now_s)
        return {} if decision.allowed else decision.headers()

    def enter(self, address: str) -> AddressSlot | None:
        """Count an open socket of an address; None if the address is at its limit."""
        name = network(address)
        count = self._sockets.get(name, 0)
        if self._sockets_max and count >= self._sockets_max:
            return None
        self._sockets[name] = count + 1
        return AddressSlot(self, name)

    def socket_headers(self, retry_after_s: int) -> dict[str, str]:
        """Header fields of a refusal, with the limit of open sockets."""
        return {
            "RateLimit-Policy": f'"sockets";q={self._sockets_max}',
            "RateLimit": f'"sockets";r=0;t={retry_after_s}',
            "X-RateLimit-Limit": str(self._sockets_max),
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": str(retry_after_s),
            "Retry-After": str(retry_after_s),
        }

    def release(self, name: str) -> None:
        """Stop counting a socket of an address; called by its `AddressSlot`."""
        self._sockets[name] -= 1
        if not self._sockets[name]:
            del self._sockets[name]

    def address(self, peer: str, forwarded_for: str | None) -> str:
        """The client's address: the peer, or X-Forwarded-For from a trusted proxy."""
        if forwarded_for and self._is_proxy(peer):
            peer = forwarded_for.rpartition(",")[2].strip()
        return peer or UNKNOWN

    def trusts(self, peer: str) -> bool:
        """Whether a peer is on this machine or a trusted proxy."""
        address = _parsed(peer)
        return address is not None and (address.is_loopback or self._is_proxy(peer))

    def _is_proxy(self, peer: str) -> bool:
        address = _parsed(peer)
        return address is not None and any(address in each for each in self._proxies)


@lru_cache(maxsize=4_096)
def _parsed(peer: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(peer)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


OFFENCE_PAUSE_MAX_S: Final = 8.0  # between two handshakes of an address
FORGOTTEN_S: Final = 60.0  # after the last delayed handshake
ADDRESSES_MAX: Final = 10_000  # above this, the oldest is dropped


class _Offender:
    __slots__ = ("next_s", "pause_s")

    def __init__(self, pause_s: float, next_s: float) -> None:
        self.pause_s = pause_s
        self.next_s = next_s  # when its next handshake may be answered


class Offenders:
    """Paces the handshakes of addresses, IPv6 by /64.

    Args:
        pause_s: Seconds between two handshakes after one offence; 0: no pause.
        pause_max_s: The longest pause.
    """

    def __init__(self, pause_s: float, pause_max_s: float) -> None:
        self._pause_s = pause_s
        self._pause_max_s = max(pause_s, pause_max_s)
        self._found: dict[str, _Offender] = {}

    def offended(self, address: str, now_s: float) -> None:
        """Record that a socket of an address was closed for an offence."""
        if not self._pause_s:
            return
        name = network(address)
        known = self._known(name, now_s)
        if known is None:
            self._found[name] = _Offender(self._pause_s, now_s + self._pause_s)
            if len(self._found) > ADDRESSES_MAX:
                del self._found[next(iter(self._found))]
        else:
            known.pause_s = min(2 * known.pause_s, self._pause_max_s)

    def wait_s(self, address: str, now_s: float) -> float:
        """Seconds to delay a handshake of an address; the next one is delayed longer.

        The delay is at most twice the longest pause; handshakes beyond that are answered together.
        """
        if not self._found:
            return 0.0
        known = self._known(network(address), now_s)
        if known is None:
            return 0.0
        begins_s = min(max(known.next_s, now_s), now_s + 2 * self._pause_max_s)
        known.next_s = begins_s + known.pause_s
        return begins_s - now_s

    def _known(self, name: str, now_s: float) -> _Offender | None:
        known = self._found.get(name)
        if known is not None and now_s - known.next_s > FORGOTTEN_S:
            del self._found[name]
            return None
        return known
