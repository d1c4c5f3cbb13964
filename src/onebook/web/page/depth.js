// The depth chart: totals by distance from the mid in percent, drawn by uPlot in the colours of the page. It
// subscribes
// to a second view of the symbol, in bins that span the range chosen by the user: updated once a second while the
// chart
// or the heat map is visible, every five seconds otherwise, because the heat map and the ladder use it too. The
// crosshair
// moves by mouse, finger and keys; a zoom outlives updates. The wheel zooms only with Ctrl (which a touchpad pinch
// also
// sends) or while the chart has the focus; otherwise it scrolls the page.

import { depthLines, distanceOf, readBook, unknownAt } from "./book.js";
import { inksOf } from "./colour.js";
import { decimals, short, signed, stepFrom, texts } from "./format.js";
import { Part } from "./part.js";
import { radios } from "./radios.js";
import { Sight } from "./sight.js";
import { RANGES } from "./state.js";
import { mark, write } from "./write.js";

const BINS = 200; // maximum bins per side, except for "all"
const EVERY_MS = 1_000;
const UNSEEN_EVERY_MS = 5_000; // while neither the chart nor the heat map is visible
const OLD_MS = 3_000; // without a newer book the chart is grey
const ALL_PERCENT = 25; // range of "all", with the bins of the widest range
const LEVELS_MAX = 500; // the maximum of the service
const SPARE = 1.05; // factor of the levels requested, so that the mid may move before others are needed
const SPARE_MAX = 1.25;
const INKS = ["--card", "--line", "--soft", "--unknown", "--bid", "--bid-bar", "--ask", "--ask-bar"];
const TICK = 5; // CSS pixels of a horizon mark
const ZOOM = 0.8;
const KEY_STEPS = 40; // arrow key steps across the width

/** The options of a view whose levels cover a range; returns the current options, `before`, while they fit it. */
export function reaching(range, mid, before = null, bins = BINS) {
  const all = range === "all";
  const wide = (mid * (all ? ALL_PERCENT : Number(range))) / 100;
  if (before) {
    const spare = (Number(before.group) * before.depth) / wide;
    if (spare >= 1 && spare <= SPARE_MAX) return before;
  }
  const group = stepFrom(wide / (all ? LEVELS_MAX : bins));
  return { group, depth: Math.min(LEVELS_MAX, Math.ceil((SPARE * wide) / Number(group)) + 1) };
}

export class Depth {
  coverage = {}; // horizons of the exchanges' books
  #chart = null;
  #element;
  #text;
  #lines = [[], [], []];
  #part; // the subscription
  #asked = null; // its options
  #accepted = false; // whether its updates have these options
  #refusal = ""; // the error message, if it was refused
  #unread = null; // its newest update, until drawn
  #unsaid = false; // whether the text is older than the chart
  #book = null; // the newest book drawn
  #mid = null; // reference of the distances
  #inks = null; // colours and font of the theme
  #range;
  #receivedMs = -Infinity; // when the newest update arrived
  #shownMs = -Infinity; // when the update of the drawn book arrived
  #sight;
  #fingers = new Map(); // [x, y] of each finger on the chart, by pointer
  #zoom = null; // {min, max} of the visible distances; null shows the whole range

  /**
   * `view` is the site of a `Part`; `received(book, step, left, timestamp)` is called with each book, `changed(range)` when the user chose
   * another range; `awaited()` returns true while books are visible elsewhere.
   */
  constructor(root, { range, view, received, awaited, changed }) {
    Object.assign(this, { received, awaited });
    this.#part = new Part("depth", view);
    this.#range = range;
    const element = (this.#element = root.querySelector(".depth"));
    this.#text = root.querySelector(".depth-text");
    this.#offer(root.querySelector(".range"), changed);
    this.#sight = new Sight(element, () => (this.#draw(), this.#report()));
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

  #offer(box, changed) {
    const choices = RANGES.map((value) => [value, value === "all" ? value : `${value} %`]);
    radios(box, choices, this.#range, (range) => {
      this.#range = range;
      this.#zoom = null;
      this.#draw();
      this.#report();
      changed(this.#range);
    });
  }

  /**
   * Subscribe with the options that the range needs; `mid` is that of the exact book, `terms` are the exchanges, quotes
   * and fees of the panel, `reading` the arguments of `readBook` for them.
   */
  follow(nowMs, mid, terms, reading) {
    mark(this.#element, "data-old", nowMs - this.#shownMs < OLD_MS ? "no" : "yes");
    if (!mid) return;
    const before = this.#asked;
    const everyMs = this.#sight.visible || !this.#chart || this.awaited() ? EVERY_MS : UNSEEN_EVERY_MS;
    const { group, depth } = reaching(this.#range, mid, before?.range === this.#range ? before : null);
    this.#asked = { group, depth, range: this.#range, reading };
    if (!this.#part.follow({ ...terms, group, depth, interval_ms: everyMs, coverage: true })) return;
    this.#accepted = false;
    this.#unread = null;
    this.#refusal = "";
  }

  /** End the subscription. */
  leave() {
    this.#part.leave();
    this.#asked = this.#unread = null;
  }

  shows(view) {
    return this.#part.shows(view);
  }

  accepted() {
    this.#accepted = true;
  }

  /** Handle a refusal of the view, for example because its key has too many views. Other options are requested again. */
  refused({ message }) {
    this.#refusal = message;
    this.#report();
  }

  /** Handle a change of the view. */
  update({ bids, asks, marketStats, coverage, staleExchanges, timestamp }, nowMs) {
    this.coverage = coverage;
    this.#receivedMs = nowMs;
    if (this.#accepted) this.#unread = { bids, asks, marketStats, coverage, staleExchanges, timestamp, ...this.#asked.reading };
  }

  /** Draw the newest book unless it is drawn already. */
  show(mid) {
    if (!this.#unread || !mid) return;
    const { staleExchanges, timestamp } = this.#unread;
    this.#book = readBook(this.#unread);
    this.#unread = null;
    this.#mid = mid;
    this.#shownMs = this.#receivedMs;
    this.received(this.#book, Number(this.#asked.group), staleExchanges, timestamp);
    this.#unsaid = true;
    if (this.#sight.visible || !this.#chart) this.#draw();
  }

  #draw() {
    if (!this.#book) return;
    this.#lines = depthLines(this.#book, this.#mid);
    if (!this.#chart) this.#rebuild();
    else this.#chart.batch(() => this.#chart.setData(this.#lines)); // now, not after this frame's text updates
  }

  /** Update the text after a new book. */
  write() {
    if (this.#unsaid) this.#report();
    this.#unsaid = false;
  }

  clear() {
    this.#chart?.destroy();
    this.#chart = null;
    this.leave();
    this.coverage = {};
    this.#lines = [[], [], []];
    this.#book = this.#mid = null;
    this.#shownMs = -Infinity;
    this.#zoom = null;
    this.#refusal = "";
    this.#report();
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
    this.#inks = inksOf(this.#element, INKS);
    this.#chart = new uPlot(this.#options(width, height), this.#lines, this.#element);
  }

  /** The distances that are visible without a zoom. */
  #whole() {
    const wide = this.#range === "all" ? null : Number(this.#range);
    const all = this.#lines[0];
    return wide ? { min: -wide, max: wide } : { min: all[0] ?? -ALL_PERCENT, max: all.at(-1) ?? ALL_PERCENT };
  }

  /** Zoom around a place of the chart, 0 to 1; a factor below 1 shows fewer prices. */
  #zoomBy(factor, place) {
    if (!this.#chart) return;
    const all = this.#whole();
    const { min, max } = this.#chart.scales.x;
    const centre = min + (max - min) * place;
    const zoom = { min: centre - (centre - min) * factor, max: centre + (max - centre) * factor };
    const whole = zoom.min <= all.min && zoom.max >= all.max;
    this.#zoomTo(whole ? null : { min: Math.max(zoom.min, all.min), max: Math.min(zoom.max, all.max) });
  }

  #zoomTo(zoom) {
    this.#zoom = zoom;
    this.#chart?.setScale("x", zoom ?? this.#whole());
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

  /** Describe what the crosshair points at, what a zoom shows, or how many books are known throughout the range. */
  #report() {
    const at = this.#chart?.cursor.idx;
    let text = this.#refusal;
    if (at != null && this.#chart.cursor.left >= 0) {
      const [distances, bids, asks] = this.#lines;
      const side = bids[at] == null ? "asks" : "bids";
      const price = this.#mid * (1 + distances[at] / 100);
      const unknown = unknownAt(this.#book, side, this.#exact(price)).length;
      const least = unknown ? "at least " : "";
      text = `${texts([this.#exact(price)])[0]} (${this.#away(distances[at])}): ${least}${short(bids[at] ?? asks[at])} of ${side} from the best price to here`;
      if (unknown) text += `; ${unknown} ${unknown === 1 ? "book is" : "books are"} not known this far out`;
    } else if (this.#zoom) {
      text = `From ${this.#away(this.#zoom.min)} to ${this.#away(this.#zoom.max)}; double-click or press 0 to see all.`;
    } else if (this.#book?.books) {
      const [low, high] = this.#known();
      text = `Known up to ${low.at}: ${low.text}; ${high.at}: ${high.text}.`;
    }
    write(this.#text, text);
  }

  /** How many books are known at both ends of the visible range. */
  #known() {
    const { min, max } = this.#zoom ?? this.#whole();
    return [["bids", min], ["asks", max]].map(([side, distance]) => {
      const known = this.#book.books - unknownAt(this.#book, side, this.#mid * (1 + distance / 100)).length;
      return { at: this.#away(distance), text: `${known} of ${this.#book.books} books` };
    });
  }

  /** A price without the digits that computing it from a distance added. */
  #exact(price) {
    return Number(price.toPrecision(10));
  }

  #away(distance) {
    return `${signed(distance, decimals([Number(distance.toPrecision(3))], 4))} %`;
  }

  #options(width, height) {
    const { label: { px, family } } = this.#inks;
    const axis = { stroke: this.#inks["--soft"], grid: { stroke: this.#inks["--line"], width: 1 }, ticks: { show: false }, font: `${px}px ${family}` };
    // A total applies from its level away from the mid: bids to the left, asks to the right.
    return {
      width,
      height,
      padding: [8, 12, 0, 0],
      cursor: { y: true, points: { size: 6 }, drag: { x: true, y: false, setScale: true } },
      legend: { show: false },
      scales: { x: { time: false, range: () => Object.values(this.#zoom ?? this.#whole()) }, y: { range: (_, low, high) => [0, high * 1.05 || 1] } },
      axes: [
        { ...axis, space: 60, size: 24, values: (_, distances) => distances.map((each) => this.#away(each)) },
        { ...axis, size: 44, space: 24, values: (_, totals) => totals.map(short) },
      ],
      series: [{}, this.#series("bid", -1), this.#series("ask", 1)],
      hooks: {
        drawClear: [(chart) => this.#shadeUnknown(chart)],
        draw: [(chart) => this.#drawKnown(chart)],
        setCursor: [() => this.#report()],
        // After a drag: keep uPlot's range through updates.
        setSelect: [(chart) => {
          if (chart.select.width > 0) {
            const [from, to] = [chart.select.left, chart.select.left + chart.select.width];
            this.#zoom = { min: chart.posToVal(from, "x"), max: chart.posToVal(to, "x") };
          }
        }],
        ready: [(chart) => chart.over.addEventListener("dblclick", () => this.#zoomTo(null))],
      },
    };
  }

  /** Shade the distances at which some exchange's book is not known: the lines are lower bounds there. */
  #shadeUnknown(chart) {
    const { ctx, bbox: { left, top, width, height } } = chart;
    const { bids: [bid], asks: [ask] } = this.#book?.horizons ?? { bids: [], asks: [] };
    ctx.save();
    ctx.fillStyle = this.#inks["--unknown"];
    if (bid) ctx.fillRect(left, top, this.#placeOf(chart, bid) - left, height);
    if (ask) ctx.fillRect(this.#placeOf(chart, ask), top, left + width - this.#placeOf(chart, ask), height);
    ctx.restore();
  }

  /** Draw the number of known books by distance as a line, with a mark on the axis where an exchange's book ends. */
  #drawKnown(chart) {
    if (!this.#book?.books) return;
    const { ctx, bbox: { left, top, width, height } } = chart;
    const { books, horizons } = this.#book;
    const scale = devicePixelRatio;
    const middle = Math.max(left, Math.min(left + width, chart.valToPos(0, "x", true)));
    ctx.save();
    const { "--card": card, "--soft": soft, label: { px, family } } = this.#inks;
    ctx.strokeStyle = ctx.fillStyle = soft;
    ctx.lineWidth = scale;
    ctx.setLineDash([4 * scale, 3 * scale]);
    ctx.font = `${px * scale}px ${family}`;
    for (const [side, edge] of [["bids", left], ["asks", left + width]]) {
      let known = books;
      const y = () => top + height * (1 - known / books) + scale;
      ctx.beginPath();
      ctx.moveTo(middle, y());
      for (const end of horizons[side]) {
        const x = this.#placeOf(chart, end);
        if (x === edge) break;
        ctx.lineTo(x, y());
        known -= 1;
        ctx.lineTo(x, y());
        if (x !== middle) ctx.fillRect(x, top + height - TICK * scale, scale, TICK * scale);
      }
      ctx.lineTo(edge, y());
      ctx.stroke();
      ctx.textAlign = side === "bids" ? "left" : "right";
      const label = [`${known} of ${books} books`, edge + (side === "bids" ? 4 : -4) * scale, y() + 14 * scale];
      ctx.save();
      Object.assign(ctx, { strokeStyle: card, lineWidth: 3 * scale }); // an outline, because the text may cross a line
      ctx.setLineDash([]);
      ctx.strokeText(...label);
      ctx.restore();
      ctx.fillText(...label);
    }
    ctx.restore();
  }

  /** Where the end of a book is on the canvas, clamped to its edges. */
  #placeOf(chart, { price }) {
    const { left, width } = chart.bbox;
    return Math.max(left, Math.min(left + width, chart.valToPos(distanceOf(price, this.#mid), "x", true)));
  }

  #series(side, align) {
    return {
      stroke: this.#inks[`--${side}`],
      fill: this.#inks[`--${side}-bar`],
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
