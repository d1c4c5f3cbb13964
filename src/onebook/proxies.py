"""Proxies for connections to exchanges: set by the operator, or taken from the environment.

The environment variables are the same as curl's: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY,
in capitals or not. Addresses of proxies may contain a password: `repr` and errors never show one.
"""

from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

DIRECT: Final = "direct"
SCHEMES: Final = ("http", "https", "socks5", "socks5h")
MUST_BE: Final = (
    f'must be an address such as socks5://HOST:PORT with one of {", ".join(SCHEMES)}, "{DIRECT}", '
    "or empty"
)
HTTP_SCHEMES: Final = {"wss": "https", "ws": "http"}  # whose variables count


def proxy_setting(text: str) -> str:
    """Check the setting of a proxy.

    Raises:
        ValueError: It is neither an address nor `DIRECT`; the message does not quote it.
    """
    if text in ("", DIRECT):
        return text
    try:
        parts = urlsplit(text)
        valid = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(MUST_BE)
    return text


class Proxies:
    """Chooses the proxy of each address.

    Args:
        setting: The proxy of all addresses; `DIRECT` for none, empty for the environment's.

    Raises:
        ValueError: The setting is invalid.
    """

    def __init__(self, setting: str = "") -> None:
        self._setting = proxy_setting(setting)

    def __repr__(self) -> str:
        where = self._setting and (DIRECT if self._setting == DIRECT else "set")
        return f"<Proxies: {where or 'environment'}>"

    @property
    def any(self) -> bool:
        """Whether any address may have a proxy."""
        if self._setting:
            return self._setting != DIRECT
        return any(name != "no" for name in getproxies_environment())

    def of(self, url: str) -> str | None:
        """Return the address of the proxy for a URL; None for a direct connection."""
        if self._setting:
            return _known(self._setting) if self._setting != DIRECT else None
        parts = urlsplit(url)
        proxies = getproxies_environment()
        scheme = HTTP_SCHEMES.get(parts.scheme, parts.scheme)
        found = proxies.get(scheme) or proxies.get("all")
        if not found or _excepted(parts.hostname or "", parts.port, proxies.get("no", "")):
            return None
        return _known(found if "://" in found else f"http://{found}")


def _excepted(host: str, port: int | None, no_proxy: str) -> bool:
    """Return whether NO_PROXY names a host, a domain of it, or its host and port; "*" names all."""
    for each in filter(None, (entry.strip().lower() for entry in no_proxy.split(","))):
        name = each.removeprefix("*").removeprefix(".")
        if not name or name in (host, f"{host}:{port}") or host.endswith(f".{name}"):
            return True
    return False


def _known(address: str) -> str:
    """Replace the scheme socks5h by socks5, whose host names the proxy resolves here too."""
    return address.replace("socks5h://", "socks5://", 1)


ENVIRONMENT: Final = Proxies()
