"""Simulated exchanges with the real protocols on loopback, for tests, demos and examples.

`DIALECTS` has the protocol of each exchange in `onebook.exchanges.NAMES`: the `DIALECT` of its
module in this package. Shared parts are in `kit`, simulated accounts in `accounts`.
"""

from onebook.simulator.kit.server import DIALECTS, SimulatedExchange, SimulatedExchanges

__all__ = ["DIALECTS", "SimulatedExchange", "SimulatedExchanges"]
