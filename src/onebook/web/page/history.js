// Mid price and spread of the last minutes, one point per second; kept only while the page is open. Without a mid
// price,
// because a side was empty or the connection was lost, the lines have a gap.

import { inksOf } from "./colour.js";
import { ago, decimals, decimalsMax, fixed, texts } from "./format.js";
import { Sight } from "./sight.js";
import { write } from "./write.js";

const PLACES_MAX = 12; // decimals of exact prices
const POINTS_MAX = 600; // ten minutes
const EVERY_MS = 1_000;
const INKS = ["--ink", "--ask", "--soft", "--line"];
const AXES_FROM_PX = 110; // minimum height of a chart with axes

export class History {
  #element;
  #text;
  #chart = null;
  #lines = [[], [], []]; // seconds, mid, spread
  #nextMs = -Infinity; // start of the next point
  #addedMs = -Infinity;
  #fine = false; // whether prices have more digits than are shown
  #when = "now"; // age or time of the last point
  #live = null; // the lines of the present, while the past is shown
  #sight;

  constructor(element, text) {
    this.#element = element;
    this.#text = text;
    this.#sight = new Sight(element, () => this.#draw());
    new ResizeObserver(() => this.#fit()).observe(element);
    addEventListener("themechange", () => this.#rebuild());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#rebuild());
  }

  /** Add the figures of an update, both null if a side is empty; `fine` as in `readBook`. One of many is not drawn. */
  add({ mid_price: mid, spread }, nowMs, fine = false, draws = true) {
    this.#fine = fine;
    if (mid == null) return this.gap(nowMs);
    const further = nowMs >= this.#nextMs;
    if (further) this.#nextMs = nowMs + EVERY_MS;
    this.#addedMs = nowMs;
    this.#push([nowMs, mid, spread], further);
    if (draws && (!this.#chart || (further && this.#sight.visible))) this.#draw();
  }

  /** Show the time before a past moment, empty at first; without `past`, show the present again. */
  turn(past) {
    if (!past && !this.#live) return;
    if (past) this.#live ??= this.#lines;
    this.#lines = past ? [[], [], []] : this.#live;
    if (!past) this.#live = null;
    this.#nextMs = this.#addedMs = -Infinity;
    this.#text.textContent = this.#when = "";
    this.#rebuild();
  }

  /** Replace all points by [ms, mid, spread], the figures null if unknown. */
  replace(points) {
    this.#lines = [0, 1, 2].map((at) => points.map((point) => (at ? point[at] : (performance.timeOrigin + point[0]) / 1_000)));
    this.#nextMs = -Infinity;
    this.drawFilled();
  }

  /** Interrupt the line between the last point and the next one. */
  gap(nowMs) {
    if (this.#lines[1].at(-1) == null) return; // no point, or a gap
    this.#nextMs = -Infinity;
    this.#push([nowMs, null, null], true);
  }

  #push([nowMs, ...figures], further) {
    const point = [(performance.timeOrigin + nowMs) / 1_000, ...figures]; // monotonic
    this.#lines.forEach((line, at) => {
      if (!further) line.pop(); // the newest update replaces the last point
      line.push(point[at]);
      if (line.length > POINTS_MAX) line.shift();
    });
  }

  /** Write the figures of the newest update, or of the point under the mouse. */
  write() {
    if (this.#chart) this.#report();
  }

  /** Show the age of the last point, which without updates is not now. */
  showFigures(nowMs, live) {
    const last = this.#lines[0].at(-1);
    if (this.#live) this.#when = last === undefined ? "" : new Date(last * 1_000).toLocaleTimeString();
    else this.#when = live ? "now" : ago(nowMs - this.#addedMs, false);
    this.write();
  }

  /** Draw what was added without drawing. */
  drawFilled() {
    if (this.#sight.visible) this.#draw();
  }

  #draw() {
    if (!this.#chart) return this.#rebuild();
    this.#chart.batch(() => this.#chart.setData(this.#lines));
  }

  clear() {
    this.#chart?.destroy();
    this.#chart = null;
    this.#lines = [[], [], []];
    if (this.#live) this.#live = [[], [], []];
    this.#nextMs = -Infinity;
    this.#text.textContent = "";
  }

  #report() {
    if (!this.#when) return; // until the age of the last point is known
    const [times, mids, spreads] = this.#lines;
    const last = mids.at(-1) == null ? mids.length - 2 : mids.length - 1;
    const at = this.#chart?.cursor.left >= 0 ? this.#chart.cursor.idx : last;
    if (at == null || times[at] === undefined) return;
    const when = at === last ? this.#when : new Date(times[at] * 1_000).toLocaleTimeString();
    if (mids[at] === null) return write(this.#text, `${when}: no mid`);
    const most = this.#fine ? decimalsMax({ fine: true }, mids[at]) : PLACES_MAX;
    const places = decimals([...mids.slice(-20), ...spreads.slice(-20)].filter((each) => each !== null), most);
    write(this.#text, `${when}: mid ${fixed(mids[at], places)}, spread ${fixed(spreads[at], places)} (dotted)`);
  }

  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#element;
    if (this.#chart && width && height) {
      if (height >= AXES_FROM_PX === this.#chart.axes[0].show) this.#chart.setSize({ width, height });
      else this.#rebuild();
    }
  }

  #rebuild() {
    this.#chart?.destroy();
    this.#chart = null;
    const { clientWidth: width, clientHeight: height } = this.#element;
    if (!width || !height || !this.#lines[0].length) return;
    const inks = inksOf(this.#element, INKS);
    const line = (scale, name, dash) => ({
      scale, dash, stroke: inks[name], width: 1.25, points: { show: false },
    });
    const { px, family } = inks.label;
    const axis = {
      show: height >= AXES_FROM_PX, stroke: inks["--soft"], font: `${px}px ${family}`, ticks: { show: false },
      grid: { stroke: inks["--line"], width: 1 },
    };
    const options = {
      width,
      height,
      padding: axis.show ? [px / 2, 2 * px, 2, 2] : [2, 2, 2, 2], // a label extends by half beyond the last line
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
      scales: { x: { time: true }, mid: {}, spread: {} },
      axes: [{ ...axis, size: 22, space: 70, values: (_, times) => times.map((each) => new Date(each * 1_000).toLocaleTimeString([], { hour12: false })) }, { ...axis, scale: "mid", size: 62, space: 30, values: (_, mids) => texts(mids) }, { show: false, scale: "spread" }],
      series: [{}, line("mid", "--ink"), line("spread", "--ask", [2, 3])],
      hooks: { setCursor: [() => this.#report()] },
    };
    this.#chart = new uPlot(options, this.#lines, this.#element);
  }
}
