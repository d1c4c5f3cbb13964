"""What the files that we ship for operators write: the table of docs/explanation/security.md."""

import asyncio
import re
import shlex
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from databases import migrated
from onebook.accounts import Accounts, Admin, load_pepper
from onebook.model import Tier
from onebook.store import AuditedChange, Store

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ROW = re.compile(
    r"^\| `(deploy/\S+)` \| (\S.*) \| (\S.*) \| `(tests/[\w/]+\.py)` \|$", re.MULTILINE
)
TABLE = ROW.findall((ROOT / "docs/explanation/security.md").read_text())
# Languages of code blocks that configure no program which writes a log of addresses.
HARMLESS = {"", "console", "js", "json", "jsx", "python", "sh", "sql", "text", "toml", "yaml"}
ONEBOOK = Path(sys.executable).with_name("onebook")


def test_every_file_for_operators_has_a_row():
    shipped = {str(path.relative_to(ROOT)) for path in DEPLOY.rglob("*") if path.is_file()}
    assert [row[0] for row in TABLE] == list(dict.fromkeys(row[0] for row in TABLE))
    assert {row[0] for row in TABLE} == shipped


@pytest.mark.parametrize("file", sorted({row[3] for row in TABLE}))
def test_every_row_names_a_test(file):
    text = (ROOT / file).read_text()
    assert re.search(r"^(async )?def test_", text, re.MULTILINE)


def test_a_proxy_in_the_documentation_is_a_file_here():
    """Examples in pages that are not run with keys: they configure nodes and Prometheus."""
    for page in (ROOT / "docs").rglob("*.md"):
        for language, block in re.findall(r"^```(\w*).*\n([\s\S]*?)^```", page.read_text(), re.M):
            assert language in HARMLESS, f"{page.name}: {language}"
            if language in ("toml", "yaml"):
                found = re.search(r"traefik|access_?log|proxy_pass|reverse_proxy|haproxy", block)
                assert found is None, f"{page.name}: {found}"


async def test_the_backup_of_the_unit_prints_no_secret(tmp_path):
    unit = (DEPLOY / "systemd" / "onebook-backup.service").read_text()
    (command,) = re.findall(r"^ExecStart=/opt/onebook/bin/onebook (.+)$", unit, re.MULTILINE)
    (tmp_path / "backups").mkdir()
    (tmp_path / "onebook.toml").write_text("")
    command = command.replace("/var/backups/onebook", str(tmp_path / "backups"))
    command = command.replace("/etc/onebook/", f"{tmp_path}/")
    (tmp_path / "onebook").mkdir(mode=0o700)
    pepper = load_pepper(tmp_path / "onebook" / "pepper")
    async with Store(await migrated(tmp_path / "onebook")) as store:
        made = await _keyed(store, pepper)
    process = await asyncio.create_subprocess_exec(
        *(ONEBOOK, *shlex.split(command)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"XDG_DATA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed
    assert str(next((tmp_path / "backups").iterdir())) in printed
    assert pepper.current.hex() not in printed
    assert made.text[12:] not in printed


def test_the_timer_runs_nothing_but_the_backup():
    text = (DEPLOY / "systemd" / "onebook-backup.timer").read_text()
    assert "Exec" not in text
    assert "Unit=" not in text


@pytest.fixture
def executed():
    """Every statement of this process with its values."""
    seen = []

    def see(_connection, _cursor, statement, values, _context, _many):
        seen.append(f"{statement} {values!r}")

    event.listen(Engine, "before_cursor_execute", see)
    yield seen
    event.remove(Engine, "before_cursor_execute", see)


async def test_the_database_sees_digests_alone(tmp_path, executed):
    """PostgreSQL logs failed statements with their values."""
    now_ms = time.time_ns() // 1_000_000
    pepper = load_pepper(tmp_path / "pepper")
    async with Store(await migrated(tmp_path)) as store:
        made = await _keyed(store, pepper)
        async with Accounts(store, pepper) as accounts:
            session = await accounts.authenticate(made.text, address="127.0.0.1", now_ms=now_ms)
            await accounts.session(f"Bearer {session.token}", now_ms)
            await accounts.usage_report(made.text, address="127.0.0.1", now_ms=now_ms)
    text = "\n".join(executed)
    assert "INSERT INTO sessions" in text
    assert made.row.key_id in text
    for secret in (made.text[12:], session.token[8:], pepper.current.hex(), repr(pepper.current)):
        assert secret not in text


def test_nats_is_not_told_to_trace_messages():
    text = (DEPLOY / "many-nodes" / "compose.yml").read_text()
    assert re.search(r"trace|\B-DV?V?\b|\B-V\b|debug", text) is None


async def _keyed(store, pepper):
    change = AuditedChange(time.time_ns() // 1_000_000, "tests", "")
    admin = Admin(store, pepper)
    account = await admin.create_account("alice", change)
    return await admin.create_key(account.account_id, Tier.BASIC, change)
