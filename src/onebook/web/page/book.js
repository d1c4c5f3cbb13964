// Computes totals, best prices by exchange and crossings from one update; does not access the document.

import { decimals } from "./format.js";

/** Levels as numbers, with running totals from the best price, and the largest share first. */
function rows(levels) {
  let total = 0;
  let cost = 0;
  return levels.map((level) => {
    const [price, amount] = [Number(level.price), Number(level.amount)];
    total += amount;
    cost += price * amount;
    const shares = level.exchanges.map((name, at) => [name, Number(level.amounts[at])]);
    return { price, amount, total, cost, shares: shares.sort((a, b) => b[1] - a[1]) };
  });
}

/** Convert every decimal text among the members of an object to a number. */
function numbers(members, names = Object.keys(members)) {
  const given = names.filter((name) => typeof members[name] === "string");
  return { ...members, ...Object.fromEntries(given.map((name) => [name, Number(members[name])])) };
}

const FILL_NUMBERS = ["size", "amount", "notional", "average", "worst", "levels"];
const fills = (given) =>
  given.map((fill) => ({
    ...numbers(fill, FILL_NUMBERS),
    split: fill.split.map((part) => numbers(part, ["amount", "notional"])),
  }));

/** The smallest amount that the service prices: its cost is the best price, whatever the step. */
export const PROBE = "0.000000000000000001";
const isProbe = ({ by, size }) => by === "amount" && size === Number(PROBE);

/** Convert a view of the client for display: a double is exact enough for a screen.
*
* With a price step the service bins levels and computes its figures from the bins; with the fill of `PROBE`
* the figures are those of the exact books again, and `binned` means that only the levels are not exact.
 */
export function readBook({ bids, asks, marketStats, ages, fill, coverage = {} }) {
  const [buys, sells] = [fills(fill.buy ?? []), fills(fill.sell ?? [])];
  const [ask, bid] = [buys, sells].map((side) => side.find(isProbe));
  const asked = (side) => side.filter((each) => !isProbe(each));
  return {
    bids: rows(bids),
    asks: rows(asks),
    stats: { ...numbers(statsOf(marketStats)), ...(ask && bid && exactStats(bid.worst, ask.worst)) },
    ages,
    fill: fill.buy ? { buy: asked(buys), sell: asked(sells) } : null,
    binned: ask !== undefined,
    horizons: horizonsOf(coverage),
    books: Object.keys(coverage).length, // with a known horizon
  };
}

/** The figures of a view by their names on the wire, as used by the page. */
const statsOf = ({ bestBid, bestAsk, spread, spreadPercent, midPrice, crossed }) => ({
  best_bid: bestBid, best_ask: bestAsk, spread, spread_percent: spreadPercent, mid_price: midPrice, crossed,
});

/** Where the books of exchanges end: {bids, asks}, each a list of {exchange, price}, nearest first. */
function horizonsOf(coverage) {
  const side = (name, nearest) =>
    Object.entries(coverage)
      .filter(([, ends]) => ends[name] !== null)
      .map(([exchange, ends]) => ({ exchange, price: Number(ends[name]) }))
      .sort((a, b) => nearest * (a.price - b.price));
  return { bids: side("bids", -1), asks: side("asks", 1) };
}

/** The exchanges whose books are not known at a price of a side: amounts there are lower bounds. */
export function unknownAt({ horizons }, side, price) {
  const beyond = (end) => (side === "asks" ? price > end.price : price < end.price);
  const known = horizons[side].findIndex((end) => !beyond(end));
  return horizons[side].slice(0, known < 0 ? undefined : known).map(({ exchange }) => exchange);
}

/** The figures of a best bid and a best ask; null if a side is empty. */
function exactStats(bid, ask) {
  const best = { best_bid: bid, best_ask: ask };
  if (bid === null || ask === null) return { ...best, mid_price: null, spread: null, spread_percent: null, crossed: false };
  const places = decimals([bid, ask], 18);
  const mid = Number(((bid + ask) / 2).toFixed(places + 1));
  const spread = Number((ask - bid).toFixed(places));
  return { ...best, mid_price: mid, spread, spread_percent: (100 * spread) / mid, crossed: bid >= ask };
}

/** The amount of each exchange on each side, over the delivered levels. */
export function shareOf(side) {
  const amounts = new Map();
  let total = 0;
  for (const { shares } of side) {
    for (const [exchange, amount] of shares) {
      amounts.set(exchange, (amounts.get(exchange) ?? 0) + amount);
      total += amount;
    }
  }
  return { of: (exchange) => (total ? (amounts.get(exchange) ?? 0) / total : 0) };
}

/** By how much bids (above 0) or asks (below 0) predominate in the best `count` levels per side. */
export function imbalance({ bids, asks }, count) {
  if (!bids.length || !asks.length) return null;
  const [bid, ask] = [bids, asks].map((side) => side[Math.min(count, side.length) - 1].total);
  return (bid - ask) / (bid + ask);
}

/** The best price and amount of each exchange on a side. */
function bestOf(side) {
  const best = new Map();
  for (const { price, shares } of side) {
    for (const [exchange, amount] of shares) {
      if (!best.has(exchange)) best.set(exchange, { exchange, price, amount });
    }
  }
  return [...best.values()];
}

/** The result of buying on one exchange and selling on another: `left` is per unit, after both fees. */
function pairOf(buy, sell, feeOf) {
  const gap = sell.price - buy.price;
  const fees = (buy.price * feeOf(buy.exchange) + sell.price * feeOf(sell.exchange)) / 100;
  return { buy, sell, gap, left: gap - fees, amount: Math.min(buy.amount, sell.amount) };
}

/**
 * Pairs of exchanges where one bids at or above the ask of the other, best after fees first.
 *
 * `feeOf` returns the taker fee of an exchange in percent.
 */
export function crossings({ bids, asks }, feeOf) {
  const sellers = bestOf(bids);
  const pairs = bestOf(asks).flatMap((buy) =>
    sellers
      .filter((sell) => sell.price >= buy.price && sell.exchange !== buy.exchange)
      .map((sell) => pairOf(buy, sell, feeOf)));
  return pairs.sort((a, b) => b.left - a.left);
}

/** Up to `count` pairs of exchanges with the nearest ask and bid, nearest first. */
export function nearest({ bids, asks }, feeOf, count) {
  // The best of each side, and one more, contain them: only the pair of an exchange with itself is excluded.
  const [sellers, buyers] = [bids, asks].map((side) => bestOf(side).slice(0, count + 1));
  const pairs = buyers.flatMap((buy) =>
    sellers.filter(({ exchange }) => exchange !== buy.exchange).map((sell) => pairOf(buy, sell, feeOf)));
  return pairs.sort((a, b) => b.gap - a.gap).slice(0, count);
}

/** The cost of a fill with fees: the sum of fees, and the average price including them. */
export function withFees(fill, direction, feeOf) {
  const sign = direction === "buy" ? 1 : -1;
  const fees = fill.split.reduce((sum, part) => sum + (part.notional * feeOf(part.exchange)) / 100, 0);
  return { fees, average: fill.amount ? (fill.notional + sign * fees) / fill.amount : null };
}

/** The distance of a price from the mid, in percent of the mid. */
export const distanceOf = (price, mid) => (100 * (price - mid)) / mid;

/** The totals by distance from the mid as one x axis and two lines; prices of a crossed market are sorted. */
export function depthLines({ bids, asks }, mid) {
  const points = [
    ...bids.map(({ price, total }) => [distanceOf(price, mid), total, null]),
    ...asks.map(({ price, total }) => [distanceOf(price, mid), null, total]),
  ].sort((a, b) => a[0] - b[0]);
  return [0, 1, 2].map((column) => points.map((point) => point[column]));
}

/** Counts the events of the last seconds. */
export class Rate {
  #times = [];
  constructor(windowMs) {
    this.windowMs = windowMs;
  }
  add(at) {
    this.#times.push(at);
  }
  perSecond(now) {
    this.#forget(now);
    return this.#times.length / (this.windowMs / 1_000);
  }
  /** Events per second between the first and the last one; 0 for fewer than three events. */
  between(now) {
    this.#forget(now);
    if (this.#times.length < 3) return 0;
    return (this.#times.length - 1) / ((this.#times.at(-1) - this.#times[0]) / 1_000);
  }
  #forget(now) {
    while (this.#times.length && this.#times[0] < now - this.windowMs) this.#times.shift();
  }
}
