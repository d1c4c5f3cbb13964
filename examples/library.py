import asyncio, contextlib, onebook

async def main():
    async with onebook.order_book("BTC/USDT", exchanges=["binance", "okx"], depth=50) as book:
        async for update in book:
            print(update.best_bid, update.best_ask, "not live:", update.stale)

with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    asyncio.run(main())
