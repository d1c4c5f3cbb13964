// Two views of one symbol on one connection, changed while it runs; prints what it saw as one JSON object.
import { Onebook } from "MODULE";

const { ONEBOOK_URL: url, ONEBOOK_KEY: key } = process.env;
const client = new Onebook(url, key);
const seen = { refused: [], own: true };
let checked = null; // { holds, resolve }: what is waited for
const session = client.session({
  view: (view, message) => {
    seen.own &&= message === null || (message.view ?? null) === view.view;
    if (checked?.holds(view)) checked.resolve();
  },
  refused: (view, { code, details }) => seen.refused.push([view.view, code, details.view]),
});
const until = (holds) => new Promise((resolve) => (checked = { holds, resolve }));
const running = session.run();

const whole = session.subscribe("BTC/USDT", { depth: 5, mode: "delta", intervalMs: 10 });
const top = session.subscribe("BTC/USDT", { view: "top", depth: 1, intervalMs: 10, exchanges: ["okx"] });
await until(() => whole.updateNumber >= 5 && top.updateNumber >= 5);
seen.first = [whole.bids.length, top.bids.length, top.bids[0].exchanges, whole.view, top.view];
session.subscribe("BTC/USDT", { view: "top", depth: 3, intervalMs: 10 });
await until(() => top.bids.length === 3);
seen.book = (await session.orderBook("BTC/USDT", { view: "top" })).bids.length;
session.subscribe("BTC/USDT", { view: "wrong", depth: 0 });
await until(() => seen.refused.length);
seen.has = [session.has("BTC/USDT"), session.has("BTC/USDT", "top"), session.has("BTC/USDT", "wrong")];
session.unsubscribe("BTC/USDT", "top");
const { data } = await session.ask({ type: "get_subscriptions" });
seen.left = data.subscriptions.map(({ symbol, view }) => [symbol, view ?? null]);
const number = whole.updateNumber;
await until(() => whole.updateNumber > number);
session.stop();
await running;

seen.watched = {};
const choices = { "BTC/USDT": [{ depth: 1 }, { view: "deep", depth: 4 }], "ETH/USDT": { depth: 2 } };
for await (const view of client.watch(choices, { intervalMs: 10 })) {
  if (view.live) seen.watched[`${view.symbol} ${view.view}`] = view.bids.length;
  if (Object.keys(seen.watched).length === 3) break;
}
console.log(JSON.stringify(seen));
