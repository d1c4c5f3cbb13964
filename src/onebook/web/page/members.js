// The exchanges of the subscription: the state reported by the service, its reason, the age of their data,
// and their share of each side.

import { shareOf } from "./book.js";
import { Delays, Sparkline } from "./delays.js";
import { quoteAge } from "./format.js";
import { dress, swatch } from "./palette.js";
import { NO_MARGIN, Sight } from "./sight.js";
import { write } from "./write.js";

const REASONS = {
  unknown_exchange: "unknown to this service",
  symbol_not_traded: "does not trade this symbol",
  unknown_fee: "its fee is unknown",
  no_conversion: "no pair converts its quote",
};

const EVERY_MS = 1_000; // interval of the figures of a row
const HIDDEN_EVERY_MS = 5_000; // interval while the table is not visible

export class Members {
  #body;
  #summary;
  #rows = new Map();
  #wanted = "";
  #book = null; // the newest book
  #known = true; // whether the states are current
  #sight;
  #writtenMs = -Infinity; // when figures were last written
  #next = 0; // the next row to write
  #live = new Delays();
  #delays = this.#live; // none while the past is shown

  constructor(body, summary) {
    this.#body = body;
    this.#summary = summary;
    this.#sight = new Sight(body, () => (this.#writtenMs = -Infinity), NO_MARGIN);
  }

  /** Start a new subscription: accepted exchanges are syncing until the first book arrives.
  *
  * With `keep` it is the same symbol with other options: known states stay.
   */
  begin(accepted, rejected, { keep = false } = {}) {
    const before = keep ? new Map(this.#rows) : new Map();
    this.#rows.clear();
    this.#writtenMs = -Infinity;
    if (!keep) this.#delays.clear();
    this.#book = null;
    this.#body.replaceChildren();
    for (const exchange of accepted) {
      const row = before.get(exchange);
      if (row && row.state !== "unknown") {
        row.seenOut = true;
        this.#rows.set(exchange, row);
        this.#body.append(row.element);
      } else this.#add(exchange, "syncing", "", { seenOut: true });
    }
    for (const { exchange, reason } of rejected) {
      this.#add(exchange, "offline", REASONS[reason] ?? reason, { seenOut: false });
    }
  }

  /** Show only exchanges whose name contains a text. */
  filter(wanted) {
    this.#wanted = wanted;
    for (const [exchange, row] of this.#rows) row.element.hidden = !exchange.includes(wanted);
  }

  /** Handle a changed selection of exchanges. */
  recolour() {
    for (const [exchange, row] of this.#rows) dress(row.colour, exchange);
  }

  /** Handle a lost connection: no state is known. */
  lost() {
    for (const row of this.#rows.values()) this.#write(row, "unknown", "");
  }

  /** Whether the states are current: without updates no exchange is shown as live. */
  set known(known) {
    if (this.#known === known) return;
    this.#known = known;
    this.#writtenMs = -Infinity;
    for (const row of this.#rows.values()) this.#paint(row);
    this.#sum();
  }

  /** Handle an `exchange_status` message. */
  status(exchange, state, reason) {
    const row = this.#rows.get(exchange);
    if (!row) return;
    row.seenOut = false;
    this.#write(row, state, reason);
  }

  /** Begin to show the past, or the present again, with no state known; the delays are those of the present. */
  turn(past) {
    this.#delays = past ? new Delays() : this.#live;
    this.none();
  }

  /** The past has become the present: states go on. */
  reachedPresent() {
    this.#delays = this.#live;
  }

  /** Show no state, age or share. */
  none() {
    this.lost();
    this.#book = null;
    for (const row of this.#rows.values()) {
      row.ageMs = undefined;
      for (const cell of [row.age, row.bids, row.asks]) write(cell, "–");
      row.delay.show(this.#delays, row.element.dataset.exchange);
    }
  }

  /** Show the states of a past moment, by exchange: {state, reason, detail}. */
  then(states) {
    const names = Object.keys(states);
    if (String(names) !== String([...this.#rows.keys()])) this.begin(names, []);
    for (const [exchange, { state, reason, detail }] of Object.entries(states)) {
      const row = this.#rows.get(exchange);
      row.seenOut = false;
      this.#write(row, state, detail || reason);
    }
    this.#writtenMs = -Infinity;
  }

  /** Handle an update: an omitted exchange is no longer live; an included one is live again.
  *
  * A state from `exchange_status` stays until an update has omitted the exchange, because an earlier update
  * may be drawn after it.
   */
  show(book, left, lateMs, nowMs) {
    this.#book = book;
    const delays = { ...book.ages };
    for (const exchange of left) delete delays[exchange];
    if (this.#delays === this.#live) this.#live.add(delays, lateMs, nowMs);
    for (const [exchange, row] of this.#rows) {
      const absent = left.includes(exchange);
      if (absent && row.state === "live") this.#write(row, "stale", "omitted from the book");
      if (!absent && row.seenOut && row.state !== "live") this.#write(row, "live", "");
      row.seenOut = absent || (row.seenOut && row.state !== "live");
      row.ageMs = absent ? undefined : book.ages[exchange];
    }
  }

  /** Write the ages, which grow between updates, and the shares: some rows per call, each about once a second,
   because
  * faster figures are unreadable and the layout of all rows together takes long.
   */
  showFigures(sinceMs, nowMs) {
    const rows = [...this.#rows];
    const { visible } = this.#sight;
    const share = Math.min(1, (nowMs - this.#writtenMs) / (visible ? EVERY_MS : HIDDEN_EVERY_MS));
    const count = Math.floor(share * rows.length);
    if (!count || (!visible && share < 1)) return;
    this.#writtenMs = nowMs;
    const sides = this.#book && [shareOf(this.#book.bids), shareOf(this.#book.asks)];
    for (let at = 0; at < count; at += 1) {
      const [exchange, row] = rows[(this.#next + at) % rows.length];
      if (sides) [row.bids, row.asks].forEach((cell, side) => write(cell, percent(sides[side].of(exchange))));
      const shown = this.#known && row.state === "live" && row.ageMs !== undefined;
      write(row.age, shown ? quoteAge(row.ageMs + sinceMs) : "–");
      row.delay.show(this.#delays, exchange);
    }
    this.#next = (this.#next + count) % rows.length;
  }

  /** The number of live exchanges, out of all. */
  get live() {
    if (!this.#known) return "—";
    const states = [...this.#rows.values()].map((row) => row.state);
    return `${states.filter((state) => state === "live").length} of ${states.length}`;
  }

  #add(exchange, state, reason, { seenOut }) {
    const element = this.#body.insertRow();
    const [name, status] = [0, 1].map(() => element.insertCell());
    const age = figure(element.insertCell());
    const cell = Object.assign(element.insertCell(), { className: "delay" });
    const delay = new Sparkline(cell);
    const [bids, asks] = [0, 1].map(() => figure(element.insertCell()));
    const colour = swatch();
    dress(colour, exchange);
    const whole = document.createElement("span");
    whole.className = "name";
    whole.append(colour, exchange);
    name.append(whole);
    const row = { element, colour, status, age, delay, bids, asks, ageMs: undefined, state: "", seenOut };
    element.dataset.exchange = exchange;
    element.hidden = !exchange.includes(this.#wanted);
    this.#rows.set(exchange, row);
    this.#write(row, state, reason);
  }

  #write(row, state, reason) {
    Object.assign(row, { state, reason });
    this.#paint(row);
    this.#sum();
  }

  #paint(row) {
    const [state, reason] = this.#known ? [row.state, row.reason] : ["unknown", ""];
    const key = `${state} ${reason}`;
    if (row.key === key) return;
    row.key = key;
    row.element.dataset.state = state;
    const word = document.createElement("span");
    word.className = "state";
    word.dataset.state = state;
    word.textContent = state;
    const why = document.createElement("span");
    why.className = "reason";
    why.textContent = state === "live" || reason === state ? "" : reason.replaceAll("_", " ");
    row.status.replaceChildren(word, why);
  }

  /** The number of exchanges in each state. */
  #sum() {
    const counts = new Map();
    for (const { element } of this.#rows.values()) {
      const { state } = element.dataset;
      counts.set(state, (counts.get(state) ?? 0) + 1);
    }
    this.#summary.textContent = [...counts].map(([state, count]) => `${count} ${state}`).join(", ");
  }
}

/** The box inside a cell that text is written to, so that it does not resize the table. */
function figure(cell) {
  const box = document.createElement("span");
  box.className = "number";
  cell.append(box);
  return box;
}

function percent(share) {
  return share ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : "–";
}
