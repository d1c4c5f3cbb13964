"""The NATS subjects of one cluster of nodes.

    <cluster>.nodes                                heartbeats, of every version
    <cluster>.<version>.interest                   changes of what gateways want
    <cluster>.<version>.book.<exchange>.<symbol>   messages about one book
    <cluster>.<version>.node.<node>.<request>      requests to one node, answered

`<version>` is that of the wire (`wire.VERSION`): nodes of different versions see each other's
heartbeats and nothing else.
"""

from typing import Final
from urllib.parse import quote

from onebook.nodes.placement import BookKey
from onebook.nodes.wire import VERSION

# Requests to one node.
SNAPSHOT: Final = "snapshot"
LIVE: Final = "live"
LIST: Final = "list"
BOOKS: Final = "books"
WANTS: Final = "wants"


class Subjects:
    """Names below the name of the cluster."""

    def __init__(self, cluster: str) -> None:
        self.heartbeats = f"{cluster}.nodes"
        self._prefix = f"{cluster}.{VERSION}"
        self.interest = f"{self._prefix}.interest"

    def book(self, key: BookKey) -> str:
        """Where messages about a book are published."""
        return f"{self._prefix}.book.{token(key.exchange)}.{token(key.symbol)}"

    def request(self, node: int, what: str) -> str:
        """Where a node answers a request."""
        return f"{self._prefix}.node.{node:016x}.{what}"


def token(text: str) -> str:
    """Write any text as one token of a subject: ASCII without dots, blanks and wildcards."""
    return quote(text, safe="").replace(".", "%2E")
