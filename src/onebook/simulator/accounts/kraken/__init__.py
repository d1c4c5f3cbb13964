"""A simulated Kraken: one account with years of history behind the real spot and futures protocols.

It shares no code with our adapter, so that neither can hide an error of the other. `generator`
builds the history in blocks from the events of `trading`, `funds` and `derivatives`, `account`
gives access to it and to the true events, `rows` encodes it as Kraken does, `server` and
`futures_server` are the ASGI applications of the two hosts; common parts are in
`simulator.accounts`. Other clients (python-kraken-sdk, ccxt) work with it unchanged. Protocol:
https://docs.kraken.com/exchange
"""

from onebook.simulator.accounts.kraken.account import KrakenAccount
from onebook.simulator.accounts.kraken.demo import DemoKraken, demo
from onebook.simulator.accounts.kraken.facts import AccountEvent, KrakenHistory
from onebook.simulator.accounts.kraken.futures_server import SimulatedKrakenFutures
from onebook.simulator.accounts.kraken.keys import SimulatedFuturesKey, SimulatedKrakenKey
from onebook.simulator.accounts.kraken.server import SimulatedKraken

__all__ = [
    "AccountEvent",
    "DemoKraken",
    "KrakenAccount",
    "KrakenHistory",
    "SimulatedFuturesKey",
    "SimulatedKraken",
    "SimulatedKrakenFutures",
    "SimulatedKrakenKey",
    "demo",
]
