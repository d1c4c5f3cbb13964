import asyncio, contextlib, os
from typing import Any
from onebook.client import AsyncOnebook

FRUGAL: dict[str, Any] = {"depth": 10, "interval_ms": 1_000, "mode": "delta"}

async def main():
    async with AsyncOnebook(os.environ["ONEBOOK_URL"], os.environ["ONEBOOK_KEY"]) as client:
        async for view in client.watch("BTC/USDT", **FRUGAL):
            if view.bids and view.asks:
                print(view.update_number, view.bids[0].price, view.asks[0].price)

with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    asyncio.run(main())
