import asyncio, onebook

async def main():
    async with onebook.order_book("BTC/USDT", exchanges=["binance", "okx"], depth=50) as book:
        async for update in book:
            print(update.best_bid, update.best_ask, "not live:", update.stale)

asyncio.run(main())
