"""Socket facts that asyncio lacks: delays of sending, unacknowledged bytes, open-file limits."""

import errno
import fcntl
import os
import resource
import socket
import sys
from typing import Final

from onebook.errors import ConfigError

SIOCOUTQ: Final = 0x5411  # linux/sockios.h
TCP_NOTSENT_LOWAT: Final = 25  # linux/tcp.h


def send_at_once(listener: socket.socket) -> None:
    """Disable Nagle's algorithm (TCP_NODELAY) on all sockets that this one accepts.

    They inherit this from the listening socket. asyncio sets it itself only on sockets that it
    created: without it, each answer after the first takes the peer's 40 ms of a delayed ACK.
    """
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def unacknowledged(fd: int) -> int:
    """Bytes in the kernel that the peer has not acknowledged; 0 if unknown."""
    if sys.platform != "linux":
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(fd, SIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def raise_file_limit(files: int) -> None:
    """Raise the limit of open files, sockets included.

    Raises:
        ConfigError: The system does not permit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    except (ValueError, OSError):
        raise ConfigError(
            f"gateway.connections_max and related limits need {files:,} open files, and this "
            f"process may open {hard:,}: raise its hard limit (LimitNOFILE=, ulimit -Hn) or lower "
            "gateway.connections_max."
        ) from None


def files_exhausted(fd: int) -> bool:
    """Whether the process or the system is out of file descriptors."""
    try:
        os.close(os.dup(fd))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False
