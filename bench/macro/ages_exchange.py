"""The exchange of `ages.py`: a simulated exchange on a core of its own, and its true best prices.

    ages_exchange.py NAME

It sends its best price at each state of the market, every `STATE_MS`, and the depth at the interval
of the exchange, as Binance does on a busy day. When its standard input ends it prints every best
price of its first pair, with the time of the monotonic clock in nanoseconds, as one line of JSON.
"""

import asyncio
import json
import sys
import time
from typing import Any

import load
import uvloop

from onebook.exchanges import EXCHANGES
from onebook.simulator import DIALECTS, SimulatedExchanges
from onebook.simulator.binance import DEPTH
from onebook.simulator.kit import ChannelKey, SimulatedSession

STATE_MS = 9  # 11 states in 100 ms, as in recordings of a busy day


async def serve(name: str) -> None:
    dialect: Any = DIALECTS[name]
    native = dialect.listings[0].native
    interval_ms = EXCHANGES[name].interval_ms
    dialect.rules = dialect.rules._replace(states=round(interval_ms / STATE_MS))
    truth: list[tuple[int, str, str]] = []
    sent_top = dialect.top

    def top(self: Any, channel: Any, now: Any) -> Any:
        if channel.listing.native == native:
            best = channel.top(1)
            truth.append((time.monotonic_ns(), best.bids[0][0], best.asks[0][0]))
        return sent_top(self, channel, now)

    dialect.top = top
    async with SimulatedExchanges([name], rate_hz=1_000 / interval_ms) as simulated:
        if name == "binance":  # the market moves although a contender may follow no depth
            board = simulated[name]._board
            follower = SimulatedSession("/ws", now_s=0.0)
            follower.topics["depth"] = ChannelKey(native, DEPTH)
            board.channel(follower.topics["depth"])
            board.sessions.append(follower)
        urls = simulated.urls[name]
        print(json.dumps([urls.ws, urls.rest]), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(truth), flush=True)


if __name__ == "__main__":
    load.settle_on(1)
    uvloop.run(serve(sys.argv[1]))
