"""Which feeds node serves a book: rendezvous hashing, so that all nodes agree without a leader.

Every node computes the same ranking from the same set of nodes. A node that leaves loses its books
to the next of each ranking, and no other book moves (https://en.wikipedia.org/wiki/Rendezvous_hashing).
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple


class BookKey(NamedTuple):
    """A book among all nodes: the exchange and our symbol."""

    exchange: str
    symbol: str

    @property
    def text(self) -> str:
        """The key as one text, for messages."""
        return f"{self.exchange} {self.symbol}"


def key_of(text: str) -> BookKey:
    """The inverse of `BookKey.text`."""
    exchange, _, symbol = text.partition(" ")
    return BookKey(exchange, symbol)


def ranking(name: str, nodes: Iterable[int]) -> tuple[int, ...]:
    """Order nodes for a name, the one that serves it first; the same wherever it is computed."""
    encoded = name.encode()
    return tuple(sorted(nodes, key=lambda node: (_weight(encoded, node), node), reverse=True))


def _weight(name: bytes, node: int) -> bytes:
    return blake2b(name, digest_size=8, key=node.to_bytes(8, "little")).digest()
