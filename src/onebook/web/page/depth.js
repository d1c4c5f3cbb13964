// The depth chart: totals up to a price, drawn by uPlot in the colours of the page, with a
// crosshair that can be moved by mouse, finger and keys, and a zoom that outlives updates. A wheel zooms
// only with Ctrl, which is also what a pinch of a touchpad comes as, or while the chart has the focus:
// otherwise it scrolls the page.

import { depthLines, unknownAt } from "./book.js";
import { colour } from "./colour.js";
import { decimals, fixed, PRICE_DECIMALS_MAX, short } from "./format.js";
import { Sight } from "./sight.js";
import { write } from "./write.js";

const AXIS_FONT = "11px system-ui, sans-serif";
const ZOOM = 0.8;
const KEY_STEPS = 40; // of the width, for one arrow key

export class Depth {
  #chart = null;
  #element;
  #text;
  #hint;
  #lines = [[], [], []];
  #book = null; // the newest
  #sight;
  #fingers = new Map(); // [x, y] of each that is on the chart, by pointer
  #zoom = null; // {min, max} of the prices in sight; null shows all

  constructor(element, text) {
    this.#element = element;
    this.#text = text;
    this.#hint = text.textContent;
    this.#sight = new Sight(element, () => this.#draw());
    new ResizeObserver(() => this.#fit()).observe(element);
    addEventListener("themechange", () => this.#rebuild());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#rebuild());
    element.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("pointerdown", (event) => this.#finger(event));
    element.addEventListener("pointermove", (event) => this.#finger(event));
    for (const end of ["pointerup", "pointercancel"]) {
      element.addEventListener(end, ({ pointerId }) => this.#fingers.delete(pointerId));
    }
  }

  show(book) {
    this.#book = book;
    if (this.#sight.visible || !this.#chart) this.#draw();
  }

  #draw() {
    if (!this.#book) return;
    this.#lines = depthLines(this.#book);
    if (!this.#chart) return this.#rebuild();
    this.#chart.batch(() => { // at once, not after the texts of this frame
      this.#chart.setData(this.#lines, this.#zoom === null);
      if (this.#zoom) this.#chart.setScale("x", this.#zoom);
    });
    this.#report();
  }

  clear() {
    this.#chart?.destroy();
    this.#chart = null;
    this.#lines = [[], [], []];
    this.#book = null;
    this.#zoom = null;
    this.#text.textContent = this.#hint;
  }

  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#element;
    if (this.#chart && width && height) this.#chart.setSize({ width, height });
    else if (!this.#chart) this.#rebuild();
  }

  #rebuild() {
    this.#chart?.destroy();
    this.#chart = null;
    const { clientWidth: width, clientHeight: height } = this.#element;
    if (!width || !height || !this.#lines[0].length) return;
    this.#chart = new uPlot(this.#options(width, height), this.#lines, this.#element);
    if (this.#zoom) this.#chart.setScale("x", this.#zoom);
  }

  /** Zoom around a place of the chart, 0 to 1; a factor below 1 shows fewer prices. */
  #zoomBy(factor, place) {
    if (!this.#chart) return;
    const all = this.#lines[0];
    const { min, max } = this.#chart.scales.x;
    const centre = min + (max - min) * place;
    const zoom = { min: centre - (centre - min) * factor, max: centre + (max - centre) * factor };
    const whole = zoom.min <= all[0] && zoom.max >= all.at(-1);
    this.#zoomTo(whole ? null : { min: Math.max(zoom.min, all[0]), max: Math.min(zoom.max, all.at(-1)) });
  }

  #zoomTo(zoom) {
    this.#zoom = zoom;
    const all = this.#lines[0];
    this.#chart?.setScale("x", zoom ?? { min: all[0], max: all.at(-1) });
    this.#report();
  }

  #wheel(event) {
    if (!this.#chart || !(event.ctrlKey || this.#element === document.activeElement)) return;
    event.preventDefault();
    const { left, width } = this.#chart.over.getBoundingClientRect();
    this.#zoomBy(event.deltaY < 0 ? ZOOM : 1 / ZOOM, (event.clientX - left) / width);
  }

  /** One finger moves the crosshair, two zoom by the change of their distance. */
  #finger({ type, pointerType, pointerId, clientX, clientY }) {
    if (!this.#chart || pointerType === "mouse") return;
    const { left, top, width } = this.#chart.over.getBoundingClientRect();
    const apart = () => distance(...this.#fingers.values());
    const before = this.#fingers.size === 2 ? apart() : null;
    if (type === "pointerdown" || this.#fingers.has(pointerId)) this.#fingers.set(pointerId, [clientX, clientY]);
    if (this.#fingers.size < 2) this.#chart.setCursor({ left: clientX - left, top: clientY - top });
    else if (before && this.#fingers.size === 2 && apart()) {
      const centre = [...this.#fingers.values()].reduce((sum, [x]) => sum + x / 2, 0);
      this.#zoomBy(before / apart(), (centre - left) / width);
    }
  }

  #key(event) {
    if (!this.#chart) return;
    const width = this.#chart.over.clientWidth;
    const left = this.#chart.cursor.left >= 0 ? this.#chart.cursor.left : width / 2;
    const act = {
      "+": () => this.#zoomBy(ZOOM, left / width),
      "-": () => this.#zoomBy(1 / ZOOM, left / width),
      0: () => this.#zoomTo(null),
      Escape: () => this.#chart.setCursor({ left: -10, top: -10 }),
      ArrowLeft: () => this.#chart.setCursor({ left: Math.max(0, left - width / KEY_STEPS), top: 0 }),
      ArrowRight: () => this.#chart.setCursor({ left: Math.min(width, left + width / KEY_STEPS), top: 0 }),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }

  /** What the crosshair is at. */
  #report() {
    const at = this.#chart?.cursor.idx;
    let text = this.#hint;
    if (at != null && this.#chart.cursor.left >= 0) {
      const [prices, bids, asks] = this.#lines;
      const side = bids[at] == null ? "asks" : "bids";
      const unknown = unknownAt(this.#book, side, prices[at]).length;
      const least = unknown ? "at least " : "";
      text = `${texts(prices)[at]}: ${least}${short(bids[at] ?? asks[at])} of ${side} from the best price to here`;
      if (unknown) text += `; ${unknown} ${unknown === 1 ? "book is" : "books are"} not known this far out`;
    } else if (this.#zoom) {
      const [from, to] = texts([this.#zoom.min, this.#zoom.max].map((each) => Number(each.toPrecision(7))));
      text = `From ${from} to ${to}; double-click or press 0 to see all.`;
    }
    write(this.#text, text);
  }

  #options(width, height) {
    const grid = { stroke: colour(this.#element, "--line"), width: 1 };
    const axis = { stroke: colour(this.#element, "--soft"), grid, ticks: { show: false }, font: AXIS_FONT };
    // A total holds from its level away from the middle: bids to the left, asks to the right.
    return {
      width,
      height,
      cursor: { y: true, points: { size: 6 }, drag: { x: true, y: false, setScale: true } },
      legend: { show: false },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, high * 1.05 || 1] } },
      axes: [
        { ...axis, space: 90, size: 28, values: (_, prices) => texts(prices) },
        { ...axis, size: 52, values: (_, totals) => totals.map(short) },
      ],
      series: [{}, this.#series("bid", -1), this.#series("ask", 1)],
      hooks: {
        drawClear: [(chart) => this.#shadeUnknown(chart)],
        setCursor: [() => this.#report()],
        // A drag: what uPlot then shows is kept through updates.
        setSelect: [(chart) => {
          if (chart.select.width > 0) {
            const [from, to] = [chart.select.left, chart.select.left + chart.select.width];
            this.#zoom = { min: chart.posToVal(from, "x"), max: chart.posToVal(to, "x") };
          }
        }],
        ready: [(chart) => chart.over.addEventListener("dblclick", () => (this.#zoom = null))],
      },
    };
  }

  /** Shade the prices at which some exchange's book is not known: the lines are lower bounds there. */
  #shadeUnknown(chart) {
    const { ctx, bbox: { left, top, width, height } } = chart;
    const { bids: [bid], asks: [ask] } = this.#book?.horizons ?? { bids: [], asks: [] };
    const place = (price) => Math.max(left, Math.min(left + width, chart.valToPos(price, "x", true)));
    ctx.save();
    ctx.fillStyle = colour(this.#element, "--unknown");
    if (bid) ctx.fillRect(left, top, place(bid.price) - left, height);
    if (ask) ctx.fillRect(place(ask.price), top, left + width - place(ask.price), height);
    ctx.restore();
  }

  #series(side, align) {
    return {
      stroke: colour(this.#element, `--${side}`),
      fill: colour(this.#element, `--${side}-bar`),
      width: 1.5,
      dash: side === "ask" ? [6, 3] : undefined, // distinguishable without colour
      spanGaps: true,
      points: { show: false },
      paths: uPlot.paths.stepped({ align }),
    };
  }
}

function distance([x, y], [otherX, otherY]) {
  return Math.hypot(x - otherX, y - otherY);
}

function texts(values) {
  const places = decimals(values.map((value) => Number(value.toPrecision(12))), PRICE_DECIMALS_MAX);
  return values.map((value) => fixed(value, places));
}
