"""Which exchanges stand for all others over sockets in `make test`.

What depends on the exchange (its frames, numbers, checksums, lists, limits) is proven of every
exchange by the pure suites: tests/contract, tests/exchanges and tests/simulator/test_faults. What
depends on the socket, the feed and its recovery differs by kind of protocol, and is proven with one
exchange of each kind. A test marked `over_sockets` runs with these; with all others it is marked
`soak`, which `make soak` and the nightly workflow run.
"""

from typing import Final

import pytest

from onebook.exchanges import EXCHANGES

FAMILIES: Final = {
    "binance": "numbered changes that are joined with a snapshot by REST; the exchange pings",
    "bitfinex": "frames counted over the whole connection, and ids in place of names",
    "bitstamp": "whole books in each frame, on streams that are silent while nothing changes",
    "coinbase": "changes without numbers or checksum, so that a lost frame is not seen",
    "htx": "compressed frames, and a snapshot that is requested on the socket",
    "kraken": "a checksum of the best levels, and books cut at a depth",
    "kucoin": "a token by REST before the connection, and numbers from the snapshot of the socket",
    "mexc": "binary frames (protobuf), with pings that the client must send",
    "p2b": "one book a connection, by JSON-RPC",
}


def exchange_of(item: pytest.Item) -> str | None:
    """The exchange that a test is parametrised with."""
    call = getattr(item, "callspec", None)
    for value in call.params.values() if call else ():
        name = value[0] if isinstance(value, tuple) else value
        if isinstance(name, str) and name.partition(".")[0] in EXCHANGES:
            return name.partition(".")[0]
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the soak what another exchange of the same family stands for."""
    for item in items:
        if item.get_closest_marker("over_sockets"):
            name = exchange_of(item)
            if name is not None and name not in FAMILIES:
                item.add_marker(pytest.mark.soak)
