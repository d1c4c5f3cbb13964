"""The credentials file of NATS (.creds): a user's JWT and the seed that signs for it.

nats-py reads the file itself whenever it connects, but never returns from one without a JWT:
https://github.com/nats-io/nats.py/blob/v2.16.0/nats/src/nats/aio/client.py (_read_creds_user_jwt).
So it gets the text from here, checked.
"""

from collections import UserString
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from onebook.files import read_bounded

JWT: Final = "NATS USER JWT"
SEED: Final = "USER NKEY SEED"


class CredentialsFile(UserString):
    """The text of a credentials file as nats-py takes it, read anew for each connection.

    A file that is replaced counts from the next connection on; one that cannot be used meanwhile
    leaves the last that could.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has no JWT, or no seed that signs; the message says which.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = text_of(path)

    def __repr__(self) -> str:
        return f"<credentials of {self._path}>"

    @property
    def data(self) -> str:  # type: ignore[override]
        """The credentials as of now."""
        with suppress(OSError, ValueError):
            self._text = text_of(self._path)
        return self._text


def text_of(path: Path) -> str:
    """Read a file and return its two parts, with the line ends that nats-py expects.

    Raises:
        OSError: The file cannot be read.
        ValueError: A part is missing, or the seed is none.
    """
    import nkeys

    lines = read_bounded(path).decode("ascii", "replace").splitlines()
    jwt, seed = _part(lines, JWT), _part(lines, SEED)
    try:
        nkeys.from_seed(bytearray(seed.encode()))
    except nkeys.NkeysError:
        raise ValueError("its seed is not valid") from None
    return "".join(
        f"-----BEGIN {name}-----\n{value}\n------END {name}------\n"
        for name, value in ((JWT, jwt), (SEED, seed))
    )


def _part(lines: list[str], name: str) -> str:
    """Return the line behind the one that begins a part."""
    for begin, value in pairwise(lines):
        if f"BEGIN {name}" in begin and value.strip():
            return value.strip()
    raise ValueError(f"it has no {name} (nsc writes both parts of a .creds file)")
