// The shares of exchanges in a level, as a bar on a canvas: an element for each share would cost the
// browser a style and a layout of its own at every update.

import { ink } from "./palette.js";

const [WIDTH, HEIGHT] = [45, 9]; // CSS pixels, as `.share` in panel.css
const GAP = 1;
const LEAST = 2; // narrower shares could not be seen

export class Share {
  #context;
  #scale = 0;

  constructor() {
    this.element = document.createElement("canvas");
    this.element.className = "share";
    this.element.setAttribute("aria-hidden", "true"); // the codes beside it say the same
    this.#context = this.element.getContext("2d");
  }

  /** Draw [exchange, amount] pairs, the first at the left. */
  show(shares) {
    this.#begin();
    const total = shares.reduce((sum, [, amount]) => sum + amount, 0);
    const room = Math.max(0, WIDTH - shares.length * (GAP + LEAST) + GAP);
    let left = 0;
    for (const [exchange, amount] of shares) {
      const width = LEAST + (room * amount) / total;
      this.#context.fillStyle = ink(exchange, this.#context, this.#scale);
      this.#context.fillRect(left, 0, width, HEIGHT);
      left += width + GAP;
    }
  }

  /** An empty canvas, sharp on the screen that it is on now. */
  #begin() {
    const context = this.#context;
    if (this.#scale === devicePixelRatio) return context.clearRect(0, 0, WIDTH, HEIGHT);
    this.#scale = devicePixelRatio;
    Object.assign(this.element, {
      width: Math.round(WIDTH * this.#scale),
      height: Math.round(HEIGHT * this.#scale),
    });
    context.scale(this.#scale, this.#scale);
  }
}
