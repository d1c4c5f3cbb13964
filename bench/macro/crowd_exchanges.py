"""Simulated exchanges with many pairs, in a process of their own, that obey and count.

    crowd_exchanges.py NAMES RATE_HZ SYMBOLS

Prints their addresses as one line of JSON. Then each line of standard input is a command: `drop`
lets all of them vanish and come back; it and `count` print as JSON how many connections are open,
how often a limit was exceeded and how late this process was at most. Ends with its standard input.
"""

import asyncio
import json
import sys
import time
from collections import Counter

import load

import onebook.simulator.kit.market as market
from onebook.exchanges import EXCHANGES
from onebook.simulator import DIALECTS, SimulatedExchange, SimulatedExchanges
from onebook.simulator.kit import ListedSymbol, Most
from onebook.simulator.kit.board import Windows
from onebook.simulator.kit.market import PAIRS, Pair

# Codes that mean one coin everywhere; of three letters, as Bitfinex spells longer ones otherwise.
BASES = ("BTC", "ETH", "SOL", "ADA", "XRP", "LTC", "DOT", "TRX", "BCH", "XLM", "ETC", "FIL", "UNI",
         "APT", "SUI")  # fmt: skip
QUOTES = ("USDT", "USD")
FETCHES = "fetches"
LOOK_S = 0.01


def pairs() -> tuple[Pair, ...]:
    """The market: what it has, and each other base against each quote."""
    known = {pair.symbol for pair in PAIRS}
    made = (f"{base}/{quote}" for quote in QUOTES for base in BASES)
    return PAIRS + tuple(Pair(each, "100.00", "0.01", "10") for each in made if each not in known)


def listings(name: str, count: int) -> tuple[ListedSymbol, ...]:
    """What an exchange lists: so many bases against the quote of its main pair."""
    listed = {each.symbol: each for each in DIALECTS[name].listings}
    main = DIALECTS[name].listings[0]
    grids = {pair.symbol: len(pair.grid.partition(".")[2]) for pair in pairs()}
    made = []
    for base in BASES[:count]:
        symbol = f"{base}/{main.quote}"
        native = main.native.replace(main.base, base).replace(main.base.lower(), base.lower())
        made.append(listed.get(symbol, ListedSymbol(symbol, native, grids[symbol], 6)))
    return tuple(made)


class Fetches:
    """Counts REST requests against our own budget, where the simulated exchange has none."""

    def __init__(self, name: str, exchange: SimulatedExchange) -> None:
        self.breaches: Counter[str] = Counter()
        budget = () if DIALECTS[name].rules.fetches else EXCHANGES[name].limits.fetches
        limits = [Most(each.count, each.per_s) for each in budget]
        self._windows = Windows(limits, breaches=self.breaches, kind=FETCHES)
        self._exchange = exchange
        self._get = exchange._front.get
        exchange._front.get = self.get  # type: ignore[method-assign]

    def get(self, path, query):
        self._windows.allow(self._exchange._clock.monotonic())
        return self._get(path, query)


class Lateness:
    """How late the loop was at most: what waits in its sockets arrives at once."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        while True:
            due = time.monotonic() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self.longest_s = max(self.longest_s, time.monotonic() - due)


async def main(names: list[str], rate_hz: float, symbols: int) -> None:
    market.PAIRS = pairs()
    for name in names:
        DIALECTS[name].listings = listings(name, symbols)
    async with SimulatedExchanges(names, rate_hz=rate_hz) as simulated:
        fetches = {name: Fetches(name, simulated[name]) for name in names}
        print(json.dumps(simulated.urls), flush=True)
        lateness = Lateness()
        watching = asyncio.create_task(lateness.watch())
        loop = asyncio.get_running_loop()
        while command := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            if command == "drop":
                await asyncio.gather(*(simulated[name].stop() for name in names))
                await asyncio.gather(*(simulated[name].start() for name in names))
            breaches = {
                name: found
                for name in names
                if (found := simulated[name].breaches | fetches[name].breaches)
            }
            clients = sum(simulated[name].clients for name in names)
            counted = {"breaches": breaches, "connections": clients, "late_s": lateness.longest_s}
            print(json.dumps(counted), flush=True)
        watching.cancel()


if __name__ == "__main__":
    load.lift_file_limit(4_096)
    asyncio.run(main(sys.argv[1].split(","), float(sys.argv[2]), int(sys.argv[3])))
