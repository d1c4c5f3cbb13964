// Crossed markets: the service's crossings of a view of its own, which is sent when one begins, changes or ends: where to
// buy and sell, the amount, the profit before and after both fees, both ages and the duration. A crossing often lasts less
// than a second, so the last ones stay visible.

import { numbers } from "./book.js";
import { age, amountDecimals, decimals, finePercent, fixed, PRICE_DECIMALS_MAX, quoteAge, signed } from "./format.js";
import { Part } from "./part.js";
import { PROFITS } from "./state.js";
import { mark, write } from "./write.js";

const ENDED_MAX = 5; // that stay visible
const TRANSFER = new Map([[true, "transferable"], [false, "not transferable"], [null, "transfer unknown"]]);

export class Crossed {
  #text;
  #list;
  #least;
  #part;
  #pairs = new Map(); // the crossings of now, by exchanges: {crossing, atMs}, the most profitable first
  #ended = []; // the last ones: {crossing, atMs, endedMs}, the latest first
  #heard = false; // whether the view has had an update since it was subscribed
  #refusal = "";
  #gross = false; // whether profits are before fees
  #written = ""; // what the list has, apart from figures

  /** `changed(profit)` is called when the user chose another minimum; `view` is the site of a `Part`. */
  constructor(root, { profit, changed, view }) {
    this.#part = new Part("crossings", view);
    this.#text = root.querySelector(".crossing-text");
    this.#list = root.querySelector(".pairs");
    this.#least = root.querySelector(".profit");
    this.#least.replaceChildren(...PROFITS.map((each) => new Option(`${each} %`, each)));
    this.choose(profit);
    this.#least.addEventListener("change", () => changed(this.#least.value));
  }

  choose(profit) {
    this.#least.value = profit;
  }

  /** Subscribe to the crossings of at least a profit; `terms` are the exchanges, quotes and fees. */
  follow({ profit, intervalMs, ...terms }) {
    if (this.#part.follow({ ...terms, crossings: profit, on: "crossing", depth: 1, interval_ms: intervalMs })) {
      this.#refusal = "";
      this.#heard = false;
    }
  }

  leave() {
    this.#part.leave();
    this.#pairs.clear();
    this.#heard = false;
  }

  shows(view) {
    return this.#part.shows(view);
  }

  /** Drop the crossings: they were computed with other options. */
  accepted() {
    this.#pairs.clear();
  }

  refused({ message }) {
    this.#refusal = message;
    this.#pairs.clear();
  }

  name(symbol) {
    const [base, quote] = symbol.split("/");
    this.names = { base, quote };
  }

  /** `basis` says why profits are before fees; empty after fees. */
  say(basis) {
    this.#gross = Boolean(basis);
  }

  /** Handle an update that is this old; a crossing that it does not list has ended, also if the update that said so was skipped. */
  update({ crossings }, receivedMs, oldMs) {
    const nowMs = receivedMs - oldMs;
    this.#heard = true;
    const before = this.#pairs;
    this.#pairs = new Map();
    for (const crossing of crossings) {
      const name = `${crossing.buy} ${crossing.sell}`;
      if (crossing.phase !== "ended") this.#pairs.set(name, { crossing: numbers(crossing), atMs: nowMs });
    }
    for (const [name, { crossing, atMs }] of before) {
      if (this.#pairs.has(name)) continue;
      const lastedMs = crossings.find(({ buy, sell }) => `${buy} ${sell}` === name)?.lastedMs;
      this.#ended.unshift({ crossing: { ...crossing, lastedMs: lastedMs ?? crossing.lastedMs + nowMs - atMs }, endedMs: nowMs });
    }
    const back = ({ crossing }) => !this.#pairs.has(`${crossing.buy} ${crossing.sell}`);
    this.#ended = this.#ended.filter(back).slice(0, ENDED_MAX);
  }

  /** The best current crossing after fees: null for none, undefined if unknown. */
  get best() {
    if (!this.#heard || this.#gross) return undefined;
    return this.#pairs.values().next().value?.crossing ?? null;
  }

  /** Write the list when crossings begin or end; figures only twice a second, because faster ones are unreadable. */
  write(nowMs, when, ages, sinceMs) {
    if (this.#kind !== this.#written) this.showFigures(nowMs, when, ages, sinceMs);
  }

  /** Write everything: `when` is the time of the update in words, `ages` are those of the exchanges' data, `sinceMs` ago. */
  showFigures(nowMs, when, ages, sinceMs) {
    this.#say(nowMs, when);
    const shown = [...this.#pairs.values(), ...this.#ended];
    while (this.#list.childElementCount > shown.length) this.#list.lastChild.remove();
    while (this.#list.childElementCount < shown.length) this.#list.append(item());
    shown.forEach((each, at) => this.#fill(this.#list.children[at], each, nowMs, ages, sinceMs));
    this.#written = this.#kind;
  }

  get #kind() {
    const names = [...this.#pairs.keys(), ...this.#ended.map(({ crossing, endedMs }) => `${crossing.buy} ${crossing.sell} ${endedMs}`)];
    return [this.#heard, this.#gross, this.#refusal, ...names].join();
  }

  /** Show none while no updates arrive. */
  withdraw() {
    this.#written = "";
    this.#list.replaceChildren();
    write(this.#text, "—");
  }

  clear() {
    this.leave();
    this.#ended = [];
    this.#refusal = "";
    this.withdraw();
  }

  #say(nowMs, when) {
    const fees = this.#gross ? "before fees" : "after fees";
    const count = this.#pairs.size;
    const [last] = this.#ended;
    let text = "—";
    if (this.#refusal) text = this.#refusal;
    else if (this.#heard && count) {
      text = `Crossed ${when} ${fees}: ${count === 1 ? "one pair" : `${count} pairs`} of exchanges.`;
    } else if (this.#heard) {
      text = `Not crossed by ${this.#least.value} % ${fees}.`.replace("by 0 % ", "");
      if (last) text += ` Last crossed ${age(nowMs - last.endedMs)} ago:`;
    }
    write(this.#text, text);
  }

  #fill(element, { crossing, atMs, endedMs }, nowMs, ages = {}, sinceMs = 0) {
    const { base, quote } = this.names;
    const { buy, sell, amount, buyLimit, sellLimit, gross, profit, percent, transferable } = crossing;
    const ended = endedMs !== undefined;
    const old = (name, given) => (name in ages ? ages[name] + sinceMs : given + nowMs - atMs);
    const aged = (name, given) => (ended ? "" : ` (${quoteAge(old(name, given))})`);
    const money = (value) => `${signed(value, Math.abs(value) < 1 ? 4 : 2)} ${quote}`;
    const lasted = ended ? `, ended ${age(nowMs - endedMs)} ago after ${quoteAge(crossing.lastedMs)}` : `, for ${quoteAge(crossing.lastedMs + nowMs - atMs)}`;
    const texts = [
      `Buy ${fixed(amount, amountDecimals(amount))} ${base} on `,
      buy,
      ` up to ${price(buyLimit)}${aged(buy, crossing.buyAgeMs)},`,
      "sell on ",
      sell,
      ` down to ${price(sellLimit)}${aged(sell, crossing.sellAgeMs)}:`,
      this.#gross ? "" : `${money(gross)} before fees, `,
      `${money(profit)} (${finePercent(percent)} %)`,
      `${this.#gross ? " before" : " after"} fees${lasted}${transferable === undefined ? "" : `; ${TRANSFER.get(transferable.possible)}`}`,
    ];
    const parts = element.querySelectorAll("span, b");
    texts.forEach((text, part) => write(parts[part], text));
    mark(element, "data-past", ended ? "yes" : "no");
  }
}

const price = (value) => fixed(value, decimals([value], PRICE_DECIMALS_MAX));

const LINES = [["span", "b", "span"], ["span", "b", "span"], ["span", "b", "span"]]; // to buy, to sell, the result

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
