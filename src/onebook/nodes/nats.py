"""A node's connection to NATS: login, non-blocking publishing, callbacks, requests.

`publish` is synchronous and never blocks: messages wait in the client's buffer for the task that
writes them. A message that does not fit, or is published without a connection, is dropped and
counted; receivers notice the missing number and request a snapshot. nats-py reconnects after a loss
with the same TLS and credentials. Needs the extra `onebook[nats]`.
"""

import asyncio
import logging
import ssl
from collections import UserString
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from prometheus_client import Counter, Gauge

from onebook.config import NatsSettings
from onebook.errors import ConfigError
from onebook.files import read_bounded

log = logging.getLogger("onebook.nodes")

FLUSH_S: Final = 1
CLOSE_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 10.0  # for a starting node, which then exits
COMMAND_CONNECT_TIMEOUT_S: Final = 3.0  # for an interactive command
OUTBOX_BYTES_MAX: Final = 16 << 20  # more is dropped; gateways then request a snapshot
REQUEST_TIMEOUT_S: Final = 1.0  # timeout of a request to another node
COUNT_S: Final = 1.0  # interval of updates of the metrics of sent messages

NATS_UP: Final = Gauge("onebook_nats_up", "1 while this node is connected to NATS.")
DROPPED: Final = Counter(
    "onebook_nats_dropped", "Messages between nodes that were dropped, by cause.", ["cause"]
)
SENT: Final = Counter("onebook_nats_sent", "Messages published to NATS.")
SENT_BYTES: Final = Counter("onebook_nats_sent_bytes", "Payload bytes published to NATS.")
for _cause in ("disconnected", "full", "too_large", "slow"):
    DROPPED.labels(_cause)

Received = Callable[[bytes, str], None]  # payload, and the subject for the reply or ""


def _nothing() -> None:
    """Do nothing (the default of `dropped`)."""


class NatsBus:
    """A connection to NATS while entered; reconnects after a loss.

    Args:
        settings: Addresses and credentials of NATS.
        name: The name of this connection in NATS monitoring.
        outbox_bytes_max: Bytes queued for NATS; further messages are dropped.
        connect_timeout_s: Timeout of the first connection, in seconds.
    """

    def __init__(
        self,
        settings: NatsSettings,
        *,
        name: str,
        outbox_bytes_max: int = OUTBOX_BYTES_MAX,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._outbox_bytes_max = outbox_bytes_max
        self._settings = settings
        self._name = name
        self._client: Any = None
        self._changes: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._dropping: dict[Any, Callable[[], None]] = {}
        self._sent = self._sent_bytes = 0  # since the last metrics update
        self._too_large = False
        self._logged = ""  # last error logged since the connection was lost or made
        self._closing = False

    @property
    def connected(self) -> bool:
        """Whether the connection is currently up."""
        return self._client is not None and bool(self._client.is_connected)

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            ConfigError: NATS is unreachable or refuses this node.
        """
        self._errors = library_errors()
        self._client = await connect(
            self._settings,
            name=self._name,
            outbox_bytes_max=self._outbox_bytes_max,
            timeout_s=self._connect_timeout_s,
            failed=self._failed,
            disconnected=self._disconnected,
            reconnected=self._reconnected,
        )
        NATS_UP.set(1)
        self._tasks = [
            asyncio.create_task(self._count(), name="nats counts"),
            asyncio.create_task(self._follow(), name="nats subscriptions"),
        ]
        return self

    async def __aexit__(self, *details: object) -> None:
        if self.connected:
            try:
                await self._client.flush(timeout=FLUSH_S)
            except (self._errors.Error, TimeoutError, OSError) as error:
                log.info("The last messages may not have been delivered: %s", error)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._closing = True
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._client.close()
        except TimeoutError:
            log.warning("The connection to NATS did not close in %g s.", CLOSE_S)
            self._client.abort()
        NATS_UP.set(0)
        self._publish_counts()

    def publish(self, subject: str, payload: bytes | bytearray) -> None:
        """Send a message to all subscribers, or drop it (the hot path of a feeds node)."""
        client, size = self._client, len(payload)
        if not client.is_connected:
            DROPPED.labels("disconnected").inc()
        elif size > client.max_payload:
            self._refuse(size)
        elif client.pending_data_size + size > self._outbox_bytes_max:
            DROPPED.labels("full").inc()
        else:
            client.publish_direct(subject, payload)
            self._sent += 1
            self._sent_bytes += size

    def subscribe(
        self, subject: str, received: Received, dropped: Callable[[], None] = _nothing
    ) -> Callable[[], None]:
        """Call `received` with each message of a subject; return a function that unsubscribes.

        `dropped` is called when nats-py has dropped messages of this subscription.
        """
        entry: dict[str, Any] = {"subject": subject, "received": received, "dropped": dropped}
        self._changes.put_nowait(("subscribe", entry))
        return lambda: self._changes.put_nowait(("unsubscribe", entry))

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes | None:
        """Send a request; return the reply, or None if none arrived in time."""
        try:
            answer = await self._client.request(subject, payload, timeout=timeout_s)
        except (self._errors.Error, TimeoutError, OSError):
            return None
        data: bytes = answer.data
        return data

    def _refuse(self, size: int) -> None:
        """Drop a too large message, for which NATS would close the connection; log the first."""
        DROPPED.labels("too_large").inc()
        if not self._too_large:
            self._too_large = True
            log.error(
                "A message of %d bytes exceeds the limit of NATS (%d); raise its max_payload.",
                size,
                self._client.max_payload,
            )

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNT_S)
            self._publish_counts()

    def _publish_counts(self) -> None:
        SENT.inc(self._sent)
        SENT_BYTES.inc(self._sent_bytes)
        self._sent = self._sent_bytes = 0

    async def _follow(self) -> None:
        """Subscribe and unsubscribe in the order of the calls."""
        while True:
            what, entry = await self._changes.get()
            try:
                if what == "subscribe":
                    await self._begin(entry)
                elif "subscription" in entry:
                    subscription = entry.pop("subscription")
                    self._dropping.pop(subscription, None)
                    await subscription.unsubscribe()
            except (self._errors.Error, OSError) as error:
                log.warning("Could not %s %s: %s", what, entry["subject"], error)

    async def _begin(self, entry: dict[str, Any]) -> None:
        received = entry["received"]

        def deliver(payload: bytes, reply: str) -> None:
            try:
                received(payload, reply)
            except Exception:
                log.exception("Processing a message on %s failed.", entry["subject"])

        subscription = await self._client.subscribe_direct(entry["subject"], deliver)
        entry["subscription"] = subscription
        self._dropping[subscription] = entry["dropped"]

    def _failed(self, error: Exception) -> None:
        if isinstance(error, self._errors.SlowConsumerError):
            DROPPED.labels("slow").inc()
            self._dropping.get(error.sub, _nothing)()
            return
        text = str(error) or type(error).__name__
        if text != self._logged:  # nats-py reports every connection attempt, five a second
            self._logged = text
            log.info("NATS: %s", text)

    async def _disconnected(self) -> None:
        NATS_UP.set(0)
        if self._closing:
            return
        log.warning("Lost the connection to NATS; reconnecting.")

    async def _reconnected(self) -> None:
        NATS_UP.set(1)
        self._logged = ""
        log.info("Reconnected to NATS.")


RECONNECT_WAIT_S: Final = 0.2
PING_INTERVAL_S: Final = 2  # a connection with two unanswered pings is dead
PINGS_UNANSWERED_MAX: Final = 2
HUNG_S: Final = PING_INTERVAL_S * (PINGS_UNANSWERED_MAX + 1)  # timeout of a hanging link
CANCEL_S: Final = 1.0  # interval of cancelling a task that still runs
CANCELS_MAX: Final = 5
CREDENTIAL_FILES: Final = ("credentials_file", "tls_ca_file", "tls_cert_file", "tls_key_file")
WEBSOCKET: Final = ("ws", "wss")  # schemes that decide about TLS

_UNREACHED = "check nats.servers and that nats-server runs."


def library_errors() -> Any:
    """Return nats-py's module of exceptions.

    Raises:
        ConfigError: nats-py is not installed.
    """
    try:
        import nats.errors
    except ImportError:
        raise ConfigError("Roles other than all need NATS: pip install 'onebook[nats]'.") from None
    return nats.errors


async def connect(
    settings: NatsSettings,
    *,
    name: str,
    outbox_bytes_max: int,
    timeout_s: float,
    failed: Callable[[Exception], None],
    disconnected: Callable[[], Awaitable[None]],
    reconnected: Callable[[], Awaitable[None]],
) -> Any:
    """Connect with nats-py, and return its client.

    Raises:
        ConfigError: NATS is unreachable or refuses this node.
    """
    from nats.errors import Error

    client = _secure_client(tls_required=requires_tls(settings))
    where = ", ".join(map(host_of, settings.servers))
    errors: list[BaseException] = []
    refused, starting = 0, True

    async def keep(error: Exception) -> None:
        nonlocal refused
        errors[:] = [error]
        failed(error)
        refused += decides(error)
        if starting and refused >= len(settings.servers):
            raise error  # otherwise nats-py would retry until the deadline

    async def connected() -> None:
        await client.connect(
            list(settings.servers),
            name=name,
            error_cb=keep,
            disconnected_cb=disconnected,
            reconnected_cb=reconnected,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,
            connect_timeout=max(1, round(timeout_s)),
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=PINGS_UNANSWERED_MAX,
            pending_size=outbox_bytes_max,
            **credentials(settings),
        )
        # A connection closed before its first PONG is reopened in the background.
        while not client.is_connected:  # noqa: ASYNC110 - nats-py has no event for it
            await asyncio.sleep(RECONNECT_WAIT_S)

    try:
        in_time = await ended(connected(), timeout_s)
    except (Error, OSError, ValueError) as error:
        errors[:] = [error]
        in_time = False
    starting = False
    if not in_time:
        reason = refusal(where, errors[0] if errors else None)  # closing may raise another error
        await ended(client.close(), CANCEL_S)
        raise ConfigError(reason)
    return client


def _secure_client(*, tls_required: bool) -> Any:
    """Create a client that, unlike nats-py's, never sends credentials without required TLS."""
    from nats.errors import SecureConnWantedError

    from onebook.nodes.nats_client import DirectClient

    class SecureClient(DirectClient):
        def _connect_command(self) -> bytes:
            if tls_required and not self._server_info.get("tls_required"):
                raise SecureConnWantedError
            command: bytes = super()._connect_command()
            return command

    return SecureClient()


async def ended(work: Coroutine[Any, Any, Any], timeout_s: float) -> bool:
    """Run work; return whether it ended in time, and cancel it otherwise.

    One cancellation is not enough: before Python 3.12, `asyncio.wait_for`, which nats-py uses,
    loses a cancellation that arrives just as its work completes, and nats-py then retries forever
    (https://github.com/python/cpython/issues/86296).
    """
    task = asyncio.create_task(work, name="nats connection")
    try:
        await asyncio.wait((task,), timeout=timeout_s)
        in_time = task.done()
    finally:
        for _ in range(CANCELS_MAX):
            if task.done():
                break
            task.cancel()
            await asyncio.wait((task,), timeout=CANCEL_S)
    if in_time:
        task.result()
    elif task.done() and not task.cancelled():
        task.exception()  # mark the late exception as retrieved
    return in_time


def requires_tls(settings: NatsSettings) -> bool:
    """Return whether a connection without TLS must not be used."""
    schemes = {urlsplit(each).scheme for each in settings.servers}
    if schemes & {*WEBSOCKET}:
        return False
    return "tls" in schemes or bool(settings.tls_ca_file or settings.tls_cert_file)


def credentials(settings: NatsSettings) -> dict[str, Any]:
    """Return the login arguments of nats-py.

    Raises:
        ConfigError: A file cannot be used.
    """
    found: dict[str, Any] = {}
    if settings.user:
        found["user"] = settings.user
        found["password"] = settings.password.get_secret_value()
    if token := settings.token.get_secret_value():
        found["token"] = token
    for name in CREDENTIAL_FILES:
        require_readable(name, getattr(settings, name))
    if settings.credentials_file is not None:
        try:
            found["user_credentials"] = CredentialsFile(settings.credentials_file)
        except (OSError, ValueError) as error:
            reason = f"nats.credentials_file: {settings.credentials_file} cannot be used: {error}."
            raise ConfigError(reason) from None
    if settings.tls_ca_file or settings.tls_cert_file:
        found["tls"] = _context(settings)
    return found


def decides(error: BaseException) -> bool:
    """Return whether an error is final, so that another attempt would fail the same way.

    A closed connection is not final: a server closes it after a refusal, and nats-py, which keeps
    writing, may see only the close.
    """
    untrusted = isinstance(error, ssl.SSLCertVerificationError)
    return untrusted or lacks_tls(error) or refuses_login(error)


def lacks_tls(error: BaseException) -> bool:
    """Return whether the server does not offer the required TLS."""
    return "secure connection not available" in str(error)


def refuses_login(error: BaseException) -> bool:
    """Return whether the server rejects the credentials, which it reports only as text."""
    return "uthoriz" in str(error) or "uthent" in str(error)


def refusal(where: str, error: BaseException | None) -> str:
    """Describe why there is no connection and which setting to check, in one sentence."""
    if error is None or isinstance(error, TimeoutError):
        return f"NATS does not answer at {where}: {_UNREACHED}"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return (
            f"NATS at {where} has a certificate that is not trusted: {why}; "
            "check nats.servers and nats.tls_ca_file."
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"NATS at {where} cannot be reached by TLS ({error.reason or error}); "
            "check nats.tls_cert_file and nats.tls_key_file."
        )
    if lacks_tls(error):
        return (
            f"NATS at {where} does not offer TLS, which tls:// in nats.servers or nats.tls_ca_file "
            "requires."
        )
    if refuses_login(error):
        return (
            f"NATS at {where} refuses this node: {error}; check nats.user, nats.password, "
            "nats.token and nats.credentials_file."
        )
    return f"NATS does not answer at {where}: {str(error) or type(error).__name__}; {_UNREACHED}"


def host_of(url: str) -> str:
    """Return the host and port of a URL, without its credentials."""
    parts = urlsplit(url if "//" in url else f"nats://{url}")
    try:
        port = parts.port
    except ValueError:
        port = None
    return f"{parts.hostname}:{port or 4222}"


def _context(settings: NatsSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=settings.tls_ca_file and str(settings.tls_ca_file)
        )
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"nats.tls_ca_file cannot be used: {error}.") from None
    if settings.tls_cert_file is not None:
        try:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            reason = f"nats.tls_cert_file and nats.tls_key_file cannot be used: {error}."
            raise ConfigError(reason) from None
    return context


def require_readable(name: str, path: Path | None) -> None:
    """Open a file from a setting of the table nats.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        if path is not None:
            path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"nats.{name}: {path} cannot be read: {error.strerror}.") from None


JWT: Final = "NATS USER JWT"
SEED: Final = "USER NKEY SEED"


class CredentialsFile(UserString):
    """The text of a credentials file (.creds) for nats-py, read again for each connection.

    nats-py can read the file itself, but never returns from one without a JWT
    (https://github.com/nats-io/nats.py/blob/v2.16.0/nats/src/nats/aio/client.py,
    `_read_creds_user_jwt`), so it gets the checked text. A replaced file is used for the next
    connection; while it is unusable, the last usable text is used.

    Raises:
        OSError: The file cannot be read.
        ValueError: The JWT or a usable seed is missing, as the message says.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = credentials_text(path)

    def __repr__(self) -> str:
        return f"<credentials of {self._path}>"

    @property
    def data(self) -> str:  # type: ignore[override]
        """Return the current credentials."""
        with suppress(OSError, ValueError):
            self._text = credentials_text(self._path)
        return self._text


def credentials_text(path: Path) -> str:
    """Read a file and return its two parts with the line ends that nats-py expects.

    Raises:
        OSError: The file cannot be read.
        ValueError: A part is missing, or the seed is invalid.
    """
    import nkeys

    lines = read_bounded(path).decode("ascii", "replace").splitlines()
    jwt, seed = _credentials_part(lines, JWT), _credentials_part(lines, SEED)
    try:
        nkeys.from_seed(bytearray(seed.encode()))
    except nkeys.NkeysError:
        raise ValueError("its seed is not valid") from None
    return "".join(
        f"-----BEGIN {name}-----\n{value}\n------END {name}------\n"
        for name, value in ((JWT, jwt), (SEED, seed))
    )


def _credentials_part(lines: list[str], name: str) -> str:
    """Return the line after the header of a part."""
    for begin, value in pairwise(lines):
        if f"BEGIN {name}" in begin and value.strip():
            return value.strip()
    raise ValueError(f"it has no {name} (nsc writes both parts of a .creds file)")
