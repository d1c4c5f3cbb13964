"""A simulated Bybit account with years of history behind the real v5 protocol.

It shares no code with our adapter, so that neither can hide an error of the other. `account`
generates the account (`generator`, `funds`, `trading`), `rows` encodes it as Bybit does, `server`
is the ASGI application; common parts are in `simulator.accounts`. Other clients (pybit, ccxt) work
with it unchanged. Protocol: https://bybit-exchange.github.io/docs/v5/intro
"""

from onebook.simulator.accounts.bybit.account import Account
from onebook.simulator.accounts.bybit.generator import History
from onebook.simulator.accounts.bybit.keys import SimulatedKey
from onebook.simulator.accounts.bybit.server import SimulatedBybit, demo

__all__ = [
    "Account",
    "History",
    "SimulatedBybit",
    "SimulatedKey",
    "demo",
]
