"""h11's server side, with two rules of RFC 9110 and 9112 that it leaves to its caller."""

import re
from typing import Final

import h11

UPGRADE_SINCE: Final = b"1.1"
ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE)


class RequestParser(h11.Connection):
    """Parses requests; gives them with a target in origin-form and without a void `Upgrade`."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event of h11; a request as the application has to see it."""
        event = super().next_event()
        return _effective(event) if isinstance(event, h11.Request) else event


def _effective(request: h11.Request) -> h11.Request:
    target, headers = bytes(request.target), [*request.headers.raw_items()]
    absolute = ABSOLUTE.fullmatch(target)
    if absolute is not None:  # RFC 9112 section 3.2.2: its host wins over the header
        host, path = absolute.groups()
        target = path if path.startswith(b"/") else b"/" + path
        headers = [(b"Host", host), *_without(headers, b"host")]
    if request.http_version < UPGRADE_SINCE:  # RFC 9110 section 7.8: ignored in HTTP/1.0
        headers = _without(headers, b"upgrade")
    return h11.Request(
        method=request.method,
        target=target,
        headers=headers,
        http_version=request.http_version,
    )


def _without(headers: list[tuple[bytes, bytes]], name: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in headers if field[0].lower() != name]
