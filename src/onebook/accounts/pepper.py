"""The pepper: the secret under which keys and tokens are digested, in a file beside the database.

Created at the first start. Without it every key is unusable, so the database stores which pepper it
belongs to: a node with the wrong one does not start, instead of refusing every client.
"""

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from onebook.errors import ConfigError
from onebook.files import read_bounded
from onebook.store import Store

PEPPER_BYTES: Final = 32
MODE: Final = 0o600
FACT: Final = "pepper"


def load_pepper(path: Path) -> bytes:
    """Read the pepper, or make it if there is none yet.

    Raises:
        ConfigError: The file is readable by others, is not a pepper, or cannot be read.
    """
    try:
        _create(path)
        return _read(path)
    except OSError as error:
        raise ConfigError(f"The pepper file {path} cannot be used: {error.strerror}.") from None


def _create(path: Path) -> None:
    """Create the file atomically, also when two nodes do so at once."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE), "w") as file:
            file.write(secrets.token_hex(PEPPER_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return  # another node was first
    finally:
        draft.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigError(f"Others can read the pepper file {path}: chmod 600 it.")
    try:
        pepper = bytes.fromhex(read_bounded(path).decode().strip())
    except ValueError:
        pepper = b""
    if len(pepper) != PEPPER_BYTES:
        raise ConfigError(f"The pepper file {path} does not hold {PEPPER_BYTES} bytes in hex.")
    return pepper


async def require_same_pepper(store: Store, pepper: bytes) -> None:
    """Refuse a pepper that the database was not made with.

    Raises:
        ConfigError: It was made with another one.
    """
    mark = hmac.digest(pepper, b"onebook: which pepper", "sha256")[:8].hex()
    if not hmac.compare_digest(await store.fact(FACT, mark), mark):
        raise ConfigError(
            "The pepper file does not belong to this database: restore the one that was beside it."
        )
