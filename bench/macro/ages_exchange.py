"""The exchange of `ages.py`: simulated Binance on a core of its own, and its true best prices.

    ages_exchange.py

It sends its best price at each of `STATES` states of the market and the depth every `INTERVAL_S`,
as Binance does on a busy day. When its standard input ends it prints every best price it had, with
the time of the monotonic clock in nanoseconds, as one line of JSON.
"""

import asyncio
import json
import sys
import time
from typing import Any

import load
import uvloop

from onebook.simulator import SimulatedExchanges
from onebook.simulator.binance import DEPTH, Binance
from onebook.simulator.kit import ChannelKey, SimulatedSession

NATIVE = "BTCUSDT"
STATES = 11  # of the market in an interval of the depth, as in recordings of a busy day
INTERVAL_S = 0.1


async def serve() -> None:
    Binance.rules = Binance.rules._replace(states=STATES)
    truth: list[tuple[int, str, str]] = []
    sent_top = Binance.top

    def top(self: Binance, channel: Any, now: Any) -> str:
        best = channel.top(1)
        truth.append((time.monotonic_ns(), best.bids[0][0], best.asks[0][0]))
        return sent_top(self, channel, now)

    Binance.top = top  # type: ignore[method-assign]
    async with SimulatedExchanges(["binance"], rate_hz=1 / INTERVAL_S) as simulated:
        # The market moves although a contender may follow no depth.
        board = simulated["binance"]._board
        follower = SimulatedSession("/ws", now_s=0.0)
        follower.topics["depth"] = ChannelKey(NATIVE, DEPTH)
        board.channel(follower.topics["depth"])
        board.sessions.append(follower)
        urls = simulated.urls["binance"]
        print(json.dumps([urls.ws, urls.rest]), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(truth), flush=True)


if __name__ == "__main__":
    load.settle_on(1)
    uvloop.run(serve())
