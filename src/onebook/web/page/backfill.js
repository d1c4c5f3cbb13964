// The minutes before a past moment, for the charts over time: a view of the symbol is played fast up to that moment, one
// update a recorded second.

import { PROBE, readBook } from "./book.js";
import { Part } from "./part.js";

export const SPAN_MS = 600_000; // ten minutes, as many as the charts have
const SPEED = 300; // recorded seconds per second: two seconds in all
const INTERVAL_MS = 1_000;
const LONGEST_MS = 30_000; // on a busy service it then stays incomplete

export class Backfill {
  #part;
  #add;
  #ended;
  #untilMs = 0; // the moment
  #endsMs = Infinity; // when it must have ended, by the clock of the page
  #reading = {};

  /**
   * `view` is the site of a `Part`; `add(book, left, timeMs)` gets each book; `ended(whole)` is called at the end: whether
   * nothing is missing until the moment.
   */
  constructor({ view, add, ended }) {
    this.#part = new Part("backfill", view);
    this.#add = add;
    this.#ended = ended;
  }

  /** Play from one time to another; `options` are those of the levels, `reading` the arguments of `readBook`. */
  begin(fromMs, untilMs, options, reading, nowMs) {
    this.leave();
    if (fromMs >= untilMs) return;
    this.#untilMs = untilMs;
    this.#endsMs = nowMs + LONGEST_MS;
    this.#reading = { ...reading, binned: true };
    const probe = options.net ? {} : { fill: { amounts: [PROBE] } };
    const start = new Date(fromMs).toISOString();
    this.#part.follow({ ...options, ...probe, coverage: true, interval_ms: INTERVAL_MS, start, speed: SPEED });
  }

  /** Whether it has not reached the moment. */
  get busy() {
    return this.#endsMs !== Infinity;
  }

  leave() {
    this.#part.leave();
    this.#endsMs = Infinity;
  }

  clear() {
    this.leave();
  }

  shows(view) {
    return this.#part.shows(view);
  }

  accepted() {}

  refused() {
    this.#end(false);
  }

  update(view) {
    const timeMs = Date.parse(view.timestamp);
    // A quiet book has its next update after the moment.
    if (!view.past || timeMs > this.#untilMs) return this.#end(true);
    const { bids, asks, marketStats, coverage, fill, staleExchanges } = view;
    this.#add(readBook({ bids, asks, marketStats, coverage, fill, ...this.#reading }), staleExchanges, timeMs);
  }

  /** Give up when it takes too long; called twice a second. */
  check(nowMs) {
    if (nowMs >= this.#endsMs) this.#end(false);
  }

  #end(whole) {
    this.leave();
    this.#ended(whole);
  }
}
