"""Exchanges without effective rate limits, for tests of everything else.

That requests keep to an exchange's limits is proven by `test_pools.py`, `test_client.py` and the
tests of each exchange.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from onebook.transactions import registry

TIMES = 100  # as many requests as the exchange would answer


@contextmanager
def unpaced() -> Iterator[None]:
    """A node that starts within the context never waits for an exchange's rate limit."""
    with pytest.MonkeyPatch.context() as patch:
        for name, each in list(registry.EXCHANGES.items()):
            limits = {
                pool: replace(
                    limit,
                    units=limit.units * TIMES,
                    sinks=limit.sinks * TIMES,
                    start=limit.start * TIMES,
                )
                for pool, limit in each.api.limits.items()
            }
            wide = replace(each, api=replace(each.api, limits=limits))
            patch.setitem(registry.EXCHANGES, name, wide)
        yield
