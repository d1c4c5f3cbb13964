// The shares of exchanges in the levels in sight, as bars on one canvas for the whole ladder: a canvas
// a row would give the browser a layer a row to pass on with every update.

import { ink } from "./palette.js";

const [WIDTH, HEIGHT] = [45, 9]; // CSS pixels of a bar; the width is that of `.shares` in panel.css
const GAP = 1;
const LEAST = 2; // narrower shares could not be seen

export class Shares {
  #context;
  #tops = new Map(); // of each row, from the top of the canvas
  #drawn = new Map(); // the shares of each row
  #place = "";
  #scale = 1;

  constructor(scroller) {
    this.element = document.createElement("canvas");
    this.element.className = "shares";
    this.element.setAttribute("aria-hidden", "true"); // the codes beside it say the same
    this.#context = this.element.getContext("2d");
    scroller.append(this.element);
  }

  /** Cover rows of one height beside `left`; `topOf(row)` is where each begins in the scroller. */
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

  /** Draw [exchange, amount] pairs in a row, the first at the left. */
  show(row, shares) {
    const before = this.#drawn.get(row) ?? [];
    if (same(before, shares)) return;
    this.#drawn.set(row, shares);
    const context = this.#context;
    context.setTransform(this.#scale, 0, 0, this.#scale, 0, this.#tops.get(row) * this.#scale);
    context.clearRect(0, 0, WIDTH, HEIGHT);
    const total = shares.reduce((sum, [, amount]) => sum + amount, 0);
    const room = Math.max(0, WIDTH - shares.length * (GAP + LEAST) + GAP);
    let left = 0;
    for (const [exchange, amount] of shares) {
      const width = LEAST + (room * amount) / total;
      context.fillStyle = ink(exchange, context, this.#scale);
      context.fillRect(left, 0, width, HEIGHT);
      left += width + GAP;
    }
  }
}

/** Whether two lists of shares are the same. */
export function same(some, others) {
  return some.length === others.length
    && some.every(([exchange, amount], at) => exchange === others[at][0] && amount === others[at][1]);
}
