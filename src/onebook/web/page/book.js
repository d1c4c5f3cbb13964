// What the ladder and the chart need of one update; no document in here.

/** One level of `levels: array, split: true`, with the total from the best price to here. */
function rows(levels) {
  let total = 0;
  return levels.map(([price, amount, shares]) => {
    total += amount;
    return { price, amount, total, shares: [...shares].sort((a, b) => b[1] - a[1]) };
  });
}

export function readBook(data) {
  return { bids: rows(data.bids), asks: rows(data.asks), stats: data.market_stats };
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
