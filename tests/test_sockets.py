"""Bytes that the kernel buffers for a socket, and the limit of open files."""

import resource
import socket
from contextlib import suppress

import pytest

from in_process import in_process
from onebook import sockets
from onebook.errors import ConfigError


def test_bytes_that_the_peer_did_not_read_are_unacknowledged():
    """Bytes beyond the peer's receive buffer are not acknowledged."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sender,
        listener.accept()[0],
    ):
        assert sockets.unacknowledged(sender.fileno()) == 0
        sender.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                sender.send(bytes(65_536))
        assert sockets.unacknowledged(sender.fileno()) > 0


def test_of_a_socket_that_is_closed_nothing_is_known():
    with socket.socket() as closed:
        number = closed.fileno()
    assert sockets.unacknowledged(number) == 0


def test_the_soft_limit_of_open_files_is_raised_to_what_is_needed():
    done = in_process("""
        import resource
        from onebook.sockets import raise_file_limit
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        raise_file_limit(1000)
        raise_file_limit(500)
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    """)
    assert done.stdout == "1000\n", done.stderr


def test_a_hard_limit_that_is_too_low_is_one_clear_sentence(monkeypatch):
    def refuse(*_):
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 4_096))
    with pytest.raises(ConfigError, match=r"need 11,272 open files, .* may open 4,096: raise"):
        sockets.raise_file_limit(11_272)
