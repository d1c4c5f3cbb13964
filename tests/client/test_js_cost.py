"""What the JavaScript client adds to parsing an update and applying it: the check of its shape."""

import json
import random

from client.test_js import needs_node, run

EXCHANGES = [f"exchange{number}" for number in range(36)]
DEPTH = 100
ADDED_MAX = 0.3  # of parsing and applying: about 0.1, and 0.5 with a shape that is interpreted

# Both are measured in turns and compared turn by turn: other programs slow a turn down as a whole.
MEASURE = """
import { Onebook, parseExact, View } from "MODULE";
const text = process.env.UPDATE;
const BATCHES = 200, SIZE = 5;
const sockets = [];
class Socket {
  readyState = 1;
  constructor() { sockets.push(this); setTimeout(() => this.onopen()); }
  send(sent) {
    const { type, symbol, id } = JSON.parse(sent);
    if (type !== "subscribe_aggregated") return;
    setTimeout(() => this.onmessage({ data:
      JSON.stringify({ type: "aggregated_subscription_response", symbol, id, success: true }) }));
  }
  close() { setTimeout(() => this.onclose({ code: 1000, reason: "" })); }
}
let came = 0, wake = () => {};
const client = new Onebook("http://127.0.0.1:1", "key", { WebSocket: Socket });
let accepted;
const ready = new Promise((resolve) => (accepted = resolve));
const session = client.session({
  view: () => (came += 1) % SIZE || wake(), accepted,
  state: ({ problem }) => { if (problem) { console.error(problem.message); process.exit(1); } },
});
session.subscribe("BTC/USDT", { depth: 100, levels: "array", split: true, ages: true });
const running = session.run();
await ready;
const ratios = [];
for (let batch = 0; batch < BATCHES; batch += 1) {
  let begin = performance.now();
  await new Promise((resolve) => {
    wake = resolve;
    for (let at = 0; at < SIZE; at += 1) sockets[0].onmessage({ data: text });
  });
  const all = performance.now() - begin;
  const view = new View("BTC/USDT");
  begin = performance.now();
  for (let at = 0; at < SIZE; at += 1) view.apply(parseExact(text));
  ratios.push(all / (performance.now() - begin));
}
session.stop();
await running;
console.log(JSON.stringify(ratios.sort((a, b) => a - b)[BATCHES / 2]));
"""


def side(chance: random.Random, sign: int) -> list:
    levels = []
    for place in range(1, DEPTH + 1):
        held = [[name, round(chance.random(), 5)] for name in EXCHANGES if chance.random() < 0.35]
        levels.append([97310 + sign * place, round(sum(a for _, a in held), 5), held])
    return levels


def update() -> dict:
    chance = random.Random(7)
    figures = ("best_bid", "best_ask", "spread", "spread_percent", "mid_price")
    stats = dict.fromkeys((*figures, "total_bid_volume", "total_ask_volume"), 1.5)
    return {
        "type": "aggregated_orderbook_update",
        "symbol": "BTC/USDT",
        "timestamp": "2026-11-20T10:00:00.000000Z",
        "update_number": 1,
        "data": {
            "bids": side(chance, -1),
            "asks": side(chance, 1),
            "market_stats": stats | {"participating_exchanges": 36, "crossed": False},
            "stale_exchanges": [],
            "ages": dict.fromkeys(EXCHANGES, 40),
        },
    }


@needs_node
async def test_the_check_of_an_update_costs_little_beside_parsing_it() -> None:
    ratio = await run(MEASURE, UPDATE=json.dumps(update()))
    print(ratio)
    assert ratio < 1 + ADDED_MAX
