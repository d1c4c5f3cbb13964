// The heat map of liquidity: price x time x amount over the last minutes, or up to a day before a past moment, with the
// best bid and ask as lines. Marks along the time axis show where the market was crossed, exchanges were lost, and prices
// were withdrawn.
//
// Each second is one column of a hidden canvas (`ring`), painted once and again with each update in that second;
// the visible canvas is a copy of it in at most two pieces. The ring is repainted only if its prices, colours or size
// change. Sizes come from observers, so that updates do not read the layout.

import { inksOf } from "./colour.js";
import { amountDecimals, decimals, fixed, PRICE_DECIMALS_MAX, sixDigits } from "./format.js";
import { COLUMN_MS, COLUMNS, CROSSED, Liquidity, LOST, OUTAGE, RANGE_MAX_PERCENT, stepOf } from "./liquidity.js";
import { Sight } from "./sight.js";
import { mark, write } from "./write.js";

const SPANS = [60, 120, 300, 600]; // columns to choose from; by default the fewest that show all data
const BINS_MAX = 112; // bins shown; columns have more, so that their middle may differ
const BIN_PX = 2; // minimum height
const MIDDLE = 0.3; // share of the shown prices on each side of their middle, within which the mid stays
const SHADES = 64; // shades per side
const DECADES = 2; // of amounts, from the faintest colour to the brightest
const LANES = 9; // CSS pixels below the prices for marks along the time axis
const LEAST_MARK = 2; // minimum width
const LINE = 1.25; // width of the best prices
const FOOT = 16; // height of the time labels
const FAR_MS = 6_000; // how long a book with a longer range is shown without a newer one
const INKS = ["--card", "--unknown", "--bid", "--bid-bar", "--ask", "--ask-bar", "--soft", "--ink", "--warn", "--bad"];
const LABEL_EVERY = 36;
const DRAW_EVERY_MS = 400; // minimum, because a column is a second and a canvas costs more than its new pixels
const SAY_EVERY_MS = 5_000; // interval of the text alternative
const HINT = "Point at a cell or use the arrow keys; + and − change the time.";
const PAST_HINT = "Drag to move in time; double-click or Enter goes to the crosshair.";
const KEYS = "Arrow keys move the crosshair, plus and minus change the time shown, Escape removes the crosshair.";
const PAST_KEYS = "Page up and page down go back and forth in time, Enter goes to the moment of the crosshair.";
const PAGE = 1 / 4; // of the time shown
const DAY_MS = 86_400_000;
const DATED = { weekday: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" };

export class Heat {
  liquidity = new Liquidity();
  #element;
  #text;
  #spoken;
  #canvas = document.createElement("canvas");
  #context = this.#canvas.getContext("2d", { alpha: true });
  #ring = document.createElement("canvas");
  #brush = this.#ring.getContext("2d");
  #image = null; // the pixels of the ring
  #pixels = null; // the same pixels as one number each
  #bins = 0; // number of bins shown
  #lowest = 0; // the lowest bin shown
  #size = { width: 0, height: 0 }; // CSS pixels
  #scale = 1; // device pixels of a CSS pixel
  #plot = { width: 0, height: 0, bin: 1 }; // device pixels; `bin` is the height of a bin
  #inks = null; // colours of the theme
  #painted = { column: -1, revision: -1 };
  #span = null; // number of columns chosen by the user
  #shown = 0; // columns of the drawn axis
  #shownEnd = ""; // its last label
  #cursor = null; // {back, bin}: columns before the newest one, and the bin
  #far = null; // {book, unit, nowMs}: the last book with a longer range
  #base = "";
  #quote = "";
  #saidMs = -Infinity;
  #stale = false; // whether the newest column changed since it was drawn
  #percent = null; // the range, as `Liquidity` has it
  #live = this.liquidity; // kept while the past is shown
  #originMs = performance.timeOrigin; // when column 0 began
  #past = false;
  #newestMs = 0; // the end of the newest column of the past
  #middle = null; // the price in the middle of a past that was read as a whole; null: the last mid
  #said = ""; // a sentence before the legend
  #grip = null; // {x, pointerId} of a drag
  #dragged = 0; // columns
  #drawnMs = -Infinity;
  #sight;

  /**
   * `text` describes the cell that is pointed at, `spoken` the same for keyboard users. In the past, `chosen(timeMs)` is
   * called with the moment that the user goes to, and `zoomed(further)` when another time is to be shown.
   */
  constructor(element, text, spoken, range = "all", { chosen, zoomed } = {}) {
    Object.assign(this, { chosen, zoomed });
    this.range = range;
    this.#element = element;
    this.#text = text;
    this.#spoken = spoken;
    element.append(this.#canvas);
    this.#sight = new Sight(element, () => this.#draw());
    new ResizeObserver(([{ contentRect: { width, height } }]) => this.#fit(width, height)).observe(element);
    this.#watchScale();
    const recolour = () => ((this.#inks = null), this.#repaint());
    addEventListener("themechange", recolour);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    element.addEventListener("pointermove", (event) => this.#drag(event) || this.#point(event.offsetX, event.offsetY));
    element.addEventListener("pointerdown", (event) => this.#grasp(event));
    element.addEventListener("pointerup", (event) => this.#drop(event));
    element.addEventListener("pointercancel", (event) => this.#drop(event));
    element.addEventListener("dblclick", () => this.#goToCursor());
    element.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && this.#move(null));
    element.addEventListener("keydown", (event) => this.#key(event));
  }

  name(symbol) {
    [this.#base, this.#quote] = symbol.split("/");
  }

  /** The range in per cent of the mid on each side, or "all": as far as the book extends. */
  set range(range) {
    this.#percent = range === "all" ? null : Number(range);
    this.liquidity.percent = this.#live.percent = this.#percent;
  }

  /** Whether it is visible. */
  get visible() {
    return this.#sight.visible;
  }

  /** Add a book with a longer range, in bins of `unit`: its levels are shown with the best prices of the next
  updates. */
  reach(book, unit, nowMs) {
    this.#far = { book, unit, nowMs };
  }

  /** Add a book; `left` are the exchanges missing from it, `unit` is the step of its levels. */
  add(book, left, nowMs, unit = 0) {
    const far = this.#far && nowMs - this.#far.nowMs < FAR_MS ? this.#far : { book, unit };
    this.liquidity.add({ ...far.book, stats: book.stats }, left, nowMs, far.unit);
    this.#stale = true;
    if (this.#sight.visible && nowMs - this.#drawnMs >= DRAW_EVERY_MS) this.#drawAt(nowMs);
  }

  #drawAt(nowMs) {
    this.#drawnMs = nowMs;
    this.#draw();
  }

  /** Withdraw the prices. */
  gap(nowMs) {
    this.#far = null;
    this.liquidity.gap(nowMs);
    this.#draw();
  }

  /**
   * Show the time before a past moment, empty at first, from `originMs` on, in columns of `columnMs`; without one, show the
   * present again.
   */
  turn(originMs = null, columnMs = COLUMN_MS) {
    this.#past = originMs !== null;
    this.liquidity = this.#past ? new Liquidity(this.#bins || undefined, Infinity, columnMs) : this.#live;
    this.liquidity.percent = this.#percent;
    this.#originMs = originMs ?? performance.timeOrigin;
    this.#cursor = this.#far = this.#middle = this.#grip = null;
    this.#newestMs = this.#dragged = 0;
    this.#said = "";
    this.#saidMs = this.#drawnMs = -Infinity;
    write(this.#text, "");
    this.#repaint();
  }

  /**
   * Replace all columns until a past moment: each is {book, left}, null if it was not recorded, or undefined if it was not
   * read. `unit` is the step of the levels, `said` a sentence about what is missing.
   */
  replace(columns, endMs, unit, said) {
    const { liquidity } = this;
    liquidity.clear();
    const mids = columns.map((each) => each?.book.stats.mid_price).filter((mid) => mid != null);
    const [low, high] = [Math.min(...mids), Math.max(...mids)];
    this.#middle = mids.length ? (low + high) / 2 : null;
    // The whole way of the price is shown, with the range on each side.
    if (mids.length) liquidity.percent = (this.#percent ?? RANGE_MAX_PERCENT) + (50 * (high - low)) / this.#middle;
    liquidity.begin(0);
    columns.forEach((each, at) => {
      const timeMs = at * liquidity.columnMs;
      if (each) liquidity.add(each.book, each.left, timeMs, unit);
      else liquidity.skip(timeMs, each === null ? OUTAGE : 0);
    });
    this.#newestMs = this.since(endMs);
    this.#said = said;
    this.#stale = true;
    this.#painted.column = -1;
    if (!said) this.#saidMs = -Infinity;
  }

  /** Milliseconds of a time in the columns that are shown. */
  since(timeMs) {
    return timeMs - this.#originMs;
  }

  /** The time of a column: its end, because that is when the market had its book; of a second, its begin. */
  #time(column) {
    const { columnMs } = this.liquidity;
    return this.#clock(columnMs === COLUMN_MS ? column * columnMs : this.#endOf(column));
  }

  #endOf(column) {
    return Math.min((column + 1) * this.liquidity.columnMs, this.#newestMs);
  }

  #clock(ms, options = {}) {
    const time = new Date(this.#originMs + ms);
    return this.span * this.liquidity.columnMs >= DAY_MS ? time.toLocaleString([], { ...DATED, ...options }) : time.toLocaleTimeString([], options);
  }

  /** The time of the newest column on the axis. */
  #end() {
    return this.#past ? this.#clock(this.#newestMs, { hour12: false }) : "now";
  }

  /** Add a book without drawing it, as one of many. */
  fill(book, left, nowMs, unit) {
    const { liquidity } = this;
    liquidity.add(book, left, nowMs, unit);
    this.#newestMs = nowMs;
    this.#stale = true;
    const off = this.#middle === null ? 0 : liquidity.bin(liquidity.mid(liquidity.last)) - liquidity.bin(this.#middle);
    if (Math.abs(off) > this.#bins / 2) this.#middle = null; // a play has left the prices shown
  }

  /** Continue the last book until a time. */
  until(nowMs) {
    this.liquidity.advance(nowMs);
    this.#newestMs = nowMs;
    this.#stale = true;
  }

  /** Write a sentence until the next description of the map. */
  note(text) {
    write(this.#text, text);
    this.#saidMs = Infinity;
  }

  /** Draw what was added, at most a few times a second; `nowMs` is the time of the page. */
  drawFilled(nowMs) {
    if (!this.#sight.visible) return;
    if (this.#stale && nowMs - this.#drawnMs >= DRAW_EVERY_MS) this.#drawAt(nowMs);
    this.#say(nowMs);
  }

  /** Advance the time, with or without a current book; called twice a second. */
  advance(nowMs) {
    this.liquidity.advance(nowMs);
    if (!this.#sight.visible) return;
    if (this.#stale || this.liquidity.last !== this.#painted.column) this.#drawAt(nowMs);
    this.#say(nowMs);
  }

  #say(nowMs) {
    if (nowMs - this.#saidMs < SAY_EVERY_MS) return;
    this.#saidMs = nowMs;
    mark(this.#element, "aria-label", `Heat map of liquidity. ${this.summary()} ${KEYS} ${this.#past ? PAST_KEYS : ""}`.trim());
    if (!this.#cursor) write(this.#text, this.#legend());
  }

  clear() {
    for (const each of new Set([this.liquidity, this.#live])) each.clear();
    this.#cursor = this.#far = null;
    this.#saidMs = this.#drawnMs = -Infinity;
    write(this.#text, "");
    this.#draw();
  }

  // Size and colours

  #fit(width, height) {
    this.#size = { width, height };
    this.#scale = devicePixelRatio;
    this.#canvas.width = Math.round(width * this.#scale);
    this.#canvas.height = Math.round(height * this.#scale);
    const room = Math.floor((height - LANES - FOOT) * this.#scale);
    const bin = Math.max(Math.round(BIN_PX * this.#scale), Math.ceil(room / BINS_MAX));
    this.#bins = Math.max(0, Math.floor(room / bin));
    this.#plot = { width: 0, height: this.#bins * bin, bin };
    if (!width || !this.#bins) return;
    this.liquidity.rows = this.#live.rows = this.#bins;
    this.#ring.width = COLUMNS;
    this.#ring.height = this.#bins;
    this.#image = new ImageData(COLUMNS, this.#bins);
    this.#pixels = new Uint32Array(this.#image.data.buffer);
    this.#centre();
    this.#repaint();
  }

  /** Handle a change of zoom or screen, which changes the device pixels even if the size stays the same. */
  #watchScale() {
    const query = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
    query.addEventListener("change", () => {
      this.#fit(this.#size.width, this.#size.height);
      this.#watchScale();
    }, { once: true });
  }

  #colours() {
    const inks = inksOf(document.body, INKS); // the panel's colours are grey while it is not live
    const [ground, unknown] = ["--card", "--unknown"].map((name) => rgba(inks[name]));
    const shades = (side) => {
      const [faint, full] = [`--${side}-bar`, `--${side}`].map((name) => rgba(inks[name]));
      // From the background to the bar colour in the first half, then to the text colour.
      return Array.from({ length: SHADES }, (_, at) => {
        const place = (at + 1) / SHADES;
        return packed(place < 0.5 ? mixed(ground, faint, place * 2) : mixed(faint, full, place * 2 - 1));
      });
    };
    return {
      bids: shades("bid"),
      asks: shades("ask"),
      unknown: packed(unknown),
      soft: inks["--soft"],
      ink: inks["--ink"],
      crossed: inks["--warn"],
      lost: inks["--bad"],
      label: inks.label,
    };
  }

  #repaint() {
    this.#painted = { column: -1, revision: -1 };
    this.#draw();
  }

  // Painting

  /** Keep the market in the middle of the visible prices; true if they have moved. */
  #centre() {
    const { liquidity } = this;
    const mid = this.#middle ?? liquidity.mid(liquidity.last);
    if (liquidity.first < 0 || !(mid > 0) || !liquidity.step) return false;
    const off = liquidity.bin(mid) - (this.#lowest + this.#bins / 2);
    const changed = this.#painted.revision !== liquidity.revision;
    if (Math.abs(off) <= MIDDLE * this.#bins && !changed) return false;
    const lowest = Math.round(liquidity.bin(mid) - this.#bins / 2);
    if (lowest === this.#lowest && !changed) return false;
    this.#lowest = lowest;
    return true;
  }

  #draw() {
    this.#stale = false;
    const { liquidity } = this;
    if (!this.#bins || !this.#size.width) return;
    this.#inks ??= this.#colours();
    const moved = this.#centre() || this.#painted.revision !== liquidity.revision || this.#painted.column < 0;
    if (moved) this.#pixels.fill(0);
    const oldest = Math.max(liquidity.first, liquidity.last - COLUMNS + 1);
    const from = moved ? oldest : Math.max(oldest, this.#painted.column);
    if (liquidity.first >= 0) {
      for (let column = from; column <= liquidity.last; column += 1) this.#paint(column);
      if (moved || liquidity.last - from > 1) this.#brush.putImageData(this.#image, 0, 0);
      else {
        for (let column = from; column <= liquidity.last; column += 1) {
          this.#brush.putImageData(this.#image, 0, 0, column % COLUMNS, 0, 1, this.#bins);
        }
      }
    }
    this.#painted = { column: liquidity.last, revision: liquidity.revision };
    if (moved || this.#shown !== this.span || this.#shownEnd !== this.#end()) this.#axes();
    this.#show();
  }

  /** Write the pixels of a column: the highest price is at the top. */
  #paint(column) {
    const { liquidity } = this;
    const { bids, asks, unknown } = this.#inks;
    const [pixels, slot, bins] = [this.#pixels, column % COLUMNS, this.#bins];
    const middle = liquidity.has(column) ? liquidity.bin(liquidity.mid(column)) : 0;
    const per = SHADES / (DECADES * Math.LN10); // shades of a factor of e
    for (let row = 0; row < bins; row += 1) {
      const bin = this.#lowest + bins - 1 - row;
      const amount = liquidity.amount(column, bin);
      let pixel = 0;
      if (Number.isNaN(amount)) pixel = unknown;
      else if (amount > 0) {
        const shade = Math.floor(SHADES + Math.log(amount / liquidity.top) * per);
        pixel = (bin <= middle ? bids : asks)[Math.max(0, Math.min(SHADES - 1, shade))];
      }
      pixels[row * COLUMNS + slot] = pixel;
    }
  }

  /** The number of visible columns. */
  get span() {
    const { first, last, columnMs } = this.liquidity;
    if (columnMs !== COLUMN_MS) return last - first + 1;
    return this.#span ?? SPANS.find((each) => each > last - first) ?? SPANS.at(-1);
  }

  /** Draw the ring so that the newest column is at the right. */
  #show() {
    const { liquidity } = this;
    const context = this.#context;
    const { width, height } = this.#plot;
    const span = this.span;
    context.clearRect(0, 0, width, height + LANES * this.#scale);
    if (liquidity.first < 0) return;
    context.imageSmoothingEnabled = width < span;
    const column = width / span;
    const from = liquidity.last - span + 1 - this.#dragged;
    const end = Math.min(liquidity.last, from + span - 1);
    for (let at = Math.max(from, liquidity.last - COLUMNS + 1, 0); at <= end;) {
      const slot = at % COLUMNS;
      const count = Math.min(COLUMNS - slot, end - at + 1);
      context.drawImage(this.#ring, slot, 0, count, this.#bins, (at - from) * column, 0, count * column, height);
      at += count;
    }
    for (const best of ["bid", "ask"]) this.#line(best, Math.max(from, liquidity.first), from, end, column);
    this.#marks(from, span, column);
    if (this.#cursor) this.#cross();
  }

  /** Draw the best price of a side across the columns; without a book the line has a gap. */
  #line(best, first, from, end, width) {
    const { liquidity } = this;
    const context = this.#context;
    const { height, bin } = this.#plot;
    context.beginPath();
    let drawn = false;
    for (let at = first; at <= end; at += 1) {
      const price = liquidity[best](at);
      const y = height - (price / liquidity.step - this.#lowest) * bin;
      const known = y > 0 && y < height; // false for NaN
      if (known && !drawn) context.moveTo((at - from) * width, y); // a single column is drawn as a line
      if (known) context.lineTo((at - from + 0.5) * width, y);
      drawn = known;
    }
    context.strokeStyle = this.#inks.ink;
    context.lineWidth = LINE * this.#scale;
    context.stroke();
  }

  /** Mark crossings in the upper lane, outages in the lower one, and lost exchanges across both. */
  #marks(from, span, width) {
    const top = this.#plot.height;
    const lane = (LANES * this.#scale) / 3;
    this.#lane(from, span, width, CROSSED, this.#inks.crossed, top + lane / 2, lane);
    this.#lane(from, span, width, OUTAGE, this.#inks.lost, top + lane * 1.75, lane);
    this.#lane(from, span, width, LOST, this.#inks.lost, top, lane * 3);
  }

  #lane(from, span, width, flag, ink, top, height) {
    const context = this.#context;
    const least = LEAST_MARK * this.#scale;
    context.beginPath();
    for (let at = 0; at < span; at += 1) {
      if (!(this.liquidity.flags(from + at) & flag)) continue;
      const begin = at;
      while (flag !== LOST && at + 1 < span && this.liquidity.flags(from + at + 1) & flag) at += 1;
      const wide = flag === LOST ? least : Math.max(least, (at + 1 - begin) * width);
      context.rect(Math.min(begin * width, this.#plot.width - wide), top, wide, height);
    }
    context.fillStyle = ink;
    context.fill();
  }

  /** Draw prices at the right and times below, only if one of them changes. */
  #axes() {
    const { liquidity } = this;
    const context = this.#context;
    const scale = this.#scale;
    const { height, bin } = this.#plot;
    context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    this.#shown = this.span;
    this.#shownEnd = this.#end();
    if (!liquidity.step) return;
    const { px, family } = this.#inks.label;
    context.font = `${px * scale}px ${family}`;
    context.fillStyle = this.#inks.soft;
    const step = stepOf((liquidity.step * LABEL_EVERY * scale) / bin);
    const places = decimals([step], PRICE_DECIMALS_MAX);
    const top = (this.#lowest + this.#bins) * liquidity.step;
    const prices = [];
    const first = Math.ceil(this.#lowest * liquidity.step / step + 1e-6);
    for (let at = first; at * step < top; at += 1) prices.push(at * step);
    const texts = prices.map((price) => fixed(price, places));
    const room = Math.ceil(Math.max(0, ...texts.map((text) => context.measureText(text).width)) + 8 * scale);
    this.#plot.width = Math.max(0, this.#canvas.width - room);
    const left = this.#plot.width;
    context.textBaseline = "middle";
    prices.forEach((price, at) => {
      const y = height - (price / liquidity.step - this.#lowest) * bin;
      context.fillRect(left, Math.round(y), 3 * scale, Math.max(1, Math.round(scale / 2)));
      const inside = Math.max(px * 0.6 * scale, Math.min(height - px * 0.4 * scale, y));
      context.fillText(texts[at], left + 5 * scale, inside);
    });
    context.textBaseline = "alphabetic";
    const seconds = liquidity.columnMs / COLUMN_MS;
    const wide = Math.max(70 * scale, 1.3 * context.measureText(this.#shownEnd).width); // the last label, and a space
    let parts = Math.min(5, Math.max(1, Math.floor(left / wide)));
    if (seconds > 1) while (parts > 1 && ((this.#shown * seconds) / 60 / parts) % (this.#shown * seconds >= 7_200 ? 60 : 1)) parts -= 1; // whole hours or minutes
    for (let part = 0; part <= parts; part += 1) {
      const back = Math.round((this.#shown * (parts - part)) / parts);
      context.textAlign = part === 0 ? "left" : part === parts ? "right" : "center";
      context.fillText(back ? `−${lasting(back * seconds)}` : this.#shownEnd, (left * part) / parts, this.#canvas.height - 4 * scale);
    }
    context.textAlign = "left";
  }

  // Pointing

  /** The middle of a cell in CSS pixels of the element. */
  place(column, bin) {
    const at = column - (this.liquidity.last - this.span + 1);
    return {
      x: ((at + 0.5) * this.#plot.width) / this.span / this.#scale,
      y: (this.#plot.height - (bin - this.#lowest + 0.5) * this.#plot.bin) / this.#scale,
    };
  }

  /** Begin a drag, which goes back or forth in the past. */
  #grasp(event) {
    this.#point(event.offsetX, event.offsetY);
    if (!this.#past || !event.isPrimary || event.button) return;
    this.#grip = { x: event.clientX, pointerId: event.pointerId };
    this.#element.setPointerCapture(event.pointerId);
  }

  /** Move the picture with the pointer; returns whether it was moved. */
  #drag(event) {
    if (event.pointerId !== this.#grip?.pointerId) return false;
    const columns = Math.round(((event.clientX - this.#grip.x) * this.#scale * this.span) / this.#plot.width) || 0;
    if (columns === this.#dragged) return columns !== 0;
    this.#dragged = columns;
    this.#cursor = null;
    this.#show();
    return true;
  }

  #drop({ type, pointerId }) {
    if (pointerId !== this.#grip?.pointerId) return;
    this.#grip = null;
    if (!this.#dragged) return;
    if (type === "pointerup") return this.#goTo(this.#newestMs - this.#dragged * this.liquidity.columnMs);
    this.#dragged = 0;
    this.#show();
  }

  /** Go to a moment of the past; the picture stays where it was dragged until that moment is shown. */
  #goTo(ms) {
    write(this.#spoken, `Going to ${this.#clock(ms)}`);
    this.chosen?.(this.#originMs + ms);
  }

  #goToCursor() {
    if (!this.#past || !this.#cursor) return;
    const column = this.liquidity.last - this.#cursor.back;
    this.#goTo(Math.min(this.#endOf(column), this.#newestMs));
  }

  #point(x, y) {
    const { width, height, bin } = this.#plot;
    const back = this.span - 1 - Math.floor((x * this.#scale * this.span) / width);
    const row = Math.ceil((height - y * this.#scale) / bin) - 1; // a border belongs to the bin below it
    this.#move(back >= 0 && row < this.#bins ? { back, bin: this.#lowest + Math.max(0, row) } : null);
  }

  #move(cursor, spoken = false) {
    this.#cursor = cursor;
    if (this.#stale) this.#draw(); // the description uses the newest amounts
    else this.#show();
    write(this.#text, cursor ? this.at(this.liquidity.last - cursor.back, cursor.bin) : this.#legend());
    if (spoken) write(this.#spoken, this.#text.textContent);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.liquidity.first < 0) return;
    const { liquidity } = this;
    const middle = liquidity.bin(liquidity.mid(liquidity.last)) || Math.floor(this.#lowest + this.#bins / 2);
    const { back, bin } = this.#cursor ?? { back: 0, bin: middle };
    const [wide, high] = event.shiftKey ? [10, 10] : [1, 1];
    const to = (columns, bins) => this.#move({
      back: Math.max(0, Math.min(this.span - 1, back + columns)),
      bin: Math.max(this.#lowest, Math.min(this.#lowest + this.#bins - 1, bin + bins)),
    }, true);
    const act = {
      ArrowLeft: () => to(wide, 0),
      ArrowRight: () => to(-wide, 0),
      ArrowUp: () => to(0, high),
      ArrowDown: () => to(0, -high),
      Home: () => to(this.span, 0),
      End: () => to(-this.span, 0),
      "+": () => this.#spanTo(-1),
      "-": () => this.#spanTo(1),
      Escape: () => this.#move(null),
      ...(this.#past && {
        PageUp: () => this.#goTo(this.#newestMs - this.#page),
        PageDown: () => this.#goTo(this.#newestMs + this.#page),
        Enter: () => this.#goToCursor(),
      }),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  get #page() {
    return Math.ceil(this.span * PAGE) * this.liquidity.columnMs;
  }

  #spanTo(further) {
    const at = SPANS.indexOf(this.span) + further;
    if (this.#past && (this.liquidity.columnMs !== COLUMN_MS || at >= SPANS.length)) return this.zoomed?.(further);
    this.#span = SPANS[Math.max(0, Math.min(SPANS.length - 1, at))];
    this.#draw();
    write(this.#spoken, `The last ${lasting(this.#span)}`);
  }

  #cross() {
    const context = this.#context;
    const { x, y } = this.place(this.liquidity.last - this.#cursor.back, this.#cursor.bin);
    const [left, top] = [x, y].map((each) => Math.round(each * this.#scale));
    const thin = Math.max(1, Math.round(this.#scale));
    context.fillStyle = this.#inks.ink;
    context.globalAlpha = 0.6;
    context.fillRect(left, 0, thin, this.#plot.height);
    context.fillRect(0, top, this.#plot.width, thin);
    context.globalAlpha = 1;
  }

  // Text

  /** Describe a cell. */
  at(column, bin) {
    const { liquidity } = this;
    const when = this.#time(column);
    if (!liquidity.has(column)) return `${when}: ${this.#without(column)}`;
    const amount = liquidity.amount(column, bin);
    const places = decimals([liquidity.step], PRICE_DECIMALS_MAX);
    const [low, high] = [bin, bin + 1].map((each) => fixed(each * liquidity.step, places));
    const least = liquidity.least(column, bin) ? "at least " : "";
    const held = Number.isNaN(amount) ? "not known" : `${least}${fixed(amount, amountDecimals(amount))} ${this.#base}`;
    const best = [liquidity.bid(column), liquidity.ask(column)];
    const exact = decimals(best.filter((each) => !Number.isNaN(each)), PRICE_DECIMALS_MAX);
    const [bid, ask] = best.map((each) => (Number.isNaN(each) ? "none" : fixed(each, exact)));
    const marks = [];
    if (liquidity.flags(column) & CROSSED) marks.push("crossed");
    if (liquidity.flags(column) & OUTAGE) marks.push("then no prices");
    marks.push(...liquidity.events.filter((each) => each.column === column).map(({ text }) => text));
    return [`${when}, ${low} to ${high}: ${held}`, `bid ${bid}, ask ${ask}`, ...marks].join("; ");
  }

  #without(column) {
    if (column < this.liquidity.first) return "before the first book";
    const lost = this.liquidity.flags(column) & OUTAGE;
    if (this.liquidity.columnMs !== COLUMN_MS) return lost ? "not recorded" : "not read";
    return lost ? "no prices" : "not watched";
  }

  #legend() {
    const { liquidity } = this;
    if (!liquidity.step || !liquidity.top) return this.#said;
    return `${this.#said} Amounts within ${sixDigits(liquidity.step).replace(/\.?0+$/, "")} ${this.#quote}; brightest from ${sixDigits(liquidity.top).replace(/\.?0+$/, "")} ${this.#base}. ${this.#past ? PAST_HINT : HINT}`.trim();
  }

  /** The text alternative: where most liquidity was, how the price moved, and what is marked. */
  summary() {
    const { liquidity } = this;
    const { first, last, step } = liquidity;
    if (first < 0) return "No book yet.";
    const columns = Array.from({ length: last - first + 1 }, (_, at) => first + at).filter((each) => liquidity.has(each));
    const seconds = liquidity.columnMs / COLUMN_MS;
    const whole = lasting((seconds > 1 ? last - first + 1 : columns.length) * seconds);
    if (!columns.length) return this.#past ? `No prices in the ${whole} before ${this.#end()}.` : "No prices in the last minutes.";
    const mids = columns.map((each) => liquidity.mid(each));
    const places = decimals([step], PRICE_DECIMALS_MAX);
    const price = (value) => fixed(value, places);
    const middle = liquidity.bin(mids.at(-1));
    const sides = { bids: [this.#lowest, middle], asks: [middle + 1, this.#lowest + this.#bins] };
    const averages = liquidity.averages(this.#lowest, this.#bins);
    const most = Object.entries(sides).map(([side, [from, to]]) => {
      let found = { amount: 0, bin: NaN };
      for (let bin = from; bin < to; bin += 1) {
        const amount = averages[bin - this.#lowest] ?? 0;
        if (amount > found.amount) found = { amount, bin };
      }
      if (!found.amount) return `no ${side} in sight`;
      return `most ${side} at ${price(found.bin * step)}, ${fixed(found.amount, amountDecimals(found.amount))} ${this.#base} on average`;
    });
    const count = (flag) => columns.filter((each) => liquidity.flags(each) & flag).length;
    const crossed = count(CROSSED);
    const missing = seconds > 1 ? last - first + 1 - columns.length : 0;
    const parts = [
      `${this.#past ? `The ${whole} before ${this.#end()}` : `The last ${whole}`}: the mid went from ${price(mids[0])} to ${price(mids.at(-1))}, between ${price(Math.min(...mids))} and ${price(Math.max(...mids))}`,
      ...most,
      crossed ? `crossed in ${crossed} of ${columns.length} ${seconds > 1 ? "columns" : "seconds"}` : "never crossed",
      ...(missing ? [`${missing} of ${last - first + 1} columns without a book`] : []),
      ...liquidity.events.slice(-3).map(({ text }) => text),
    ];
    return `${parts.join("; ")}.`;
  }
}

function lasting(seconds) {
  if (seconds >= 3_600 && seconds % 3_600 === 0) return `${seconds / 3_600} h`;
  return seconds >= 60 && seconds % 60 === 0 ? `${seconds / 60} min` : `${seconds} s`;
}

/** The four channels of a CSS colour in any notation. */
function rgba(text) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = text;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data];
}

function mixed(some, others, part) {
  return some.map((each, at) => Math.round(each + (others[at] - each) * part));
}

/** A pixel as one number, in the byte order of ImageData on little-endian machines, where all browsers run. */
function packed([red, green, blue, alpha]) {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
