"""Check a proof of `onebook history show --proof`: python verify_history.py PROOF KEY [FOLDER]

KEY is the operator's public key in hex. With the FOLDER, the files that the proof names are checked
as well: from those files, and no others, the book of that moment is rebuilt.
"""

import hashlib
import json
import pathlib
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def root_of(line: str, path: list[list[str]]) -> bytes:
    found = sha256(b"\0", line.encode())
    for side, sibling in path:
        other = bytes.fromhex(sibling)
        found = sha256(b"\1", other, found) if side == "left" else sha256(b"\1", found, other)
    return found


def check(proof: dict, key: str, folder: pathlib.Path | None) -> None:
    for hour in proof["hours"]:
        entry = json.loads(hour["entry"])
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        try:
            public.verify(bytes.fromhex(hour["signature"] or ""), hour["entry"].encode())
        except InvalidSignature:
            raise SystemExit(f"{entry['hour']}: the signature is wrong") from None
        for file in hour["files"]:
            digest, size, _, path = file["line"].split(" ", 3)
            if root_of(file["line"], file["path"]).hex() != entry["root"]:
                raise SystemExit(f"{path}: the hour {entry['hour']} does not contain this file")
            if not path.startswith(entry["hour"].replace("-", "/").replace("T", "/") + "/"):
                raise SystemExit(f"{path}: the file is of another hour than {entry['hour']}")
            if folder is not None:
                content = (folder / path).read_bytes()
                if len(content) != int(size) or sha256(content).hex() != digest:
                    raise SystemExit(f"{path}: the file was changed")
            print("ok", path, digest)


if __name__ == "__main__":
    text = pathlib.Path(sys.argv[1]).read_text()
    check(json.loads(text), sys.argv[2], pathlib.Path(sys.argv[3]) if sys.argv[3:] else None)
