"""Simulated exchanges that move only when a test says so."""

import pytest

from onebook.simulator import SimulatedExchanges


@pytest.fixture
async def exchanges():
    async with SimulatedExchanges(rate_hz=0) as simulated:
        yield simulated
