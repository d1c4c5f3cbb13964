// A conversation of the JavaScript client with a real node; prints what it saw as one JSON object.
import { Onebook, ServiceError } from "MODULE";

const { ONEBOOK_URL: url, ONEBOOK_KEY: key, DEAD_URL: dead } = process.env;
const client = new Onebook(url, key);
const seen = {};
const codeOf = async (work) => {
  try {
    await work();
  } catch (error) {
    return error instanceof ServiceError ? [error.constructor.name, error.code, error.message] : [String(error)];
  }
  return null;
};
const first = async (generator) => {
  for await (const value of generator) return value;
};

for await (const view of client.watch("BTC/USDT", { depth: 5, mode: "delta", intervalMs: 10 })) {
  seen.problems ??= [];
  if (view.problem) seen.problems.push(view.problem);
  if (!view.live || view.updateNumber < 5) continue;
  seen.view = view;
  break;
}
seen.book = await client.orderBook("BTC/USDT", { exchanges: ["okx"], depth: 3, encoding: "protobuf" });
const fill = { amounts: ["0.5"] };
seen.fill = (await client.orderBook("BTC/USDT", { fill })).fill;
seen.exchanges = (await client.exchanges()).supportedExchanges;
seen.pairs = (await client.pairs("okx")).pairs;
seen.usage = await client.usage();
seen.valid = (await client.validateCredentials("bybit")).success;
seen.health = await client.health();
seen.records = [];
for await (const record of client.transactions("bybit", ["deposits", "trades"], { pageRecords: 40, includeRaw: true })) {
  seen.records.push(record.transactionId);
  seen.record = record;
}
for await (const page of client.transactionPages("bybit", "deposits")) seen.page = { ...page, records: [] };
seen.errors = {
  exchange: await codeOf(() => first(client.transactions("gemini"))),
  symbol: await codeOf(() => client.orderBook("NO/SUCH")),
  option: await codeOf(() => first(client.watch("BTC/USDT", { depth: 0 }))),
  key: await codeOf(() => new Onebook(url, "ob_live_wrong").usage()),
  keyOfBooks: await codeOf(() => first(new Onebook(url, "ob_live_wrong").watch("BTC/USDT"))),
  dead: await codeOf(() => new Onebook(dead, key, { attemptsMax: 1 }).health()),
  deadBooks: await codeOf(() => first(new Onebook(dead, key).watch("BTC/USDT", { attemptsMax: 1 }))),
  path: await codeOf(() => first(new Onebook(`${url}/wrong`, key).watch("BTC/USDT"))),
};
console.log(JSON.stringify(seen));
