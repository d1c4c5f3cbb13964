// The ladder: rows are made once and only their changed texts are written.

import { amountDecimals, decimals, fixed } from "./format.js";
import { code, dress } from "./palette.js";

const PRICE_DECIMALS_MAX = 12;

export class Ladder {
  #asks;
  #bids;
  #priceDecimals = 0;

  constructor(asks, bids) {
    this.#asks = new Side(asks);
    this.#bids = new Side(bids);
  }

  /** Show the `count` best levels a side; asks stand upside down, so that the best meet. */
  show({ bids, asks }, count) {
    const shownBids = bids.slice(0, count);
    const shownAsks = asks.slice(0, count);
    const all = [...shownBids, ...shownAsks];
    this.#priceDecimals = decimals(all.map((row) => row.price), PRICE_DECIMALS_MAX);
    const largest = Math.max(0, ...all.map((row) => row.total));
    const places = { price: this.#priceDecimals, amount: amountDecimals(largest) };
    this.#asks.show(shownAsks.reverse(), count, { largest, places, padFirst: true });
    this.#bids.show(shownBids, count, { largest, places, padFirst: false });
  }

  /** A price as the ladder writes it; a mid price may need one more decimal. */
  price(value, more = 0) {
    return value == null ? "—" : fixed(value, this.#priceDecimals + more);
  }

  clear() {
    this.#asks.clear();
    this.#bids.clear();
  }
}

class Side {
  #body;
  #rows = [];

  constructor(body) {
    this.#body = body;
  }

  show(levels, count, { largest, places, padFirst }) {
    this.#resize(count);
    const pad = padFirst ? count - levels.length : 0;
    this.#rows.forEach((row, index) => row.show(levels[index - pad], largest, places));
  }

  clear() {
    for (const row of this.#rows) row.show(undefined, 0, {});
  }

  #resize(count) {
    while (this.#rows.length < count) this.#rows.push(new Row(this.#body));
    while (this.#rows.length > count) this.#rows.pop().element.remove();
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
    this.codes = document.createElement("span");
    this.codes.className = "codes";
    this.cells[3].append(this.bar, this.codes);
  }

  show(level, largest, places) {
    this.element.style.setProperty("--reach", level ? `${(100 * level.total) / largest}%` : "0%");
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
    this.cells[3].title = text;
    this.bar.setAttribute("role", "img");
    this.bar.setAttribute("aria-label", text);
    const total = shares.reduce((sum, [, amount]) => sum + amount, 0);
    this.bar.replaceChildren(...shares.map(([exchange, amount]) => segment(exchange, amount / total)));
    this.codes.textContent = shares.map(([exchange]) => code(exchange)).join(" ");
  }
}

function segment(exchange, share) {
  const part = document.createElement("i");
  part.style.flexGrow = String(100 * share); // growths that sum to less than 1 would not fill
  dress(part, exchange);
  return part;
}
