import asyncio, contextlib, os
from onebook.client import watch

async def main():
    url = os.environ.get("ONEBOOK_URL", "http://127.0.0.1:8000")
    key = os.environ["ONEBOOK_KEY"]
    async for view in watch(url, key, ["BTC/USDT"], exchanges="all", depth=10, mode="delta"):
        bid, ask = view.best_bid, view.best_ask
        if bid and ask:
            print(view.timestamp, bid.price, bid.exchanges, ask.price, ask.exchanges)
        else:
            print("not live:", view.problem or view.stale_exchanges)

with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    asyncio.run(main())
