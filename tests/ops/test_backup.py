"""A backup is made during writes and restored elsewhere, where everything works."""

import asyncio
import fcntl
import hashlib
import os
import signal
import sqlite3
import stat
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec import json
from typer.testing import CliRunner

from clocks import SteppedClock
from databases import KINDS, database
from disks import filled, small_disk
from onebook import config
from onebook.accounts import Accounts
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper, require_same_pepper, rotate_pepper
from onebook.cli.commands import app as commands
from onebook.config import Settings
from onebook.errors import ConfigError
from onebook.model import Tier
from onebook.ops import backup
from onebook.ops.backup import Manifest, abandoned, draft, read_archive, remove_abandoned
from onebook.store import AuditedChange, Store, UsageCell
from onebook.transactions.credentials import Credentials, Vault, master_keys

NOW_MS = 1_769_855_400_000
TIMEOUT_S = 60.0
Places = tuple[Settings, Settings]

HOLDER = """
import sys
from pathlib import Path
from onebook.ops.backup import draft
with draft(Path(sys.argv[1])) as place:
    (place / "pepper").touch()
    print(place, flush=True)
    sys.stdin.read()
"""


def settings_in(folder: Path, url: str) -> Settings:
    return config.load(
        overrides={
            "store": {"url": url, "pepper_file": str(folder / "pepper")},
            "transactions": {"master_key_file": str(folder / "master_key")},
        }
    )


@pytest.fixture(params=["sqlite"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Settings, Settings]]:
    """Settings of a service, and of an empty one of the same kind."""
    kind = request.param
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    with database(kind, one) as first, database(kind, other) as second:
        yield settings_in(one, first), settings_in(other, second)


async def made(settings: Settings) -> str:
    """Create a service with a key, credentials and usage; return the key's text."""
    async with Store(settings.store.url) as store:
        await store.database.upgrade()
        pepper = load_pepper(settings.store.pepper_file)
        await require_same_pepper(store, pepper)
        admin = Admin(store, pepper)
        change = AuditedChange(NOW_MS, "operator", "")
        await admin.create_account("alice", change)
        new = await admin.create_key("alice", Tier.PREMIUM, change)
        await store.usage.apply(("node", 1), {UsageCell(new.row.key_id, NOW_MS): 77}, NOW_MS)
        vault = Vault(store.credentials, master_keys(settings.transactions))
        await vault.put("bybit", "mainnet", Credentials("the key", "secret"), now_ms=1)
    return new.text


async def works(settings: Settings, text: str) -> None:
    """The key is accepted, its usage is there, and the credentials can be decrypted."""
    async with Store(settings.store.url) as store:
        pepper = load_pepper(settings.store.pepper_file)
        async with Accounts(store, pepper, clock=SteppedClock(NOW_MS)) as accounts:
            key = await accounts.verify_key(text, NOW_MS)
        assert (key.username, key.tier) == ("alice", Tier.PREMIUM)
        cell = UsageCell(key.key_id, NOW_MS)
        assert await store.usage.totals([cell]) == {cell: 77}
        found = await Vault(store.credentials, master_keys(settings.transactions)).get(
            "bybit", "mainnet"
        )
        assert found is not None
        assert found.api_key == "the key"


async def backed_up(settings: Settings, folder: Path) -> Path:
    made = await backup.back_up(settings, folder, file=None, now_ms=NOW_MS, timeout_s=TIMEOUT_S)
    return made.path


@pytest.mark.parametrize("places", KINDS, indirect=True)
async def test_what_was_backed_up_works_where_it_is_restored(
    places: Places, tmp_path: Path
) -> None:
    here, there = places
    text = await made(here)
    archive = await backed_up(here, tmp_path / "backups")
    assert archive.name == "onebook-20260131T103000Z.tar"
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert os.listdir(tmp_path / "backups") == [archive.name]  # no draft, no copy beside it
    restored = await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    assert restored.manifest.database in there.store.url
    await works(there, text)
    for path in (there.store.pepper_file, there.transactions.master_key_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="overwrites no files"):
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("places", KINDS, indirect=True)
async def test_a_backup_holds_every_pepper_in_use(places: Places, tmp_path: Path) -> None:
    here, there = places
    text = await made(here)
    async with Store(here.store.url) as store:
        change = AuditedChange(NOW_MS, "operator", "")
        await rotate_pepper(store, here.store.pepper_file, change)
    await backup.restore(there, await backed_up(here, tmp_path / "backups"), timeout_s=TIMEOUT_S)
    await works(there, text)
    assert len(load_pepper(there.store.pepper_file).ids) == 2


async def test_a_pepper_that_is_rotated_during_a_backup_makes_it_fail(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = places
    await made(here)
    copy = backup._copy_database

    def rotated(*words: Any) -> None:
        first = here.store.pepper_file.read_text()
        here.store.pepper_file.write_text(first + "ab" * 32 + "\n")
        copy(*words)

    monkeypatch.setattr(backup, "_copy_database", rotated)
    with pytest.raises(ConfigError, match="pepper file was changed during the backup"):
        await backed_up(here, tmp_path / "backups")
    assert os.listdir(tmp_path / "backups") == []


@pytest.mark.parametrize("places", ["postgresql"], indirect=True)
async def test_a_database_that_is_not_empty_is_named_and_stays_as_it_is(
    places: Places, tmp_path: Path
) -> None:
    here, there = places
    await made(here)
    archive = await backed_up(here, tmp_path / "backups")
    connection = await asyncpg.connect(there.store.url)
    await connection.execute("CREATE TABLE invoices (id int); INSERT INTO invoices VALUES (7)")
    try:
        with pytest.raises(ConfigError, match=r"onebook_test_\w+ is not empty: .* invoices\."):
            await backup.restore(there, archive, timeout_s=TIMEOUT_S)
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        assert [row["tablename"] for row in await connection.fetch(tables)] == ["invoices"]
        assert await connection.fetchval("SELECT id FROM invoices") == 7
    finally:
        await connection.close()
    assert not there.store.pepper_file.exists()
    text = await made(there)  # of another service
    for path in (there.store.pepper_file, there.transactions.master_key_file):
        path.rename(path.with_name(f"{path.name}.kept"))
    with pytest.raises(ConfigError, match=r"is not empty: .* those of Onebook\."):
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    for path in (there.store.pepper_file, there.transactions.master_key_file):
        path.with_name(f"{path.name}.kept").rename(path)
    await works(there, text)


async def test_a_backup_beside_writers_is_whole(places: Places, tmp_path: Path) -> None:
    here, there = places
    text = await made(here)
    async with Store(here.store.url) as store:
        key_id = (await store.accounts.list_keys())[0].key_id

        async def write() -> None:
            for number in range(2, 100_000):
                cell = UsageCell(key_id, NOW_MS + number)
                await store.usage.apply(("node", number), {cell: number}, NOW_MS)

        writing = asyncio.create_task(write())
        archive = await backed_up(here, tmp_path / "backups")
        assert not writing.done()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    await works(there, text)
    async with Store(there.store.url) as store:
        used = await store.usage.between(NOW_MS, NOW_MS + 100_000)
    numbers = sorted(cell.period_start_ms - NOW_MS for cell in used)
    assert numbers[1:] == list(range(2, len(numbers) + 1))  # no batch before one that is there


async def test_a_damaged_backup_is_refused_and_leaves_nothing(
    places: Places, tmp_path: Path
) -> None:
    here, there = places
    await made(here)
    archive = await backed_up(here, tmp_path / "backups")
    whole = archive.read_bytes()
    with tarfile.open(archive) as tar:
        offset = tar.getmember("database").offset_data + 200
    archive.write_bytes(whole[:offset] + b"x" + whole[offset + 1 :])
    with pytest.raises(ConfigError, match="database in the backup is damaged"):
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match="damaged"):
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    archive.write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="not an Onebook backup"):
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    assert not there.store.pepper_file.exists()


def as_member(name: str, kind: bytes = tarfile.REGTYPE, **facts: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    for fact, value in facts.items():
        setattr(member, fact, value)
    return member


def header(member: tarfile.TarInfo, form: int = tarfile.GNU_FORMAT) -> bytes:
    return member.tobuf(form)


def sparse(size: int) -> bytes:
    """A member without content that stands for `size` zeros."""
    block = bytearray(header(as_member("database", tarfile.GNUTYPE_SPARSE)))
    block[483:495] = b"%011o\0" % size
    block[148:156] = b"%06o\0 " % (256 + sum(block[:148]) + sum(block[156:]))
    return bytes(block)


def pax(records: bytes) -> bytes:
    padding = bytes(-len(records) % 512)
    return header(as_member("x", tarfile.XHDTYPE, size=len(records))) + records + padding


HOSTILE = {
    "a manifest that links to itself": header(
        as_member("manifest.json", tarfile.LNKTYPE, linkname="manifest.json")
    ),
    "a manifest behind a symbolic link": header(
        as_member("manifest.json", tarfile.SYMTYPE, linkname="manifest.json")
    ),
    "a sparse member of 20 GB": sparse(20 << 30),
    "a member longer than the file": header(as_member("database", size=1 << 40)),
    "a member of a negative length": header(as_member("database", size=-512)),
    "headers that only describe the next one": pax(b"20 comment=" + b"a" * 8) * 5_000,
    "a header that states a length beyond the file": pax(b"30 size=9999999999999999\n")
    + header(as_member("database")),
    "a folder": header(as_member("manifest.json", tarfile.DIRTYPE)),
    "a device": header(as_member("database", tarfile.CHRTYPE)),
    "a thousand empty members": b"".join(header(as_member(f"a{at}")) for at in range(1_000)),
    "a name that occurs twice": header(as_member("pepper")) * 2,
    "a manifest of nothing but brackets": header(as_member("manifest.json", size=512 * 200))
    + b"[" * 512 * 200,
    "a manifest that is not text": header(as_member("manifest.json", size=512)) + b"\xff" * 512,
    "one header and nothing more": header(as_member("manifest.json", size=512)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
async def test_a_tampered_archive_is_refused_and_leaves_nothing(
    content: bytes, tmp_path: Path
) -> None:
    archive = tmp_path / "backup.tar"
    archive.write_bytes(content + bytes(1_024))
    there = settings_in(tmp_path / "there", f"sqlite:///{tmp_path / 'there' / 'onebook.db'}")
    with pytest.raises(ConfigError, match=r"not an Onebook backup|a manifest that this release"):
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    assert not any(path.is_file() for path in (tmp_path / "there").rglob("*"))


async def test_a_member_whose_length_is_in_a_pax_header_is_read(tmp_path: Path) -> None:
    content = b"p" * 700
    manifest = Manifest(1, "1", "", "sqlite", "1", {"pepper": hashlib.sha256(content).hexdigest()})
    head = json.encode(manifest)
    archive = tmp_path / "backup.tar"
    archive.write_bytes(
        header(as_member("manifest.json", size=len(head)))
        + head.ljust(-(-len(head) // 512) * 512, b"\0")
        + pax(b"12 size=700\n")
        + header(as_member("pepper"))
        + content.ljust(1_024, b"\0")
        + bytes(1_024)
    )
    found, members = read_archive(archive, tmp_path)
    assert (found, members["pepper"].read_bytes()) == (manifest, content)


async def test_a_backup_of_a_newer_schema_is_refused_and_leaves_nothing(
    places: Places, tmp_path: Path
) -> None:
    here, there = places
    await made(here)
    path = Store(here.store.url).database.path
    assert path is not None
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    archive = await backed_up(here, tmp_path / "backups")
    with pytest.raises(ConfigError, match="schema 9999, newer than"):
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    assert not any(path.is_file() for path in (tmp_path / "other").rglob("*"))


async def test_parts_that_do_not_belong_together_are_refused_and_removed(
    places: Places, tmp_path: Path
) -> None:
    here, there = places
    await made(here)
    load_pepper(tmp_path / "another")
    here.store.pepper_file.write_bytes((tmp_path / "another").read_bytes())
    archive = await backed_up(here, tmp_path / "backups")
    with pytest.raises(ConfigError, match="pepper file does not belong to this database"):
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    assert not any(path.is_file() for path in (tmp_path / "other").rglob("*"))


async def test_another_kind_of_database_is_refused(places: Places, tmp_path: Path) -> None:
    here, _ = places
    await made(here)
    archive = await backed_up(here, tmp_path / "backups")
    elsewhere = settings_in(tmp_path / "elsewhere", "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(ConfigError, match=r"of a sqlite database, but store\.url names postgresql"):
        await backup.restore(elsewhere, archive, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    ("left_bytes", "words"),
    [
        (0, r"disk/\.onebook-backup-\w+/pepper cannot be written: No space left"),
        (100_000, r"onebook_\w+\.db cannot be copied to .*disk.* disk is full"),
        (300_000, r"The backup \S+disk/onebook-\S+\.tar cannot be written: No space left"),
    ],
)
async def test_a_full_disk_names_the_file_that_cannot_be_written_and_leaves_nothing(
    places: Places, tmp_path: Path, left_bytes: int, words: str
) -> None:
    here, _ = places
    text = await made(here)
    archive = await backed_up(here, tmp_path / "backups")
    with small_disk(tmp_path / "disk") as disk:
        with filled(disk, left_bytes=left_bytes), pytest.raises(ConfigError, match=words):
            await backed_up(here, disk)
        assert os.listdir(disk) == []
        other = settings_in(disk, f"sqlite:///{disk}/onebook.db")
        with (
            filled(disk, left_bytes=left_bytes // 3),
            pytest.raises(ConfigError, match=r"disk/\S+( cannot .*)?: No space left"),
        ):
            await backup.restore(other, archive, timeout_s=TIMEOUT_S)
        assert os.listdir(disk) == []
        await backup.restore(other, archive, timeout_s=TIMEOUT_S)
        await works(other, text)


@pytest.mark.parametrize("places", ["postgresql"], indirect=True)
async def test_without_pg_dump_the_error_says_what_to_install(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = places
    await made(here)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"pg_dump is not installed.*postgresql-client"):
        await backed_up(here, tmp_path / "backups")
    assert os.listdir(tmp_path / "backups") == []


async def test_what_a_killed_backup_left_is_removed_and_what_another_makes_stays(
    places: Places, tmp_path: Path
) -> None:
    """It holds the pepper and the master key, so it has its own, locked folder."""
    here, _ = places
    await made(here)
    folder = tmp_path / "backups"
    for name in (".onebook-backup-killed", ".onebook-backup-alive"):
        (folder / name).mkdir(parents=True)
        (folder / name / "pepper").write_text("secret")
        (folder / name / "lock").touch()
    with (folder / ".onebook-backup-alive" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive = await backed_up(here, folder)
    assert sorted(os.listdir(folder)) == [".onebook-backup-alive", archive.name]


@pytest.mark.parametrize("places", ["postgresql"], indirect=True)
async def test_what_a_killed_restore_left_is_removed_by_the_next_one(
    places: Places, tmp_path: Path
) -> None:
    """It holds the pepper and the master key too, but was left in /tmp."""
    here, there = places
    text = await made(here)
    archive = await backed_up(here, tmp_path / "backups")
    program = tmp_path / "programs" / "pg_restore"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nkill -9 $PPID\n")
    program.chmod(0o700)
    (tmp_path / "temporary").mkdir()
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "onebook", "restore", str(archive)),
        env=os.environ
        | {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "TMPDIR": str(tmp_path / "temporary"),
            "ONEBOOK_STORE__URL": there.store.url,
            "ONEBOOK_STORE__PEPPER_FILE": str(there.store.pepper_file),
            "ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE": str(there.transactions.master_key_file),
        },
    )
    assert await killed.wait() == -signal.SIGKILL
    folder = there.store.pepper_file.parent
    assert os.listdir(tmp_path / "temporary") == []
    assert len(os.listdir(folder)) == 3
    with pytest.raises(ConfigError, match=r"move \S+pepper, \S+master_key away\."):
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    there.store.pepper_file.unlink()
    there.transactions.master_key_file.unlink()
    await backup.restore(there, archive, timeout_s=TIMEOUT_S)
    await works(there, text)
    assert sorted(os.listdir(folder)) == ["master_key", "pepper"]


async def test_a_restore_onto_several_disks_leaves_nothing_beside_the_files(
    places: Places, tmp_path: Path
) -> None:
    here, _ = places
    text = await made(here)
    archive = await backed_up(here, tmp_path / "backups")
    with small_disk(tmp_path / "disk") as disk:
        there = settings_in(disk, f"sqlite:///{tmp_path}/data/onebook.db")
        left = tmp_path / "data" / ".onebook-backup-killed"
        left.mkdir(parents=True)
        (disk / left.name).mkdir()
        await backup.restore(there, archive, timeout_s=TIMEOUT_S)
        await works(there, text)
        assert sorted(os.listdir(disk)) == ["master_key", "pepper"]
        assert [name for name in os.listdir(left.parent) if name[0] == "."] == []
        assert stat.S_IMODE(there.store.pepper_file.stat().st_mode) == 0o600


async def test_without_a_pepper_or_a_database_there_is_no_backup(
    places: Places, tmp_path: Path
) -> None:
    here, there = places
    await made(here)
    here.store.pepper_file.unlink()
    with pytest.raises(ConfigError, match=r"pepper, the pepper, cannot be read"):
        await backed_up(here, tmp_path / "backups")
    with pytest.raises(ConfigError, match="is missing"):
        await backed_up(there, tmp_path / "backups")


def test_the_commands_print_the_path_and_what_was_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> str:
        answer = CliRunner().invoke(commands, words)
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "one"))
    run("accounts", "create", "alice")
    (tmp_path / "onebook.toml").write_text("[server]\nport = 8001\n")
    archive = run("backup", str(tmp_path / "backups")).strip()
    with tarfile.open(archive) as tar:
        assert set(tar.getnames()) == {"manifest.json", "pepper", "database", "onebook.toml"}
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert "Restored: the sqlite database" in run("restore", archive)
    assert "alice" in run("accounts", "list")


async def test_a_draft_is_abandoned_once_its_process_was_killed(tmp_path: Path) -> None:
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDER, str(tmp_path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdout is not None
    place = Path((await holder.stdout.readline()).decode().strip())
    remove_abandoned(tmp_path)
    assert (abandoned(tmp_path), (place / "pepper").exists()) == ([], True)
    holder.kill()
    await holder.wait()
    assert abandoned(tmp_path) == [place]
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_draft_ends_with_its_block_and_a_folder_without_a_lock_is_abandoned(
    tmp_path: Path,
) -> None:
    with draft(tmp_path) as place:
        assert abandoned(tmp_path) == []
    assert not place.exists()
    place.mkdir()
    assert abandoned(tmp_path) == [place]
    assert abandoned(tmp_path / "nowhere") == []
