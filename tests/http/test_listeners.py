"""Listening sockets: ports in use, shared ports, and no free file descriptor."""

import resource
import socket

import pytest

from in_process import in_process
from onebook import http
from onebook.config import ServerSettings
from onebook.errors import ConfigError
from onebook.http.server import FILES_RESERVE
from onebook.http.socket_limits import PROBES_MAX
from steady import PATIENCE_S


def test_a_port_in_use_is_one_clear_sentence():
    with http.listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=rf"Cannot listen on 127.0.0.1 port {port}: "),
            http.listening("127.0.0.1", port),
        ):
            pass


def test_a_port_is_free_again_afterwards():
    with http.listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
    with http.listening("127.0.0.1", port) as again:
        assert again.getsockname()[1] == port


@pytest.mark.parametrize("listen", [http.listening, http.sharing])
def test_an_accepted_socket_sends_an_answer_without_waiting_for_an_acknowledgement(listen):
    """asyncio sets this only on sockets of its own making, and answers took 44 ms without it."""
    with listen("127.0.0.1", 0) as listener:
        listener.listen()
        with (
            socket.create_connection(listener.getsockname()[:2]),
            listener.accept()[0] as accepted,
        ):
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_shared_port_is_shared_with_those_that_share_it_and_refused_to_others():
    with http.sharing("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with http.sharing("127.0.0.1", port) as second:
            second.listen()
            assert second.getsockname()[1] == port
            with (
                pytest.raises(ConfigError, match=f"port {port}"),
                http.listening("127.0.0.1", port),
            ):
                pass


def test_a_shared_port_takes_no_client_before_the_server_starts():
    with http.sharing("127.0.0.1", 0) as bound, pytest.raises(ConnectionRefusedError):
        socket.create_connection(bound.getsockname(), timeout=PATIENCE_S)


def test_files_are_reserved_for_all_sockets_probes_and_a_reserve(monkeypatch):
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (0, 1 << 20))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    http.reserve_files(ServerSettings(http_connections_max=100), 5_000)
    assert asked == [(5_100 + PROBES_MAX + FILES_RESERVE, 1 << 20)]


def test_a_process_without_files_says_that_it_accepts_nothing_and_when_it_does_again():
    done = in_process("""
        import logging, os, resource, socket, sys
        from onebook.http.server import ACCEPT_FAILING, AcceptWatch
        logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level="INFO")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            watch = AcceptWatch(listener)
            watch.check()
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            held = []
            try:
                while True:
                    held.append(os.dup(0))
            except OSError:
                pass
            watch.check()
            watch.check()
            print(ACCEPT_FAILING._value.get())
            for each in held:
                os.close(each)
            watch.check()
            print(ACCEPT_FAILING._value.get())
    """)
    assert done.stdout.splitlines() == [
        "ERROR Cannot accept connections: the process is out of file descriptors.",
        "1.0",
        "INFO Connections can be accepted again.",
        "0.0",
    ], done.stderr
