import asyncio, contextlib, json, os
from websockets.asyncio.client import connect

def subscription(interval_ms):
    return json.dumps({"type": "subscribe_aggregated", "symbol": "BTC/USDT", "exchanges": "all",
                       "levels": "array", "interval_ms": interval_ms})

async def main():
    url = os.environ["ONEBOOK_URL"].replace("http", "ws", 1) + "/api/v1/ws"
    async with connect(url) as socket:
        await socket.send(json.dumps({"type": "authenticate", "api_key": os.environ["ONEBOOK_KEY"]}))
        await socket.send(subscription(100))
        async for frame in socket:
            message = json.loads(frame)
            if message["type"] == "data_limit_warning":
                await socket.send(subscription(5_000))  # subscribing again replaces the options
                print("slower from now on, renewed at", message["reset_date"])

with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    asyncio.run(main())
