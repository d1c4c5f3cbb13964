// Crossed markets: where to buy and sell, the amount, the age of each quote, and the profit
// after fees. A crossing often lasts less than a second, so the last one stays visible.

import { crossings, nearest } from "./book.js";
import { age, amountDecimals, finePercent, fixed, quoteAge, signed } from "./format.js";
import { mark, write } from "./write.js";

const PAIRS_MAX = 5;

export class Crossed {
  #text;
  #list;
  #book = null; // {count, near, spread}: crossings of the last book, or the nearest pairs; the spread of bins
  #last = null; // {pairs, at, ages}: the last crossing
  #price = String;
  #written = ""; // the kind of the pairs in the list

  constructor(root, feeOf) {
    this.feeOf = feeOf;
    this.#text = root.querySelector(".crossing-text");
    this.#list = root.querySelector(".pairs");
  }

  /** Add a book as of `atMs`. */
  show(book, price, atMs) {
    this.#price = price;
    // Bins hide the quotes of single exchanges; only the best overall are known.
    const spread = book.binned ? book.stats.spread : undefined;
    const crossed = book.binned ? [] : crossings(book, this.feeOf);
    const count = book.binned ? Number(book.stats.crossed) : crossed.length;
    const near = count || book.binned ? [] : nearest(book, this.feeOf, PAIRS_MAX);
    if (count) this.#last = { pairs: crossed.slice(0, PAIRS_MAX), ages: book.ages, at: atMs };
    const oneSided = (book.stats.best_bid == null) !== (book.stats.best_ask == null);
    this.#book = { count, spread, oneSided, near, ages: book.ages, at: atMs };
  }

  /** Write the summary on each update, and the pairs only when their kind changes. */
  write(nowMs, live) {
    if (this.#kind !== this.#written) this.showFigures(nowMs, live);
    else this.#say(this.#book, this.#sinceMs(nowMs), live);
  }

  /** Write the pairs and ages; called twice a second, because faster figures are unreadable. */
  showFigures(nowMs, live) {
    if (!this.#book) return;
    const { count, near, ages, at } = this.#book;
    const sinceMs = this.#sinceMs(nowMs);
    if (count) this.#fill(this.#last, sinceMs);
    else if (!this.#last) this.#fill({ pairs: near, ages }, Math.max(0, nowMs - at));
    else if (this.#kind !== this.#written) this.#fill(this.#last, 0);
    this.#written = this.#kind;
    this.#say(this.#book, sinceMs, live);
  }

  /** The pairs to show: crossed ones, the last crossed ones, or the nearest; for bins less is known. */
  get #kind() {
    const { count, spread } = this.#book;
    const kind = count ? "crossing" : this.#last ? "past" : "near";
    return spread === undefined ? kind : `${kind} of bins`;
  }

  #sinceMs(nowMs) {
    return this.#last ? Math.max(0, nowMs - this.#last.at) : 0;
  }

  name(symbol) {
    const [base, quote] = symbol.split("/");
    this.names = { base, quote };
  }

  /** Without updates nothing is known about crossings; the last one is kept for the next book. */
  withdraw() {
    this.#book = null;
    this.#written = "";
    this.#list.replaceChildren();
    write(this.#text, "—");
  }

  clear() {
    this.#last = null;
    this.withdraw();
  }

  #say({ count, near: [best], spread, oneSided }, sinceMs, live) {
    mark(this.#list, "data-past", count && live ? "no" : "yes");
    const when = live ? "now" : `${age(sinceMs)} ago`;
    const past = this.#last?.pairs.length ? ` Last crossed ${age(sinceMs)} ago:` : "";
    let text = "Fewer than two exchanges are live.";
    if (oneSided) text = "One side is empty.";
    else if (spread != null) {
      const found = count
        ? `Crossed ${when} by ${this.#price(-spread)}.`
        : `Not crossed: the best ask is ${this.#price(spread)} above the best bid.`;
      text = `${found} Choose the step “exact” for pairs of exchanges.${count ? "" : past}`;
    } else if (count) {
      const most = count > PAIRS_MAX ? ` The best ${PAIRS_MAX} after fees:` : "";
      text = `Crossed ${when}: ${count === 1 ? "one pair" : `${count} pairs`} of exchanges.${most}`;
    } else if (best) {
      text = `Not crossed: ${best.buy.exchange} sells ${this.#price(-best.gap)} above the bid of ${best.sell.exchange}.${past || " The nearest pairs:"}`;
    }
    write(this.#text, text);
  }

  #fill({ pairs, ages }, sinceMs) {
    while (this.#list.childElementCount > pairs.length) this.#list.lastChild.remove();
    while (this.#list.childElementCount < pairs.length) this.#list.append(item());
    pairs.forEach(({ buy, sell, gap, left, amount }, at) => {
      const net = left * amount;
      const { base, quote } = this.names;
      const quoted = ({ exchange, price }) => ` at ${this.#price(price)} (${quoteAge(ages[exchange] + sinceMs)})`;
      const texts = [
        `Buy ${fixed(amount, amountDecimals(amount))} ${base} on `,
        buy.exchange,
        `${quoted(buy)}, `,
        "sell on ",
        sell.exchange,
        `${quoted(sell)}: `,
        `gap ${minus(this.#price(gap))} (${minus(finePercent((100 * gap) / buy.price))} %), `,
        `after fees ${signed((100 * left) / buy.price, 4)} % or ${signed(net, Math.abs(net) < 1 ? 4 : 2)} ${quote}`,
      ];
      const parts = this.#list.children[at].querySelectorAll("span, b");
      texts.forEach((text, part) => write(parts[part], text));
      mark(parts[texts.length - 1], "data-gain", net > 0 ? "yes" : "no");
    });
  }
}

const minus = (text) => text.replace("-", "−");

const LINES = [["span", "b", "span"], ["span", "b", "span"], ["span", "span"]]; // to buy, to sell, the result

/** A pair with a line for each part, so that a longer text moves no other. */
function item() {
  const element = document.createElement("li");
  for (const names of LINES) {
    const line = document.createElement("div");
    line.append(...names.map((name) => document.createElement(name)));
    element.append(line);
  }
  return element;
}
