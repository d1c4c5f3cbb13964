"""A simulated Bybit: one account with years of history behind the real v5 protocol.

It shares no code with the adapter it is read by, so that an error in one is not hidden by the same
error in the other. `account` generates the account, `rows` write it as Bybit does, `server` is the
ASGI application; what is not Bybit's own is in `simulator.accounts`. Other clients than ours
(pybit, ccxt) talk to it unchanged. Protocol: https://bybit-exchange.github.io/docs/v5/intro
"""

from onebook.simulator.accounts.bybit.account import Account
from onebook.simulator.accounts.bybit.demo import demo
from onebook.simulator.accounts.bybit.history import History
from onebook.simulator.accounts.bybit.keys import SimulatedKey
from onebook.simulator.accounts.bybit.server import SimulatedBybit

__all__ = [
    "Account",
    "History",
    "SimulatedBybit",
    "SimulatedKey",
    "demo",
]
