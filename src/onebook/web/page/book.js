// Computes totals and shares from one update; does not access the document.

import { decimals } from "./format.js";

/**
 * Levels as numbers, with running totals from the best price, and the largest share first: [exchange, amount], and in
 * net books the price before its fee.
 */
function rows(levels) {
  let total = 0;
  let cost = 0;
  return levels.map((level) => {
    const [price, amount] = [Number(level.price), Number(level.amount)];
    total += amount;
    cost += price * amount;
    const { gross } = level;
    const shares = level.exchanges.map((name, at) =>
      (gross ? [name, Number(level.amounts[at]), Number(gross[at])] : [name, Number(level.amounts[at])]));
    return { price, amount, total, cost, shares: shares.sort((a, b) => b[1] - a[1]) };
  });
}

/** Convert the decimal texts among the members of an object to numbers. */
export function numbers(members) {
  const number = (value) => (typeof value === "string" && value && !isNaN(value) ? Number(value) : value);
  return Object.fromEntries(Object.entries(members).map(([name, value]) => [name, number(value)]));
}

/** The smallest amount that the service prices: its cost is the best price, whatever the step. */
export const PROBE = "0.000000000000000001";
const isProbe = ({ by, size }) => by === "amount" && Number(size) === Number(PROBE);
const worstOf = ({ worst }) => (worst === null ? null : Number(worst));

/**
 * Convert a view of the client for display: a double is exact enough for a screen.
 *
 * With a price step (`binned`) the service bins levels and computes its figures from the bins; with the fill of `PROBE`
 * they are exact again. `feeOf` returns the fees of a book after fees, else null. `fine` prices have more decimals than a
 * screen needs.
 */
export function readBook({ bids, asks, marketStats, ages = {}, fill = {}, coverage = {}, binned = false, feeOf = null, fine = false }) {
  const [ask, bid] = [fill.buy, fill.sell].map((side) => side?.find(isProbe));
  return {
    bids: rows(bids),
    asks: rows(asks),
    stats: { ...numbers(statsOf(marketStats)), ...(ask && bid && exactStats(worstOf(bid), worstOf(ask))) },
    ages,
    binned,
    fine,
    horizons: horizonsOf(coverage, feeOf),
    books: Object.keys(coverage).length, // with a known horizon
  };
}

/** The figures of a view by their names on the wire, as used by the page. */
const statsOf = ({ bestBid, bestAsk, spread, spreadPercent, midPrice, crossed }) => ({
  best_bid: bestBid, best_ask: bestAsk, spread, spread_percent: spreadPercent, mid_price: midPrice, crossed,
});

/**
 * Where the books of exchanges end: {bids, asks}, each a list of {exchange, price}, nearest first. The service has the
 * prices before fees; a book after fees ends at that price after the fee of its exchange.
 */
function horizonsOf(coverage, feeOf) {
  const side = (name, nearest) =>
    Object.entries(coverage)
      .filter(([, ends]) => ends[name] !== null)
      .map(([exchange, ends]) => {
        const fee = feeOf ? Number(feeOf(exchange)) / 100 : 0;
        return { exchange, price: Number(ends[name]) * (1 + nearest * fee) };
      })
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
