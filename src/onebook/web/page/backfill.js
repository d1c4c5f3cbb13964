// The minutes before a past moment, for the charts over time: a view of the symbol is played fast up to that moment, one
// update a recorded second.

import { PROBE, readBook } from "./book.js";
import { Part } from "./part.js";

export const SPAN_MS = 600_000; // ten minutes, as many as the charts have
const SPEED = 300; // recorded seconds per second: two seconds in all
const INTERVAL_MS = 1_000;
const GRACE_MS = 2_000; // after which a play without an update has nothing more
const LONGEST_MS = 20_000; // on a busy service it is then incomplete

export class Backfill {
  #part;
  #add;
  #untilMs = 0; // the moment
  #endsMs = Infinity; // when it must have ended, by the clock of the page
  #heardMs = Infinity; // when the newest update arrived
  #reading = {};

  /** `view` is the site of a `Part`; `add(book, left, timeMs)` gets each book, or null at the end. */
  constructor({ view, add }) {
    this.#part = new Part("backfill", view);
    this.#add = add;
  }

  /** Play from one time to another; `options` are those of the levels, `reading` the arguments of `readBook`. */
  begin(fromMs, untilMs, options, reading, nowMs) {
    this.leave();
    if (fromMs >= untilMs) return;
    this.#untilMs = untilMs;
    this.#endsMs = nowMs + LONGEST_MS;
    this.#heardMs = Infinity;
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
    this.#end();
  }

  update(view, nowMs) {
    const timeMs = Date.parse(view.timestamp);
    this.#heardMs = nowMs;
    if (!view.past || timeMs > this.#untilMs) return this.#end();
    const { bids, asks, marketStats, coverage, fill, staleExchanges } = view;
    this.#add(readBook({ bids, asks, marketStats, coverage, fill, ...this.#reading }), staleExchanges, timeMs);
  }

  /** End it when nothing more is to come; called twice a second. */
  check(nowMs) {
    if (!this.busy) return;
    if (nowMs >= this.#endsMs || nowMs - this.#heardMs >= GRACE_MS) this.#end();
  }

  #end() {
    this.leave();
    this.#add(null, [], this.#untilMs);
  }
}
