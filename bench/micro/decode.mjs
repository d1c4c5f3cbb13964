// The updates of decode.py with our JavaScript client: node decode.mjs FILE RUNS
// Prints the median nanoseconds of CPU time of each form, with the collector and compiler of Node.
// JSON is not checked for its shape here, as the session does before.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { PackedReader, View, parseExact, updateOf } from "../../src/onebook/web/client/onebook.js";

const TURN_NS = 100e6;
const { table, protobuf, ...texts } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const runs = Number(process.argv[3]);
const binary = protobuf.map((hex) => Uint8Array.from(Buffer.from(hex, "hex")).buffer);

const ways = {
  protobuf: () => {
    const [view, reader] = [new View("BTC/USDT"), new PackedReader(table, {})];
    return [view, binary, (frame) => view.apply(reader.message(updateOf(frame)))];
  },
  "protobuf alone": () => [null, binary, updateOf],
};
for (const [name, frames] of Object.entries(texts)) {
  ways[name] = () => {
    const view = new View("BTC/USDT");
    return [view, frames, (text) => view.apply(parseExact(text))];
  };
}

function spentNs() {
  const { user, system } = process.cpuUsage(); // microseconds
  return 1000 * (user + system);
}

let sum = 0; // so that nothing is optimised away
const reads = {
  best: ({ bestBid, bestAsk }) => (sum += bestBid.price.length + bestAsk.price.length),
  levels: ({ bids, asks }) => {
    for (const side of [bids, asks]) for (const { price, amount, exchanges } of side) sum += price.length + amount.length + exchanges.length;
  },
};

const found = {};
for (const [which, read] of Object.entries(reads)) {
  const costs = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
  const ended = {};
  for (let run = 0; run <= runs; run += 1) {
    for (const [name, way] of Object.entries(ways)) {
      const turn = [];
      const until = spentNs() + TURN_NS;
      while (!turn.length || spentNs() < until) {
        const [view, frames, apply] = way();
        const began = spentNs();
        for (const frame of frames) {
          if (!apply(frame)) throw new Error(`${name}: not valid`);
          if (view) read(view);
        }
        turn.push((spentNs() - began) / frames.length);
        if (view) ended[name] = [view.bids, view.asks].map((side) => side.map(({ price, amount }) => [price, amount]));
      }
      if (run) costs[name].push(turn.reduce((a, b) => a + b) / turn.length); // the first run warms up
    }
  }
  for (const name of Object.keys(ended)) assert.deepEqual(ended[name], ended.array);
  found[which] = Object.fromEntries(Object.entries(costs).map(([name, each]) => [name, each.sort((a, b) => a - b)[runs >> 1]]));
}
assert.ok(sum);
console.log(JSON.stringify(found));
