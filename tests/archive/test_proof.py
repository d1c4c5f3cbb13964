"""Manifests and their chain: whatever is changed in a closed history is found and named."""

import asyncio
import hashlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

import onebook
from archive.world import NAMES, SYMBOL, World
from onebook.archive.folder import HistoryFolder
from onebook.archive.format import HOUR_US
from onebook.archive.proof import (
    ProofChain,
    hour_name,
    leaf_hash,
    load_signing_key,
    merkle_path,
    merkle_root,
    public_hex,
    public_key,
    verify,
)
from onebook.archive.recorder import HistoryRecorder
from onebook.archive.stores import FileStore
from onebook.cli.history import history_app
from onebook.errors import ConfigError
from onebook.orderbook import HistoryMissing

HOURS = 4
SCRIPT = Path(__file__).parents[2] / "examples" / "verify_history.py"


async def recorded(root: Path, key: Path, hours: int = HOURS) -> World:
    """Some minutes of each hour, closed and signed."""
    world = World(root, 5)
    world.recorder = HistoryRecorder(
        world.books, root, keep_days=10, keep_bytes=1 << 40, signing_key=load_signing_key(key),
        clock=world.clock,
    )  # fmt: skip
    await world.recorder.begin()
    world.open()
    for hour in range(1, hours + 1):
        for _ in range(60):
            world.step()
        world.recorder.take_keyframes()
        await world.recorder.flush()
        world.clock.move_to(90 + (hour - 1) * 3_600 + 1)
        await world.recorder.flush()
        assert world.recorder.closing is not None
        await asyncio.wrap_future(world.recorder.closing)
    return world


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    folder = tmp_path_factory.mktemp("proof")
    key = folder / "secret" / "history.pem"
    return asyncio.run(recorded(folder / "history", key)), key


@pytest.fixture
def root(known: tuple[World, Path], tmp_path: Path) -> Path:
    shutil.copytree(known[0].root, tmp_path / "history")
    return tmp_path / "history"


@pytest.fixture
def key(known: tuple[World, Path]) -> str:
    return public_hex(load_signing_key(known[1]))


def problems(root: Path, key: str | None = None, head: str | None = None) -> tuple[str, ...]:
    return verify(FileStore(root), None if key is None else public_key(key), head).problems


def books(root: Path) -> list[Path]:
    return sorted(root.glob("2*/*/*/*/kraken/BTC-USDT.parquet"))


def test_an_untouched_history_has_no_problems(root: Path, key: str) -> None:
    seen = []
    found = verify(FileStore(root), public_key(key), None, lambda *each: seen.append(each))
    assert found.problems == ()
    assert (found.entries, found.hours, found.deleted) == (HOURS, HOURS, 0)
    assert found.files == HOURS * (len(NAMES) + 2)
    assert found.keys == (key,)
    assert seen[-1] == (HOURS, HOURS)
    assert problems(root, key, found.head) == ()


def test_one_flipped_bit_anywhere_is_found(root: Path, key: str) -> None:
    paths = [each for each in root.rglob("*") if each.is_file() and "open" not in each.parts]
    checked = [each for each in paths if each.name != "lock"]
    assert len(checked) == HOURS * (len(NAMES) + 2 + 1 + 2)
    for path in checked:
        content = path.read_bytes()
        for at in (0, len(content) // 2, len(content) - 1):
            flipped = bytearray(content)
            flipped[at] ^= 1
            path.write_bytes(flipped)
            found = problems(root, key)
            assert found, (path, at)
            name = str(path.relative_to(root)).replace(".sig", ".json")
            if path.suffix != ".txt":
                assert any(each.startswith(name) for each in found), (name, found)
        path.write_bytes(content)
    assert problems(root, key) == ()


def test_a_missing_hour_is_found(root: Path, key: str) -> None:
    hour = books(root)[1].parents[1]
    shutil.rmtree(hour)
    assert problems(root, key) == (f"{hour.relative_to(root)}: the hour is missing.",)


def test_one_row_too_many_is_counted(root: Path, key: str) -> None:
    path = books(root)[2]
    rows = pq.read_table(path)
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), path)
    assert problems(root, key) == (
        f"{path.relative_to(root)}: the file was changed; it has {len(rows) + 1} rows instead of "
        f"{len(rows)}.",
    )


def test_a_file_too_many_or_too_few_is_found(root: Path, key: str) -> None:
    path = books(root)[0]
    more = path.with_name("ETH-USDT.parquet")
    path.rename(more)
    names = [str(each.relative_to(root)) for each in (path, more)]
    assert problems(root, key) == (
        f"{names[0]}: the file is missing.",
        f"{names[1]}: the manifest lacks this file.",
    )
    shutil.copytree(books(root)[1].parents[1], root / "2030/01/01/00")
    assert "2030/01/01/00: no entry of the chain has this hour." in problems(root, key)


def test_a_wrong_or_missing_signature_is_found(root: Path, key: str) -> None:
    other = public_hex(Ed25519PrivateKey.generate())
    assert len(problems(root, other)) == HOURS
    assert f"is signed with another key, {key}" in problems(root, other)[0]
    signature = root / "proof" / "00000002.sig"
    shutil.copy(root / "proof" / "00000001.sig", signature)
    assert problems(root) == ("proof/00000002.json: its signature is wrong.",)
    signature.unlink()
    assert problems(root) == ("proof/00000002.json: its signature is missing.",)


def test_a_cut_chain_is_found(root: Path, key: str) -> None:
    head = verify(FileStore(root)).head
    entry = root / "proof" / "00000001.json"
    fields = json.loads(entry.read_bytes())
    secret = load_signing_key(root.parent / "forged.pem")
    entry.write_bytes(json.dumps(fields | {"key": public_hex(secret)}).encode())
    entry.with_suffix(".sig").write_bytes(secret.sign(entry.read_bytes()))
    cut = "proof/00000002.json: the chain is cut; it does not follow the entry before it."
    assert problems(root) == (cut,)
    entry.unlink()
    assert "proof/00000001.json: the entry is missing." in problems(root, key)
    shutil.rmtree(root)
    root.mkdir()
    assert problems(root) == (
        "proof: there is no chain: no hour was closed yet, or it was deleted.",
    )
    assert f"proof: the chain does not contain the entry {head}." in problems(root, None, head)


def test_the_newest_hours_are_missed_only_by_those_who_know_the_head(root: Path, key: str) -> None:
    head = verify(FileStore(root)).head
    for each in (root / "proof").glob(f"{HOURS - 1:08}.*"):
        each.unlink()
    shutil.rmtree(books(root)[-1].parents[1])
    assert problems(root, key) == ()
    assert problems(root, key, head) == (f"proof: the chain does not contain the entry {head}.",)


def test_deleted_hours_are_announced(root: Path, key: str, known: tuple[World, Path]) -> None:
    folder = HistoryFolder(root, load_signing_key(known[1]))
    hours = folder.hours()
    assert folder.keep(1 << 40, hours[2], needed=[hours[1]]) == 1
    assert folder.keep(1 << 40, hours[2]) == 1
    found = verify(FileStore(root), public_key(key))
    assert (found.problems, found.deleted, found.entries) == ((), 2, HOURS + 2)
    shutil.rmtree(books(root)[0].parents[1])
    assert len(problems(root, key)) == 1


def test_an_hour_that_is_closed_again_gets_another_entry(
    root: Path, known: tuple[World, Path]
) -> None:
    folder = HistoryFolder(root, load_signing_key(known[1]))
    hour_us = folder.hours()[0]
    for _ in range(2):
        folder._sealer.seal(hour_us)
    assert verify(FileStore(root)).entries == HOURS
    books(root)[0].unlink()
    folder._sealer.seal(hour_us)
    found = verify(FileStore(root))
    assert (found.problems, found.entries) == ((), HOURS + 1)


def script(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)], capture_output=True, text=True, check=False
    )


def test_an_answer_has_a_proof_that_a_short_program_checks(
    root: Path, key: str, known: tuple[World, Path], tmp_path: Path
) -> None:
    at_us = known[0].live[100][0]
    update = onebook.history(root, SYMBOL, exchanges=("kraken", "okx"), at=at_us, proof=True)
    assert update.proof is not None
    proof = json.loads(json.dumps(update.proof))
    paths = [each["line"].split(" ")[3] for hour in proof["hours"] for each in hour["files"]]
    names = {each.split("/", 4)[4] for each in paths}
    assert names == {"coverage.parquet", "kraken/BTC-USDT.parquet", "okx/BTC-USDT.parquet"}
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(proof))
    checked = script(file, key, root)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count("ok ") == len(paths)

    other = public_hex(Ed25519PrivateKey.generate())
    assert "the signature is wrong" in script(file, other).stderr
    hour = proof["hours"][0]
    line = hour["files"][0]["line"]
    hour["files"][0]["line"] = line.replace(line[:8], "00000000")
    file.write_text(json.dumps(proof))
    assert "does not contain this file" in script(file, key).stderr
    hour["files"][0]["line"] = line
    file.write_text(json.dumps(proof))
    (root / line.split(" ")[3]).write_bytes(b"changed")
    assert script(file, key).returncode == 0
    assert "the file was changed" in script(file, key, root).stderr


class CountingStore(FileStore):
    reads = 0

    def read(self, path: str) -> bytes:
        self.reads += 1
        return super().read(path)


@pytest.mark.parametrize(
    ("deleting", "gaps", "reads_max"), [(False, False, 2), (True, False, 20), (False, True, 40)]
)
def test_the_entry_of_an_hour_is_found_with_few_reads(
    tmp_path: Path, deleting: bool, gaps: bool, reads_max: int
) -> None:
    chance, hours = random.Random(3), list[int]()
    (tmp_path / "proof").mkdir()
    number, hour_us = 0, 495_000 * HOUR_US
    while number < 3_000:
        hour_us += HOUR_US * (chance.randrange(2, 400) if gaps and chance.random() < 0.01 else 1)
        name: str | None = hour_name(hour_us)
        for each in (name, None) if deleting and number > 700 else (name,):
            entry = {"number": number, "previous": "", "hour": each, "root": each}
            entry |= {"kept_from": None, "key": None}
            (tmp_path / f"proof/{number:08}.json").write_text(json.dumps(entry))
            number += 1
        hours.append(hour_us)
    for wanted in (hours[0], hours[-1], *chance.sample(hours, 100)):
        files = CountingStore(tmp_path)
        found = ProofChain(files).find(wanted, hour_name(wanted))
        assert found is not None
        assert found.hour_us == wanted
        assert files.reads <= reads_max
    # An hour that was imported has an entry behind those of later hours.
    (tmp_path / f"proof/{number:08}.json").write_text(
        json.dumps(entry | {"number": number, "hour": hour_name(hours[5]), "root": "other"})
    )
    found = ProofChain(FileStore(tmp_path)).find(hours[5], "other")
    assert found is not None
    assert found.number == number
    assert ProofChain(FileStore(tmp_path)).find(hours[5], "unknown") is None
    assert ProofChain(FileStore(tmp_path)).find(hours[-1] + HOUR_US, "unknown") is None
    assert ProofChain(FileStore(tmp_path)).find(hours[0] - HOUR_US, "unknown") is None


async def test_the_open_hour_has_no_proof_yet(tmp_path: Path) -> None:
    world = await recorded(tmp_path / "history", tmp_path / "key.pem", 1)
    world.step()
    await world.recorder.flush()
    with pytest.raises(HistoryMissing, match="is not closed yet, so it has no proof"):
        onebook.history(world.root, SYMBOL, at=world.live[-1][0], proof=True)


def test_a_history_without_a_closed_hour_is_one_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(history_app, ["verify", str(tmp_path)])
    assert done.exit_code == 1
    sentence = "proof: there is no chain: no hour was closed yet, or it was deleted."
    assert done.output.strip() == sentence


def test_the_command_verifies(root: Path, key: str) -> None:
    done = CliRunner().invoke(history_app, ["verify", str(root), "--key", key])
    assert done.exit_code == 0, done.output
    assert f"0 problems in {HOURS} hours with 20 files" in done.output
    assert f"signed by {key}.\nhead " in done.output
    (root / "proof" / "00000000.json").unlink()
    done = CliRunner().invoke(history_app, ["verify", str(root)])
    assert done.exit_code == 1
    assert "proof/00000000.json: the entry is missing." in done.output
    done = CliRunner().invoke(history_app, ["verify", str(root), "--key", "nothing"])
    assert done.exit_code == 2


def test_signing_keys(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key.pem"
    made = load_signing_key(path)
    assert public_hex(load_signing_key(path)) == public_hex(made)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="Others can read the signing key"):
        load_signing_key(path)
    path.write_text("nothing")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="does not contain an Ed25519 key"):
        load_signing_key(path)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 33])
def test_merkle_paths_lead_to_the_root(count: int) -> None:
    hashes = [leaf_hash(str(each)) for each in range(count)]
    root = merkle_root(hashes)
    for at, found in enumerate(hashes):
        for side, sibling in merkle_path(hashes, at):
            other = bytes.fromhex(sibling)
            pair = other + found if side == "left" else found + other
            found = hashlib.sha256(b"\1" + pair).digest()
        assert found == root


def test_the_root_of_seven_leaves_is_that_of_certificate_transparency() -> None:
    """The inputs and the root of RFC 6962's reference tests."""
    inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657"]
    hashes = [leaf_hash(bytes.fromhex(each).decode()) for each in inputs]
    assert merkle_root(hashes).hex() == (
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"
    )
