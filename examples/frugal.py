import asyncio, contextlib, os
from typing import Any
from onebook.client import AsyncOnebook

FRUGAL: dict[str, Any] = {"depth": 10, "interval_ms": 1_000, "mode": "delta"}

async def main():
    async with AsyncOnebook(os.environ["ONEBOOK_URL"], os.environ["ONEBOOK_KEY"]) as client:
        async for view in client.watch("BTC/USDT", **FRUGAL):
            bid, ask = view.best_bid, view.best_ask
            if bid and ask:
                print(view.update_number, bid.price, ask.price)

with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    asyncio.run(main())
