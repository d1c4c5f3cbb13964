"""Sample clients of the reference service, written from its documentation.

Each is a complete program that takes its URL and key from the environment alone. What each expects
of the order of messages is what the published sample of that page expects.
"""

# Page "authentication": the first message after `authenticate` holds the session.
AUTHENTICATION_PYTHON = """
import asyncio, json, os, websockets

async def main():
    async with websockets.connect(os.environ["URL"]) as ws:
        await ws.send(json.dumps({"type": "authenticate", "api_key": os.environ["KEY"]}))
        reply = json.loads(await ws.recv())
        if reply["type"] == "error":
            raise SystemExit(reply["message"])
        print("user", reply["user_id"], "session", reply["session_id"], "tier", reply["user_tier"])

asyncio.run(main())
"""

# Page "examples/python": the first message does not matter, the second is the success; then books,
# whose times a parser without time zones reads.
EXAMPLES_PYTHON = """
import asyncio, json, os, websockets
from datetime import datetime

class Client:
    def __init__(self, url, key):
        self.url, self.key = url, key

    async def connect(self):
        self.ws = await websockets.connect(self.url)
        first = json.loads(await self.ws.recv())
        await self.ws.send(json.dumps({"type": "authenticate", "api_key": self.key}))
        answer = json.loads(await self.ws.recv())
        if answer["type"] != "authentication_success":
            raise RuntimeError("authentication failed: %s" % answer)
        usage = answer["data_usage"]
        print("user %s tier %s" % (answer["user_id"], answer["tier"]))
        print("%.2f of %.2f GB, %.1f %%" % (
            usage["used_gb"], usage["limit_gb"], usage["usage_percentage"]))

    async def subscribe(self, symbol, exchanges):
        await self.ws.send(json.dumps(
            {"type": "subscribe_aggregated", "symbol": symbol, "exchanges": exchanges}))

    async def listen(self, count):
        async for frame in self.ws:
            message = json.loads(frame)
            if message["type"] == "aggregated_subscription_response":
                if not message["success"]:
                    raise RuntimeError(message["message"])
                print("subscribed", message["subscription_id"])
            elif message["type"] == "aggregated_orderbook_update":
                at = datetime.strptime(message["timestamp"], "%Y-%m-%dT%H:%M:%S.%f")
                data = message["data"]
                assert abs((datetime.utcnow() - at).total_seconds()) < 3600
                if not data["bids"] or not data["asks"]:
                    continue
                print("book", message["symbol"], data["market_stats"]["best_bid"],
                      data["bids"][0]["exchanges"], data["bids"][0]["exchange_count"])
                count -= 1
                if not count:
                    await self.ws.send(json.dumps({"type": "ping"}))
            elif message["type"] == "pong":
                datetime.strptime(message["server_time"], "%Y-%m-%dT%H:%M:%S.%f")
                print("pong", message["latency_ms"] >= 0)
                return
            elif message["type"] == "error":
                raise RuntimeError(message["message"])

async def main():
    client = Client(os.environ["URL"], os.environ["KEY"])
    await client.connect()
    await client.subscribe("BTC/USDT", ["okx", "kraken"])
    await client.listen(3)
    await client.ws.close()

asyncio.run(main())
"""

# Page "websocket/subscribe", Python: one message is read after `authenticate`, whatever it is.
SUBSCRIBE_PYTHON = """
import asyncio, json, os, websockets

async def main():
    async with websockets.connect(os.environ["URL"]) as ws:
        await ws.send(json.dumps({"type": "authenticate", "api_key": os.environ["KEY"]}))
        await ws.recv()
        await ws.send(json.dumps(
            {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "exchanges": "all"}))
        while True:
            message = json.loads(await ws.recv())
            if message["type"] == "aggregated_orderbook_update" and message["data"]["bids"]:
                print("book", message["update_number"], len(message["data"]["bids"]))
                return

asyncio.run(main())
"""

# Page "unified/websocket", Python: the action family, after any welcome.
ACTIONS_PYTHON = """
import asyncio, json, os, websockets

async def main():
    async with websockets.connect(os.environ["URL"]) as ws:
        await ws.send(json.dumps({"type": "authenticate", "api_key": os.environ["KEY"]}))
        while json.loads(await ws.recv())["type"] != "welcome":
            pass
        await ws.send(json.dumps({"action": "get_exchanges"}))
        await ws.send(json.dumps(
            {"action": "validate_credentials", "exchange": "bybit", "testnet": False}))
        await ws.send(json.dumps({
            "action": "subscribe_transactions", "exchange": "bybit", "testnet": False,
            "transaction_types": ["deposits", "withdrawals", "trades"]}))
        async for frame in ws:
            message = json.loads(frame)
            if message["type"] == "exchanges_response":
                print("exchanges", [each["exchange_name"] for each in message["exchanges"]])
            elif message["type"] == "validation_response":
                print("valid", message["success"], message["account_info"]["account_type"])
            elif message["type"] == "transaction_response":
                assert message["success"] and message["exchange"] == "bybit"
                assert message["total_transactions"] == len(message["transactions"])
                assert message["summary"]["total_count"] == message["total_transactions"]
                for record in message["transactions"]:
                    record["transactionId"], record["timestamp"], record["description"]["title"]
                print("transactions", message["total_transactions"], message["processing_time"])
                return
            elif message["type"] == "error":
                raise SystemExit("%s: %s" % (message["error"], message["message"]))

asyncio.run(main())
"""

# Page "unified/transactions", Python: a session over REST, then records.
TRANSACTIONS_PYTHON = """
import json, os, urllib.request

base = os.environ["REST"]

def post(path, body, token=None):
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = "Bearer " + token
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)

session = post("/authenticate", {"api_key": os.environ["KEY"]})
found = post("/transactions", {
    "exchange": "bybit", "testnet": False, "transaction_types": ["deposits", "withdrawals"],
    "limit": 100}, session["session_token"])
print("records", found["total_transactions"], sorted(found["summary"]["by_type"]))
"""

# Page "examples/javascript", for browsers: `authenticate` on every welcome, resolved by the
# success alone; it reconnects and does not subscribe again.
EXAMPLES_JAVASCRIPT = """
class Client {
  constructor(url, key) { Object.assign(this, { url, key, sent: 0 }); }
  connect() {
    return new Promise((resolve, reject) => {
      this.ws = new WebSocket(this.url);
      this.ws.onmessage = (event) => {
        const message = JSON.parse(event.data);
        if (message.type === "welcome") {
          this.sent += 1;
          this.ws.send(JSON.stringify({ type: "authenticate", api_key: this.key }));
        } else if (message.type === "authentication_success") {
          resolve(message);
        } else if (message.type === "authentication_error") {
          reject(new Error(message.message));
        } else this.onmessage?.(message);
      };
      this.ws.onerror = () => reject(new Error("no connection"));
    });
  }
  subscribe(symbol, exchanges) {
    this.ws.send(JSON.stringify({ type: "subscribe_aggregated", symbol, exchanges }));
  }
}
const client = new Client(process.env.URL, process.env.KEY);
const success = await client.connect();
const book = await new Promise((resolve) => {
  client.onmessage = (message) => {
    const { type, data } = message;
    if (type === "aggregated_orderbook_update" && data.bids.length) resolve(message);
  };
  client.subscribe("BTC/USDT", ["okx", "kraken"]);
});
client.ws.close();
console.log(`user ${success.user_id} ${success.tier}`);
console.log(`book ${book.data.bids[0].price}`);
console.log(`sent ${client.sent}`);
"""

# Page "websocket/subscribe", JavaScript: authenticates when the socket opens, subscribes on the
# success alone.
SUBSCRIBE_JAVASCRIPT = """
const ws = new WebSocket(process.env.URL);
ws.onopen = () => ws.send(JSON.stringify({ type: "authenticate", api_key: process.env.KEY }));
ws.onmessage = (event) => {
  const message = JSON.parse(event.data);
  if (message.type === "authentication_success") {
    const book = { symbol: "BTC/USDT", exchanges: ["okx"] };
    ws.send(JSON.stringify({ type: "subscribe_aggregated", ...book }));
  } else if (message.type === "aggregated_orderbook_update" && message.data.bids.length) {
    console.log("book", message.data.market_stats.best_bid);
    ws.close();
  }
};
"""

# Pages "websocket/connection" and "authentication", JavaScript: any welcome will do.
CONNECTION_JAVASCRIPT = """
const ws = new WebSocket(process.env.URL);
let welcomes = 0;
ws.onopen = () => ws.send(JSON.stringify({ type: "authenticate", api_key: process.env.KEY }));
ws.onmessage = (event) => {
  const message = JSON.parse(event.data);
  if (message.type === "welcome" && ++welcomes === 1) {
    console.log("user", message.user_id, "tier", message.user_tier);
    ws.send(JSON.stringify({ type: "get_exchanges" }));
  } else if (message.type === "exchanges_data") {
    console.log("exchanges", message.data.total_supported);
    ws.close();
  }
};
"""

PYTHON = {
    "authentication": (
        AUTHENTICATION_PYTHON,
        r"user [0-9a-f-]{36} session [0-9a-f-]{36} tier premium",
    ),
    "examples/python": (
        EXAMPLES_PYTHON,
        r"user [0-9a-f-]{36} tier premium\n0\.\d\d of 50\.00 GB, .*\n"
        r"subscribed sub_.*\n(book .*\n){3,}pong True",
    ),
    "websocket/subscribe": (SUBSCRIBE_PYTHON, r"book \d+ \d+"),
    "unified/websocket": (
        ACTIONS_PYTHON,
        r"exchanges \['bybit', 'kraken', 'okx'\]\nvalid True UNIFIED\ntransactions \d{2,} [\d.]+",
    ),
    "unified/transactions": (TRANSACTIONS_PYTHON, r"records \d+ \['deposit', 'withdrawal'\]"),
}
JAVASCRIPT = {
    "examples/javascript": (
        EXAMPLES_JAVASCRIPT,
        r"user [0-9a-f-]{36} premium\nbook [\d.]+\nsent [12]",
    ),
    "websocket/subscribe": (SUBSCRIBE_JAVASCRIPT, r"book [\d.]+"),
    "websocket/connection": (
        CONNECTION_JAVASCRIPT,
        r"user [0-9a-f-]{36} tier premium\nexchanges \d+",
    ),
}
