// Components that use the hook, against a real node; prints what they saw as one JSON object.
import { setTimeout as pause } from "node:timers/promises";

import { Onebook } from "onebook";
import { mount } from "react";

import { Books, useOrderBook } from "./useOrderBook.js";

const { ONEBOOK_URL: url, ONEBOOK_KEY: key } = process.env;
const sockets = [];
class Counted extends WebSocket {
  constructor(...words) {
    super(...words);
    sockets.push(this);
  }
}
const booksOf = (apiKey) => new Books(new Onebook(url, apiKey, { WebSocket: Counted }));
const until = async (holds) => {
  while (!holds()) await pause(5);
};
const seen = {};
const [books, strange] = [booksOf(key), booksOf("ob_live_wrong")];
const component = (options, symbol = "BTC/USDT") => mount(() => useOrderBook(books, symbol, options));

const one = component({ depth: 1, intervalMs: 10 });
const five = component({ depth: 5, mode: "delta", intervalMs: 10 });
const same = component({ depth: 1, intervalMs: 10 });
const last = ({ values }) => values.at(-1);
seen.first = [last(one).live, last(one).problem];
await until(() => [one, five, same].every((each) => last(each).live && each.values.length > 5));
seen.levels = [last(one).bids.length, last(five).bids.length];
seen.shared = last(one) === last(same);

const held = last(five);
const before = JSON.stringify(held);
const renders = five.values.length;
await until(() => five.values.length > renders + 3);
seen.kept = JSON.stringify(held) === before && Object.isFrozen(held) && last(five) !== held;

const wrong = component({ depth: 0 });
const unknown = component({}, "NO/SUCH");
await until(() => [wrong, unknown].every((each) => last(each).problem));
seen.problems = [wrong, unknown].map((each) => last(each).problem.code);

one.unmount(); // as in StrictMode: mounted again at once
const again = component({ depth: 1, intervalMs: 10 });
seen.live = last(again).live;
seen.sockets = sockets.length;
for (const each of [again, same, five, wrong, unknown]) each.unmount();
await until(() => sockets.every(({ readyState }) => readyState === WebSocket.CLOSED));
seen.ended = component({ depth: 5, mode: "delta", intervalMs: 10 }).values[0].live;

const stranger = mount(() => useOrderBook(strange, "BTC/USDT"));
await until(() => last(stranger).problem);
seen.stranger = last(stranger).problem.code;
console.log(JSON.stringify(seen));
process.exit(0);
