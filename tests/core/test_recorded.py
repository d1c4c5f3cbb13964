"""Recorded frames: the checksums that exchanges sent, and Binance's books frame by frame."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.both import DIGITS, EACH, TEXT
from core.oracle import OracleBook
from onebook.core import LEVELS_MAX

pytestmark = pytest.mark.parametrize("core", EACH)

FRAME = re.compile(r"\d+\.\d+: (.*)")
BODY = re.compile(r"https://\S+[?&]symbol=(\w+)\S* -> [\d.]+: (\{.*?\})(?: header: .*)?$")
KRAKEN_DEPTH = 1_000


def frames(samples: Path, name: str) -> Iterator[Any]:
    """Every received JSON frame, with its numbers as text."""
    for line in (samples / "exchange_frames" / name).read_text().splitlines():
        if (match := FRAME.match(line)) and match[1][:1] in "[{":
            yield msgspec.json.decode(match[1])


def raw(levels: Any) -> bytes:
    return msgspec.json.encode(levels)


@pytest.mark.parametrize("name", ["KRAKEN.ws.48.0", "KRAKEN.ws.49.0", "KRAKEN.ws.50.0"])
def test_every_kraken_checksum_agrees(core: Any, samples: Path, name: str) -> None:
    books: dict[str, Any] = {}
    agreed = 0
    for frame in frames(samples, name):
        if not isinstance(frame, list) or not str(frame[-2]).startswith("book-"):
            continue
        symbol, parts = frame[-1], frame[1:-2]
        merged = {key: value for part in parts for key, value in part.items()}
        if "as" in merged:
            books[symbol] = core.Book(KRAKEN_DEPTH)
            books[symbol].replace(raw(merged["bs"]), raw(merged["as"]))
            continue
        books[symbol].apply(raw(merged.get("b", [])), raw(merged.get("a", [])))
        if "c" in merged:
            assert books[symbol].crc(DIGITS) == int(merged["c"]), frame
            agreed += 1
    assert agreed == (4_269 if name == "KRAKEN.ws.50.0" else 0)
    assert not any(book.crossed for book in books.values())


def test_every_okx_checksum_agrees(core: Any, samples: Path) -> None:
    books: dict[str, Any] = {}
    agreed = 0
    for frame in frames(samples, "OKX.ws.1.0"):
        if frame.get("arg", {}).get("channel") != "books" or "action" not in frame:
            continue
        book = books.setdefault(frame["arg"]["instId"], core.Book())
        for data in frame["data"]:
            change = book.replace if frame["action"] == "snapshot" else book.apply
            change(raw(data["bids"]), raw(data["asks"]))
            assert book.crc(TEXT) == data["checksum"] & 0xFFFFFFFF, frame
            agreed += 1
    assert agreed == 290


def test_binance_books_equal_a_plain_model_frame_by_frame(core: Any, samples: Path) -> None:
    books: dict[str, tuple[Any, OracleBook]] = {}
    for line in (samples / "exchange_frames" / "BINANCE.http.0.0").read_text().splitlines():
        if match := BODY.match(line):
            body = msgspec.json.decode(match[2])
            book, model = core.Book(), OracleBook(LEVELS_MAX)
            book.replace(raw(body["bids"]), raw(body["asks"]))
            model.replace(body["bids"], body["asks"])
            books[match[1]] = book, model
    compared = 0
    for frame in frames(samples, "BINANCE.ws.1.0"):
        data = frame.get("data", {})
        if data.get("e") != "depthUpdate":
            continue
        book, model = books[data["s"]]
        book.apply(raw(data["b"]), raw(data["a"]))
        model.apply(data["b"], data["a"])
        assert book.top(LEVELS_MAX) == model.top()
        compared += 1
    assert compared == 177
    assert len(books) == 4
