// The age of the best prices by the exchanges' own clocks: the time since data last arrived, which each update has, plus
// the time that a message takes from the exchange to the service. That changes slowly, so it is requested seldom: with
// each update it would be most of the update.

import { quoteAge } from "./format.js";

const EVERY_MS = 10_000; // between two requests
const KEPT_MS = 60_000; // for which an answer is used
const UNKNOWN = { ms: 0, exact: false };

export class PriceAges {
  #delays = new Map(); // by exchange: {ms, exact}
  #askedMs = -Infinity;
  #knownMs = -Infinity;
  #asked = 0; // number of the last request

  /** Request the times if they are due; `request()` returns a promise of a view with them. */
  follow(nowMs, request) {
    if (nowMs - this.#askedMs < EVERY_MS) return;
    this.#askedMs = nowMs;
    const mine = (this.#asked += 1);
    request()?.then(({ times }) => {
      if (mine !== this.#asked) return; // of another symbol
      this.#delays = delaysOf(times);
      this.#knownMs = nowMs;
    }, () => {}); // they stay unknown
  }

  clear() {
    this.#delays.clear();
    this.#askedMs = this.#knownMs = -Infinity;
    this.#asked += 1;
  }

  /**
   * The age of the best prices of a book, `sinceMs` after its update: that of the oldest; a lower bound if the transit
   * time of one is unknown, empty if its arrival is unknown.
   */
  text({ bids, asks, ages }, sinceMs, nowMs) {
    const names = [bids[0], asks[0]].flatMap((level) => level?.shares.map(([name]) => name) ?? []);
    const known = nowMs - this.#knownMs < KEPT_MS;
    const delays = names.map((name) => (known && this.#delays.get(name)) || UNKNOWN);
    const oldest = Math.max(...names.map((name, at) => (ages[name] ?? NaN) + delays[at].ms));
    if (!Number.isFinite(oldest)) return "";
    return `${delays.every(({ exact }) => exact) ? "" : "≥ "}${quoteAge(oldest + sinceMs)} old`;
  }
}

/** Return the transit time of the newest best price of each exchange, if known. */
export function delaysOf(times) {
  const found = new Map();
  for (const [name, { top, offset, error }] of Object.entries(times?.exchanges ?? {})) {
    if (top.exchange === null || offset === null) continue;
    const ms = Math.max(0, (top.received - offset - top.exchange) / 1_000);
    found.set(name, { ms, exact: error !== null }); // without an error the offset includes the least delay
  }
  return found;
}
