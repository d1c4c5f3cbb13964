"""Listening sockets: bound before anything starts, shared by workers, checked while accepting."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Gauge

from onebook import sockets
from onebook.config import ServerSettings
from onebook.errors import ConfigError
from onebook.http.socket_limits import PROBES_MAX

BACKLOG: Final = 4_096
FILES_RESERVE: Final = 256  # file descriptors for all but client sockets: feeds, database, logs

ACCEPT_FAILING: Final = Gauge(
    "onebook_accept_failing", "1 while no socket can be accepted: the process has no file left."
)

log = logging.getLogger("onebook.http")


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Bind a socket before anything else starts: a port in use is the most common error.

    Raises:
        ConfigError: It cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise _not_had(host, port, error) from None
    with listener:
        yield listener


@contextmanager
def sharing(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to a port that processes of this user share (SO_REUSEPORT).

    It listens only when the server starts: from then on the kernel sends clients here.

    Raises:
        ConfigError: The port is in use by a process that does not share it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as `create_server`
        try:
            bound.bind((host, port))
        except OSError as error:
            raise _not_had(host, port, error) from None
        yield bound


def _not_had(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"Cannot listen on {host} port {port}: {error.strerror or error}.")


def reserve_files(settings: ServerSettings, connections_max: int) -> None:
    """Raise the open-file limit to what these limits need.

    Raises:
        ConfigError: It may not.
    """
    sockets_max = connections_max + settings.http_connections_max
    sockets.raise_file_limit(sockets_max + PROBES_MAX + FILES_RESERVE)


class AcceptWatch:
    """Reports that no socket can be accepted: the event loop itself only logs it."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._failing = False

    def check(self) -> None:
        """Log when it begins and when it ends."""
        failing = sockets.files_exhausted(self._listener.fileno())
        if failing and not self._failing:
            log.error("Cannot accept connections: the process is out of file descriptors.")
        elif self._failing and not failing:
            log.info("Connections can be accepted again.")
        self._failing = failing
        ACCEPT_FAILING.set(failing)
