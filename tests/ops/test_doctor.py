"""Findings of the doctor, on real files, databases and sockets."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

from nodes.servers import nats_server
from onebook import app, config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.cli.commands import app as commands
from onebook.clock import SYSTEM_CLOCK
from onebook.config import Settings
from onebook.nodes import wire
from onebook.nodes.membership import NodeHeartbeat, NodeRole, encode_heartbeat
from onebook.nodes.nats import NatsBus
from onebook.nodes.subjects import Subjects
from onebook.ops.backup import draft
from onebook.ops.doctor import (
    Finding,
    Severity,
    cluster_findings,
    database_findings,
    local_findings,
    network_findings,
    skew_s,
)
from onebook.store import AuditedChange, Store
from onebook.transactions.collected import CollectedIdentity, Collection
from onebook.transactions.collector import CollectedAccount
from onebook.transactions.credentials import Credentials, Vault, master_keys


def settings_in(folder: Path, **tables: dict[str, object]) -> Settings:
    store = {"url": f"sqlite:///{folder / 'onebook.db'}", "pepper_file": str(folder / "pepper")}
    return config.load(
        overrides={
            "store": store,
            "transactions": {"master_key_file": str(folder / "master_key")},
            "server": {"port": 0, **tables.pop("server", {})},
            **tables,
        }
    )


async def made(settings: Settings) -> None:
    """A database with an account and credentials, as left by a node and an operator."""
    async with Store(settings.store.url) as store:
        await store.database.upgrade()
        admin = Admin(store, load_pepper(settings.store.pepper_file))
        await admin.create_account("alice", AuditedChange(1, "operator", ""))
        vault = Vault(store.credentials, master_keys(settings.transactions))
        await vault.put("bybit", "mainnet", Credentials("key", "secret"), now_ms=1)
        await require_same_pepper(store, load_pepper(settings.store.pepper_file))


def bad(findings: list[Finding]) -> list[tuple[str, Severity]]:
    assert all(bool(each.advice) is (each.state is not Severity.OK) for each in findings)
    return [(each.check, each.state) for each in findings if each.state is not Severity.OK]


async def test_a_sound_database_has_no_finding(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert bad(await database_findings(settings)) == []  # the first start makes it
    assert list(tmp_path.iterdir()) == []
    await made(settings)
    assert bad(await database_findings(settings)) == []


async def test_a_database_that_is_gone_old_or_no_database_is_found(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    await made(settings)
    async with Store(settings.store.url) as store, store.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    assert bad(await database_findings(settings)) == [("database", Severity.WARNING)]
    async with Store(settings.store.url) as store, store.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    assert bad(await database_findings(settings)) == [("database", Severity.FAULT)]
    (tmp_path / "onebook.db").write_bytes(b"no database at all, but long enough" * 100)
    assert bad(await database_findings(settings)) == [("database", Severity.FAULT)]
    (tmp_path / "onebook.db").unlink()
    (gone,) = await database_findings(settings)
    assert (gone.state, "pepper" in gone.message) == (Severity.FAULT, True)


async def test_secrets_that_do_not_belong_to_the_database_are_found(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    await made(settings)
    (tmp_path / "pepper").unlink()
    assert bad(await database_findings(settings)) == [("pepper", Severity.FAULT)]
    assert not (tmp_path / "pepper").exists()
    load_pepper(tmp_path / "pepper")  # another one
    (tmp_path / "master_key").unlink()
    assert bad(await database_findings(settings)) == [
        ("pepper", Severity.FAULT),
        ("master key", Severity.FAULT),
    ]


async def test_what_is_wrong_with_a_collection_is_found(tmp_path: Path) -> None:
    tables = {"collect_every": 3_600, "master_key_file": str(tmp_path / "master_key")}
    settings = settings_in(tmp_path, transactions=tables)
    await made(settings)
    account = CollectedAccount.of("bybit")
    late = ("collection", Severity.WARNING)
    assert bad(await database_findings(settings)) == [late]  # never collected
    now_ms = SYSTEM_CLOCK.wall_ms()
    async with Store(settings.store.url) as store:
        vault = Vault(store.credentials, master_keys(settings.transactions))
        collection = Collection(store.collected, vault)

        async def told(**facts: str) -> list[str]:
            for name, value in facts.items():
                await store.facts.put(getattr(account, name), value)
            found = await database_findings(settings)
            return [each.message for each in found if each.check == "collection"]

        (fresh,) = await told(fact=str(now_ms - 3 * 3_600_000 + 60_000))
        assert fresh.startswith("bybit (mainnet) was collected 2:59:")
        assert (late in bad(await database_findings(settings))) is False
        (old,) = await told(fact=str(now_ms - 4 * 3_600_000))
        assert "was collected 4:00:" in old
        assert "collect_every is 3600 s" in old
        (failed,) = await told(problem_fact="The exchange refused.")
        assert failed.endswith("was incomplete: The exchange refused.")
        await told(problem_fact="", fact=str(now_ms))
        doubtful = CollectedIdentity("key", doubtful=True)
        await collection.keep_identity(*account.place, doubtful)
        _, replaced = await told()
        assert "API key of bybit (mainnet) was replaced" in replaced
        await vault.make_data_key("collected transactions")
    (tmp_path / "master_key").unlink()
    assert ("collection", Severity.FAULT) in bad(await database_findings(settings))


def test_what_others_can_read_or_write_is_found(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    file = tmp_path / "onebook.toml"
    file.write_text("")
    database = tmp_path / "onebook.db"
    database.write_text("")
    for path, mode in ((file, 0o666), (database, 0o644)):
        path.chmod(mode)
    found = [each for each in local_findings(settings, [], file) if each.check == "permissions"]
    assert [each.advice for each in found] == [f"chmod go-w {file}", f"chmod 600 {database}"]
    for path in (file, database):
        path.chmod(0o600)
    found = [each for each in local_findings(settings, [], file) if each.check == "permissions"]
    assert found == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    settings = settings_in(tmp_path / "data" / "onebook")
    assert ("permissions", Severity.FAULT) in bad(list(local_findings(settings, [], None)))


def test_what_a_killed_restore_left_beside_the_database_is_found(tmp_path: Path) -> None:
    """It holds the pepper and the master key, and nothing else names it."""
    settings = settings_in(tmp_path)
    left = tmp_path / ".onebook-backup-killed"
    with draft(tmp_path):
        assert ("leftovers", Severity.WARNING) not in bad(list(local_findings(settings, [], None)))
        left.mkdir()
        found = [each for each in local_findings(settings, [], None) if each.check == "leftovers"]
    assert [each.advice for each in found] == [
        f"rm -r {left}; the next backup or restore to {tmp_path} removes it too."
    ]


def test_a_directory_of_exports_that_is_nearly_full_is_found(tmp_path: Path) -> None:
    size = 1 << 20
    settings = settings_in(tmp_path)
    limited = settings.transactions.model_copy(update={"exports_bytes_max": size})
    settings = settings.model_copy(update={"transactions": limited})

    def found() -> list[tuple[Severity, str]]:
        every = local_findings(settings, [], None)
        return [(each.state, each.message) for each in every if each.check == "exports"]

    assert found() == []
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / "okx-mainnet-0f-2024Q1.export").write_bytes(bytes(size // 2))
    assert [state for state, _ in found()] == [Severity.OK]
    (folder / "okx-mainnet-0f-2024Q2.export").write_bytes(bytes(size * 45 // 100))
    ((state, message),) = found()
    assert state is Severity.WARNING
    assert message.endswith("Further exports will be refused.")


def test_faults_of_the_settings_and_a_public_port_without_tls_are_found(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, server={"host": "0.0.0.0"}, feeds={"exchanges": ["nowhere"]})
    found = bad(list(local_findings(settings, ["a: b."], None)))
    assert found.count(("settings", Severity.FAULT)) == 2
    assert found.count(("exposure", Severity.WARNING)) == 2


def test_the_difference_of_clocks_is_that_to_the_middle_of_the_second() -> None:
    assert skew_s("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777.4, 784_111_777.6) == 0.0
    assert skew_s("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_787.5, 784_111_787.5) == 10.0
    assert skew_s("", 0, 0) is None
    assert skew_s("yesterday", 0, 0) is None
    assert skew_s(f"Sun, 06 Nov {10**20} 08:49:37 GMT", 0, 0) is None


@asynccontextmanager
async def clock_server(ahead_s: float) -> AsyncIterator[str]:
    """Answer every request with the time of a fast clock; yields host and port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():
            date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead_s), usegmt=True)
            writer.write(f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def through(places: dict[str, str]) -> dict[str, object]:
    """Settings of feeds for exchanges at these addresses."""
    return {
        "exchanges": list(places),
        "overrides": {
            name: {"ws_url": f"ws://{place}", "rest_url": f"http://{place}"}
            for name, place in places.items()
        },
    }


@pytest.mark.parametrize(
    ("ahead_s", "state"), [(0, None), (3, Severity.WARNING), (-60, Severity.FAULT)]
)
async def test_a_wrong_clock_is_found(tmp_path: Path, ahead_s: float, state: Severity) -> None:
    async with clock_server(ahead_s) as place:
        settings = settings_in(tmp_path, feeds=through({"okx": place, "kraken": place}))
        found = await network_findings(settings)
    assert bad(found) == ([("clock", state)] if state else [])


async def test_exchanges_that_cannot_be_reached_are_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = f"127.0.0.1:{taken.getsockname()[1]}"
    async with clock_server(0) as place:
        settings = settings_in(tmp_path, feeds=through({"okx": place, "kraken": closed}))
        found = await network_findings(settings)
        assert bad(found) == [("exchanges", Severity.WARNING)]
        settings = settings_in(tmp_path, feeds=through({"okx": closed, "kraken": closed}))
        found = await network_findings(settings)
        assert bad(found) == [("exchanges", Severity.FAULT), ("clock", Severity.WARNING)]
        assert bad(await network_findings(settings, exchanges_too=False)) == []


async def test_a_running_node_and_a_stranger_on_the_port_are_distinguished(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    async with app.running(settings, overrides={}) as node:
        at_node = settings_in(tmp_path, server={"port": node.address[1]})
        (found,) = await network_findings(at_node, exchanges_too=False)
        assert found.state is Severity.OK
        assert found.message.endswith("and is ready.")
    async with clock_server(0) as place:
        stranger = settings_in(tmp_path, server={"port": int(place.partition(":")[2])})
        (found,) = await network_findings(stranger, exchanges_too=False)
        assert (found.check, found.state) == ("port", Severity.FAULT)


async def test_nats_and_the_nodes_of_the_cluster_are_examined(tmp_path: Path) -> None:
    with nats_server() as port:
        servers = {"servers": (f"nats://127.0.0.1:{port}",)}
        settings = settings_in(
            tmp_path, node={"role": "gateway", "heartbeat_timeout_s": 2.0}, nats=servers
        )
        assert bad(await cluster_findings(settings)) == [("nodes", Severity.WARNING)]
        old = NodeHeartbeat(node=7, name="old-one", role=NodeRole.FEEDS, wire=99, version="9.9")
        now = NodeHeartbeat(node=8, name="new-one", role=NodeRole.FEEDS, wire=wire.VERSION)
        assert await _found_beside(settings, old) == [
            "NATS accepts this node.",
            "old-one (Onebook 9.9) speaks version 99 of the node protocol, this release "
            f"{wire.VERSION}: neither uses the other.",
            "No feeds node of the cluster onebook that this release can use is alive.",
        ]
        assert await _found_beside(settings, now) == [
            "NATS accepts this node.",
            "Alive in the cluster onebook: feeds nodes 1, gateways 0, recorders 0.",
        ]
    assert bad(await cluster_findings(settings)) == [("nats", Severity.FAULT)]
    assert await cluster_findings(settings_in(tmp_path)) == []


async def _found_beside(settings: Settings, node: NodeHeartbeat) -> list[str]:
    """The findings while a node sends its heartbeats."""
    async with NatsBus(settings.nats, name="test") as bus:

        async def beat() -> None:
            while True:
                bus.publish(Subjects("onebook").heartbeats, encode_heartbeat(node))
                await asyncio.sleep(0.05)

        beating = asyncio.create_task(beat())
        found = await cluster_findings(settings)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
    return [each.message for each in found]


def test_the_command_prints_advice_and_ends_with_1_at_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("ONEBOOK_SERVER__PORT", "0")
    answer = CliRunner().invoke(commands, ["doctor", "--offline"])
    assert answer.exit_code == 0, answer.output
    assert "0 faults" in answer.stdout
    with monkeypatch.context() as terminal:
        terminal.setenv("FORCE_COLOR", "1")
        terminal.setenv("COLUMNS", "80")
        shown = Text.from_ansi(CliRunner().invoke(commands, ["doctor", "--offline"]).stdout).plain
    assert max(map(len, shown.splitlines())) <= 80
    assert "".join(shown.split()) == "".join(answer.stdout.split()), "the same words, wrapped"
    (tmp_path / "onebook.toml").write_text("[server]\nprot = 1\n")
    answer = CliRunner().invoke(commands, ["doctor", "--offline", "--json"])
    assert answer.exit_code == 1
    faults = [each for each in json.loads(answer.stdout) if each["state"] == "fault"]
    assert len(faults) == 1
    assert faults[0]["message"].startswith("onebook.toml: Unknown setting server.prot.")
