"""Names shared by all nodes of a cluster: keys of books, and NATS subjects.

    <cluster>.nodes                                heartbeats, of every version
    <cluster>.<version>.interest                   changes of gateways' subscriptions
    <cluster>.<version>.book.<exchange>.<symbol>   messages about one book
    <cluster>.<version>.node.<node>.<request>      requests to one node, answered

`<version>` is the wire version (`wire.VERSION`): nodes of different versions see only each other's
heartbeats.
"""

from typing import Final, NamedTuple
from urllib.parse import quote

from onebook.nodes.wire import VERSION

# Requests to one node
SNAPSHOT: Final = "snapshot"
LIVE: Final = "live"
LIST: Final = "list"
BOOKS: Final = "books"
WANTS: Final = "wants"


class BookKey(NamedTuple):
    """The cluster-wide key of a book: the exchange and our symbol."""

    exchange: str
    symbol: str

    @property
    def text(self) -> str:
        """The key as text for messages."""
        return f"{self.exchange} {self.symbol}"


def key_of(text: str) -> BookKey:
    """Return the key of a text (the inverse of `BookKey.text`)."""
    exchange, _, symbol = text.partition(" ")
    return BookKey(exchange, symbol)


class Subjects:
    """Subjects below the name of the cluster."""

    def __init__(self, cluster: str) -> None:
        self.heartbeats = f"{cluster}.nodes"
        self._prefix = f"{cluster}.{VERSION}"
        self.interest = f"{self._prefix}.interest"

    def book(self, key: BookKey) -> str:
        """Return the subject of messages about a book."""
        return f"{self._prefix}.book.{token(key.exchange)}.{token(key.symbol)}"

    def request(self, node: int, what: str) -> str:
        """Return the subject on which a node answers a request."""
        return f"{self._prefix}.node.{node:016x}.{what}"


def token(text: str) -> str:
    """Encode any text as one token of a subject: ASCII without dots, blanks and wildcards."""
    return quote(text, safe="").replace(".", "%2E")
