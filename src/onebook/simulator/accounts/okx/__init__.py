"""A simulated OKX: one account with years of history behind the real v5 protocol.

It shares no code with our adapter, so that neither can hide an error of the other. `generator`
builds the history in blocks from the events of `trading`, `contracts` and `funds`, `account` gives
access to it and to the true events, `rows` encodes it as OKX does, `endpoints` implements paging
and retention, `server` is the ASGI application of a site, `exports` that of the host of exported
files, `stream` has the private WebSockets; common parts are in `simulator.accounts`. Other clients
(ccxt, python-okx) work with it unchanged.
Protocol: https://www.okx.com/docs-v5/en/
"""

from onebook.simulator.accounts.okx.account import OkxAccount
from onebook.simulator.accounts.okx.demo import DemoOkx, demo
from onebook.simulator.accounts.okx.exports import SimulatedOkxFiles
from onebook.simulator.accounts.okx.facts import OkxHistory, WalletEvent
from onebook.simulator.accounts.okx.keys import SimulatedOkxKey
from onebook.simulator.accounts.okx.server import SimulatedOkx

__all__ = [
    "DemoOkx",
    "OkxAccount",
    "OkxHistory",
    "SimulatedOkx",
    "SimulatedOkxFiles",
    "SimulatedOkxKey",
    "WalletEvent",
    "demo",
]
