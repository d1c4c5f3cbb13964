"""Real planted faults, and the doctor's finding for each."""

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from onebook import config
from onebook.accounts import Admin, load_pepper
from onebook.accounts.pepper import require_same_pepper, retire_peppers, rotate_pepper
from onebook.config import Settings
from onebook.model import Tier
from onebook.ops import doctor
from onebook.ops.doctor import Finding, Severity
from onebook.store import AuditedChange, Store

CHANGE = AuditedChange(1, "operator", "")


class Planted(NamedTuple):
    """A fault, and the check, severity and text of its finding."""

    plant: Callable[[Path], AsyncIterator[dict[str, dict[str, object]]]]
    check: str
    state: Severity
    message: str
    advice: str


async def sound(_folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    yield {}


async def taken_metrics_port(_folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield {"server": {"metrics_port": taken.getsockname()[1]}}


async def taken_port(_folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    with socket.socket() as bound:  # accepts nothing, so that no answer tells what it is
        bound.bind(("127.0.0.1", 0))
        yield {"server": {"port": bound.getsockname()[1]}}


def certificate(folder: Path, *, ends_in: timedelta) -> dict[str, dict[str, object]]:
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "books.example")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=90))
        .not_valid_after(now + ends_in)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "key.pem").touch(0o600)
    (folder / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    files = {"tls_cert_file": f"{folder}/cert.pem", "tls_key_file": f"{folder}/key.pem"}
    return {"server": files}


async def certificate_that_ends(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    yield certificate(folder, ends_in=timedelta(days=3, hours=1))


async def certificate_that_ended(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    yield certificate(folder, ends_in=timedelta(hours=-1))


async def usage_of_a_killed_node(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    """Another process creates its usage file and is killed."""
    code = (
        "import os, pathlib, sys; from onebook.accounts.usage import *;"
        "file = UsageFile.create(pathlib.Path(sys.argv[1]), 'onebook.db', 'killed');"
        "file.put([Batch(1, {UsageCell('key_0', 0): 77})]); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    assert done.returncode == -9
    yield {}


async def damaged_database(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    """Pages in the middle are lost; the first one, which every program reads, is intact."""
    file = folder / "onebook.db"
    page = 4_096
    with file.open("r+b") as opened:
        opened.seek(2 * page)
        opened.write(b"\xa5" * (file.stat().st_size - 3 * page))
    for beside in folder.glob("onebook.db-*"):
        beside.unlink()
    yield {}


async def no_database(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    (folder / "onebook.db").write_bytes(b"text" * 9_000)
    yield {}


async def lost_database(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    (folder / "onebook.db").unlink()
    yield {}


async def lost_pepper(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    (folder / "pepper").unlink()
    yield {}


async def foreign_pepper(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    (folder / "pepper").unlink()
    load_pepper(folder / "pepper")
    yield {}


async def old_pepper(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    async with Store(f"sqlite:///{folder}/onebook.db") as store:
        await rotate_pepper(store, folder / "pepper", CHANGE)
    yield {}


async def retired_pepper(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    async with Store(f"sqlite:///{folder}/onebook.db") as store:
        await rotate_pepper(store, folder / "pepper", CHANGE)
        before = (folder / "pepper").read_text()
        await retire_peppers(store, folder / "pepper", CHANGE)
    (folder / "pepper").write_text(before)
    yield {}


async def readable_pepper(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    (folder / "pepper").chmod(0o644)
    yield {}


async def readable_database(folder: Path) -> AsyncIterator[dict[str, dict[str, object]]]:
    (folder / "onebook.db").chmod(0o644)
    yield {}


FAULTS = (
    Planted(taken_port, "port", Severity.FAULT, "cannot listen on", "ss -ltnp"),
    Planted(taken_metrics_port, "metrics port", Severity.FAULT, "/metrics", "server.metrics_port"),
    Planted(certificate_that_ends, "certificate", Severity.WARNING, "in 3 days", "SIGHUP"),
    Planted(certificate_that_ended, "settings", Severity.FAULT, "expired on", "config check"),
    Planted(usage_of_a_killed_node, "usage", Severity.WARNING, "not billed yet", "Start a node"),
    Planted(damaged_database, "database", Severity.FAULT, "is damaged", "onebook restore"),
    Planted(no_database, "database", Severity.FAULT, "not a database", "onebook restore"),
    Planted(lost_database, "database", Severity.FAULT, "although its pepper", "onebook restore"),
    Planted(lost_pepper, "pepper", Severity.FAULT, "is missing", "from the backup"),
    Planted(foreign_pepper, "pepper", Severity.FAULT, "does not belong", "from the backup"),
    Planted(
        old_pepper,
        "pepper",
        Severity.WARNING,
        "1970-01-01T00:00:00.001Z: 1.",
        "--retire",
    ),
    Planted(retired_pepper, "pepper", Severity.WARNING, "holds the retired pepper", "--retire"),
    Planted(readable_pepper, "settings", Severity.FAULT, "Others can read", "config check"),
    Planted(readable_database, "permissions", Severity.WARNING, "Others can read", "chmod 600"),
)


async def examined(folder: Path, tables: dict[str, dict[str, object]]) -> list[Finding]:
    """The findings of `onebook doctor --offline`."""
    settings: Settings = config.load(
        overrides={
            "store": {"url": f"sqlite:///{folder}/onebook.db", "pepper_file": f"{folder}/pepper"},
            "transactions": {"master_key_file": f"{folder}/master_key"},
            "server": {"port": 0} | tables.get("server", {}),
        }
    )
    return [
        *doctor.local_findings(settings, [], None),
        *await doctor.database_findings(settings),
        *await doctor.network_findings(settings, exchanges_too=False),
    ]


@asynccontextmanager
async def planted(
    fault: Callable[[Path], AsyncIterator[dict[str, dict[str, object]]]], folder: Path
) -> AsyncIterator[list[Finding]]:
    """A healthy installation with one fault, and its findings."""
    async with Store(f"sqlite:///{folder}/onebook.db") as store:
        await store.database.upgrade()
        peppers = load_pepper(folder / "pepper")
        await require_same_pepper(store, peppers)
        admin = Admin(store, peppers)
        await admin.create_account("alice", CHANGE)
        await admin.create_key("alice", Tier.BASIC, CHANGE)
    async with asynccontextmanager(fault)(folder) as tables:
        yield await examined(folder, tables)


def ill(findings: list[Finding]) -> list[Finding]:
    """The findings, except those caused by the account that runs the tests."""
    return [each for each in findings if each.state is not Severity.OK and each.check != "user"]


async def test_a_sound_installation_has_none(tmp_path: Path) -> None:
    async with planted(sound, tmp_path) as findings:
        assert ill(findings) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.plant.__name__)
async def test_a_planted_fault_is_named_with_what_to_do(tmp_path: Path, fault: Planted) -> None:
    async with planted(fault.plant, tmp_path) as findings:
        found = [each for each in ill(findings) if each.check == fault.check]
    assert [each.state for each in found] == [fault.state] * len(found)
    assert any(fault.message in each.message and fault.advice in each.advice for each in found), (
        found
    )
    assert {each.check for each in ill(findings)} <= {fault.check, "pepper"}
