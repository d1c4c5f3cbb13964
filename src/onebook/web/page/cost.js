// The cost of buying and selling a size: computed by the service (option `fill`), plus the user's fees.

import { withFees } from "./book.js";
import { amountDecimals, finePercent, fixed, listOf, rounded, sixDigits } from "./format.js";
import { dress, swatch } from "./palette.js";
import { sizeOf } from "./state.js";
import { hide, mark, write } from "./write.js";

const TINY = 0.001; // smaller amounts do not fit a column of eight decimals
const LONG = 12; // maximum characters in both columns
const WAIT_MS = 500; // after the last keystroke, before the new size is requested
const SIDES = ["buy", "sell"];
const EXPECTED = "A size is a number above 0, such as 2.5 or 10,000.";
let made = 0;
const ROWS = ["Average", "Worst price", "Slippage from mid", "Fees", "Average with fees", "In total"];

export class Cost {
  #size;
  #by;
  #table;
  #cells;
  #shortage;
  #uncovered;
  #details;
  #split;
  #timer = 0;
  #shown = null;

  /** `changed(size, by)` is called for each new valid size. */
  constructor(root, { size, by, feeOf, changed }) {
    this.feeOf = feeOf;
    this.#size = root.querySelector(".size");
    this.#by = root.querySelector(".by");
    this.#shortage = root.querySelector(".shortage");
    this.#uncovered = root.querySelector(".uncovered");
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
      if (valid) this.#timer = setTimeout(() => changed(valid, this.#by.value), WAIT_MS);
    };
    this.#size.addEventListener("input", edited);
    this.#by.addEventListener("change", edited);
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

  show(book, price) {
    if (!book.fill?.buy.length) return;
    this.#shown = [book, price];
    const { mid_price: mid } = book.stats;
    const found = SIDES.map((side) => book.fill[side][0]);
    if (!this.#asked(found[0])) return;
    let longest = 0;
    found.forEach((fill, column) => {
      const direction = SIDES[column];
      const paid = withFees(fill, direction, this.feeOf);
      const sign = direction === "buy" ? 1 : -1;
      const slip = fill.average === null || mid == null ? null : (100 * sign * (fill.average - mid)) / mid;
      const total = fill.notional + sign * paid.fees;
      const texts = [
        price(fill.average, 2),
        price(fill.worst),
        slip === null ? "—" : `${finePercent(slip)} %`,
        this.#money(paid.fees),
        price(paid.average, 2),
        this.#money(total),
      ];
      longest = Math.max(longest, ...texts.map((text) => text.length));
      texts.forEach((text, row) => write(this.#cells[row][column], fill.levels ? text : "—"));
    });
    mark(this.#table, "data-long", longest > LONG ? "yes" : "no");
    this.#say(found);
    if (this.#details.open) this.#showSplit(found);
  }

  /** Handle changed fees. */
  again() {
    if (this.#shown) this.show(...this.#shown);
  }

  clear() {
    this.#shown = null;
    this.#complain("");
    this.#blank();
  }

  #blank() {
    for (const row of this.#cells) for (const cell of row) write(cell, "—");
    write(this.#uncovered, "");
    this.#split.replaceChildren();
  }

  /** Whether a fill is for the size that is in the box now. */
  #asked({ size, by }) {
    const wanted = sizeOf(this.#size.value);
    return wanted !== null && Number(wanted) === size && by === this.#by.value;
  }

  #money(value) {
    return Math.abs(value) >= 1 ? fixed(value, 2) : sixDigits(value);
  }

  #complain(text) {
    write(this.#shortage, text);
    hide(this.#shortage, !text);
  }

  /** Where the books do not cover the size, and whose books are not known far enough. */
  #say(found) {
    const unit = this.names[found[0].by === "amount" ? "base" : "quote"];
    const short = found.flatMap((fill, at) => {
      if (fill.complete) return [];
      const held = fill.by === "amount" ? fill.amount : fill.notional;
      return `${SIDES[at]} side holds ${sixDigits(held)} of ${sixDigits(fill.size)} ${unit}`;
    });
    this.#complain(short.length ? `Not enough liquidity: the ${short.join(", the ")}. The figures are for the available amount.` : "");
    const names = [...new Set(found.flatMap((fill) => fill.uncovered))].sort();
    write(this.#uncovered, names.length
      ? `The ${names.length === 1 ? "book" : "books"} of ${listOf(names)} ${names.length === 1 ? "is" : "are"} not known this far out: the real cost may be lower.`
      : "");
  }

  #showSplit(found) {
    const parts = new Map();
    found.forEach((fill, column) => {
      for (const { exchange, amount } of fill.split) {
        if (!parts.has(exchange)) parts.set(exchange, [0, 0]);
        parts.get(exchange)[column] = amount;
      }
    });
    const rows = [...parts].sort((a, b) => Math.max(...b[1]) - Math.max(...a[1]));
    const most = Math.max(0, ...found.map((fill) => fill.amount));
    const text = (amount) => (most < TINY ? sixDigits(amount) : rounded(amount, amountDecimals(most)));
    const body = this.#split;
    while (body.rows.length > rows.length) body.deleteRow(-1);
    while (body.rows.length < rows.length) splitRow(body);
    rows.forEach(([exchange, amounts], at) => {
      const [name, ...cells] = body.rows[at].cells;
      write(name.lastChild, exchange);
      dress(name.firstChild, exchange);
      amounts.forEach((amount, column) => write(cells[column], amount ? text(amount) : "–"));
      write(cells[2], `${this.feeOf(exchange)} %`);
    });
  }
}

function splitRow(body) {
  const row = body.insertRow();
  const [name] = [0, 1, 2, 3].map(() => row.insertCell());
  name.append(swatch(), document.createElement("span"));
}
