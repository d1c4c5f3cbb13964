// The ladder: rows are created once, and only changed text is written. In a long ladder, visible rows are written
// with
// every update, the others in turn, each about once in five seconds.

import { now } from "./clock.js";
import { amountDecimals, decimals, decimalsMax, fixed, Places, rounded, unitOf } from "./format.js";
import { holders, measureIn } from "./holders.js";
import { hueOf, paint, pickedCount } from "./palette.js";
import { same, Shares } from "./share.js";
import { mark, write } from "./write.js";

const COLUMNS = ["price", "amount", "total", "who"];
const USUAL_DIGITS = [9, 8]; // characters of a price and an amount that all columns can hold
const HIDDEN_EVERY_MS = 5_000;
const HELD = 3; // exchange names in a row
const SCROLLING = ["PageUp", "PageDown", "Home", "End", " "]; // keys
const MARGIN_ROWS = 4; // written beyond the edges, so that slow scrolling shows no stale row

export class Ladder {
  #asks;
  #bids;
  #scroller;
  #middle;
  #shares;
  #table;
  #widths = USUAL_DIGITS;
  #priceDecimals = 0;
  #pricePlaces = new Places();
  #amountPlaces = new Places();
  #sweptAt = -Infinity; // when invisible rows were last written
  #sweep = 0; // the next invisible row
  #shown = null; // the last arguments of `show`
  #count = 0;
  #sight = [0, 0]; // visible rows: start and exclusive end
  #room = 0; // pixels for exchange names
  #placed = false; // whether nothing that `place` reads has changed
  #scale = 0; // device pixels per CSS pixel when it was placed
  #centred = true; // the middle stays centred until the user scrolls
  #point = null; // {side, index}: the level being read out
  #pinned = false;
  #pointed;
  #drawing = false;

  /** `pointed(level, side, spoken)` is called for the level that is pointed at; null for none. */
  constructor(root, pointed) {
    this.root = root;
    this.#scroller = root.querySelector(".scroller");
    this.#table = root.querySelector(".book");
    this.#middle = root.querySelector(".middle");
    this.#asks = new Side(root.querySelector(".asks"));
    this.#bids = new Side(root.querySelector(".bids"));
    this.#shares = new Shares(this.#scroller);
    this.#pointed = pointed;
    this.#listen();
    const resized = new ResizeObserver(() => {
      this.#room = 0;
      this.#moved();
    });
    for (const each of [root.querySelector("th.who"), this.#scroller, this.#middle, this.#asks.body]) resized.observe(each);
    this.recolour();
  }

  /** Make room for `count` levels per side and find the visible rows: everything that reads the layout. */
  place(count) {
    this.resize(count);
    if (this.#placed && this.#scale === devicePixelRatio) return;
    this.#placed = true;
    this.#scale = devicePixelRatio;
    if (!this.#room) this.#measure();
    if (this.#centred) this.#centre();
    this.#sight = this.#inSight(count);
    this.#coverShares(...this.#sight);
  }

  /** Make rows for `count` levels per side; empty ones keep the page in place until the first book. */
  resize(count) {
    if (this.#count === count) return;
    this.#count = count;
    this.#asks.resize(count);
    this.#bids.resize(count);
    this.#centred = true;
    this.#placed = false;
    this.#sweptAt = -Infinity;
  }

  /** Set the width available for exchange names, and their font. */
  #measure() {
    const cell = this.#asks.rows[0].cells.at(-1);
    measureIn(cell);
    const { paddingLeft, paddingRight } = getComputedStyle(cell);
    this.#room = Math.max(1, cell.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight));
  }

  /** Handle a changed selection of exchanges. */
  recolour() {
    mark(this.root, "data-picked", pickedCount() ? "yes" : "no");
    this.#room = 0;
    this.#placed = false;
    this.#shares.repaint();
    for (const side of [this.#asks, this.#bids]) for (const row of side.rows) row.repaint();
  }

  /** Show the best levels per side; asks are in reverse order, so that the best prices meet. */
  show(book, nowMs) {
    const count = this.#count;
    this.#shown = { book, count };
    const bids = book.bids.slice(0, count);
    const asks = book.asks.slice(0, count);
    const all = [...bids, ...asks];
    const needed = decimals(all.map((row) => row.price), decimalsMax(book, all[0]?.price));
    this.#priceDecimals = this.#pricePlaces.of(needed, nowMs);
    const largest = Math.max(0, bids.at(-1)?.total ?? 0, asks.at(-1)?.total ?? 0);
    const amounts = unitOf(largest);
    const amount = this.#amountPlaces.of(amountDecimals(largest / amounts.unit), nowMs);
    const places = { price: this.#priceDecimals, amount, ...amounts };
    this.#fit(all, places, largest);
    const levelOf = (at) => (at < count ? asks[count - 1 - at] : bids[at - count]);
    const nearest = [book.horizons.asks[0]?.price ?? Infinity, book.horizons.bids[0]?.price ?? 0];
    const bounded = (at, level) => level && (at < count ? level.price > nearest[0] : level.price < nearest[1]);
    const showRow = (at) => this.#rowAt(at).show(levelOf(at), largest, places, this.#room, bounded(at, levelOf(at)));
    const [from, to] = this.#sight;
    for (let at = from; at < to; at += 1) {
      showRow(at);
      this.#shares.show(at, levelOf(at)?.shares ?? []);
    }
    for (const at of this.#due(2 * count, nowMs)) if (at < from || at >= to) showRow(at);
    this.#report(false);
  }

  /** Set the width of the number columns to their longest text. */
  #fit(levels, { price, amount, unit, suffix }, largest) {
    const highest = Math.max(0, ...levels.map((level) => level.price));
    const texts = [fixed(highest, price), fixed(largest / unit, amount) + suffix];
    const widths = texts.map((text, at) => Math.max(USUAL_DIGITS[at], text.length));
    if (this.#widths.join() === widths.join()) return;
    this.#widths = widths;
    this.#table.style.setProperty("--price-digits", widths[0]);
    this.#table.style.setProperty("--amount-digits", widths[1]);
  }

  /** A row, counted from the worst ask. */
  #rowAt(at) {
    return at < this.#count ? this.#asks.rows[at] : this.#bids.rows[at - this.#count];
  }

  #coverShares(from, to) {
    const [asks, bids] = [this.#asks.body.offsetTop, this.#bids.body.offsetTop];
    const { element, cells } = this.#asks.rows[0];
    const height = element.offsetHeight;
    this.#shares.cover(from, to, height, cells.at(-1).offsetLeft, (at) => (at < this.#count ? asks + at * height : bids + (at - this.#count) * height));
  }

  /** The rows to refresh now, visible or not: each within HIDDEN_EVERY_MS. */
  #due(rows, nowMs) {
    const share = Math.min(1, (nowMs - this.#sweptAt) / HIDDEN_EVERY_MS);
    const due = Array.from({ length: Math.ceil(rows * share) }, (_, at) => (this.#sweep + at) % rows);
    this.#sweptAt = nowMs;
    this.#sweep = (this.#sweep + due.length) % rows;
    return due;
  }

  /** A price as written in the ladder; a mid price may need one more decimal. */
  price(value, more = 0) {
    return value == null ? "—" : fixed(value, this.#priceDecimals + (this.#shown?.book.fine ? 0 : more));
  }

  clear() {
    this.#shown = null;
    this.#sweptAt = -Infinity; // write the next book completely
    this.#pricePlaces = new Places();
    this.#amountPlaces = new Places();
    this.#shares.clear();
    for (const side of [this.#asks, this.#bids]) for (const row of side.rows) row.show(undefined, 0, {}, 0);
    this.#report(false);
  }

  /** The visible rows, counted from the worst ask: start and exclusive end. */
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
    scroller.addEventListener("pointerdown", ({ target }) => target === scroller && stopCentring()); // on its scrollbar
    scroller.addEventListener("scroll", () => this.#moved(), { passive: true });
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

  /** Arrow keys move from level to level, with asks above bids; Escape ends this. */
  #key(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Escape") {
      this.#pinned = false;
      return this.#pointTo(null);
    }
    if (SCROLLING.includes(event.key)) this.#centred = false;
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
    this.#report(spoken);
  }

  #rowOf(point) {
    if (!point) return null;
    const { rows } = point.side === "asks" ? this.#asks : this.#bids;
    return rows[point.side === "asks" ? rows.length - 1 - point.index : point.index];
  }

  #report(spoken) {
    const level = this.#point && this.#shown?.book[this.#point.side][this.#point.index];
    this.#pointed(level ?? null, this.#point?.side, spoken);
  }

  /** Handle scrolling and resizing: other rows are visible. */
  #moved() {
    this.#placed = false;
    if (this.#drawing || !this.#shown) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      if (!this.#shown) return;
      this.place(this.#count);
      this.show(this.#shown.book, now());
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
  #texts = [];
  #bar;
  #reach = "";
  #held; // the elements of the names
  #shown = null; // the shares of the written names
  #room = 0; // pixels available when they were written

  constructor(body) {
    this.element = body.insertRow();
    this.element.setAttribute("role", "row"); // explicit, because CSS grid layout removes the table semantics
    this.cells = COLUMNS.map(() => this.element.insertCell());
    this.cells.forEach((cell, at) => {
      cell.setAttribute("role", "cell");
      cell.className = COLUMNS[at];
    });
    this.#held = Array.from({ length: HELD }, () => {
      const name = document.createElement("span");
      name.className = "held";
      name.dataset.hue = "no";
      name.append("");
      return name;
    });
    this.cells[3].append(...this.#held);
    this.#texts = this.cells.slice(0, 3);
    for (const element of this.#texts) element.append("");
    this.#bar = document.createElement("i");
    this.#bar.className = "reach";
    this.cells[0].append(this.#bar);
  }

  /** `bounded`: some exchange's book is not known here, so the amounts are lower bounds. */
  show(level, largest, places, room, bounded = false) {
    mark(this.element, "data-bounded", bounded ? "yes" : "no");
    const reach = level ? `${((100 * level.total) / largest).toFixed(1)}% 100%` : "0% 100%";
    if (this.#reach !== reach) {
      this.#reach = reach;
      this.#bar.style.backgroundSize = reach;
    }
    write(this.#texts[0], level ? fixed(level.price, places.price) : "\u00a0");
    const amount = (value) => rounded(value / places.unit, places.amount) + places.suffix;
    write(this.#texts[1], level ? amount(level.amount) : "");
    write(this.#texts[2], level ? amount(level.total) : "");
    this.#showExchanges(level?.shares ?? [], room);
  }

  /** Handle changed colours: the next drawing writes the names again. */
  repaint() {
    this.#shown = null;
  }

  #showExchanges(shares, room) {
    if (this.#shown && this.#room === room && same(this.#shown, shares)) return;
    this.#shown = shares;
    this.#room = room;
    const { named, more } = holders(shares, room, hueOf);
    const parts = []; // one text per colour, because every text node costs layout
    for (const { exchange, text } of named) {
      const hue = hueOf(exchange);
      if (hue || !parts.length) parts.push({ hue, text });
      else parts.at(-1).text += text;
    }
    if (more) parts.at(-1).text += `+${more}`;
    this.#held.forEach((element, at) => {
      const { hue, text } = parts[at] ?? { hue: null, text: "" };
      write(element, text);
      mark(element, "data-hue", hue ? "yes" : "no");
      if (hue) paint(element, hue);
    });
  }
}
