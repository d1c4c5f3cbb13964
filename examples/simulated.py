import asyncio, contextlib
import onebook
from onebook.library import ExchangeSettings, FeedSettings
from onebook.simulator import SimulatedExchanges

async def main():
    names = ["binance", "okx", "kraken"]
    async with SimulatedExchanges(names) as simulated:
        local = {
            name: ExchangeSettings(ws_url=urls.ws, rest_url=urls.rest)
            for name, urls in simulated.urls.items()
        }
        feeds = FeedSettings(overrides=local)
        async with onebook.order_book("BTC/USDT", exchanges=names, feeds=feeds) as book:
            async for update in book:
                if update.best_bid and update.best_ask:
                    print(update.best_bid.price, update.best_ask.price, update.stale)

with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    asyncio.run(main())
