"""Connecting to NATS for the first time: TLS, credentials, a deadline, and what a refusal means.

Connections that are lost later are made again by nats-py with the same TLS and credentials.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from onebook.config import NatsSettings
from onebook.errors import ConfigError
from onebook.nodes.nats_credentials import CredentialsFile

RECONNECT_WAIT_S: Final = 0.2
PING_INTERVAL_S: Final = 2  # a connection that answers two of these with nothing is dead
PINGS_UNANSWERED_MAX: Final = 2
HUNG_S: Final = PING_INTERVAL_S * (PINGS_UNANSWERED_MAX + 1)  # until a link that hangs is given up
CANCEL_S: Final = 1.0  # after so long a task that goes on is cancelled again
CANCELS_MAX: Final = 5
FILES: Final = ("credentials_file", "tls_ca_file", "tls_cert_file", "tls_key_file")
WEBSOCKET: Final = ("ws", "wss")  # schemes: TLS is that of the address

_UNREACHED = "check nats.servers and that nats-server runs."


def library_errors() -> Any:
    """The exceptions of nats-py.

    Raises:
        ConfigError: It is not installed.
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
    failed: Callable[[Exception], None],
    disconnected: Callable[[], Awaitable[None]],
    reconnected: Callable[[], Awaitable[None]],
) -> Any:
    """Return a client of nats-py that is connected.

    Raises:
        ConfigError: NATS cannot be reached, or refuses this node.
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
            raise error  # nats-py would try again until the deadline

    async def connected() -> None:
        await client.connect(
            list(settings.servers),
            name=name,
            error_cb=keep,
            disconnected_cb=disconnected,
            reconnected_cb=reconnected,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,
            connect_timeout=max(1, round(settings.connect_timeout_s)),
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=PINGS_UNANSWERED_MAX,
            pending_size=settings.outbox_bytes_max,
            **credentials(settings),
        )
        # One that was closed before its first PONG is made again in the background.
        while not client.is_connected:  # noqa: ASYNC110 - nats-py has no event for it
            await asyncio.sleep(RECONNECT_WAIT_S)

    try:
        in_time = await ended(connected(), settings.connect_timeout_s)
    except (Error, OSError, ValueError) as error:
        errors[:] = [error]
        in_time = False
    starting = False
    if not in_time:
        reason = refusal(where, errors[0] if errors else None)  # closing may bring another error
        await ended(client.close(), CANCEL_S)
        raise ConfigError(reason)
    return client


def _secure_client(*, tls_required: bool) -> Any:
    """A client that sends no credentials in plain text where TLS is required; nats-py's does."""
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
    """Whether work ended in time; what did not is cancelled until it does.

    One cancellation is not enough: until Python 3.12 `asyncio.wait_for`, which nats-py uses, loses
    one that comes at the moment when its work is done, and nats-py then tries to connect for ever
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
        task.exception()  # it is late, and seen
    return in_time


def requires_tls(settings: NatsSettings) -> bool:
    """Whether a connection without TLS must not be used."""
    schemes = {urlsplit(each).scheme for each in settings.servers}
    if schemes & {*WEBSOCKET}:
        return False
    return "tls" in schemes or bool(settings.tls_ca_file or settings.tls_cert_file)


def credentials(settings: NatsSettings) -> dict[str, Any]:
    """How to log in, as arguments of nats-py.

    Raises:
        ConfigError: A file cannot be used.
    """
    found: dict[str, Any] = {}
    if settings.user:
        found["user"] = settings.user
        found["password"] = settings.password.get_secret_value()
    if token := settings.token.get_secret_value():
        found["token"] = token
    for name in FILES:
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
    """Whether another attempt would fail in the same way.

    The end of a connection does not: a server closes it behind its refusal, and nats-py, which goes
    on writing, may see only that.
    """
    untrusted = isinstance(error, ssl.SSLCertVerificationError)
    return untrusted or lacks_tls(error) or refuses_login(error)


def lacks_tls(error: BaseException) -> bool:
    """Whether the server offers no TLS, which is required."""
    return "secure connection not available" in str(error)


def refuses_login(error: BaseException) -> bool:
    """Whether the server refuses the credentials: it has words for it, and no number."""
    return "uthoriz" in str(error) or "uthent" in str(error)


def refusal(where: str, error: BaseException | None) -> str:
    """Why there is no connection and which setting to check, in one sentence."""
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
    """The host and port of an address, without what may be a password before them."""
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
    """Open a file that a setting of the table nats names.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        if path is not None:
            path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"nats.{name}: {path} cannot be read: {error.strerror}.") from None
