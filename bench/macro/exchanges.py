"""Simulated exchanges that stand still, in a process of their own: where the node gets its books.

Prints their addresses as one line of JSON and ends with its standard input.
"""

import asyncio
import json
import sys

from onebook.simulator import SimulatedExchanges


async def main() -> None:
    async with SimulatedExchanges(rate_hz=0) as simulated:
        print(json.dumps(simulated.urls), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
