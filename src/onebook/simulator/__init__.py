"""Simulated exchanges that speak the real protocols on loopback, for tests, demos and examples.

`DIALECTS` has the protocol of each exchange in `onebook.exchanges.NAMES`: the `DIALECT` of its
module here. What dialects share is in `kit`; simulated accounts are in `accounts`.
"""

from onebook.simulator.kit.server import DIALECTS, SimulatedExchange, SimulatedExchanges

__all__ = ["DIALECTS", "SimulatedExchange", "SimulatedExchanges"]
