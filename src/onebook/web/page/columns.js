// The hour or the day before a past moment, for the charts over time: the book at the end of each column is requested,
// newest first. A column that was not recorded is not requested. Columns begin at multiples of their length and are kept, so
// that another moment requests only those that it adds.

import { readBook } from "./book.js";
import { NOT_RECORDED, viewOf } from "./past.js";

// Times before a moment that the charts can show. The shortest one is played, a column a second (backfill.js).
export const ZOOMS = [
  { seconds: 600, name: "10 min", text: "ten minutes", columnMs: 1_000 },
  { seconds: 3_600, name: "1 h", text: "hour", columnMs: 30_000 },
  { seconds: 86_400, name: "24 h", text: "day", columnMs: 900_000 },
];
const OPEN_MAX = 3; // requests of the page at a time; a connection may have eight
const KEPT_MAX = 600; // columns

let open = 0; // requests of all panels
const waiting = []; // functions that begin one

/** Run a request when the page may have another one. */
async function inTurn(work) {
  if (open >= OPEN_MAX) await new Promise((begin) => waiting.push(begin));
  else open += 1;
  try {
    return await work();
  } finally {
    if (waiting.length) waiting.shift()();
    else open -= 1;
  }
}

export class Columns {
  #site;
  #run = null; // the columns that are being read
  #kept = new Map(); // {book, left}, or null if not recorded, by the time of the end of the column
  #keptAs = ""; // zoom and options of the kept columns

  /**
   * `ask(options, atMs)` requests a book, `recorded(fromMs, toMs)` the recorded times. `ended(problem)` is called when
   * everything was read, or with the message of the error that ended it.
   */
  constructor({ ask, recorded, ended }) {
    this.#site = { ask, recorded, ended };
  }

  /** Read the columns of a zoom until a moment; `options` are those of the levels, `reading` the arguments of `readBook`. */
  async begin(zoom, untilMs, options, reading) {
    const keptAs = JSON.stringify([zoom.seconds, options, reading]);
    if (keptAs !== this.#keptAs) this.#kept.clear();
    this.#keptAs = keptAs;
    const run = (this.#run = { zoom, untilMs, ends: endsOf(zoom, untilMs), bytes: 0, read: 0, changed: true });
    try {
      const { recorded } = await this.#site.recorded(run.ends[0] - zoom.columnMs, untilMs);
      const spans = recorded.map(({ from, to }) => [Date.parse(from) + 1, Date.parse(to)]);
      const due = [...run.ends].reverse().filter((endMs) => {
        if (this.#kept.has(endMs)) return false;
        if (spans.some(([from, to]) => from <= endMs && endMs <= to)) return true;
        this.#keep(endMs, null);
        return false;
      });
      run.changed = true;
      await Promise.all(Array.from({ length: OPEN_MAX }, () => this.#work(run, due, options, reading)));
      if (run !== this.#run) return;
      this.#site.ended("");
    } catch (error) {
      if (run !== this.#run) return;
      this.#run.changed = true;
      this.#site.ended(error.message);
    }
  }

  async #work(run, due, options, reading) {
    while (due.length) {
      await inTurn(async () => {
        if (run !== this.#run) return due.splice(0);
        const endMs = due.shift();
        if (endMs === undefined) return;
        try {
          const found = await this.#read(run, endMs, options, reading);
          this.#keep(endMs, found);
        } catch (error) {
          if (error.code !== NOT_RECORDED) {
            due.splice(0);
            throw error;
          }
          this.#keep(endMs, null);
        }
        run.changed = true;
      });
    }
  }

  async #read(run, atMs, options, reading) {
    const reply = await this.#site.ask(options, atMs);
    run.bytes += JSON.stringify(reply).length;
    run.read += 1;
    const view = viewOf(reply);
    if (!view) throw new Error("A book of this time is damaged.");
    const { bids, asks, marketStats, coverage, fill, staleExchanges } = view;
    const book = readBook({ bids, asks, marketStats, coverage, fill, ...reading, binned: true });
    for (const side of [book.bids, book.asks]) side.forEach(({ price, amount }, at) => (side[at] = { price, amount }));
    return { book, left: staleExchanges };
  }

  #keep(endMs, found) {
    this.#kept.set(endMs, found);
    if (this.#kept.size > KEPT_MAX) this.#kept.delete(this.#kept.keys().next().value);
  }

  /** The columns if any was added since the last call, else null: {columns, missing}, oldest first, and how many were not read. */
  take() {
    const run = this.#run;
    if (!run?.changed) return null;
    run.changed = false;
    const columns = run.ends.map((endMs) => this.#kept.get(endMs));
    return { columns, missing: columns.filter((each) => each === undefined).length };
  }

  /** The books that were read for the last moment, and their bytes before compression. */
  get cost() {
    return { read: this.#run.read, bytes: this.#run.bytes };
  }

  /** Stop reading. */
  leave() {
    this.#run = null;
  }

  clear() {
    this.leave();
  }

  shows() {
    return false;
  }
}

/** When the columns before a moment end, the last one at the moment itself. */
function endsOf({ seconds, columnMs }, untilMs) {
  const count = (seconds * 1_000) / columnMs;
  const last = Math.floor(untilMs / columnMs);
  return Array.from({ length: count }, (_, at) => (at === count - 1 ? untilMs : (last - count + 2 + at) * columnMs - 1));
}

/** When the first column before a moment begins. */
export const originOf = ({ seconds, columnMs }, untilMs) => (Math.floor(untilMs / columnMs) + 1) * columnMs - seconds * 1_000;
