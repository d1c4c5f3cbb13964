import asyncio, contextlib, json, os
from decimal import Decimal
from zlib import crc32
from websockets.asyncio.client import connect

class Book:
    """Levels as text to text: the checksum is made of the numbers as they were sent."""

    def __init__(self):
        self.bids, self.asks, self.number = {}, {}, None

    def apply(self, message):
        """Take an update or a delta; return whether the book can be trusted."""
        whole = message["type"] == "aggregated_orderbook_update"
        if whole:
            self.bids, self.asks = {}, {}
        elif message["previous_update_number"] != self.number:
            return False
        for side, levels in ((self.bids, message["data"]["bids"]), (self.asks, message["data"]["asks"])):
            for price, amount in levels:
                if amount == "0":
                    side.pop(price, None)
                else:
                    side[price] = amount
        self.number = message["update_number"]
        return whole or self.checksum() == message["checksum"]

    def best(self):
        bids = sorted(self.bids.items(), key=lambda level: Decimal(level[0]), reverse=True)
        asks = sorted(self.asks.items(), key=lambda level: Decimal(level[0]))
        return bids, asks

    def checksum(self):
        bids, asks = self.best()
        text = ":".join(f"{price}:{amount}" for price, amount in bids[:25] + asks[:25])
        return crc32(text.encode())

def decoded(frame):
    """Numbers of levels stay text; the others are read as usual."""
    message, exact = json.loads(frame), json.loads(frame, parse_float=str, parse_int=str)
    for side in ("bids", "asks"):
        if "data" in message and side in message["data"]:
            message["data"][side] = exact["data"][side]
    return message

async def main():
    url = os.environ["ONEBOOK_URL"].replace("http", "ws", 1) + "/api/v1/ws"
    book = Book()
    async with connect(url) as socket:
        await socket.send(json.dumps({"type": "authenticate", "api_key": os.environ["ONEBOOK_KEY"]}))
        await socket.send(json.dumps({"type": "subscribe_aggregated", "symbol": "BTC/USDT",
                                      "depth": 50, "mode": "delta", "levels": "array"}))
        async for frame in socket:
            message = decoded(frame)
            if message["type"] in ("aggregated_orderbook_update", "aggregated_orderbook_delta"):
                if book.apply(message):
                    bids, asks = book.best()
                    print(book.number, bids[:1], asks[:1])
                else:
                    await socket.send(json.dumps({"type": "resync", "symbol": "BTC/USDT"}))

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main())
