"""Every decoder of foreign bytes keeps its limits and raises its one exception (`decoders.py`)."""

import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

from contract.decoders import DECODERS, ELSEWHERE, OURS

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "src/onebook"
PROGRAM: Final = Path(__file__).with_name("decoders.py")
PLACE_BYTES: Final = 512
INPUTS: Final = os.environ.get("ONEBOOK_FUZZ_INPUTS", "12")  # of each kind and seed
SEED: Final = os.environ.get("ONEBOOK_FUZZ_SEED", "1")
PATIENCE_S: Final = float(os.environ.get("ONEBOOK_FUZZ_PATIENCE_S", "170"))
# Calls that make values of bytes; encoders have other names.
DECODES: Final = re.compile(
    r"json\.loads?\(|(?:json|msgpack)\.(?:decode\(|Decoder\()|(?<!\w)json\(\)|\.json\(\)"
    r"|tomllib\.|read_toml\(|read_bounded\(|read_body\(|\binflated\(|decompress(?:obj)?\("
    r"|tarfile\.(?:open\(path|TarInfo\.frombuf)|zipfile|pickle\.|yaml\.|csv\.(?:reader|DictReader)"
    r"|literal_eval\(|load_pem|parsedate|strptime\(|fromisoformat\(|b64decode\(|fromhex\("
    r"|unpack(?:_from)?\(|ParseFromString|text_string_to_metric|\.read_text\(|\.read_bytes\("
)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded as Linux does it")
@pytest.mark.timeout(PATIENCE_S + 10)
def test_no_bytes_raise_another_exception_hang_or_take_memory(tmp_path: Path) -> None:
    """In its own process, without the debug hooks of `PYTHONDEVMODE`, which use memory."""
    place = tmp_path / "place"
    place.write_bytes(bytes(PLACE_BYTES))
    done = subprocess.run(
        [sys.executable, PROGRAM, place, SEED, INPUTS],
        env={**os.environ, "PYTHONDEVMODE": "", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    while_reading = place.read_bytes().decode(errors="replace").strip()
    assert done.returncode == 0, f"seed {SEED}: {done.stderr}while reading {while_reading}"
    assert not done.stdout, f"seed {SEED}: {done.stdout}"


def decoding() -> dict[str, list[str]]:
    """The lines of each source file that call a decoder."""
    found: dict[str, list[str]] = {}
    for path in sorted((*SOURCES.rglob("*.py"), *SOURCES.rglob("*.pyx"))):
        lines = [line.strip() for line in path.read_text().splitlines() if DECODES.search(line)]
        if lines:
            found[path.relative_to(SOURCES).as_posix()] = lines
    return found


def test_every_decoder_of_the_package_is_in_a_table() -> None:
    tabled = {source for decoder in DECODERS for source in decoder.sources}
    known = (*tabled, *ELSEWHERE, *OURS)
    missing = {
        source: lines
        for source, lines in decoding().items()
        if not any(fnmatch(source, each) for each in known)
    }
    assert not missing, "decoders without a row in contract/decoders.py: " + "\n".join(
        f"{source}: {lines}" for source, lines in missing.items()
    )


def test_the_tables_name_files_and_suites_that_exist() -> None:
    tabled = {source for decoder in DECODERS for source in decoder.sources}
    for each in (*tabled, *ELSEWHERE, *OURS):
        assert any(SOURCES.glob(each)), each
    assert not tabled & {*ELSEWHERE, *OURS}
    for why in ELSEWHERE.values():
        for suite in re.findall(r"\w+/test_\w+\.py", why):
            assert (ROOT / "tests" / suite).is_file(), suite
    names = [decoder.name for decoder in DECODERS]
    assert len(names) == len({*names})


@pytest.mark.parametrize(
    "line",
    ["json.loads(x)", "msgpack.Decoder(K)", "path.read_text()", "zlib.decompressobj()", "r.json()"],
)
def test_a_decoding_line_is_found(line: str) -> None:
    assert DECODES.search(line)


@pytest.mark.parametrize("line", ["json.encode(x)", "text.encode()", "tarfile.open(fileobj=file)"])
def test_another_line_is_not(line: str) -> None:
    assert not DECODES.search(line)
