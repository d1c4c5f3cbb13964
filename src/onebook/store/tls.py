"""TLS of connections to PostgreSQL, by the words of its own clients in `store.url`.

https://www.postgresql.org/docs/current/libpq-ssl.html. The driver knows the same words in an
address of its own, and `ssl` for `sslmode`; programs such as pg_dump know them as variables.
"""

import os
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

from onebook.errors import ConfigError

MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
VERIFYING: Final = ("verify-ca", "verify-full")
VARIABLES: Final = {
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslcrl": "PGSSLCRL",
}
DEFAULT_CA_FILE: Final = ".postgresql/root.crt"  # in the user's home
_ALIAS: Final = "ssl"


def without_tls(url: URL) -> URL:
    """The address without these words."""
    return url.difference_update_query((*VARIABLES, _ALIAS))


def tls_words(url: URL) -> dict[str, str]:
    """These words of an address.

    Raises:
        ConfigError: One of them is not usable: an unknown mode, or a file that cannot be read.
    """
    found = {name: str(value) for name, value in url.query.items() if name in VARIABLES}
    if _ALIAS in url.query:
        found.setdefault("sslmode", str(url.query[_ALIAS]))
    mode = found.get("sslmode", "")
    if mode and mode not in MODES:
        raise ConfigError(f"sslmode in store.url must be one of {', '.join(MODES)}.")
    for name, path in found.items():
        if name != "sslmode":
            _require_readable(name, path)
    if mode in VERIFYING and not _has_ca(found):
        raise ConfigError(
            f"sslmode={mode} in store.url needs sslrootcert: the file of the certificate "
            "authority that signed PostgreSQL's certificate."
        )
    return found


def as_address(words: dict[str, str]) -> str:
    """The words as the address that the driver takes beside its other arguments."""
    return URL.create("postgresql", query=words).render_as_string()


def as_variables(words: dict[str, str]) -> dict[str, str]:
    """The words as variables of PostgreSQL's own programs."""
    return {VARIABLES[name]: value for name, value in words.items()}


def _require_readable(name: str, path: str) -> None:
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        reason = f"{name} in store.url: {path} cannot be read: {error.strerror}."
        raise ConfigError(reason) from None


def _has_ca(words: dict[str, str]) -> bool:
    if "sslrootcert" in words or os.environ.get(VARIABLES["sslrootcert"]):
        return True
    return (Path.home() / DEFAULT_CA_FILE).exists()
