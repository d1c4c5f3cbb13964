// The delay of each exchange over the last ten minutes: the maximum age of its data in each interval. Only `Sparkline`,
// which draws the delay of one exchange in a cell, accesses the document.

import { quoteAge } from "./format.js";
import { mark } from "./write.js";

export const EVERY_MS = 5_000; // interval of a point
export const POINTS = 120; // ten minutes
export const POINTS_MIN = 24; // minimum points of a line, however short the time
export const EXCHANGES_MAX = 100; // exchanges that are kept
const [LEAST_MS, MOST_MS] = [10, 60_000]; // lower and upper edge of the logarithmic scale
const HEIGHT = 20; // units of the image; a point is one unit wide

export class Delays {
  newest = -1; // number of the current point
  #oldest = 0; // number of the first point
  #points = new Map(); // by exchange: ring buffer of POINTS ages, NaN without data

  /** Add the ages of an update that was this late; exchanges without an age have no data. */
  add(ages, lateMs, nowMs) {
    this.#advance(Math.floor(nowMs / EVERY_MS));
    const at = this.newest % POINTS;
    for (const [exchange, ageMs] of Object.entries(ages)) {
      if (!this.#points.has(exchange)) {
        if (this.#points.size >= EXCHANGES_MAX) continue;
        this.#points.set(exchange, new Float32Array(POINTS).fill(NaN));
      }
      const points = this.#points.get(exchange);
      const delayMs = ageMs + lateMs;
      if (!(points[at] >= delayMs)) points[at] = delayMs;
    }
  }

  #advance(newest) {
    if (this.newest < 0) this.#oldest = newest;
    const passed = this.newest < 0 ? 0 : Math.min(POINTS, newest - this.newest);
    for (let back = 0; back < passed; back += 1) {
      for (const points of this.#points.values()) points[(newest - back) % POINTS] = NaN;
    }
    this.newest = Math.max(this.newest, newest);
  }

  clear() {
    this.#points.clear();
    this.newest = -1;
  }

  /** The maximum number of points of any exchange. */
  get length() {
    return Math.max(POINTS_MIN, Math.min(POINTS, this.newest + 1 - this.#oldest));
  }

  /** The ages of an exchange, oldest first; the last one may still grow. */
  of(exchange) {
    const points = this.#points.get(exchange);
    if (!points) return [];
    const { length } = this;
    return Array.from({ length }, (_, at) => points[(this.newest + 1 - length + at + POINTS) % POINTS]);
  }
}

/** The median and the maximum of the known ages; null if there are none. */
export function figuresOf(ages) {
  const known = ages.filter((age) => !Number.isNaN(age)).sort((a, b) => a - b);
  return known.length ? { median: known[Math.floor((known.length - 1) / 2)], highest: known.at(-1) } : null;
}

/** The line of ages as an SVG path: time to the right, older data higher; without data the line has a gap. */
export function pathOf(ages) {
  let path = "";
  let drawn = false;
  ages.forEach((age, x) => {
    const known = !Number.isNaN(age);
    if (known) path += `${drawn ? "L" : `M${x} ${heightOf(age)}L`}${x + 1} ${heightOf(age)}`; // a single point too
    drawn = known;
  });
  return path;
}

function heightOf(age) {
  const part = Math.log(Math.min(Math.max(age, LEAST_MS), MOST_MS) / LEAST_MS) / Math.log(MOST_MS / LEAST_MS);
  return Number((HEIGHT - 1 - (HEIGHT - 2) * part).toFixed(1));
}

const SVG = "http://www.w3.org/2000/svg";

export class Sparkline {
  #picture = document.createElementNS(SVG, "svg");
  #path = document.createElementNS(SVG, "path");
  #drawn = -1; // the newest drawn point

  constructor(cell) {
    this.#picture.setAttribute("role", "img");
    this.#picture.setAttribute("preserveAspectRatio", "none");
    this.#picture.append(this.#path);
    this.#say("no data yet");
    cell.append(this.#picture);
  }

  /** Draw the data of an exchange, once per point. */
  show(delays, exchange) {
    if (delays.newest === this.#drawn) return;
    this.#drawn = delays.newest;
    const ages = delays.of(exchange);
    const figures = figuresOf(ages);
    mark(this.#picture, "viewBox", `0 0 ${delays.length} ${HEIGHT}`);
    mark(this.#path, "d", pathOf(ages));
    this.#say(figures ? `median ${quoteAge(figures.median)}, highest ${quoteAge(figures.highest)}` : "no data");
  }

  #say(text) {
    mark(this.#picture, "aria-label", `Delay of the last ten minutes: ${text}`);
    this.#picture.parentElement?.setAttribute("title", text);
  }
}
