"""Peppers: the secrets under which keys and tokens are digested, in a file beside the database.

The file is created at the first start, with one pepper per line. No key works without its pepper.
The database therefore stores the ids of its peppers, so that a node with the wrong file fails at
the start instead of refusing every client.

A key can only be rehashed when a client sends it, because its text is not stored. During a rotation
the file therefore contains several peppers: `rotate_pepper` adds a new current one, `Accounts`
rehashes each key at its next use, and `retire_peppers` removes the older ones. The file always
contains every pepper that the database uses: a rotation changes the file first, retiring changes
the database first. Both can be repeated after a crash.
"""

import fcntl
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from onebook.accounts.keys import digest
from onebook.errors import ConfigError
from onebook.files import read_bounded
from onebook.store import AuditedChange, PepperRow, Store

PEPPER_BYTES: Final = 32
PEPPERS_MAX: Final = 16  # lines of the file; each costs a further look-up of unknown keys
MODE: Final = 0o600

log = logging.getLogger(__name__)


class Peppers:
    """The peppers in a node's file, and which of them the database uses.

    Args:
        known: The peppers, oldest first.
        path: Their file; it is read again when the database uses an unknown pepper.
    """

    def __init__(self, *known: bytes, path: Path | None = None) -> None:
        self._known = {pepper_id(each): each for each in known}
        self._path = path
        self._in_use = list(self._known)[:1]  # until `adopt`: for a database without peppers
        self._missing: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Peppers({', '.join(self._known)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the peppers in the file."""
        return tuple(self._known)

    @property
    def missing(self) -> tuple[str, ...]:
        """The ids of peppers that the database uses but the file lacks."""
        return self._missing

    @property
    def current_id(self) -> str:
        """The id of the pepper of new digests."""
        return self._in_use[-1]

    @property
    def current(self) -> bytes:
        """The pepper of new digests."""
        return self._known[self.current_id]

    def digest(self, text: str) -> bytes:
        """Return the digest of a key or token under the current pepper."""
        return digest(self.current, text)

    def digests(self, text: str) -> list[bytes]:
        """Return the digests of a key or token under all peppers in use, current one first."""
        return [digest(self._known[each], text) for each in reversed(self._in_use)]

    def adopt(self, rows: Sequence[PepperRow]) -> None:
        """Set the peppers that the database uses; read the file again if one is missing."""
        wanted = [row.pepper_id for row in rows if row.retired_at_ms is None]
        if not wanted:
            return
        if any(each not in self._known for each in wanted) and self._path is not None:
            self._read_again(self._path)
        found = [each for each in wanted if each in self._known]
        missing = tuple(each for each in wanted if each not in self._known)
        if missing and missing != self._missing:
            log.error(
                "The pepper file %s lacks the pepper %s: keys made or rotated since then are "
                "refused. Copy the file from the machine where the pepper was rotated.",
                self._path,
                ", ".join(missing),
            )
        self._missing = missing
        if found:  # otherwise keep the previous ones
            self._in_use = found

    def _read_again(self, path: Path) -> None:
        try:
            known = _read(path)
        except (OSError, ConfigError) as error:
            if not self._missing:
                log.error("Cannot reload the pepper file %s: %s", path, error)
            return
        self._known |= {pepper_id(each): each for each in known}


def pepper_id(pepper: bytes) -> str:
    """Return the id of a pepper, which does not reveal the pepper."""
    return hmac.digest(pepper, b"onebook: which pepper", "sha256")[:8].hex()


def load_pepper(path: Path) -> Peppers:
    """Read the pepper file; create it with a first pepper if it does not exist.

    Raises:
        ConfigError: The file is readable by others, contains no pepper, or cannot be read.
    """
    try:
        _create(path)
        return Peppers(*_read(path), path=path)
    except OSError as error:
        raise ConfigError(f"The pepper file {path} cannot be used: {error.strerror}.") from None


async def require_same_pepper(store: Store, peppers: Peppers, now_ms: int = 0) -> None:
    """Require every pepper that the database uses; register the first one in a new database.

    Raises:
        ConfigError: The file lacks a pepper.
    """
    rows = await store.accounts.list_peppers()
    if not rows:
        await store.accounts.first_pepper(peppers.current_id, now_ms)
        rows = await store.accounts.list_peppers()
    known = set(peppers.ids)
    missing = [r.pepper_id for r in rows if r.retired_at_ms is None and r.pepper_id not in known]
    if len(missing) == sum(row.retired_at_ms is None for row in rows):
        raise ConfigError(
            "The pepper file does not belong to this database: restore the one that was beside it."
        )
    if missing:
        raise ConfigError(
            f"The pepper file lacks the pepper {', '.join(missing)} of this database: copy the "
            "file from the machine where the pepper was rotated, or from a backup made since then."
        )
    peppers.adopt(rows)


def waiting_pepper(path: Path, rows: Sequence[PepperRow]) -> str | None:
    """The id of a prepared pepper: in the file, but not yet in the database."""
    ids = {row.pepper_id for row in rows}
    return next((each for each in map(pepper_id, _read(path)) if each not in ids), None)


def prepare_pepper(path: Path, rows: Sequence[PepperRow]) -> str:
    """Add a pepper to the file unless one is already prepared; return its id.

    Raises:
        ConfigError: The file cannot be changed, or holds too many peppers.
    """
    if waiting := waiting_pepper(path, rows):
        return waiting
    known = _read(path)
    if len(known) >= PEPPERS_MAX:
        raise ConfigError(
            f"The pepper file {path} holds {len(known)} peppers, the maximum: retire the "
            "old ones first (onebook keys rotate-pepper --retire)."
        )
    made = secrets.token_bytes(PEPPER_BYTES)
    _write(path, [*known, made])
    return pepper_id(made)


async def rotate_pepper(store: Store, path: Path, change: AuditedChange) -> str:
    """Make a new pepper current, first in the file, then in the database; return its id.

    Raises:
        ConfigError: The file cannot be changed, or another process changes it.
    """
    with changing(path):
        made = prepare_pepper(path, await store.accounts.list_peppers())
        await store.accounts.rotate_pepper(made, change)
    return made


async def retire_peppers(store: Store, path: Path, change: AuditedChange) -> list[str]:
    """Retire all peppers but the current one, first in the database, then in the file.

    Returns:
        The ids of keys with a text that no longer works: it was not used since the rotation.

    Raises:
        ConfigError: The file cannot be changed, or another process changes it.
    """
    with changing(path):
        key_ids = await store.accounts.retire_peppers(change)
        remove_retired(path, await store.accounts.list_peppers())
    return key_ids


def remove_retired(path: Path, rows: Sequence[PepperRow]) -> None:
    """Remove the retired peppers from the file."""
    retired = {row.pepper_id for row in rows if row.retired_at_ms is not None}
    known = _read(path)
    kept = [each for each in known if pepper_id(each) not in retired]
    if len(kept) < len(known):
        _write(path, kept)


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Lock the pepper file during a change, so that no process overwrites the change of another.

    Raises:
        ConfigError: Another process is changing the file, or it cannot be used.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(folder)
    except BlockingIOError:
        raise ConfigError(
            f"Another command is changing the pepper file {path}; try again."
        ) from None
    except OSError as error:
        raise ConfigError(f"The pepper file {path} cannot be used: {error.strerror}.") from None


def _create(path: Path) -> None:
    """Create the file atomically; two nodes may do so at once."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _drafted(path, [secrets.token_bytes(PEPPER_BYTES)]) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            return  # another node created it first


def _write(path: Path, peppers: Sequence[bytes]) -> None:
    """Replace the file atomically and sync it to disk; keep its owner if root writes it."""
    before = path.stat()
    with _drafted(path, peppers) as draft:
        if before.st_uid != os.geteuid():
            os.chown(draft, before.st_uid, before.st_gid)
        os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _drafted(path: Path, peppers: Sequence[bytes]) -> Iterator[Path]:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE), "w") as file:
            file.writelines(f"{each.hex()}\n" for each in peppers)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _read(path: Path) -> list[bytes]:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigError(f"Others can read the pepper file {path}: chmod 600 it.")
    try:
        lines = read_bounded(path).decode("ascii").split()
        peppers = [bytes.fromhex(line) for line in lines]
    except ValueError:
        peppers = []
    sound = 0 < len(peppers) <= PEPPERS_MAX
    if not sound or any(len(each) != PEPPER_BYTES for each in peppers):
        raise ConfigError(
            f"The pepper file {path} does not hold {PEPPER_BYTES} bytes in hex on each line."
        )
    return peppers
