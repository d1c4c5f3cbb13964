// The route of a size: the split over the exchanges that is best after the taker fees of the key, in lots and minimum
// sizes, computed by the service (options `fill` and `fees`) in a view of its own.

import { numbers } from "./book.js";
import { amountDecimals, finePercent, fixed, listOf, quoteAge, rounded, sixDigits } from "./format.js";
import { dress, swatch } from "./palette.js";
import { Part } from "./part.js";
import { percent } from "./holders.js";
import { PARTS_MAX, sizeOf } from "./state.js";
import { hide, mark, write } from "./write.js";

const EVERY_MS = 500; // faster figures are unreadable
const TINY = 0.001; // smaller amounts do not fit a column of eight decimals
const LONG = 12; // maximum characters in both columns
const NEARLY = 0.999; // of a size that books without lots would hold
const WAIT_MS = 500; // after the last keystroke, before the new size is requested
const SIDES = ["buy", "sell"];
const EXPECTED = "A size is a number above 0, such as 2.5 or 10,000.";
let made = 0;
const ROWS = ["Average", "Worst net price", "Slippage from mid", "Fees", "Net average", "In total", "Cost of lots", "Oldest data"];

export class Cost {
  #size;
  #by;
  #most;
  #fees;
  #table;
  #cells;
  #basis;
  #shortage;
  #notes;
  #details;
  #split;
  #timer = 0;
  #part;
  #unread = null; // the newest update, until drawn
  #shown = null;
  #gross = false; // whether the shown routes are before fees
  #feeOf = () => undefined; // the fee of a book as text
  #left = []; // the exchanges that are left out, because their fee is unknown

  /**
   * `changed({size, by, most})` is called for each new valid size or number of exchanges; `fees` are those of the page;
   * `view` is the site of a `Part`.
   */
  constructor(root, { size, by, most, fees, changed, view }) {
    this.#fees = fees;
    this.#part = new Part("cost", view);
    this.#size = root.querySelector(".size");
    this.#by = root.querySelector(".by");
    this.#most = root.querySelector(".most");
    this.#most.replaceChildren(...PARTS_MAX.map((each) => new Option(each || "any", each)));
    this.#most.value = most;
    this.#basis = root.querySelector(".basis");
    this.#shortage = root.querySelector(".shortage");
    this.#notes = root.querySelector(".route-notes");
    this.#details = root.querySelector(".split");
    this.#split = root.querySelector(".split tbody");
    this.#details.addEventListener("toggle", () => this.again());
    this.#table = root.querySelector(".fill");
    const [body] = this.#table.tBodies;
    this.#cells = ROWS.map((name) => {
      const row = body.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = name;
      row.append(head);
      return SIDES.map(() => row.insertCell());
    });
    this.#shortage.id = `shortage-${(made += 1)}`;
    this.#size.setAttribute("aria-errormessage", this.#shortage.id);
    this.#size.value = size;
    this.#by.value = by;
    const edited = () => {
      clearTimeout(this.#timer);
      const valid = sizeOf(this.#size.value);
      this.#size.setAttribute("aria-invalid", String(valid === null));
      this.#blank();
      this.#complain(valid ? "" : EXPECTED);
      if (valid) this.#timer = setTimeout(() => changed({ size: valid, by: this.#by.value }), WAIT_MS);
    };
    this.#most.addEventListener("change", () => (this.#blank(), changed({ most: this.#most.value })));
    this.#size.addEventListener("input", edited);
    this.#by.addEventListener("change", edited);
  }

  /** Subscribe to the routes of a size over at most some exchanges; `terms` are the exchanges, quotes and fees. */
  follow({ size, by, most, intervalMs, ...terms }) {
    const fill = { ...(by === "amount" ? { amounts: [size] } : { notionals: [size] }), ...(most && { max_exchanges: Number(most) }) };
    this.#part.follow({ ...terms, fill, depth: 1, interval_ms: Math.max(EVERY_MS, intervalMs) });
  }

  leave() {
    this.#part.leave();
    this.#unread = null;
  }

  shows(view) {
    return this.#part.shows(view);
  }

  accepted(reply) {
    this.#left = reply.unknown_fee ?? [];
    this.#feeOf = this.#fees.reader(`${this.names.base}/${this.names.quote}`, reply);
  }

  refused({ message }) {
    this.#blank();
    this.#complain(message);
  }

  update({ fill, marketStats }) {
    this.#unread = { fill, mid: marketStats.midPrice == null ? null : Number(marketStats.midPrice) };
  }

  /** Set the size without requesting it. */
  choose(size, by) {
    this.#size.value = size;
    this.#by.value = by;
    this.#size.setAttribute("aria-invalid", "false");
  }

  /** Show the symbol's currencies in the unit of the size. */
  name(symbol) {
    const [base, quote] = symbol.split("/");
    this.#by.options[0].text = base;
    this.#by.options[1].text = quote;
    this.names = { base, quote };
  }

  /** Say which fees the routes have, or why they have none. */
  say(basis) {
    this.#gross = Boolean(basis);
    write(this.#basis, basis || `The best split after ${this.#fees.named}.`);
  }

  show(price) {
    if (!this.#unread?.fill.buy?.length) return;
    const { fill, mid } = this.#unread;
    this.#unread = null;
    const found = SIDES.map((side) => ({ ...numbers(fill[side][0]), split: fill[side][0].split.map(numbers) }));
    if (this.#asked(found[0])) this.#write((this.#shown = { found, mid, price }));
  }

  #write({ found, mid, price }) {
    let longest = 0;
    found.forEach((route, column) => {
      const sign = column === 0 ? 1 : -1;
      const slip = route.average === null || mid === null ? null : (100 * sign * (route.average - mid)) / mid;
      const texts = [
        price(route.average, 2),
        price(route.worst, 2),
        slip === null ? "—" : `${finePercent(slip)} %`,
        this.#gross ? "unknown" : money(route.fees),
        this.#gross ? "unknown" : price(route.net_average, 2),
        this.#gross ? "unknown" : money(route.net),
        money(route.extra),
        route.oldest_ms === null ? "—" : quoteAge(route.oldest_ms),
      ];
      longest = Math.max(longest, ...texts.map((text) => text.length));
      texts.forEach((text, row) => write(this.#cells[row][column], route.amount ? text : "—"));
    });
    mark(this.#table, "data-long", longest > LONG ? "yes" : "no");
    this.#explain(found);
    if (this.#details.open) this.#showSplit(found);
  }

  /** Write the shown routes again: other parts of them are visible, or colours have changed. */
  again() {
    if (this.#shown) this.#write(this.#shown);
  }

  /** Show no route until the next update. */
  withdraw() {
    this.#unread = null;
    this.#complain("");
    this.#blank();
  }

  clear() {
    this.leave();
    this.withdraw();
  }

  #blank() {
    this.#shown = null;
    for (const row of this.#cells) for (const cell of row) write(cell, "—");
    write(this.#notes, "");
    this.#split.replaceChildren();
  }

  /** Whether a route is for the size that is in the box now. */
  #asked({ size, by }) {
    const wanted = sizeOf(this.#size.value);
    return wanted !== null && Number(wanted) === size && by === this.#by.value;
  }

  #complain(text) {
    write(this.#shortage, text);
    hide(this.#shortage, !text);
  }

  /** Explain the unfilled rest of the size: too few levels, lot sizes, or unknown fees. */
  #explain(found) {
    const { base, quote } = this.names;
    const unit = found[0].by === "amount" ? base : quote;
    const short = found.flatMap((route, at) => {
      const held = route.by === "amount" ? route.amount : route.net;
      const left = route.by === "amount" ? route.unplaced : route.unplaced * (route.worst ?? 0);
      const enough = route.complete || held + left >= route.size * NEARLY || (!route.amount && route.unplaced);
      return enough ? [] : [`${SIDES[at]} side holds ${sixDigits(held + left)} of ${sixDigits(route.size)} ${unit}`];
    });
    this.#complain(short.length ? `Not enough liquidity: the ${short.join(", the ")}. The figures are for the available amount.` : "");
    const all = (member) => [...new Set(found.flatMap((route) => route[member]))].sort();
    const notes = [];
    const [unknown, uncovered] = [all("unknown_rules"), all("uncovered")];
    const unplaced = found.flatMap(({ unplaced: amount }, at) => (amount ? [`${sixDigits(amount)} ${base} to ${SIDES[at]}`] : []));
    if (this.#left.length) notes.push(`Left out, because their fee is unknown: ${listOf(this.#left)}.`);
    if (unplaced.length) notes.push(`No lot or minimum size fits ${unplaced.join(" and ")}.`);
    if (unknown.length) notes.push(`Lots or minimum sizes of ${listOf(unknown)} are not all known: an order may be refused.`);
    else if (found.some(({ amount }) => amount)) notes.push("Lots and minimum sizes of all exchanges are kept.");
    if (found.some(({ exact }) => !exact)) notes.push("The split may not be the best.");
    if (uncovered.length) {
      notes.push(`The ${uncovered.length === 1 ? "book" : "books"} of ${listOf(uncovered)} ${uncovered.length === 1 ? "is" : "are"} not known this far out: the real cost may be lower.`);
    }
    write(this.#notes, notes.join(" "));
  }

  #showSplit(found) {
    const parts = new Map();
    found.forEach((route, column) => {
      for (const { exchange, amount } of route.split) {
        if (!parts.has(exchange)) parts.set(exchange, [0, 0]);
        parts.get(exchange)[column] = amount;
      }
    });
    const rows = [...parts].sort((a, b) => Math.max(...b[1]) - Math.max(...a[1]));
    const most = Math.max(0, ...found.map((route) => route.amount));
    const text = (amount) => (most < TINY ? sixDigits(amount) : rounded(amount, amountDecimals(most)));
    const body = this.#split;
    while (body.rows.length > rows.length) body.deleteRow(-1);
    while (body.rows.length < rows.length) splitRow(body);
    rows.forEach(([exchange, amounts], at) => {
      const [name, ...cells] = body.rows[at].cells;
      write(name.lastChild, exchange.replace(":", ":\u200b")); // a narrow column breaks there first
      dress(name.firstChild, exchange);
      amounts.forEach((amount, column) => {
        write(cells[2 * column], amount ? percent(amount / found[column].amount) || "100 %" : "–");
        write(cells[2 * column + 1], amount ? text(amount) : "");
      });
      const fee = this.#feeOf(exchange);
      write(cells[4], fee === undefined ? "–" : `${fee} %`);
    });
  }
}

/** An amount of the quote currency. */
function money(value) {
  if (Math.abs(value) >= 1) return fixed(value, 2);
  return value && Math.abs(value) < TINY ? rounded(value, 8) : sixDigits(value);
}

function splitRow(body) {
  const row = body.insertRow();
  const [name] = [0, 1, 2, 3, 4, 5].map(() => row.insertCell());
  name.append(swatch(), document.createElement("span"));
}
