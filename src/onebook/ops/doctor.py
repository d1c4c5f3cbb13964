"""Diagnoses an installation, running or not, with a suggested fix for each finding.

Checks this machine, the database and its secrets, NATS and the other nodes, the port and the
exchanges. It creates no files, does not upgrade the schema, and writes only one row, the time of
the last write. On NATS it only listens, so running nodes are not affected.
"""

import asyncio
import os
import platform
import shutil
import socket
import sqlite3
import ssl
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx
from msgspec import Struct

from onebook import __version__, http
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.accounts.usage import unlocked, usage_place
from onebook.clock import SYSTEM_CLOCK, Clock, iso_ms, s_of_http_date
from onebook.config import ServerSettings, Settings
from onebook.errors import ConfigError, DatabaseUnavailable, file_problem
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Exchange
from onebook.feeds import enabled
from onebook.feeds.limits import LIMITS as FEED_LIMITS
from onebook.model import SECOND_MS
from onebook.nodes import wire
from onebook.nodes.membership import NodeHeartbeat, NodeRole, NodeState
from onebook.nodes.nats import COMMAND_CONNECT_TIMEOUT_S, NatsBus
from onebook.nodes.presence import listen
from onebook.ops import preflight
from onebook.ops.backup import abandoned
from onebook.ops.preflight import missing_extensions
from onebook.store import Store
from onebook.transactions.adapter import Environment
from onebook.transactions.collected import Collection
from onebook.transactions.collector import CollectedAccount
from onebook.transactions.credentials import Vault, master_keys
from onebook.transactions.export_files import NEARLY_FULL, ExportFiles

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
FREE_BYTES_MIN: Final = 1 << 30
CERTIFICATE_DAYS_MIN: Final = timedelta(days=14)
OTHERS: Final = 0o077
OTHERS_WRITE: Final = 0o022
# Packages whose versions are useful in bug reports.
PACKAGES: Final = ("uvloop", "picows", "uvicorn", "sqlalchemy", "cryptography")

COLLECTIONS_LATE: Final = 3  # intervals without a collection, as in the alert
KEY_ADVICE: Final = "Restore the master key from the backup of this database."
SLOW_S: Final = 0.25  # if a write takes longer, usage is also written to the usage file

NATS_ADVICE = "Check nats.servers, the login and the certificates, and that nats-server runs."

AT_ONCE_MAX: Final = 8
SKEW_WARNING_S: Final = 1.5  # Date headers have whole seconds
SKEW_FAULT_S: Final = 5.0  # exchanges reject signed requests of this age
REFUSED: Final = {403, 451}  # HTTP statuses of blocked countries or addresses
PORTS: Final = {"ws": 80, "http": 80, "wss": 443, "https": 443}
CLOCK_ADVICE: Final = "Run an NTP client (chrony or systemd-timesyncd): timedatectl set-ntp true"
LIVE_CHECK: Final = "To check their protocols too: onebook exchanges check --live"
FIREWALL_ADVICE: Final = (
    "Allow DNS and outgoing TCP to this host and port, or leave it out of feeds.exchanges."
)


class Severity(StrEnum):
    """Severity of a finding: a fault prevents the node from starting or serving."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


class Finding(Struct, frozen=True):
    """Result of one check: the state, and the suggested fix."""

    check: str
    state: Severity
    message: str
    advice: str = ""


def ok(check: str, message: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(check, Severity.OK, message)


def warning(check: str, message: str, advice: str) -> Finding:
    """Return a finding about a weakness."""
    return Finding(check, Severity.WARNING, message, advice)


def fault(check: str, message: str, advice: str) -> Finding:
    """Return a finding about a fault."""
    return Finding(check, Severity.FAULT, message, advice)


def local_findings(settings: Settings, faults: list[str], file: Path | None) -> Iterator[Finding]:
    """Check this machine and the settings; `faults` were found while reading them."""
    yield from _settings(settings, faults, file)
    yield from _versions()
    yield from _compiled()
    yield from _user()
    yield from _settings_file(file or Path("onebook.toml"))
    yield from _secrets(settings)
    yield from _folders(settings)
    yield from _usage_files(settings)
    yield from _exports(settings)
    yield from _files_limit(settings)
    yield from _certificate(settings)
    yield from _exposure(settings)


def _settings(settings: Settings, faults: list[str], file: Path | None) -> Iterator[Finding]:
    found = [*faults, *preflight.faults(settings)]
    for each in found:
        yield fault("settings", each, "Correct it and run onebook config check.")
    if not found:
        yield ok(
            "settings", f"{file or 'Defaults, onebook.toml and environment'}: no errors found."
        )


def _versions() -> Iterator[Finding]:
    packages = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    yield ok(
        "versions",
        f"Onebook {__version__}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {ssl.OPENSSL_VERSION}, {packages}.",
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _compiled() -> Iterator[Finding]:
    if missing := missing_extensions():
        yield warning(
            "compiled",
            f"The slower pure-Python version is used for: {', '.join(missing)}.",
            "Install a C compiler and reinstall Onebook.",
        )
    else:
        yield ok("compiled", "All extensions are compiled.")


def _user() -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield warning(
            "user",
            "This runs as root.",
            "Run the service under a dedicated account, like deploy/systemd/onebook.service.",
        )


def _settings_file(path: Path) -> Iterator[Finding]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & OTHERS_WRITE:
        yield warning(
            "permissions", f"Others can write the settings file {path}.", f"chmod go-w {path}"
        )


def _secrets(settings: Settings) -> Iterator[Finding]:
    """Check files that others must not read; preflight checks the pepper and the master key."""
    database = _database_file(settings)
    sensitive = {
        "the database": database,
        "its write-ahead log": database and database.with_name(f"{database.name}-wal"),
        "the TLS key": settings.server.tls_key_file,
    }
    for what, path in sensitive.items():
        if path is None:
            continue
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:  # not created yet, or in a folder that is checked below
            continue
        if mode & OTHERS:
            yield warning("permissions", f"Others can read {what} {path}.", f"chmod 600 {path}")
        elif not os.access(path, os.R_OK):
            advice = "Run this as the service's account, which must own the file."
            yield fault("permissions", f"{path} cannot be read.", advice)


def _database_file(settings: Settings) -> Path | None:
    try:
        return Store(settings.store.url).database.path
    except ConfigError:
        return None  # already reported


def _folders(settings: Settings) -> Iterator[Finding]:
    database = _database_file(settings)
    files = [settings.store.pepper_file, settings.transactions.master_key_file]
    folders = {each.absolute().parent for each in (*files, *([database] if database else []))}
    if settings.store.usage_dir is not None:
        folders.add(settings.store.usage_dir.absolute())
    for folder in sorted(folders):
        yield from _folder(folder)
        yield from _abandoned(folder)


def _exports(settings: Settings) -> Iterator[Finding]:
    """Check the directory of exports, if there are any."""
    ours = settings.transactions
    files = ExportFiles(
        ours.exports_folder, bytes_max=ours.exports_bytes_max, days=ours.exports_days
    )
    used = files.used_bytes()
    if not used:
        return
    room = f"{used >> 20:,} of {files.bytes_max >> 20:,} MB of exports are in {files.folder}."
    if used >= files.bytes_max * NEARLY_FULL:
        yield warning(
            "exports",
            f"{room} Further exports will be refused.",
            "Raise transactions.exports_bytes_max, or delete files there: they can be requested "
            "again.",
        )
    else:
        yield ok("exports", room)


def _folder(folder: Path) -> Iterator[Finding]:
    there = next(each for each in (folder, *folder.parents) if os.path.exists(each))
    if not os.access(there, os.W_OK | os.X_OK):
        yield fault(
            "permissions",
            f"{there} cannot be written, but the service keeps files in {folder}.",
            f"Run this as the operating system user of the service, who must own {folder}.",
        )
        return
    free_bytes = shutil.disk_usage(there).free
    room = f"{free_bytes / (1 << 30):.1f} GiB are free at {folder}."
    if free_bytes < FREE_BYTES_MIN:
        yield warning("disk", f"Only {room}", "Free space, or move store.url to another disk.")
    else:
        yield ok("disk", room)


def _abandoned(folder: Path) -> Iterator[Finding]:
    for each in abandoned(folder):
        yield warning(
            "leftovers",
            f"{each} was left by an onebook backup or restore that was killed, and may hold the "
            "pepper and the master key.",
            f"rm -r {each}; the next backup or restore to {folder} removes it too.",
        )


def _usage_files(settings: Settings) -> Iterator[Finding]:
    """Find usage files that no node has applied, so that their usage is not billed."""
    try:
        folder, name = usage_place(settings.store, Store(settings.store.url))
    except ConfigError:
        return  # already reported
    for each in unlocked(folder, name):
        yield warning(
            "usage",
            f"{each} was left by a killed node; its usage is not billed yet.",
            "Start a node with this store.usage_dir on this machine, which then bills it. Do not "
            "delete the file.",
        )


def _certificate(settings: Settings) -> Iterator[Finding]:
    """Check when the certificate expires; an expired one is a fault of the settings."""
    ends = preflight.tls_ends(settings.server)
    left = None if ends is None else ends - datetime.now(UTC)
    if left is None or left <= timedelta(0):
        return
    shown = f"The certificate in {settings.server.tls_cert_file} ends on {ends:%Y-%m-%d %H:%M} UTC"
    if left < CERTIFICATE_DAYS_MIN:
        yield warning(
            "certificate",
            f"{shown}, in {left.days} days.",
            "Renew it, then send the node SIGHUP (systemctl reload onebook).",
        )
    else:
        yield ok("certificate", f"{shown}.")


def _files_limit(settings: Settings) -> Iterator[Finding]:
    yield from _tried(
        "files",
        lambda: http.reserve_files(settings.server, settings.gateway.connections_max),
        "The process may open as many files as the limits need.",
        "Set LimitNOFILE= in the systemd unit or ulimit -Hn, or lower gateway.connections_max.",
    )


def _tried(
    check: str, action: Callable[[], object], message: str, advice: str
) -> Iterator[Finding]:
    try:
        action()
    except ConfigError as error:
        yield fault(check, error.message, advice)
    else:
        yield ok(check, message)


def _exposure(settings: Settings) -> Iterator[Finding]:
    server = settings.server
    if server.host in LOOPBACK:
        yield ok("exposure", f"The service listens on {server.host}, for this machine only.")
        return
    if server.tls_cert_file is None:
        yield warning(
            "exposure",
            f"The service listens on {server.host} without TLS: API keys cross the network in "
            "clear text.",
            "Set server.tls_cert_file, or server.host = 127.0.0.1 behind a proxy (deploy/nginx).",
        )
    if server.metrics_port is None and not server.metrics_token.get_secret_value():
        yield warning(
            "exposure",
            f"/metrics at {server.host} port {server.port} is available to this machine only.",
            "Set server.metrics_port and server.metrics_host, or server.metrics_token.",
        )


async def database_findings(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> list[Finding]:
    """Check the database."""
    try:
        store = Store(settings.store.url)
    except ConfigError:
        return []  # a fault of the settings, which are checked elsewhere
    async with store:
        try:
            if store.database.path is not None and not store.database.path.exists():
                return [_absent(settings, store)]
            if store.database.path is not None:
                damage = await asyncio.to_thread(_damage, store.database.path)
                if damage:
                    return [_damaged(store.database.path, damage)]
            return [each async for each in _opened(settings, store, clock)]
        except DatabaseUnavailable as error:
            advice = "Start the database, and check store.url and the rights of its user."
            if store.database.path is not None:
                advice = (
                    "The service's account must own the file, its companion files and the folder,"
                    " and the disk must have free space."
                )
            return [fault("database", error.reason, advice)]
        except OSError as error:
            advice = "Check the owner and the mode of the file and of its folder."
            return [fault("database", file_problem(error), advice)]


def _damage(path: Path) -> str:
    """Return the damage that SQLite finds in a file; "" if none or if it cannot be opened."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as its:
            (found,) = its.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        return str(error) if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) else ""
    return "" if found == "ok" else str(found).replace("\n", " ")


def _damaged(path: Path, damage: str) -> Finding:
    return fault(
        "database",
        f"The database {path} is damaged: {damage}.",
        f"Stop the nodes, move {path} and its companion files away (keep them), and restore the "
        "newest backup (onebook restore). Then check the disk: smartctl, dmesg.",
    )


def _absent(settings: Settings, store: Store) -> Finding:
    if settings.store.pepper_file.exists():
        return fault(
            "database",
            f"The database {store.database.path} is missing, although its pepper "
            f"{settings.store.pepper_file} exists.",
            "Restore it (onebook restore), or correct store.url.",
        )
    return ok("database", f"The first start creates {store.database.path}.")


async def _opened(settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Finding]:
    found, known = await store.database.revisions()
    if found is None:
        yield ok("database", "It answers and is empty; the first start creates its tables.")
        return
    if found > known:
        yield fault(
            "database",
            f"Its schema {found} is newer than {known} of this release.",
            "Install the newer Onebook.",
        )
        return
    if found < known:
        yield warning(
            "database",
            f"Its schema is {found}; this release has {known}.",
            "Make a backup (onebook backup), then run onebook db upgrade or start a node.",
        )
        return
    began_s = clock.monotonic()
    await store.accounts.newest_change()  # the connection is open by now
    answered_s = clock.monotonic() - began_s
    began_s = clock.monotonic()
    await store.facts.probe(clock.wall_ms())
    written_s = clock.monotonic() - began_s
    speed = f"a read took {answered_s * 1e3:.0f} ms, a write {written_s * 1e3:.0f} ms"
    if written_s > SLOW_S:
        yield warning(
            "database",
            f"It answers slowly: {speed}.",
            "Put it on a faster disk, or nearer to the node.",
        )
    else:
        yield ok("database", f"Schema {found}; {speed}.")
    async for each in _belonging(settings, store, clock):
        yield each


async def _belonging(settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Finding]:
    """Check that the pepper and the master key match the database."""
    accounts = await store.accounts.list_accounts()
    if accounts:
        if settings.store.pepper_file.exists():
            yield await _secret(
                "pepper",
                lambda: _pepper(settings, store),
                "The pepper belongs to this database.",
                "Restore the pepper file from the backup of this database: keys need it.",
            )
            async for each in _peppers(settings, store, clock):
                yield each
        else:
            yield fault(
                "pepper",
                f"{settings.store.pepper_file} is missing, and {len(accounts)} accounts exist.",
                "Restore it from the backup of this database: no key works without it.",
            )
    for row in await store.credentials.list_credentials():
        name = f"{row.exchange} {row.environment}"

        async def opened(exchange: str = row.exchange, environment: str = row.environment) -> None:
            await Vault(store.credentials, master_keys(settings.transactions)).get(
                exchange, environment
            )

        yield await _secret(
            "master key",
            opened,
            f"The credentials of {name} can be decrypted.",
            f"Restore the master key, or set them again: onebook credentials set {row.exchange}"
            f"{Environment(row.environment).option}.",
        )
    async for each in _collection(settings, store, clock):
        yield each


async def _collection(settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Finding]:
    """Check that the collected records can be read and are recent."""
    ours = settings.transactions
    collection = Collection(store.collected, Vault(store.credentials, master_keys(ours)))
    try:
        await collection.readable()
    except ConfigError as error:
        yield fault("collection", f"Collected records cannot be read: {error.message}", KEY_ADVICE)
    for row in await store.credentials.list_credentials():
        environment = Environment(row.environment)
        account = CollectedAccount.of(row.exchange, environment)
        name = f"{row.exchange} ({row.environment})"
        selected = row.exchange + environment.option
        command = f"onebook transactions collect --exchange {selected}"
        last = await store.facts.get(account.fact)
        problem = await store.facts.get(account.problem_fact)
        age_s = 0 if last is None else round(clock.wall_ms() - int(last)) // SECOND_MS
        when = "never" if last is None else f"{timedelta(seconds=age_s)} ago"
        every_s = ours.collect_every
        if problem:
            yield warning(
                "collection", f"The last collection of {name} was incomplete: {problem}", command
            )
        elif every_s and (last is None or age_s > COLLECTIONS_LATE * every_s):
            yield warning(
                "collection",
                f"{name} was collected {when}; transactions.collect_every is {every_s:g} s.",
                f"Start a node, or {command}",
            )
        elif last is not None:
            yield ok("collection", f"{name} was collected {when}.")
        identity = await collection.identity(*account.place)
        if identity is not None and identity.doubtful:
            yield warning(
                "collection",
                f"The API key of {name} was replaced, and the exchange does not say to which "
                "account it belongs.",
                "If it belongs to another account, store it under another name, and delete the "
                f"collected records: onebook transactions forget {selected}",
            )


async def _peppers(settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Finding]:
    """Find older peppers that are still in use, and retired ones that are still in the file."""
    rows = await store.accounts.list_peppers()
    old = [each.pepper_id for each in rows[:-1] if each.retired_at_ms is None]
    if old:
        left = await store.accounts.keys_under_old_peppers(clock.wall_ms())
        yield warning(
            "pepper",
            f"The old pepper {', '.join(old)} is still in use. Keys not used since the "
            f"rotation of {iso_ms(rows[-1].current_from_ms)}: {len(left)}.",
            "Restart the nodes so that clients reconnect; then onebook keys rotate-pepper "
            "--retire ends it and revokes the keys that are left.",
        )
    retired = {each.pepper_id for each in rows if each.retired_at_ms is not None}
    with suppress(ConfigError):  # already reported
        held = retired.intersection(load_pepper(settings.store.pepper_file).ids)
        if held:
            yield warning(
                "pepper",
                f"{settings.store.pepper_file} holds the retired pepper {', '.join(sorted(held))}.",
                "Run onebook keys rotate-pepper --retire again, and copy the file to each machine.",
            )


async def _pepper(settings: Settings, store: Store) -> None:
    await require_same_pepper(store, load_pepper(settings.store.pepper_file))


async def _secret(
    check: str, action: Callable[[], Awaitable[None]], message: str, advice: str
) -> Finding:
    try:
        await action()
    except ConfigError as error:
        return fault(check, error.message, advice)
    return ok(check, message)


async def cluster_findings(settings: Settings) -> list[Finding]:
    """Check NATS and the nodes of the cluster, if there are several nodes."""
    if settings.node.role == "all":
        return []
    try:
        async with NatsBus(
            settings.nats, name="onebook doctor", connect_timeout_s=COMMAND_CONNECT_TIMEOUT_S
        ) as bus:
            nodes = await listen(bus, settings.node)
    except ConfigError as error:
        return [fault("nats", error.message, NATS_ADVICE)]
    return [ok("nats", "NATS accepts this node."), *_nodes(nodes, settings.node.cluster)]


def _nodes(nodes: Sequence[NodeHeartbeat], cluster: str) -> list[Finding]:
    alive = [each for each in nodes if each.state is not NodeState.GONE]
    others = [each for each in alive if each.wire != wire.VERSION]
    feeds = [each for each in alive if each.role is NodeRole.FEEDS and each not in others]
    found = [
        warning(
            "nodes",
            f"{each.name} (Onebook {each.version}) speaks version {each.wire} of the node "
            f"protocol, this release {wire.VERSION}: neither uses the other.",
            "Finish the upgrade: docs/guides/many-nodes.md has the order.",
        )
        for each in others
    ]
    if not feeds:
        found.append(
            warning(
                "nodes",
                f"No feeds node of the cluster {cluster} that this release can use is alive.",
                "Start one (onebook serve --role feeds), or correct node.cluster.",
            )
        )
    gateways = [each for each in alive if each.role is NodeRole.GATEWAY and each not in others]
    recorders = len(alive) - len(others) - len(feeds) - len(gateways)
    counts = f"feeds nodes {len(feeds)}, gateways {len(gateways)}, recorders {recorders}"
    return found or [ok("nodes", f"Alive in the cluster {cluster}: {counts}.")]


class ExchangeAnswer(NamedTuple):
    """The answers of an exchange's servers; `skew_s` is our clock minus theirs."""

    problem: str = ""
    advice: str = ""
    skew_s: float | None = None


async def network_findings(settings: Settings, *, exchanges_too: bool = True) -> list[Finding]:
    """Check the service's port and, unless disabled, the connections to the exchanges."""
    server = settings.server
    found = [await _port(server)]
    if server.metrics_port:
        found += _metrics_ports(server, settings.node.workers, running="A node" in found[0].message)
    if not exchanges_too:
        return found
    try:
        wanted = enabled(EXCHANGES, settings.feeds)
    except ConfigError:
        return found  # a fault of the settings, which are checked elsewhere
    direct = {name: each for name, each in wanted.items() if not each.via}
    answers = await _ask_all(direct, FEED_LIMITS.connect_timeout_s)
    found += _reached(answers)
    found += _clock([each.skew_s for each in answers.values() if each.skew_s is not None])
    return found


async def _port(server: ServerSettings) -> Finding:
    """Check whether the port is free, or what answers there."""
    place = f"{server.host} port {server.port}"
    reason = _bound(server.host, server.port)
    if reason is None:
        return ok("port", f"{place} is free.")
    # Another program may listen there and send anything.
    with suppress(httpx.HTTPError, ValueError, KeyError, TypeError, RecursionError):
        return await _node(server, place)
    return fault(
        "port",
        f"The service cannot listen on {place}: {reason}.",
        "Stop the program that listens there (ss -ltnp), or set server.host and server.port.",
    )


def _metrics_ports(server: ServerSettings, workers: int, *, running: bool) -> Iterator[Finding]:
    """Check whether the ports of /metrics are free, unless a node is running."""
    host, first = server.metrics_host, server.metrics_port
    assert first is not None
    for port in range(first, first + 1 + workers):
        problem = _bound(host, port)
        if problem is None:
            yield ok("metrics port", f"{host} port {port} is free.")
        elif running:
            yield ok("metrics port", f"{host} port {port} is in use, and a node runs.")
        else:
            yield fault(
                "metrics port",
                f"/metrics cannot listen on {host} port {port}: {problem}.",
                "Stop the program that listens there (ss -ltnp), or set server.metrics_port.",
            )


def _bound(host: str, port: int) -> str | None:
    """Return why a port cannot be bound; None if it can be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # Bind like the service does: a port in TIME_WAIT counts as free.
        with socket.create_server((host, port), family=family):
            return None
    except OSError as error:
        return error.strerror or str(error)


async def _node(server: ServerSettings, place: str) -> Finding:
    scheme = "https" if server.tls_cert_file else "http"
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(server.host, server.host)  # noqa: S104
    # Not verified: the certificate has the public name, not this machine's address.
    async with httpx.AsyncClient(verify=False, timeout=5, trust_env=False) as http:  # noqa: S501
        answer = (await http.get(f"{scheme}://{host}:{server.port}/readyz")).json()
    if answer["ready"] and not answer["problems"]:
        return ok("port", f"A node listens on {place} and is ready.")
    problems = " ".join(answer["problems"]) or "it is not ready."
    advice = "See the log of the node; docs/guides/operate.md explains each problem."
    make = warning if answer["ready"] else fault
    return make("port", f"A node listens on {place}: {problems}", advice)


async def _ask_all(
    exchanges: Mapping[str, Exchange], timeout_s: float
) -> dict[str, ExchangeAnswer]:
    places = asyncio.Semaphore(AT_ONCE_MAX)
    headers = {"User-Agent": f"onebook/{__version__}"}
    async with httpx.AsyncClient(timeout=timeout_s, headers=headers) as http:

        async def ask(exchange: Exchange) -> ExchangeAnswer:
            async with places:
                return await _ask(exchange, http, timeout_s)

        answers = await asyncio.gather(*map(ask, exchanges.values()))
    return dict(zip(exchanges, answers, strict=True))


async def _ask(exchange: Exchange, http: httpx.AsyncClient, timeout_s: float) -> ExchangeAnswer:
    try:
        async with asyncio.timeout(timeout_s):
            await _connect(exchange.ws_url)
    except (OSError, TimeoutError) as error:
        return ExchangeAnswer(_reason(exchange.ws_url, error), FIREWALL_ADVICE)
    began_s = time.time()
    try:
        answer = await http.head(exchange.rest_url)
    except httpx.HTTPError as error:
        return ExchangeAnswer(_reason(exchange.rest_url, error), FIREWALL_ADVICE)
    if answer.status_code in REFUSED:
        advice = "It blocks this address or country: leave it out of feeds.exchanges."
        return ExchangeAnswer(f"{_host(exchange.rest_url)} answers {answer.status_code}.", advice)
    return ExchangeAnswer(skew_s=skew_s(answer.headers.get("date", ""), began_s, time.time()))


def skew_s(date: str, began_s: float, ended_s: float) -> float | None:
    """Return our clock minus theirs from a Date header of whole seconds; None without one."""
    try:
        theirs_s = s_of_http_date(date)
    except ValueError:
        return None
    return (began_s + ended_s) / 2 - (theirs_s + 0.5)


async def _connect(url: str) -> None:
    """Connect by TCP and, if the URL requires it, TLS; sends no data."""
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme in ("wss", "https") else None
    port = parts.port or PORTS[parts.scheme]
    _, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _reason(url: str, error: BaseException) -> str:
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
        return f"{_host(url)} does not answer in time."
    return f"{_host(url)} cannot be reached: {error}."


def _reached(answers: Mapping[str, ExchangeAnswer]) -> Iterator[Finding]:
    bad = {name: each for name, each in answers.items() if each.problem}
    if bad and len(bad) == len(answers):
        name, first = next(iter(bad.items()))
        message = f"None of {len(answers)} can be reached; {name}: {first.problem}"
        yield fault("exchanges", message, first.advice)
        return
    for name, each in bad.items():
        yield warning("exchanges", f"{name}: {each.problem}", each.advice)
    if answers:
        reached = f"{len(answers) - len(bad)} of {len(answers)} can be reached."
        yield ok("exchanges", f"{reached} {LIVE_CHECK}")


def _clock(skews_s: list[float]) -> list[Finding]:
    """Compare with the median of the exchanges, because one of them may be wrong."""
    if not skews_s:
        advice = "Check it manually: timedatectl, chronyc tracking."
        return [warning("clock", "No exchange returned its time.", advice)]
    middle_s = median(skews_s)
    shown = f"The clock is {abs(middle_s):.1f} s {'ahead of' if middle_s > 0 else 'behind'}"
    shown += f" that of {len(skews_s)} exchanges."
    if abs(middle_s) >= SKEW_FAULT_S:
        return [fault("clock", shown, CLOCK_ADVICE)]
    if abs(middle_s) >= SKEW_WARNING_S:
        return [warning("clock", shown, CLOCK_ADVICE)]
    return [ok("clock", f"It agrees with that of {len(skews_s)} exchanges within 1.5 s.")]
