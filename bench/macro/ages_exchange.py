"""The exchange of `ages.py`: a simulated exchange on a core of its own, and its true best prices.

    ages_exchange.py NAME

It sends its best price at each state of the market, every `STATE_MS`, and the depth at the interval
of the exchange, as Binance does on a busy day. Gemini's also serves the archived socket that ccxt
and cryptofeed use, whose page states no interval: each change of the best prices is sent at once.
When its standard input ends it prints every best price of its first pair, with the time of the
monotonic clock in nanoseconds, as one line of JSON.
"""

import asyncio
import json
import sys
import time
from typing import Any

import load
import uvloop

from onebook.exchanges import EXCHANGES
from onebook.simulator import DIALECTS, SimulatedExchanges, binance, gemini
from onebook.simulator.kit import ChannelKey, SimulatedSession

STATE_MS = 9  # 11 states in 100 ms, as in recordings of a busy day
# The market moves although a contender may follow no depth.
DEPTHS = {"binance": binance.DEPTH, "gemini": gemini.DEPTH}


class ArchivedFrames:
    """Gemini's best prices as `l2_updates` of its archived socket: a book of one level a side."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}  # best price by side

    def __call__(self, frame: Any) -> str:
        best = json.loads(frame)
        changes = []
        for side, price, amount in (("buy", best["b"], best["B"]), ("sell", best["a"], best["A"])):
            before = self._before.get(side, price)
            if before != price:
                changes.append([side, before, "0"])
            changes.append([side, price, amount])
            self._before[side] = price
        return json.dumps({"type": "l2_updates", "symbol": best["s"].upper(), "changes": changes})


def serve_archived(dialect: Any) -> None:
    """Let Gemini's dialect answer subscriptions of the archived socket."""
    current = dialect.received

    def received(self: Any, session: SimulatedSession, frame: str, now: Any) -> list[str]:
        request = json.loads(frame)
        if request.get("type") != "subscribe":
            return current(self, session, frame, now)
        session.form = ArchivedFrames()
        for each in request["subscriptions"]:
            for symbol in each["symbols"]:
                self._board.follow_top(session, symbol, symbol.lower(), gemini.DEPTH)
        return []

    dialect.received = received


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
    if name == "gemini":
        serve_archived(dialect)
    async with SimulatedExchanges([name], rate_hz=1_000 / interval_ms) as simulated:
        if name in DEPTHS:
            board = simulated[name]._board
            follower = SimulatedSession("/ws", now_s=0.0)
            follower.topics["depth"] = ChannelKey(native, DEPTHS[name])
            board.channel(follower.topics["depth"])
            board.sessions.append(follower)
        urls = simulated.urls[name]
        print(json.dumps([urls.ws, urls.rest]), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps(truth), flush=True)


if __name__ == "__main__":
    load.settle_on(1)
    uvloop.run(serve(sys.argv[1]))
