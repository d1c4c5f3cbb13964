// Draws the shares of the picked exchanges in the visible levels as coloured bars over grey. The whole ladder has one
// canvas: with one per row, the browser would composite a layer per row with every update.

import { colour } from "./colour.js";
import { hueOf } from "./palette.js";

const [WIDTH, HEIGHT] = [45, 8]; // CSS pixels of a bar; the width is that of `.shares` in panel.css
const LEAST = 2; // narrower shares would be invisible

export class Shares {
  #context;
  #tops = new Map(); // offset of each row from the top of the canvas
  #drawn = new Map(); // the shares of each row
  #place = "";
  #scale = 1;
  #inks = new Map(); // colours by the names of variables, as the theme has them

  constructor(scroller) {
    this.element = document.createElement("canvas");
    this.element.className = "shares";
    this.element.setAttribute("aria-hidden", "true"); // the names beside it have the same information
    this.#context = this.element.getContext("2d");
    scroller.append(this.element);
    const repaint = () => this.repaint();
    addEventListener("themechange", repaint);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  }

  /** Cover the rows `from` to `to`, exclusive, at `left`; `topOf(row)` is the top of a row in the scroller. */
  cover(from, to, height, left, topOf) {
    const top = topOf(from);
    const place = [from, to, left, top, topOf(to - 1), height, devicePixelRatio].join(" ");
    if (this.#place === place) return;
    this.#place = place;
    this.#scale = devicePixelRatio;
    this.#drawn.clear();
    this.#tops.clear();
    for (let row = from; row < to; row += 1) this.#tops.set(row, topOf(row) - top + (height - HEIGHT) / 2);
    const whole = topOf(to - 1) + height - top;
    Object.assign(this.element, { width: Math.round(WIDTH * this.#scale), height: Math.round(whole * this.#scale) });
    Object.assign(this.element.style, { left: `${left}px`, top: `${top}px`, height: `${whole}px` });
  }

  clear() {
    for (const row of this.#drawn.keys()) this.show(row, []);
  }

  /** Handle changed colours: the next drawing draws everything. */
  repaint() {
    this.#inks.clear();
    for (const row of this.#drawn.keys()) this.#drawn.set(row, null);
  }

  #ink(name) {
    if (!this.#inks.has(name)) this.#inks.set(name, colour(this.element.parentElement, name));
    return this.#inks.get(name);
  }

  /** Draw [exchange, amount] pairs in a row: the picked ones from the left, then the sum of all others. */
  show(row, shares) {
    const before = this.#drawn.has(row) ? this.#drawn.get(row) : [];
    if (before && same(before, shares)) return;
    this.#drawn.set(row, shares);
    const context = this.#context;
    context.setTransform(this.#scale, 0, 0, this.#scale, 0, this.#tops.get(row) * this.#scale);
    context.clearRect(0, 0, WIDTH, HEIGHT);
    if (!shares.some(([exchange]) => hueOf(exchange))) return;
    const total = shares.reduce((sum, [, amount]) => sum + amount, 0);
    context.fillStyle = this.#ink("--edge");
    context.fillRect(0, HEIGHT - LEAST, WIDTH, LEAST);
    let left = 0;
    for (const [exchange, amount] of shares) {
      const hue = hueOf(exchange);
      if (!hue) continue;
      const width = Math.max(LEAST, (WIDTH * amount) / total);
      context.fillStyle = this.#ink(hue);
      context.fillRect(left, 0, width, HEIGHT);
      left += width;
    }
  }
}

/** Whether two lists of shares are the same. */
export function same(some, others) {
  return some.length === others.length
    && some.every(([exchange, amount], at) => exchange === others[at][0] && amount === others[at][1]);
}
