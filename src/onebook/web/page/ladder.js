// The ladder: rows are made once and only their changed texts are written. Of a long ladder the
// rows in sight follow every update, the others once a second.

import { amountDecimals, decimals, fixed } from "./format.js";
import { code, dress } from "./palette.js";

const PRICE_DECIMALS_MAX = 12;
const HIDDEN_EVERY_MS = 1_000;
const MARGIN_ROWS = 4; // beyond the edges, so that slow scrolling shows no old row

export class Ladder {
  #asks;
  #bids;
  #scroller;
  #middle;
  #priceDecimals = 0;
  #sweptAt = -Infinity;
  #shown = null; // the last arguments of `show`
  #count = 0;
  #centred = true; // until somebody scrolls, the middle stays in the middle
  #point = null; // {side, index}: the level that is read out
  #pinned = false;
  #told;
  #drawing = false;

  /** `told(level, side, spoken)` is called for the level that is pointed at; null for none. */
  constructor(root, told) {
    this.#scroller = root.querySelector(".scroller");
    this.#middle = root.querySelector(".middle");
    this.#asks = new Side(root.querySelector(".asks"));
    this.#bids = new Side(root.querySelector(".bids"));
    this.#told = told;
    this.#listen();
  }

  /** Show the `count` best levels a side; asks stand upside down, so that the best meet. */
  show(book, count, now) {
    this.#shown = { book, count };
    const bids = book.bids.slice(0, count);
    const asks = book.asks.slice(0, count);
    const all = [...bids, ...asks];
    this.#priceDecimals = decimals(all.map((row) => row.price), PRICE_DECIMALS_MAX);
    const largest = Math.max(0, bids.at(-1)?.total ?? 0, asks.at(-1)?.total ?? 0);
    const places = { price: this.#priceDecimals, amount: amountDecimals(largest) };
    if (this.#count !== count) {
      this.#count = count;
      this.#asks.resize(count);
      this.#bids.resize(count);
      this.#centred = true;
      this.#sweptAt = -Infinity;
    }
    if (this.#centred) this.#centre();
    const whole = now - this.#sweptAt >= HIDDEN_EVERY_MS;
    if (whole) this.#sweptAt = now;
    const [from, to] = whole ? [0, 2 * count] : this.#inSight(count);
    for (let at = from; at < Math.min(to, count); at += 1) {
      this.#asks.rows[at].show(asks[count - 1 - at], largest, places);
    }
    for (let at = Math.max(from, count); at < to; at += 1) {
      this.#bids.rows[at - count].show(bids[at - count], largest, places);
    }
    this.#tell(false);
  }

  /** A price as the ladder writes it; a mid price may need one more decimal. */
  price(value, more = 0) {
    return value == null ? "—" : fixed(value, this.#priceDecimals + more);
  }

  clear() {
    this.#shown = null;
    for (const side of [this.#asks, this.#bids]) for (const row of side.rows) row.show(undefined, 0, {});
    this.#tell(false);
  }

  /** Rows that can be seen, counted from the worst ask: from, and to before. */
  #inSight(count) {
    const { scrollTop, clientHeight } = this.#scroller;
    const height = this.#asks.rows[0]?.element.offsetHeight || 1;
    const first = Math.floor(scrollTop / height) - MARGIN_ROWS;
    const last = first + Math.ceil(clientHeight / height) + 2 * MARGIN_ROWS;
    return [Math.max(0, first), Math.min(2 * count, last)];
  }

  #centre() {
    const { offsetTop, offsetHeight } = this.#asks.body;
    this.#scroller.scrollTop = offsetTop + offsetHeight + this.#middle.offsetHeight / 2 - this.#scroller.clientHeight / 2;
  }

  #listen() {
    const scroller = this.#scroller;
    const stopCentring = () => (this.#centred = false);
    for (const event of ["wheel", "touchmove"]) scroller.addEventListener(event, stopCentring, { passive: true });
    scroller.addEventListener("scroll", () => this.#redraw(), { passive: true });
    scroller.addEventListener("pointerover", ({ target, pointerType }) => {
      if (pointerType === "mouse" && !this.#pinned) this.#pointAt(target);
    });
    scroller.addEventListener("pointerleave", () => this.#pinned || this.#pointTo(null));
    scroller.addEventListener("click", ({ target }) => {
      const before = this.#point;
      this.#pointAt(target);
      const same = before && this.#point && before.side === this.#point.side && before.index === this.#point.index;
      this.#pinned = !(this.#pinned && same) && this.#point !== null;
      if (!this.#pinned) this.#pointTo(null);
    });
    scroller.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Arrow keys go from level to level, asks above bids; Escape ends it. */
  #key(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Escape") {
      this.#pinned = false;
      return this.#pointTo(null);
    }
    if (!step || !this.#shown) return;
    event.preventDefault();
    const { count } = this.#shown;
    const place = this.#point
      ? (this.#point.side === "asks" ? count - 1 - this.#point.index : count + this.#point.index) + step
      : count + (step < 0 ? -1 : 0);
    const at = Math.max(0, Math.min(2 * count - 1, place));
    this.#centred = false;
    this.#pinned = true;
    this.#pointTo(at < count ? { side: "asks", index: count - 1 - at } : { side: "bids", index: at - count }, true);
    this.#rowOf(this.#point)?.element.scrollIntoView({ block: "nearest" });
  }

  #pointAt(target) {
    const element = target.closest("tr");
    for (const [name, side] of [["asks", this.#asks], ["bids", this.#bids]]) {
      const at = side.rows.findIndex((row) => row.element === element);
      if (at >= 0) return this.#pointTo({ side: name, index: name === "asks" ? side.rows.length - 1 - at : at });
    }
    this.#pointTo(null);
  }

  #pointTo(point, spoken = false) {
    this.#rowOf(this.#point)?.element.removeAttribute("data-pointed");
    this.#point = point;
    this.#rowOf(point)?.element.setAttribute("data-pointed", "");
    this.#tell(spoken);
  }

  #rowOf(point) {
    if (!point) return null;
    const { rows } = point.side === "asks" ? this.#asks : this.#bids;
    return rows[point.side === "asks" ? rows.length - 1 - point.index : point.index];
  }

  #tell(spoken) {
    const level = this.#point && this.#shown?.book[this.#point.side][this.#point.index];
    this.#told(level ?? null, this.#point?.side, spoken);
  }

  #redraw() {
    if (this.#drawing || !this.#shown) return;
    this.#drawing = true;
    requestAnimationFrame((now) => {
      this.#drawing = false;
      if (this.#shown) this.show(this.#shown.book, this.#shown.count, now);
    });
  }
}

class Side {
  rows = [];

  constructor(body) {
    this.body = body;
  }

  resize(count) {
    while (this.rows.length < count) this.rows.push(new Row(this.body));
    while (this.rows.length > count) this.rows.pop().element.remove();
  }
}

class Row {
  #written = [];

  constructor(body) {
    this.element = body.insertRow();
    this.cells = [0, 1, 2, 3].map(() => this.element.insertCell());
    this.cells[3].className = "who";
    this.bar = document.createElement("span");
    this.bar.className = "share";
    this.bar.setAttribute("aria-hidden", "true"); // the codes beside it say the same
    this.codes = document.createElement("span");
    this.codes.className = "codes";
    this.cells[3].append(this.bar, this.codes);
  }

  show(level, largest, places) {
    const reach = level ? `${((100 * level.total) / largest).toFixed(1)}%` : "0%";
    if (this.#written[4] !== reach) {
      this.#written[4] = reach;
      this.element.style.setProperty("--reach", reach);
    }
    this.#text(0, level ? fixed(level.price, places.price) : "\u00a0");
    this.#text(1, level ? fixed(level.amount, places.amount) : "");
    this.#text(2, level ? fixed(level.total, places.amount) : "");
    this.#who(level?.shares ?? []);
  }

  #text(index, text) {
    if (this.#written[index] === text) return;
    this.#written[index] = text;
    this.cells[index].textContent = text;
  }

  #who(shares) {
    const text = shares.map(([exchange, amount]) => `${exchange} ${amount}`).join(", ");
    if (this.#written[3] === text) return;
    this.#written[3] = text;
    const total = shares.reduce((sum, [, amount]) => sum + amount, 0);
    while (this.bar.childElementCount > shares.length) this.bar.lastChild.remove();
    while (this.bar.childElementCount < shares.length) this.bar.append(document.createElement("i"));
    shares.forEach(([exchange, amount], at) => {
      const part = this.bar.children[at];
      part.style.flexGrow = String((100 * amount) / total); // growths below 1 would not fill
      dress(part, exchange);
    });
    this.codes.textContent = shares.map(([exchange]) => code(exchange)).join(" ");
  }
}
