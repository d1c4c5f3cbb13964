"""Reads the recorded sessions; the format is described beside them."""

import re
from collections.abc import Iterator
from pathlib import Path

FRAME = re.compile(r"(\d+\.\d+): (.*)")
BODY = re.compile(
    r"https://\S+[?&](?:symbol|currency_pair)=([\w-]+)\S* -> [\d.]+: (\{.*?\})(?: header: .*)?$"
)


def frames(samples: Path, name: str) -> list[bytes]:
    """The messages of the exchange, in order."""
    return [frame for _, frame in timed_frames(samples, name)]


def timed_frames(samples: Path, name: str) -> list[tuple[float, bytes]]:
    """The messages of the exchange and their arrival, in Unix seconds."""
    lines = (samples / "exchange_frames" / name).read_text().splitlines()
    return [(float(match[1]), match[2].encode()) for match in map(FRAME.match, lines) if match]


def bodies(samples: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """REST snapshots and their native names."""
    for line in (samples / "exchange_frames" / name).read_text().splitlines():
        if match := BODY.match(line):
            yield match[1], match[2].encode()
