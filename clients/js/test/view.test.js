// What needs no socket: exact numbers, checksums, views, pauses.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import test from "node:test";

import { Onebook, Refused, View, compareDecimals, crc32, parseExact, pauseS } from "../onebook.js";

const update = (number, bids, asks = [], more = {}) =>
  parseExact(
    JSON.stringify({
      type: "aggregated_orderbook_update", symbol: "BTC/USDT", update_number: number,
      timestamp: "2026-11-20T10:00:00.000000Z",
      data: { bids, asks, market_stats: { best_bid: 1 }, stale_exchanges: [] }, ...more,
    }),
  );

test("numbers keep every digit, text and escapes stay", () => {
  const text = String.raw`{"a":[0.10000000000000000001,-5,1e3],"b":"no 1 \" 2","c":{"12":null,"d":true}}`;
  assert.deepEqual(parseExact(text), {
    a: ["0.10000000000000000001", "-5", "1e3"], b: 'no 1 " 2', c: { 12: null, d: true },
  });
});

test("the checksum is the one of the service's documentation", () => {
  assert.equal(crc32("123456789"), 0xcbf43926);
  const view = new View("BTC/USDT");
  assert.ok(view.apply(update(1, [[100, 2], [100.5, 1.75]], [[101, 3]])));
  assert.equal(view.checksum(), crc32("100.5:1.75:100:2:101:3"));
});

test("conversions are those of the update, with exact prices and an age as a number", () => {
  const view = new View("BTC/USDT");
  const data = parseExact(`{"bids": [], "asks": [[100.1, 1]], "market_stats": {}, "stale_exchanges": ["okx:USD"],
    "conversions": [
      {"symbol": "USDC/USDT", "members": ["kraken:USDC"], "exchanges": ["kraken"], "stale_exchanges": [],
        "bid": [0.9990, 500], "ask": [1.000000000000000001, 150], "age_ms": 12, "reason": null},
      {"symbol": "USDT/USD", "members": ["okx:USD"], "exchanges": [], "stale_exchanges": ["kraken"],
        "bid": null, "ask": null, "age_ms": null, "reason": "gap"}]}`);
  assert.ok(view.apply({ type: "aggregated_orderbook_update", update_number: "1", timestamp: "", data }));
  assert.deepEqual(view.conversions, [
    { symbol: "USDC/USDT", members: ["kraken:USDC"], exchanges: ["kraken"], staleExchanges: [],
      bid: ["0.9990", "500"], ask: ["1.000000000000000001", "150"], ageMs: 12, reason: null },
    { symbol: "USDT/USD", members: ["okx:USD"], exchanges: [], staleExchanges: ["kraken"],
      bid: null, ask: null, ageMs: null, reason: "gap" },
  ]);
  view.apply(update(2, []));
  assert.deepEqual(view.conversions, []);
});

test("decimals are ordered by value, beyond the digits of a double", () => {
  const sorted = ["-2", "-0.5", "0", "0.1", "0.10000000000000000001", "2", "10", "100"];
  assert.deepEqual([...sorted].reverse().sort(compareDecimals), sorted);
  assert.equal(compareDecimals("1.50", "1.5"), 0);
});

test("deltas change a view, a wrong number or checksum asks for the full book", () => {
  const view = new View("BTC/USDT");
  view.apply(update(1, [[100, 2], [99, 1]], [[101, 3]]));
  const delta = (number, previous, checksum, bids) => ({
    ...update(number, bids), type: "aggregated_orderbook_delta",
    previous_update_number: previous, checksum,
  });
  assert.ok(view.apply(delta(2, 1, crc32("99:4:101:3"), [[100, 0], [99, 4]])));
  assert.deepEqual(view.bids.map(({ price, amount }) => [price, amount]), [["99", "4"]]);
  assert.equal(view.apply(delta(4, 3, 0, [])), false);
  assert.equal(view.apply(delta(3, 2, 5, [])), false);
});

test("a short update is the best levels and nothing else, and skipped states are those of one update", () => {
  const view = new View("BTC/USDT");
  assert.ok(view.apply(update(8, [[100, 2], [99, 1]], [[101, 3]], { skipped: 5 })));
  assert.equal(view.skipped, 5);
  assert.ok(view.apply(parseExact('{"type":"best","symbol":"BTC/USDT","bid":[100.50,3],"ask":null,"ages":{"okx":4}}')));
  assert.deepEqual(view.bids, [{ price: "100.50", amount: "3", exchanges: [], amounts: [] }]);
  assert.deepEqual([view.asks, view.ages, view.updateNumber], [[], { okx: 4 }, 9]);
  assert.deepEqual([view.timestamp, view.marketStats, view.skipped], ["", {}, 0]);
});

test("deltas are merged by value into a new array, and what has not changed is the same object", () => {
  const view = new View("BTC/USDT");
  view.apply(update(1, [[99, 1], [100, 2], [98.5, 3]], [[101, 3], [102, 1]]));
  const { bids, asks } = view;
  assert.deepEqual(bids.map(({ price }) => price), ["100", "99", "98.5"]);
  const changed = update(2, [[97, 7], [99, 0], [99.5, 5], [55, 0]], [[102, 0], [100.5, 8]]);
  const checksum = crc32("100:2:99.5:5:98.5:3:97:7:100.5:8:101:3");
  assert.ok(view.apply({ ...changed, type: "aggregated_orderbook_delta", previous_update_number: 1, checksum }));
  assert.deepEqual([bids.length, asks.length], [3, 2]);
  assert.ok(view.bids[0] === bids[0] && view.bids[2] === bids[2] && view.asks[1] === asks[0]);
});

test("the best levels are those of the sides, or null", () => {
  const view = new View("BTC/USDT");
  assert.deepEqual([view.bestBid, view.bestAsk], [null, null]);
  view.apply(update(1, [[99, 1], [100, 2]], [[101, 3]]));
  assert.ok(view.bestBid === view.bids[0] && view.bestAsk === view.asks[0] && view.bestBid.price === "100");
  assert.equal(view.copy().bestBid, view.bids[0]);
  view.apply(parseExact('{"type":"best","symbol":"BTC/USDT","bid":[100.50,3],"ask":null}'));
  assert.deepEqual([view.bestBid.price, view.bestAsk], ["100.50", null]);
  view.lose({ code: "gap", message: "x", retryInS: 0 });
  assert.deepEqual([view.bestBid, view.bestAsk], [null, null]);
});

test("attribution is read in both forms, and a copy does not change", () => {
  const view = new View("BTC/USDT");
  view.apply(update(1, [[100, 2, [["okx", 1.5], ["kraken", 0.5]]]]));
  const copy = view.copy();
  view.apply(update(2, [{ price: 99, amount: 1, exchanges: ["okx"] }]));
  assert.deepEqual(copy.bids, [{ price: "100", amount: "2", exchanges: ["okx", "kraken"], amounts: ["1.5", "0.5"] }]);
  assert.deepEqual(view.bids, [{ price: "99", amount: "1", exchanges: ["okx"], amounts: [] }]);
  view.lose({ code: "gap", message: "x", retryInS: 0 });
  assert.deepEqual([view.live, view.bids, view.problem.code], [false, [], "gap"]);
});

test("no symbol is refused at once", () => {
  const client = new Onebook("http://127.0.0.1:1", "the key");
  assert.throws(() => client.watch([]), { name: "Refused", code: "invalid_parameters" });
});

test("a request for transactions has one type or several, and times that are times", async () => {
  const asked = [];
  const fetch = async (url, { body }) => {
    if (url.endsWith("/transactions")) asked.push(JSON.parse(body));
    return new Response(
      '{"session_token":"t","transactions":[],"coverage":[],"errors":[],"partial":false,"next_cursor":null,"summary":{}}',
    );
  };
  const client = new Onebook("http://127.0.0.1:1", "the key", { fetch });
  const read = async (types, options) => {
    for await (const page of client.transactionPages("bybit", types, options)) assert.equal(page.records.length, 0);
  };
  await read("deposits", { start: new Date(5), end: 7 });
  await read(["deposits"], { start: null });
  assert.deepEqual(asked, [
    { exchange: "bybit", limit: 1000, transaction_types: ["deposits"], start_time: 5, end_time: 7 },
    { exchange: "bybit", limit: 1000, transaction_types: ["deposits"] },
  ]);
  for (const start of ["2026-01-01", NaN, new Date("no")]) {
    await assert.rejects(read([], { start }), { name: "TypeError" });
  }
  assert.equal(asked.length, 2);
});

test("a page of several accounts has the transfers between them, and what was verified", async () => {
  const pair = { withdrawal: "0x1", deposit: "0x2", from_account: "kraken", to_account: "okx", asset: "BTC" };
  const said = { own_transfers: { count: 1, pairs: [pair], open: 2, unmatched: [] }, verification: { holds: null } };
  const page = { transactions: [], coverage: [], errors: [], partial: false, next_cursor: null, summary: {} };
  const read = async (exchange, answer) => {
    const fetch = async () => new Response(JSON.stringify({ session_token: "t", ...answer }));
    const client = new Onebook("http://127.0.0.1:1", "the key", { fetch });
    return (await client.transactionPages(exchange).next()).value;
  };
  const several = await read("all", { ...page, ...said });
  assert.deepEqual(several.ownTransfers, {
    count: 1, open: 2, unmatched: [],
    pairs: [{ withdrawal: "0x1", deposit: "0x2", fromAccount: "kraken", toAccount: "okx", asset: "BTC" }],
  });
  assert.deepEqual(several.verification, { holds: null });
  const one = await read("bybit", page);
  assert.deepEqual([one.ownTransfers, one.verification], [null, null]);
});

test("pauses grow with full jitter, 41xx back off, 42xx return at the time given", () => {
  const half = () => 0.5;
  assert.deepEqual([0, 1, 2, 20].map((attempt) => pauseS(1006, attempt, null, half)), [0.125, 0.25, 0.5, 15]);
  assert.deepEqual([0, 1].map((attempt) => pauseS(4108, attempt, null, half)), [0.75, 1.5]);
  assert.equal(pauseS(4200, 9, 0.2, half), 0.2);
  assert.equal(pauseS(1006, 0, 7, half), 7);
});

test("the time of a return counts from the notice, not from the close", { timeout: 5_000 }, async (context) => {
  let now = 1_000_000;
  context.mock.method(performance, "now", () => now);
  class Draining {
    readyState = 0;
    constructor() {
      setImmediate(() => {
        this.readyState = 1;
        this.onopen({ type: "open" });
        this.onmessage({ data: JSON.stringify({ type: "server_shutdown", reconnect_in_ms: 60_000 }) });
        setImmediate(() => {
          now = 1_045_000;
          this.onclose({ type: "close", code: 4200, reason: "the node drains" });
        });
      });
    }
    send() {}
    close() {}
  }
  const client = new Onebook("http://127.0.0.1:1", "key", { WebSocket: Draining });
  for await (const view of client.watch("BTC/USDT")) {
    assert.deepEqual([view.problem.code, view.problem.retryInS], ["server_shutdown", 15]);
    break;
  }
});

class Failing { // as Node 20 has it: no close event where no connection was made
  readyState = 0;
  constructor() {
    queueMicrotask(() => this.onerror({ type: "error" }));
  }
  close() {}
}

const nothingListens = async () => {
  throw Object.assign(new TypeError("fetch failed"), { cause: { code: "ECONNREFUSED" } });
};

test("attempts to connect, and sessions that ended, leave no listener on a signal", { timeout: 5_000 }, async (context) => {
  const signals = new Set();
  const add = EventTarget.prototype.addEventListener;
  context.mock.method(EventTarget.prototype, "addEventListener", function (...words) {
    if (this instanceof AbortSignal) signals.add(this);
    return add.apply(this, words);
  });
  const listeners = () => Math.max(0, ...[...signals].map((each) => getEventListeners(each, "abort").length));
  const client = new Onebook("http://127.0.0.1:1", "key", { WebSocket: Failing, fetch: nothingListens, random: () => 0 });
  const { signal } = new AbortController();
  let most = 0;
  const state = () => (most = Math.max(most, listeners()));
  await assert.rejects(client.session({ attemptsMax: 20, signal, state }).run(), { code: "unreachable" });
  assert.ok(signals.size > 0 && most <= 1, `${most} listeners`);
  assert.equal(getEventListeners(signal, "abort").length, 0);
});

test("a socket with an error event alone is a failed attempt, known at once", { timeout: 5_000 }, async () => {
  const client = new Onebook("http://127.0.0.1:1", "key", { WebSocket: Failing, fetch: nothingListens });
  for await (const view of client.watch("BTC/USDT")) {
    assert.deepEqual([view.live, view.problem.code, view.problem.message], [false, "unreachable", "Connection refused by 127.0.0.1:1."]);
    break;
  }
});

test("without a WebSocket requests over HTTP work, and books are refused", async () => {
  const fetch = async () => new Response(JSON.stringify({ status: "ok" }), { status: 200 });
  const client = new Onebook("http://127.0.0.1:1", "key", { WebSocket: undefined, fetch });
  client.WebSocket = undefined; // a newer runtime has a global one
  assert.deepEqual(await client.health(), { status: "ok" });
  assert.throws(() => client.session(), (error) => error instanceof Refused && error.code === "no_websocket");
  assert.throws(() => client.watch("BTC/USDT"), (error) => error.code === "no_websocket");
});

test("a wrong address is refused, and the key is in no listing of the client", () => {
  for (const url of ["", ":8000", "h:port", "h:0", "ftp://h", "http://", "http://[::1"]) {
    assert.throws(() => new Onebook(url, "key"), (error) => error instanceof Refused && error.code === "invalid_url", url);
  }
  const client = new Onebook("http://127.0.0.1:1/", "ob_live_secret", { WebSocket: class {} });
  assert.ok(!JSON.stringify(client).includes("secret"));
  assert.equal(client.addresses.websocket, "ws://127.0.0.1:1/api/v1/ws");
});

test("an address is written as for the Python client", () => {
  const places = {
    "http://h:8000": ["http://h:8000/api/v1", "ws://h:8000/api/v1/ws", "h:8000"],
    "ws://h:1/": ["http://h:1/api/v1", "ws://h:1/api/v1/ws", "h:1"],
    "https://h/books/api/v1/ws": ["https://h/books/api/v1", "wss://h/books/api/v1/ws", "h"],
    "h:8000": ["http://h:8000/api/v1", "ws://h:8000/api/v1/ws", "h:8000"],
    "localhost:8000/": ["http://localhost:8000/api/v1", "ws://localhost:8000/api/v1/ws", "localhost:8000"],
    "books.example": ["https://books.example/api/v1", "wss://books.example/api/v1/ws", "books.example"],
    "[::1]:8000": ["http://[::1]:8000/api/v1", "ws://[::1]:8000/api/v1/ws", "[::1]:8000"],
    "[::1]": ["https://[::1]/api/v1", "wss://[::1]/api/v1/ws", "[::1]"],
  };
  for (const [url, expected] of Object.entries(places)) {
    const { addresses, place } = new Onebook(url, "key", { WebSocket: class {} });
    assert.deepEqual([addresses.rest, addresses.websocket, place], expected);
  }
});
