"""REST and WebSocket URLs of a service, derived from one URL."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from onebook.client.failures import Refused, has_host

API_PATH = "/api/v1"
WEBSOCKET_PATH = "/api/v1/ws"
_SECURE = {"http": False, "ws": False, "https": True, "wss": True}


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a service answers REST requests and WebSocket connections."""

    rest: str
    websocket: str


def addresses_of(url: str) -> Addresses:
    """Read the address of a service, such as https://books.example or 127.0.0.1:8000.

    The path of the API, or of its WebSocket, may be there already. Without a scheme a host with a
    port is http://, one without is https://.

    Raises:
        Refused: It is not an address.
    """
    given, url = url, _with_scheme(url)
    if not has_host(url, _SECURE):
        raise Refused(
            "invalid_url",
            f"{given!r} is not a service URL: use https://, http://, wss:// or ws://, for "
            "example http://127.0.0.1:8000.",
        )
    parts = urlsplit(url)
    prefix = parts.path.rstrip("/").removesuffix("/ws").removesuffix(API_PATH)
    place = f"{parts.netloc}{prefix}"
    s = "s" if _SECURE[parts.scheme] else ""
    return Addresses(f"http{s}://{place}{API_PATH}", f"ws{s}://{place}{WEBSOCKET_PATH}")


def websocket_of(url: str) -> str:
    """Return the WebSocket address of a service; one with a path of its own stays as it is.

    Raises:
        Refused: It is not an address.
    """
    websocket = addresses_of(url).websocket
    parts = urlsplit(url)
    own = parts.scheme in ("ws", "wss") and parts.path.strip("/")
    return url if own else websocket


def _with_scheme(url: str) -> str:
    if "//" in url:
        return url
    port = url.partition("/")[0].rpartition("]")[2].partition(":")[2]
    return f"http://{url}" if port else f"https://{url}"
