"""An exchange treated as if it had no connector."""

from collections.abc import Iterator
from contextlib import contextmanager

from onebook.exchanges import EXCHANGES


@contextmanager
def without_connector(name: str) -> Iterator[None]:
    """Remove an exchange from the registry; afterwards the order of the others is unchanged."""
    everything = dict(EXCHANGES)
    del EXCHANGES[name]
    try:
        yield
    finally:
        EXCHANGES.clear()
        EXCHANGES.update(everything)
