"""Logging in to a real nats-server by a credentials file: used, refused, broken, replaced."""

import asyncio

import pytest

from nodes.nats_accounts import write_account
from nodes.servers import nats_server
from onebook.config import NatsSettings
from onebook.errors import ConfigError
from onebook.nodes.bus import NatsBus
from onebook.nodes.nats_credentials import CredentialsFile
from steady import PATIENCE_S


def bus_of(port, file):
    return NatsBus(
        NatsSettings(
            servers=(f"nats://127.0.0.1:{port}",),
            credentials_file=file,
            connect_timeout_s=PATIENCE_S,
        ),
        name="test",
    )


async def refused(port, file):
    """Why a node does not start with this file."""
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
            message = await refused(port, tmp_path / user / "user.creds")
        assert message.startswith(f"NATS at 127.0.0.1:{port} refuses this node: ")
        assert message.endswith("nats.token and nats.credentials_file.")


async def test_a_file_without_its_parts_is_refused_in_one_sentence(tmp_path):
    """nats-py reads one without a JWT for ever, and the whole process with it."""
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
            message = await refused(port, file)
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
