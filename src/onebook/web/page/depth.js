// The depth chart: totals up to a price, drawn by uPlot in the colours of the page.

import { depthLines } from "./book.js";
import { decimals, fixed, short } from "./format.js";

const HEIGHT_PX = 224;
const AXIS_FONT = "11px system-ui, sans-serif";

export class Depth {
  #chart = null;
  #element;
  #lines = [[], [], []];

  constructor(element) {
    this.#element = element;
    new ResizeObserver(() => this.#fit()).observe(element);
    addEventListener("themechange", () => this.#rebuild());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#rebuild());
  }

  show(book) {
    this.#lines = depthLines(book);
    if (!this.#chart) this.#rebuild();
    else this.#chart.setData(this.#lines);
  }

  clear() {
    this.#chart?.destroy();
    this.#chart = null;
    this.#lines = [[], [], []];
  }

  #fit() {
    const width = this.#element.clientWidth;
    if (this.#chart && width) this.#chart.setSize({ width, height: HEIGHT_PX });
  }

  #rebuild() {
    this.#chart?.destroy();
    this.#chart = null;
    const width = this.#element.clientWidth;
    if (!width || !this.#lines[0].length) return;
    this.#chart = new uPlot(this.#options(width), this.#lines, this.#element);
  }

  #options(width) {
    const grid = { stroke: this.#colour("--line"), width: 1 };
    const axis = { stroke: this.#colour("--soft"), grid, ticks: { show: false }, font: AXIS_FONT };
    // A total holds from its level away from the middle: bids to the left, asks to the right.
    return {
      width,
      height: HEIGHT_PX,
      cursor: { y: false, points: { size: 6 } },
      legend: { show: false },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, high * 1.05 || 1] } },
      axes: [
        { ...axis, space: 90, values: (_, prices) => texts(prices) },
        { ...axis, size: 52, values: (_, totals) => totals.map(short) },
      ],
      series: [{}, this.#series("bid", -1), this.#series("ask", 1)],
    };
  }

  #series(side, align) {
    return {
      stroke: this.#colour(`--${side}`),
      fill: this.#colour(`--${side}-bar`),
      width: 1.5,
      spanGaps: true,
      points: { show: false },
      paths: uPlot.paths.stepped({ align }),
    };
  }

  /** A colour as the canvas needs it: resolved for the theme that is shown now. */
  #colour(name) {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    this.#element.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  }
}

function texts(values) {
  const places = decimals(values.map((value) => Number(value.toPrecision(12))), 8);
  return values.map((value) => fixed(value, places));
}
