// What the page needs of one update: totals, best prices by exchange, crossings; no document here.

/** Levels as numbers, with totals from the best price to here and the largest share first. */
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

/** Every decimal text among the members of an object as a number. */
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

/** What is shown of a view of the client: a double is exact enough for a screen. */
export function readBook({ bids, asks, marketStats, ages, fill }) {
  return {
    bids: rows(bids),
    asks: rows(asks),
    stats: numbers(marketStats),
    ages,
    fill: fill.buy ? { buy: fills(fill.buy), sell: fills(fill.sell) } : null,
  };
}

/** What each exchange has of each side, of the delivered levels. */
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

/** How much more there is of bids (above 0) or of asks (below), of the delivered levels. */
export function imbalance({ stats }) {
  const { total_bid_volume: bids, total_ask_volume: asks } = stats;
  return bids == null || asks == null ? null : (bids - asks) / (bids + asks);
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

/**
 * Pairs of exchanges, the widest gap first: buy at the ask of one, sell at the bid of the other.
 *
 * A gap of 0 or more is a crossing. `feeOf` gives the taker fee of an exchange in percent;
 * `left` is what remains of one unit of the base currency after both fees.
 */
export function crossings({ bids, asks }, feeOf, most) {
  const pairs = [];
  const sellers = bestOf(bids).slice(0, most * 2);
  for (const buy of bestOf(asks).slice(0, most * 2)) {
    for (const sell of sellers) {
      if (buy.exchange === sell.exchange) continue;
      const fees = (buy.price * feeOf(buy.exchange) + sell.price * feeOf(sell.exchange)) / 100;
      const gap = sell.price - buy.price;
      pairs.push({ buy, sell, gap, left: gap - fees, amount: Math.min(buy.amount, sell.amount) });
    }
  }
  return pairs.sort((a, b) => b.gap - a.gap).slice(0, most);
}

/** What a fill costs with fees: the sum of fees, and the average price after them. */
export function withFees(fill, direction, feeOf) {
  const sign = direction === "buy" ? 1 : -1;
  const fees = fill.split.reduce((sum, part) => sum + (part.notional * feeOf(part.exchange)) / 100, 0);
  return { fees, average: fill.amount ? (fill.notional + sign * fees) / fill.amount : null };
}

/** The totals as one x axis and two lines; prices of a crossed market are put in order. */
export function depthLines({ bids, asks }) {
  const points = [
    ...bids.map(({ price, total }) => [price, total, null]),
    ...asks.map(({ price, total }) => [price, null, total]),
  ].sort((a, b) => a[0] - b[0]);
  return [0, 1, 2].map((column) => points.map((point) => point[column]));
}

/** Counts what came in the last seconds. */
export class Rate {
  #times = [];
  constructor(windowMs) {
    this.windowMs = windowMs;
  }
  add(at) {
    this.#times.push(at);
  }
  perSecond(now) {
    while (this.#times.length && this.#times[0] < now - this.windowMs) this.#times.shift();
    return this.#times.length / (this.windowMs / 1_000);
  }
}
