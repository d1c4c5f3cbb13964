import asyncio, contextlib, os
import onebook
from onebook.client import AsyncOnebook

async def costs(source, symbol, exchanges, amount):
    """Yield the cost of an amount at each change of the book, from the library or a service."""
    async with source.order_book(symbol, exchanges=exchanges, depth=50, split=True) as book:
        async for update in book:
            if update.best_bid and update.best_ask:
                yield update, update.fill("buy", amount=amount)
            else:
                print("not live:", update.problem or update.stale)

async def main():
    source = onebook  # the exchanges, from this process
    if "ONEBOOK_URL" in os.environ:  # or a service: nothing else changes
        source = AsyncOnebook(os.environ["ONEBOOK_URL"], os.environ["ONEBOOK_KEY"])
    async for update, cost in costs(source, "BTC/USDT", ["kraken", "okx"], "2.5"):
        print(f"{update.time:%H:%M:%S} mid {update.mid} spread {update.spread} cost {cost.average}")
        print("   on", ", ".join(f"{name} {part.amount}" for name, part in cost.split.items()))

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main())
