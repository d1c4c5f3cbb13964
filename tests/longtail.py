"""An exchange as if Onebook had no connector for it."""

from collections.abc import Iterator
from contextlib import contextmanager

from onebook.exchanges import EXCHANGES


@contextmanager
def without_connector(name: str) -> Iterator[None]:
    """Take an exchange out of the registry; the order of the others is as it was afterwards."""
    everything = dict(EXCHANGES)
    del EXCHANGES[name]
    try:
        yield
    finally:
        EXCHANGES.clear()
        EXCHANGES.update(everything)
