"""Checks before a start: settings, the names and files in them, and compiled extensions.

`onebook config check` and every starting node run these checks, which make no connections and write
nothing.
"""

import difflib
import logging
import platform
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from onebook import __version__, config, core, exchanges
from onebook.accounts.pepper import load_pepper
from onebook.config import ExchangeSettings, NatsSettings, ServerSettings, Settings
from onebook.errors import ConfigError, file_problem
from onebook.exchanges import channel_of
from onebook.feeds import ccxt
from onebook.files import read_bounded
from onebook.gateway import fanout
from onebook.metrics import BUILD
from onebook.nodes.nats import CREDENTIAL_FILES, credentials, require_readable
from onebook.orderbook import meant
from onebook.store.database import open_engine
from onebook.transactions import registry
from onebook.transactions.credentials import master_keys

log = logging.getLogger("onebook.app")

CERT: Final = "server.tls_cert_file"
KEY: Final = "server.tls_key_file"
NEAR: Final = 0.75  # minimum similarity of a suggested name
PORT_MAX: Final = 65_535
# nats settings that apply only to servers not started by node.workers.
NATS_LOGIN: Final = ("user", "password", "credentials_file", "tls_ca_file", "tls_cert_file")

COMPILABLE: Final[Mapping[str, Any]] = {
    "core": core,
    "last step to clients": fanout,
}


def load(file: Path | None = None, *, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read the settings of a node.

    Raises:
        ConfigError: One line per fault of the settings and their files.
    """
    settings, found = config.examine(file, overrides=overrides)
    found += faults(settings)
    if found:
        raise ConfigError("\n".join(found))
    return settings


def require(settings: Settings) -> None:
    """Require settings with which a node can start.

    Raises:
        ConfigError: One line per fault.
    """
    found = faults(settings)
    if found:
        raise ConfigError("\n".join(found))


def faults(settings: Settings, now: datetime | None = None) -> list[str]:
    """List all faults as sentences that name the setting and the source of its value."""
    feeds, server, store = settings.feeds, settings.server, settings.store
    master = "master_key" if settings.transactions.master_key else "master_key_file"
    overrides = {
        name: override
        for name, override in feeds.overrides.items()
        if name not in feeds.ccxt.exchanges
    }
    checks: list[tuple[str, Iterable[str]]] = [
        ("feeds.exchanges", _unknown_exchanges("feeds.exchanges", feeds.exchanges)),
        *(
            (f"feeds.overrides.{name}", _unknown_exchanges("feeds.overrides", [name]))
            for name in overrides
        ),
        ("feeds.ccxt.exchanges", ccxt.faults(feeds.ccxt.exchanges)),
        *(
            (f"feeds.overrides.{name}.channel", _unknown_channel(name, override))
            for name, override in feeds.overrides.items()
        ),
        *(
            (f"transactions.overrides.{name}", _unknown_account_exchange(name))
            for name in settings.transactions.overrides
        ),
        ("server.metrics_port", _same_port(server)),
        (CERT if server.tls_cert_file else KEY, tls_faults(server, now or datetime.now(UTC))),
        ("store.url", _raised(lambda: open_engine(store.url))),
        ("store.pepper_file", _raised(lambda: _pepper(store.pepper_file))),
        (f"transactions.{master}", _raised(lambda: _master_key(settings))),
        *_nats_checks(settings),
        *_worker_checks(settings),
        *_history_checks(settings),
    ]
    return [settings.origin(name) + sentence for name, found in checks for sentence in found]


def _history_checks(settings: Settings) -> Iterator[tuple[str, Iterable[str]]]:
    """Check that a recorder has a folder and pairs, and that the pairs can be recorded."""
    history, node = settings.history, settings.node
    apart = node.role == "recorder" or (node.workers and history.dir is not None)
    if history.dir is None and (history.symbols or apart):
        yield "history.dir", ["history.dir must be set, so that books can be recorded."]
    if not history.symbols and apart:
        yield "history.symbols", ["history.symbols must name the pairs that the recorder follows."]


def _nats_checks(settings: Settings) -> Iterator[tuple[str, Iterable[str]]]:
    """Check the files for NATS, if a node with these settings connects to it."""
    nats = settings.nats
    if settings.node.role == "all" and not _starts_workers_on(settings, nats):
        return
    found = False
    for name in CREDENTIAL_FILES:
        faults = [*_raised(partial(require_readable, name, getattr(nats, name)))]
        found = found or bool(faults)
        yield f"nats.{name}", faults
    if not found:
        yield "nats", _raised(partial(credentials, nats))


def _starts_workers_on(settings: Settings, nats: NatsSettings) -> bool:
    """Return whether workers use the operator's NATS servers instead of starting one."""
    return bool(settings.node.workers) and "servers" in nats.model_fields_set


def _worker_checks(settings: Settings) -> Iterator[tuple[str, Iterable[str]]]:
    """List settings that conflict with several processes."""
    node, server, nats = settings.node, settings.server, settings.nats
    if not node.workers:
        return
    if node.role != "all":
        yield (
            "node.role",
            ["node.workers starts nodes of every role: node.role must be all."],
        )
    if server.metrics_port:
        last = server.metrics_port + node.workers + (settings.history.dir is not None)
        if last > PORT_MAX or server.metrics_port <= server.port <= last:
            yield (
                "server.metrics_port",
                [
                    f"node.workers needs the ports server.metrics_port to {last} for metrics: "
                    f"they must not exceed {PORT_MAX} or include server.port."
                ],
            )
    given = [name for name in NATS_LOGIN if name in nats.model_fields_set]
    if given and not _starts_workers_on(settings, nats):
        yield (
            f"nats.{given[0]}",
            [
                f"nats.{given[0]} is set, but nats.servers is not: the nats-server of "
                "node.workers accepts only its own token."
            ],
        )


def _same_port(server: ServerSettings) -> Iterator[str]:
    if server.metrics_port and server.metrics_port == server.port:
        yield "server.metrics_port must differ from server.port."


def _unknown_exchanges(name: str, given: Iterable[str]) -> Iterator[str]:
    for each in given:
        if each not in exchanges.EXCHANGES:
            near = difflib.get_close_matches(each, exchanges.EXCHANGES, 1, NEAR)
            hint = f" Did you mean {near[0]}?" if near else ""
            yield (f"{name}: unknown exchange {each!r}.{hint} `onebook exchanges list` shows all.")


def _unknown_account_exchange(name: str) -> Iterator[str]:
    if name not in registry.EXCHANGES:
        yield (
            f"transactions.overrides: unknown exchange {name!r}; known: "
            f"{', '.join(registry.EXCHANGES)}.{meant(name, registry.EXCHANGES)}"
        )


def _unknown_channel(name: str, override: ExchangeSettings) -> Iterator[str]:
    exchange = exchanges.EXCHANGES.get(name)
    if exchange is None and override.channel:
        yield f"feeds.overrides.{name}.channel: an exchange through ccxt has no channels."
    if exchange is not None:
        has_key = bool(override.api_key.get_secret_value())
        yield from _raised(partial(channel_of, exchange, override.channel, has_key=has_key))


def _raised(check: Callable[[], object]) -> Iterator[str]:
    try:
        check()
    except ConfigError as error:
        yield error.message
    except OSError as error:
        yield file_problem(error)


def _pepper(path: Path) -> None:
    if path.exists():  # otherwise the first start creates it
        load_pepper(path)


def _master_key(settings: Settings) -> None:
    ours = settings.transactions
    if ours.master_key.get_secret_value() or ours.master_key_file.exists():
        master_keys(ours).read()


def tls_faults(server: ServerSettings, now: datetime) -> list[str]:
    """List the faults of the certificate and its key; empty without TLS."""
    cert, key = server.tls_cert_file, server.tls_key_file
    if cert is None:
        return [] if key is None else [f"{KEY} is set, but {CERT} is not."]
    found: list[str] = []
    chain = _read(CERT, cert, found)
    private = chain if key is None else _read(KEY, key, found)
    if found:
        return found
    try:
        leaf = x509.load_pem_x509_certificates(chain)[0]
    except ValueError:
        found.append(f"{CERT}: {cert} contains no PEM certificate.")
    public = _public_key(private, key or cert, found)
    if found:
        return found
    ends, begins = leaf.not_valid_after_utc, leaf.not_valid_before_utc
    if now >= ends:
        found.append(f"{CERT}: the certificate in {cert} expired on {ends:%Y-%m-%d %H:%M} UTC.")
    if now < begins:
        found.append(
            f"{CERT}: the certificate in {cert} is not valid before {begins:%Y-%m-%d %H:%M} UTC."
        )
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if leaf.public_key().public_bytes(*form) != public:
        found.append(f"{KEY}: {key or cert} is not the key of the certificate in {cert}.")
    return found or _loadable(cert, key)


def tls_ends(server: ServerSettings) -> datetime | None:
    """Return when the certificate expires; None without one, or if it cannot be read."""
    if server.tls_cert_file is None:
        return None
    try:
        chain = x509.load_pem_x509_certificates(server.tls_cert_file.read_bytes())
    except (OSError, ValueError):
        return None
    return chain[0].not_valid_after_utc


def tls_context(server: ServerSettings) -> ssl.SSLContext | None:
    """Return the TLS context of the server; None without a certificate.

    Raises:
        OSError: The files cannot be used; `tls_faults` gives the reason.
    """
    if server.tls_cert_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server.tls_cert_file, server.tls_key_file)
    return context


def _read(name: str, path: Path, found: list[str]) -> bytes:
    try:
        return read_bounded(path)
    except OSError as error:
        found.append(f"{name}: {path} cannot be read: {error.strerror}.")
        return b""


def _public_key(pem: bytes, path: Path, found: list[str]) -> bytes:
    """Return the public key of a private key."""
    try:
        key = load_pem_private_key(pem, None)
    except TypeError:
        found.append(f"{KEY}: the key in {path} is encrypted; remove its passphrase.")
    except (ValueError, UnsupportedAlgorithm):
        found.append(f"{KEY}: {path} contains no PEM private key.")
    else:
        return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return b""


def _loadable(cert: Path, key: Path | None) -> list[str]:
    """Load both files with OpenSSL, which also checks the length of the key, for example."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        return [f"{CERT}: {cert} cannot be used: {error}."]
    return []


def missing_extensions() -> list[str]:
    """List the extensions that are missing or were compiled for another picows version."""
    return [name for name, module in COMPILABLE.items() if not module.COMPILED]


def warn_of_missing_extensions() -> None:
    """Log which compiled extensions are missing."""
    missing = missing_extensions()
    if missing:
        log.warning(
            "Compiled extensions unavailable (%s); using the slower pure-Python versions. "
            "Reinstall with a C compiler.",
            ", ".join(missing),
        )


def publish_build() -> None:
    """Set the build information metric."""
    compiled = "no" if missing_extensions() else "yes"
    BUILD.info({"version": __version__, "python": platform.python_version(), "compiled": compiled})
