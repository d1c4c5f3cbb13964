"""The samples at the top of the documentation page: (anchor, title, text, code)."""

# Replaced by the address at which the page is requested.
PLACEHOLDER_URL = "http://onebook.invalid"
PLACEHOLDER_WS_URL = "ws://onebook.invalid"

CURL = """\
curl -s http://onebook.invalid/api/v1/authenticate \\
  -H 'Content-Type: application/json' -d '{"api_key": "ob_live_..."}'

curl -s http://onebook.invalid/api/v1/session-status -H 'Authorization: Bearer obs_...'
"""

PYTHON = """\
import asyncio, json
from websockets.asyncio.client import connect

async def main() -> None:
    async with connect("ws://onebook.invalid/api/v1/ws") as socket:
        await socket.send(json.dumps({"type": "authenticate", "api_key": "ob_live_..."}))
        await socket.send(json.dumps({
            "type": "subscribe_aggregated",
            "symbol": "BTC/USDT",
            "exchanges": "all",
            "depth": 10,
            "interval_ms": 500,
        }))
        async for frame in socket:
            message = json.loads(frame)
            if message["type"] == "aggregated_orderbook_update":
                print(message["data"]["market_stats"])

asyncio.run(main())
"""

JAVASCRIPT = """\
const socket = new WebSocket("ws://onebook.invalid/api/v1/ws");
const send = (message) => socket.send(JSON.stringify(message));

socket.onopen = () => {
  send({ type: "authenticate", api_key: "ob_live_..." });
  send({ type: "subscribe_aggregated", symbol: "BTC/USDT", exchanges: ["okx", "kraken"] });
};
socket.onmessage = ({ data }) => {
  const message = JSON.parse(data);
  if (message.type === "aggregated_orderbook_update") console.log(message.data.bids[0]);
};
socket.onclose = ({ code }) => console.log("40xx stop, 41xx back off, 42xx reconnect then", code);
"""

SAMPLES = (
    (
        "begin-curl",
        "A session, with curl",
        "The operator issues an API key. REST calls that require authentication use a session "
        "token, which you get in exchange for the key.",
        CURL,
    ),
    (
        "begin-python",
        "A live book, in Python",
        "On the WebSocket the key is sent in the first message. Replies may arrive between "
        "updates, so check `type` first.",
        PYTHON,
    ),
    (
        "begin-javascript",
        "A live book, in JavaScript",
        "The same in a browser. Close codes decide whether to reconnect.",
        JAVASCRIPT,
    ),
)
