import asyncio, contextlib, os
from onebook.client import AsyncOnebook

async def main():
    async with AsyncOnebook(os.environ["ONEBOOK_URL"], os.environ["ONEBOOK_KEY"]) as client:
        async for view in client.watch("ETH/BTC", quotes=["USDT"], depth=5, mode="delta"):
            for ask in view.asks[:3]:
                print(ask.price, *ask.exchanges)
            for step in view.conversions:
                print(step.symbol, "on", *step.exchanges, step.reason or f"{step.age_ms} ms old")

with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    asyncio.run(main())
