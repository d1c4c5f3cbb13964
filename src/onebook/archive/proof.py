"""Manifests of closed hours, their signed chain, and proofs that a file belongs to it.

    2026/11/27/14/manifest.txt   a line for each file of the hour: SHA-256, bytes, rows, path
    proof/00000012.json          entry 12 of the chain: an hour's Merkle root, or a deletion
    proof/00000012.sig           its Ed25519 signature, if the history is signed

An entry has the SHA-256 of the entry before it. The leaves of the Merkle tree (RFC 6962) are the
lines of the manifest, so that a proof needs only the lines of its files. Entries remain when hours
are deleted: an entry says beforehand from which hour on files are kept. An hour that is closed
again gets another entry, which replaces the earlier one.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from onebook.archive.format import HOUR_US, hour_folder
from onebook.archive.stores import FileStore
from onebook.errors import ConfigError
from onebook.files import read_bounded

VERSION: Final = 1
MANIFEST: Final = "manifest.txt"
PROOF: Final = "proof"
FIND_TURNS: Final = 40
HOUR_FORMAT: Final = "%Y-%m-%dT%H"
KEY_MODE: Final = 0o600


class ProofEntry(NamedTuple):
    """An entry of the chain."""

    number: int
    previous: str  # SHA-256 of the entry before; empty in the first
    hour: str | None  # such as 2026-11-27T14; None: hours were deleted
    root: str | None  # Merkle root of the hour's manifest
    kept_from: str | None  # the oldest hour whose files are kept; None: no hour was deleted yet
    key: str | None  # the public key of the signature
    text: bytes

    @property
    def signed(self) -> bool:
        """Whether it has a signature."""
        return self.key is not None

    @property
    def hour_us(self) -> int | None:
        """The start of its hour."""
        if self.hour is None:
            return None
        moment = datetime.strptime(self.hour + "Z", HOUR_FORMAT + "%z")
        return round(moment.timestamp()) * 1_000_000

    @property
    def folder(self) -> str:
        """The folder of its hour."""
        return (self.hour or "").replace("-", "/").replace("T", "/")


def hour_name(hour_us: int) -> str:
    """Return an hour as entries name it."""
    return f"{datetime.fromtimestamp(hour_us // 1_000_000, UTC):{HOUR_FORMAT}}"


# Keys


def load_signing_key(path: Path) -> Ed25519PrivateKey:
    """Read the key that signs a history (PEM); create it if it does not exist.

    Raises:
        ConfigError: The file is readable by others, has no Ed25519 key, or cannot be used.
    """
    try:
        if not path.exists():
            _create_key(path)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError(f"Others can read the signing key {path}: chmod 600 it.")
        key = serialization.load_pem_private_key(read_bounded(path), None)
    except OSError as error:
        raise ConfigError(f"The signing key {path} cannot be used: {error.strerror}.") from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} does not contain an Ed25519 key in PEM without a password.")
    return key


def _create_key(path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, KEY_MODE), "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process created it first
    finally:
        draft.unlink(missing_ok=True)


def public_hex(key: Ed25519PrivateKey) -> str:
    """Return the public key of a signing key."""
    return key.public_key().public_bytes_raw().hex()


def public_key(text: str) -> Ed25519PublicKey:
    """Read a public key: 64 hexadecimal digits, or a PEM file.

    Raises:
        ValueError: It is neither.
    """
    try:
        if len(text) == 64:
            return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
        key = serialization.load_pem_public_key(read_bounded(Path(text)))
    except (OSError, ValueError):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{text!r} is neither an Ed25519 public key in hex nor its PEM file.")
    return key


# Merkle trees (RFC 6962)


def leaf_hash(leaf: str) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\0" + leaf.encode()).digest()


def merkle_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root over hashes of leaves."""
    if len(hashes) < 2:
        return hashes[0] if hashes else hashlib.sha256().digest()
    middle = _middle(len(hashes))
    return _node(merkle_root(hashes[:middle]), merkle_root(hashes[middle:]))


def merkle_path(hashes: Sequence[bytes], at: int) -> list[tuple[str, str]]:
    """Return the siblings of a leaf from the bottom up, each with its side."""
    if len(hashes) < 2:
        return []
    middle = _middle(len(hashes))
    left, right = hashes[:middle], hashes[middle:]
    if at < middle:
        return [*merkle_path(left, at), ("right", merkle_root(right).hex())]
    return [*merkle_path(right, at - middle), ("left", merkle_root(left).hex())]


def _middle(count: int) -> int:
    """Return the largest power of two below the count."""
    return 1 << (count - 1).bit_length() - 1


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


# The chain


class ProofChain:
    """The entries in a place, oldest first."""

    def __init__(self, files: FileStore) -> None:
        self._files = files

    @staticmethod
    def path(number: int, suffix: str = ".json") -> str:
        """Return the path of an entry."""
        return f"{PROOF}/{number:08}{suffix}"

    def numbers(self) -> list[int]:
        """Return the numbers of all entries."""
        names = (Path(each) for each in self._files.files(PROOF))
        return sorted(
            int(each.stem) for each in names if each.suffix == ".json" and each.stem.isdecimal()
        )

    def entry(self, number: int) -> ProofEntry:
        """Read an entry.

        Raises:
            OSError: It cannot be read.
            ValueError: It is not an entry.
        """
        return parsed(self._files.read(self.path(number)))

    def entries(self, since: int = 0) -> list[ProofEntry]:
        """Read the entries from a number on."""
        return self._files.each(self.entry, (each for each in self.numbers() if each >= since))

    def has(self, number: int, text: bytes) -> bool:
        """Return whether it has this entry."""
        try:
            return self._files.read(self.path(number)) == text
        except FileNotFoundError:
            return False

    def signature(self, number: int) -> bytes | None:
        """Return the signature of an entry, if there is one."""
        try:
            return self._files.read(self.path(number, ".sig"))
        except FileNotFoundError:
            return None

    def find(self, hour_us: int, root: str) -> ProofEntry | None:
        """Return the entry of an hour with this root.

        Entries are nearly in the order of their hours and at a constant rate, so few are read; all
        are read if the entry is not where its hour belongs.
        """
        low: tuple[int, int] | None = None  # number and hour of an entry before the wanted one
        high: tuple[int, int | None] | None = None  # of one behind it; without an hour: the end
        number, pace = 0, 1.0  # entries an hour
        for turn in range(FIND_TURNS):
            at, entry = self._sealed(number)
            found_us = None if entry is None else entry.hour_us
            if found_us is None or found_us > hour_us:
                high = number, found_us
            elif found_us == hour_us and entry is not None and entry.root == root:
                return entry
            else:
                if low is not None and found_us > low[1]:
                    pace = (at - low[0]) * HOUR_US / (found_us - low[1])
                low = at, found_us
            if low is None or (high is not None and high[0] <= low[0] + 1):
                break
            number = _guess(low, high, hour_us, pace)
            if high is not None and turn % 3 == 2:  # because the rate may change
                number = (low[0] + high[0]) // 2
        entry = self.latest().get(hour_name(hour_us))
        return entry if entry is not None and entry.root == root else None

    def _sealed(self, number: int) -> tuple[int, ProofEntry | None]:
        """Return the first entry from a number on that has an hour, and its number."""
        while True:
            try:
                entry = self.entry(number)
            except FileNotFoundError:
                return number, None
            if entry.hour is not None:
                return number, entry
            number += 1

    def latest(self) -> dict[str, ProofEntry]:
        """Return the entry of each hour that is in force."""
        return {each.hour: each for each in self.entries() if each.hour is not None}


def _guess(
    low: tuple[int, int], high: tuple[int, int | None] | None, hour_us: int, pace: float
) -> int:
    """Return the number of an hour's entry between two others, at their rate if both are known."""
    if high is not None and high[1] is not None:
        pace = (high[0] - low[0]) * HOUR_US / (high[1] - low[1])
    number = low[0] + max(round((hour_us - low[1]) / HOUR_US * pace), 1)
    return number if high is None else min(number, high[0] - 1)


def parsed(text: bytes) -> ProofEntry:
    """Read the text of an entry.

    Raises:
        ValueError: It is not one.
    """
    try:
        found = json.loads(text)
        entry = ProofEntry(
            found["number"],
            found["previous"],
            found["hour"],
            found["root"],
            found["kept_from"],
            found["key"],
            text,
        )
        entry.hour_us  # noqa: B018 - raises if it is not an hour
    except (KeyError, TypeError, AttributeError):
        raise ValueError("it is not an entry of a chain") from None
    return entry


class Sealer:
    """Writes manifests and entries into a folder.

    Args:
        root: The folder of the history.
        write: Writes a file completely or not at all.
        key: Signs the entries, if given.
    """

    def __init__(
        self,
        root: Path,
        write: Callable[[Path, bytes], None],
        key: Ed25519PrivateKey | None = None,
    ) -> None:
        self._root, self._write, self._key = root, write, key
        self._files = FileStore(root)
        self._chain = ProofChain(self._files)

    def seal(self, hour_us: int) -> None:
        """Write the manifest of a closed hour and its entry, unless the chain has them already.

        Raises:
            OSError: They cannot be written.
        """
        hour = hour_name(hour_us)
        folder = hour.replace("-", "/").replace("T", "/")
        lines = [
            _line(self._files, path)
            for path in sorted(self._files.files(folder))
            if path.endswith(".parquet")
        ]
        text = "".join(f"{each}\n" for each in lines).encode()
        root = merkle_root([*map(leaf_hash, lines)]).hex()
        path = self._root / folder / MANIFEST
        if path.exists() and path.read_bytes() == text:
            known = self._chain.latest().get(hour)
            if known is not None and known.root == root:
                return
        self._write(path, text)
        self._append(hour, root, None)

    def announce_deletion(self, kept_from_us: int) -> None:
        """Write that the files of hours before this one are deleted.

        Raises:
            OSError: It cannot be written.
        """
        self._append(None, None, hour_name(kept_from_us))

    def _append(self, hour: str | None, root: str | None, kept_from: str | None) -> None:
        numbers = self._chain.numbers()
        before = self._chain.entry(numbers[-1]) if numbers else None
        number = 0 if before is None else before.number + 1
        fields = {
            "version": VERSION,
            "number": number,
            "previous": "" if before is None else hashlib.sha256(before.text).hexdigest(),
            "hour": hour,
            "root": root,
            "kept_from": kept_from or (before.kept_from if before else None),
            "key": None if self._key is None else public_hex(self._key),
        }
        text = json.dumps(fields, separators=(",", ":")).encode()
        if self._key is not None:  # before the entry, so that no entry lacks its signature
            self._write(self._root / self._chain.path(number, ".sig"), self._key.sign(text))
        self._write(self._root / self._chain.path(number), text)


def _line(files: FileStore, path: str) -> str:
    digest, size = _digest(files, path)
    return f"{digest} {size} {_row_count(files, path)} {path}"


def _digest(files: FileStore, path: str) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for chunk in files.chunks(path):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def _row_count(files: FileStore, path: str) -> int:
    with files.open(path) as file:
        return int(pq.read_metadata(file).num_rows)


# Verification


class VerifiedHistory(NamedTuple):
    """What a verification found.

    Args:
        entries: Number of entries in the chain.
        hours: Number of hours whose files were checked.
        files: Number of files checked.
        deleted: Number of hours that were deleted as the chain announces.
        head: SHA-256 of the last entry.
        keys: The public keys of the signatures.
        problems: A sentence for each problem, beginning with its file.
    """

    entries: int
    hours: int
    files: int
    deleted: int
    head: str
    keys: tuple[str, ...]
    problems: tuple[str, ...]


def verify(
    files: FileStore,
    key: Ed25519PublicKey | None = None,
    head: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> VerifiedHistory:
    """Check every entry, signature, manifest and file of a history.

    Args:
        files: The history.
        key: The operator's key: every entry must be signed with it.
        head: SHA-256 of an entry that is known to be in the chain: nothing up to it was cut off.
        progress: Called with the number of checked hours, and of all.

    Raises:
        OSError: The history cannot be read.
    """
    problems: list[str] = []
    entries = [*_checked_entries(files, key, problems)]
    digests = [hashlib.sha256(each.text).hexdigest() for each in entries]
    if head is not None and head.lower() not in digests:
        problems.append(f"{PROOF}: the chain does not contain the entry {head}.")
    latest = {each.hour: each for each in entries if each.hour is not None}
    kept_from = entries[-1].kept_from if entries else None
    present = {*_hours(files)}
    problems += [
        f"{each.replace('-', '/').replace('T', '/')}: no entry of the chain has this hour."
        for each in sorted(present - {*latest})
    ]
    checked = deleted = count = 0
    for done, (hour, entry) in enumerate(sorted(latest.items())):
        progress(done, len(latest))
        if hour in present:
            checked += 1
            count += _check_hour(files, entry, problems)
        elif kept_from is not None and hour < kept_from:
            deleted += 1
        else:
            problems.append(f"{entry.folder}: the hour is missing.")
    progress(len(latest), len(latest))
    keys = tuple(dict.fromkeys(each.key for each in entries if each.key is not None))
    return VerifiedHistory(
        len(entries), checked, count, deleted, digests[-1] if digests else "", keys,
        tuple(problems),
    )  # fmt: skip


def _checked_entries(
    files: FileStore, key: Ed25519PublicKey | None, problems: list[str]
) -> Iterator[ProofEntry]:
    chain = ProofChain(files)
    numbers = chain.numbers()
    if not numbers:
        problems.append(f"{PROOF}: there is no chain: no hour was closed yet, or it was deleted.")
        return
    previous = ""
    for number in range(numbers[-1] + 1):
        path = chain.path(number)
        try:
            entry = chain.entry(number)
        except FileNotFoundError:
            problems.append(f"{path}: the entry is missing.")
            previous = ""
            continue
        except ValueError:
            problems.append(f"{path}: it is not an entry of a chain.")
            previous = ""
            continue
        if entry.number != number:
            problems.append(f"{path}: it has the number {entry.number}.")
        if entry.previous != previous and (previous or number == 0):
            problems.append(f"{path}: the chain is cut; it does not follow the entry before it.")
        problem = _signature_problem(entry, chain.signature(number), key)
        if problem:
            problems.append(f"{path}: {problem}")
        previous = hashlib.sha256(entry.text).hexdigest()
        yield entry


def _signature_problem(
    entry: ProofEntry, signature: bytes | None, key: Ed25519PublicKey | None
) -> str | None:
    if key is not None and entry.key != key.public_bytes_raw().hex():
        return f"it is signed with another key, {entry.key}." if entry.key else "it is not signed."
    if entry.key is None:
        return None
    if signature is None:
        return "its signature is missing."
    try:
        known = Ed25519PublicKey.from_public_bytes(bytes.fromhex(entry.key))
        known.verify(signature, entry.text)
    except (InvalidSignature, ValueError):
        return "its signature is wrong."
    return None


def _hours(files: FileStore) -> Iterator[str]:
    for year in files.folders():
        if not (len(year) == 4 and year.isdigit()):
            continue
        for month in files.folders(year):
            for day in files.folders(f"{year}/{month}"):
                for hour in files.folders(f"{year}/{month}/{day}"):
                    yield f"{year}-{month}-{day}T{hour}"


def _check_hour(files: FileStore, entry: ProofEntry, problems: list[str]) -> int:
    """Check the files of an hour; return how many it has."""
    manifest = f"{entry.folder}/{MANIFEST}"
    found = files.files(entry.folder)
    try:
        lines = _lines(files.read(manifest))
    except (FileNotFoundError, ValueError):
        problems.append(f"{manifest}: the manifest is missing or unreadable.")
        return 0
    if merkle_root([*map(leaf_hash, lines)]).hex() != entry.root:
        problems.append(f"{manifest}: the manifest is not the one in the chain.")
    listed = {manifest}
    for line in lines:
        parts = line.split(" ", 3)
        if len(parts) != 4:
            problems.append(f"{manifest}: a line is not one of a manifest: {line!r}.")
            continue
        digest, _, rows, path = parts
        listed.add(path)
        if path not in found:
            problems.append(f"{path}: the file is missing.")
        elif _digest(files, path)[0] != digest:
            problems.append(f"{path}: {_difference(files, path, rows)}")
    problems += [f"{each}: the manifest lacks this file." for each in sorted({*found} - listed)]
    return len(lines)


def sizes(manifest: bytes) -> dict[str, int]:
    """Return the bytes of each file of a manifest, by path.

    Raises:
        ValueError: It is not a manifest.
    """
    parts = (each.split(" ", 3) for each in _lines(manifest))
    return {path: int(size) for _, size, _, path in parts}


def _lines(manifest: bytes) -> list[str]:
    """Return the lines of a manifest, of which exactly these bytes are the text.

    Raises:
        ValueError: It is not text, or does not end with a line's end.
    """
    *lines, rest = manifest.decode().split("\n")
    if rest:
        raise ValueError("the last line has no end")
    return lines


def _difference(files: FileStore, path: str, rows: str) -> str:
    try:
        count = _row_count(files, path)
    except (pa.ArrowException, OSError):
        return "the file was changed; it is no longer readable."
    if str(count) != rows:
        return f"the file was changed; it has {count} rows instead of {rows}."
    return "the file was changed."


# Proofs of answers


def inclusion(files: FileStore, hours: Iterable[int], paths: Iterable[str]) -> dict[str, Any]:
    """Return a proof that files are in the chain, which examples/verify_history.py checks.

    Raises:
        LookupError: An hour is not closed yet, or a manifest lacks a file.
    """
    chain, wanted = ProofChain(files), {*paths}
    proven: list[dict[str, Any]] = []
    for hour_us in sorted(hours):
        hour = hour_name(hour_us)
        open_hour = LookupError(f"The hour {hour} is not closed yet, so it has no proof.")
        try:
            lines = _lines(files.read(f"{hour_folder(hour_us)}/{MANIFEST}"))
        except FileNotFoundError:
            raise open_hour from None
        hashes = [*map(leaf_hash, lines)]
        entry = chain.find(hour_us, merkle_root(hashes).hex())
        if entry is None:
            raise open_hour
        signature = chain.signature(entry.number) if entry.signed else None
        found = {line.split(" ", 3)[3]: at for at, line in enumerate(lines)}
        mine = sorted(each for each in wanted if each.startswith(entry.folder + "/"))
        if missing := [each for each in mine if each not in found]:
            raise LookupError(f"The manifest of the hour {hour} lacks {missing[0]}.")
        proven.append(
            {
                "entry": entry.text.decode(),
                "signature": None if signature is None else signature.hex(),
                "files": [
                    {"line": lines[found[each]], "path": merkle_path(hashes, found[each])}
                    for each in mine
                ],
            }
        )
    return {"version": VERSION, "hours": proven}
