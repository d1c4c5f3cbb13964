"""Example books of the documentation page, encoded by the core."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from onebook import core

OKX: Final = (b'[["100.5","1.50"],["100","2"]]', b'[["101","3"]]')
KRAKEN: Final = (b'[["100.5","0.25"]]', b'[["102","0.125"]]')
CHANGE: Final = (b'[["100","0"],["99.5","4"]]', b'[["101","2.5"]]')  # the next frame of okx
NAMES: Final = ("kraken", "okx")
DEPTH: Final = 20

FORMS: Final = """\
`levels` and `split` determine the form of a level. Numbers are exact decimals:
`value` is price x amount, cut to 10 decimals; the volumes are sums over the delivered levels;
values of an empty side are null.
"""
DELTAS: Final = """\
With `mode: delta` the first update is the whole view; every later message
contains only the changed levels. Each level replaces the one with the same price; an amount of 0
removes the level. `market_stats`, `stale_exchanges` and, on request, `ages`, `coverage` and `fill`
always describe the whole view.
If `previous_update_number` is not the number of the previous
update, or the checksum differs, send `resync` and continue from the update that
answers it.
"""
CHECKSUM: Final = """\
Apply the delta, then take the 25 best bids, best first, and the 25 best asks, best first.
Write each as `price:amount`, join all with `:`, and compute the CRC-32 (zlib's, unsigned) of
that text. Numbers are written as in the messages, without exponents or trailing zeros, so keep
their text when you decode the JSON. `split` does not change the checksum. For the book above:
"""
CHECKSUM_CODE: Final = """\
from zlib import crc32

def checksum(bids, asks):  # dicts of price text to amount text
    best = sorted(bids.items(), key=lambda level: -float(level[0]))[:25]
    best += sorted(asks.items(), key=lambda level: float(level[0]))[:25]
    return crc32(":".join(f"{price}:{amount}" for price, amount in best).encode())
"""


def forms() -> Iterator[tuple[str, str]]:
    """Yield a sample book for each combination of the options `levels` and `split`."""
    for levels in ("object", "array"):
        for split in (False, True):
            view, _ = _merged(arrays=levels == "array", split=split)
            options = f"levels: {levels}, split: {json.dumps(split)}"
            yield options, _shown(view.full(b"{", b"}"))


def delta() -> tuple[str, str, str]:
    """A book, a delta, and the book after it; levels as arrays."""
    view, change = _merged(arrays=True)
    before = view.full(b"{", b"}")
    change()
    after = view.delta(b"{", b',"checksum":%d}' % view.checksum())
    assert after is not None
    return _shown(before), _shown(after), _shown(view.full(b"{", b"}"))


def checksum() -> str:
    """The checksum of the book after the delta, and its input text."""
    view, change = _merged(arrays=True)
    change()
    book = json.loads(view.full(b"{", b"}"), parse_float=str, parse_int=str)
    text = ":".join(f"{price}:{amount}" for price, amount in book["bids"] + book["asks"])
    return f"{text}\n{view.checksum()}"


def _merged(*, arrays: bool, split: bool = False) -> tuple[Any, Any]:
    """A merged view of two books, and a change of one of them."""
    okx, kraken = core.Book(), core.Book()
    okx.replace(*OKX)
    kraken.replace(*KRAKEN)
    view = core.View(NAMES, depth=DEPTH, arrays=arrays, split=split)
    view.merge([kraken, okx])

    def change() -> None:
        okx.apply(*CHANGE)
        view.merge([kraken, okx])

    return view, change


def _shown(document: bytes) -> str:
    """Format a document with one line per level."""
    text = document.decode()
    for name in ('"bids":[', '"asks":['):
        text = text.replace(name, f"{name}\n    ")
    text = re.sub(r"([\]}]),(?=\{|\[\d)", r"\1,\n    ", text)  # not between parts of a level
    for name in ('"bids"', '"asks"', '"market_stats"', '"checksum"'):
        text = text.replace(name, f"\n  {name}")
    return text.replace("}}", "}\n}") if text.endswith("}}") else text
