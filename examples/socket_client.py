import asyncio, contextlib, json, os
from websockets.asyncio.client import connect

async def main():
    url = os.environ["ONEBOOK_URL"].replace("http", "ws", 1) + "/api/v1/ws"
    async with connect(url) as socket:
        await socket.send(json.dumps({"type": "authenticate", "api_key": os.environ["ONEBOOK_KEY"]}))
        await socket.send(json.dumps({"type": "subscribe_aggregated", "symbol": "ETH/USDT", "depth": 5}))
        async for frame in socket:
            message = json.loads(frame)
            if message["type"] == "aggregated_orderbook_update":
                print(message["update_number"], message["data"]["market_stats"])

with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    asyncio.run(main())
