"""Secrets that must never be written, and a search for them in everything a node wrote."""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

PART_CHARS = 16  # a secret that is cut off is still one: so much of its random part is searched for
PREFIXES = ("ob_live_", "obs_")


class Canaries:
    """Secrets by name; each is searched for in every encoding."""

    def __init__(self) -> None:
        self._forms: dict[bytes, str] = {}

    def add(self, name: str, secret: str | bytes) -> None:
        raw = secret.encode() if isinstance(secret, str) else secret
        for form in forms(raw):
            self._forms[form] = name
        if isinstance(secret, str):
            for prefix in PREFIXES:
                secret = secret.removeprefix(prefix)
            self._forms[secret[:PART_CHARS].encode()] = name

    def found_in(self, content: bytes) -> set[str]:
        """The names of the secrets in some bytes."""
        return {name for form, name in self._forms.items() if form in content}

    def found_in_files(self, paths: Iterable[Path]) -> dict[str, set[str]]:
        """The same per file, for files with secrets."""
        found = {path.name: self.found_in(path.read_bytes()) for path in paths}
        return {name: secrets for name, secrets in found.items() if secrets}


def forms(raw: bytes) -> Iterator[bytes]:
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield quote(raw).encode()
    yield repr(raw)[2:-1].encode()
    for encode in (b64encode, urlsafe_b64encode):
        yield encode(raw).rstrip(b"=")
