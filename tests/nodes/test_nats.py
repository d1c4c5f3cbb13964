"""Connecting to a real NATS: TLS, credentials, refusals, and a deadline that is kept."""

import asyncio
import socket
import threading
import time

import nats.aio.client  # noqa: F401 - an import within the deadline would use up its time
import pytest

from e2e.test_tls import Authority
from nodes.nats_accounts import write_account
from nodes.servers import nats_server
from onebook.config import NatsSettings
from onebook.errors import ConfigError
from onebook.nodes.nats import CredentialsFile, NatsBus, host_of, requires_tls
from steady import PATIENCE_S

LET_IN = {"user": "onebook", "password": "s3cret-of-nats"}
SECRETS = ("s3cret-of-nats", "guess-of-nats")
DEADLINE_S = 1.6  # nats-py waits for whole seconds: its own deadline is later


@pytest.fixture
def authorities(tmp_path):
    return {name: Authority(tmp_path, name) for name in ("known", "stranger")}


@pytest.fixture
def port(authorities):
    """Settings of a server with TLS and a password."""
    certificate, key = authorities["known"].vouch()
    words = ("--tls", "--tlscert", str(certificate), "--tlskey", str(key))
    with nats_server(*words, "--user", LET_IN["user"], "--pass", LET_IN["password"]) as found:
        yield found


async def refused(timeout_s=PATIENCE_S, **table):
    """The error of a node that starts with these settings."""
    bus = NatsBus(NatsSettings(**table), name="test", connect_timeout_s=timeout_s)
    with pytest.raises(ConfigError) as error:
        await bus.__aenter__()
    message = error.value.message
    assert message.endswith(".")
    assert ". " not in message
    assert not any(secret in message for secret in SECRETS)
    return message


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_the_right_password_over_a_known_certificate_is_let_in(port, authorities, scheme):
    known = authorities["known"].file
    servers = (f"{scheme}://127.0.0.1:{port}",)
    settings = NatsSettings(servers=servers, tls_ca_file=known, **LET_IN)
    async with NatsBus(settings, name="test", connect_timeout_s=PATIENCE_S) as bus:
        assert bus.connected


async def test_each_refusal_names_its_setting_and_no_secret(port, authorities, tmp_path):
    known, stranger = (each.file for each in authorities.values())
    servers = (f"tls://127.0.0.1:{port}",)
    right = {"servers": servers, "tls_ca_file": known, **LET_IN}
    untrusted = "has a certificate that is not trusted: unable to get local issuer certificate; "
    for changes in ({"tls_ca_file": stranger}, {"tls_ca_file": None}):
        message = await refused(**{**right, **changes})
        assert message.startswith(f"NATS at 127.0.0.1:{port} {untrusted}")
        assert message.endswith("check nats.servers and nats.tls_ca_file.")
    message = await refused(**{**right, "servers": (f"tls://localhost:{port}",)})
    assert "certificate is not valid for 'localhost'; check nats.servers" in message
    message = await refused(**{**right, "password": "guess-of-nats"})
    assert "refuses this node: nats: 'Authorization Violation'; check nats.user" in message
    message = await refused(**{**right, "tls_ca_file": tmp_path / "none.pem"})
    assert message.startswith("nats.tls_ca_file: ")
    assert message.endswith("none.pem cannot be read: No such file or directory.")
    (tmp_path / "empty.pem").touch()
    message = await refused(**{**right, "tls_ca_file": tmp_path / "empty.pem"})
    assert message.startswith("nats.tls_ca_file cannot be used: ")
    message = await refused(**{**right, "credentials_file": tmp_path / "none.creds"})
    assert message.startswith("nats.credentials_file: ")


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_credentials_are_not_sent_in_plain_text_where_tls_is_required(
    authorities, tmp_path, scheme
):
    """A server without TLS, or a proxy that strips it, gets no CONNECT with a token."""
    log = tmp_path / "nats.log"
    with nats_server("--auth", "s3cret-of-nats", "-DV", "-l", str(log)) as port:
        message = await refused(
            servers=(f"{scheme}://127.0.0.1:{port}",),
            tls_ca_file=authorities["known"].file,
            token="s3cret-of-nats",
        )
    assert message == (
        f"NATS at 127.0.0.1:{port} does not offer TLS, which tls:// in nats.servers or "
        "nats.tls_ca_file requires."
    )
    seen = log.read_text()
    assert "Client connection created" in seen
    assert "CONNECT" not in seen


class LateServer:
    """A NATS server that sends its first line on demand."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.accepted = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        while True:
            try:
                self.accepted.append(self.listener.accept()[0])
            except OSError:
                return

    def answer(self):
        """Send bytes that are not a NATS greeting to every open connection."""
        for each in self.accepted:
            each.sendall(b"no greeting\r\n")

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._thread.join(PATIENCE_S)
        for each in self.accepted:
            each.close()


async def test_an_answer_at_the_moment_of_the_deadline_does_not_make_a_start_wait_for_ever():
    """Both happen in one turn of the loop: `asyncio.wait_for` then loses the cancellation."""
    server = LateServer()
    try:
        began = time.monotonic()

        def answer_and_block():
            server.answer()
            while time.monotonic() < began + DEADLINE_S + 0.3:
                pass

        asyncio.get_running_loop().call_later(DEADLINE_S - 0.5, answer_and_block)
        async with asyncio.timeout(PATIENCE_S / 2):
            message = await refused(DEADLINE_S, servers=(f"nats://127.0.0.1:{server.port}",))
        assert [each for each in asyncio.all_tasks() if each is not asyncio.current_task()] == []
    finally:
        server.close()
    assert "check nats.servers and that nats-server runs." in message


@pytest.mark.parametrize(
    ("servers", "required"),
    [
        (("nats://h:1",), False),
        (("tls://h:1",), True),
        (("nats://h:1", "tls://h:2"), True),
        (("wss://h:1",), False),
    ],
)
def test_tls_is_required_by_an_address(servers, required):
    assert requires_tls(NatsSettings(servers=servers)) is required


def test_a_place_has_no_password():
    assert host_of("tls://me:secret@h:1") == "h:1"
    assert host_of("h") == "h:4222"


def bus_of(port, file):
    settings = NatsSettings(servers=(f"nats://127.0.0.1:{port}",), credentials_file=file)
    return NatsBus(settings, name="test", connect_timeout_s=PATIENCE_S)


async def refused_file(port, file):
    """The error of a node that starts with this file."""
    with pytest.raises(ConfigError) as error:
        await bus_of(port, file).__aenter__()
    return error.value.message


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_the_user_of_the_account_is_let_in_and_talks(line_end, tmp_path):
    write_account(tmp_path)
    file = tmp_path / "user.creds"
    file.write_bytes(file.read_text().replace("\n", line_end).encode())
    with nats_server("-c", str(tmp_path / "nats.conf")) as port:
        async with bus_of(port, file) as bus, asyncio.timeout(PATIENCE_S):
            bus.subscribe("ask", lambda payload, reply: bus.publish(reply, payload))
            while await bus.request("ask", b"hello", 1.0) != b"hello":
                pass


async def test_users_that_the_server_does_not_take_are_refused_with_the_setting(tmp_path):
    for name in ("known", "other", "expired"):
        (tmp_path / name).mkdir()
    write_account(tmp_path / "known")
    write_account(tmp_path / "other")
    write_account(tmp_path / "expired", expires_at=2)
    for server, user in (("known", "other"), ("expired", "expired")):
        with nats_server("-c", str(tmp_path / server / "nats.conf")) as port:
            message = await refused_file(port, tmp_path / user / "user.creds")
        assert message.startswith(f"NATS at 127.0.0.1:{port} refuses this node: ")
        assert message.endswith("nats.token and nats.credentials_file.")


async def test_a_file_without_its_parts_is_refused_in_one_sentence(tmp_path):
    """nats-py reads a file without a JWT in an endless loop, which blocks the process."""
    seed = write_account(tmp_path)
    whole = (tmp_path / "user.creds").read_text()
    jwt_part, seed_part = whole.split("\n\n")
    no_jwt = "it has no NATS USER JWT (nsc writes both parts of a .creds file)"
    no_seed = "it has no USER NKEY SEED (nsc writes both parts of a .creds file)"
    file = tmp_path / "broken.creds"
    with nats_server("-c", str(tmp_path / "nats.conf")) as port:
        for content, reason in (
            (b"", no_jwt),
            (seed.encode(), no_jwt),
            (bytes(range(128, 256)), no_jwt),
            (seed_part.encode(), no_jwt),
            (jwt_part.encode(), no_seed),
            (whole[: whole.index(seed)].encode(), no_seed),
            (whole.replace(seed, "SUAMISTAKE").encode(), "its seed is not valid"),
        ):
            file.write_bytes(content)
            message = await refused_file(port, file)
            assert message == f"nats.credentials_file: {file} cannot be used: {reason}."
            assert seed not in message


def test_a_file_that_is_replaced_counts_from_the_next_connection_on(tmp_path):
    write_account(tmp_path)
    file = tmp_path / "user.creds"
    credentials = CredentialsFile(file)
    first, written = credentials.data, file.read_text()
    file.write_text(written[:100])  # half of it is there
    assert credentials.data == first
    file.unlink()
    assert credentials.data == first
    write_account(tmp_path)
    assert credentials.data != first
    assert "SU" not in repr(credentials)
