// Which prices a panel shows: before or after taker fees, and the quote currencies whose books are pooled, with the
// conversion of each.

import { listOf, quoteAge } from "./format.js";
import { QUOTES_MAX } from "./state.js";
import { hide, mark, write } from "./write.js";

/** The quote currencies that can be pooled into a symbol's own: its base trades in them, and one pair converts them. */
export function poolable(symbols, symbol) {
  const [base, own] = symbol.split("/");
  return [...symbols.keys()]
    .filter((name) => name.startsWith(`${base}/`))
    .map((name) => name.slice(base.length + 1))
    .filter((quote) => quote !== own && (symbols.has(`${quote}/${own}`) || symbols.has(`${own}/${quote}`)))
    .sort((a, b) => symbols.get(`${base}/${b}`) - symbols.get(`${base}/${a}`) || (a < b ? -1 : 1));
}

export class Prices {
  #box;
  #changed;
  #counts;
  #list;
  #names;
  #net;
  #none;
  #said;
  #steps;
  #symbol = "";
  #chosen = [];
  #conversions = []; // of the last update

  /**
   * `changed({net})` and `changed({quotes})` are called when the user chose; `counts()` returns the listed symbols, which
   * `opened()` requests.
   */
  constructor(root, { changed, counts, opened }) {
    this.#changed = changed;
    this.#counts = counts;
    this.#net = root.querySelector(".net");
    this.#said = root.querySelector(".prices-said");
    this.#box = root.querySelector(".quotes");
    this.#names = root.querySelector(".quote-names");
    this.#list = root.querySelector(".quote-list");
    this.#none = root.querySelector(".quote-none");
    this.#steps = root.querySelector(".conversions");
    this.#net.addEventListener("change", () => changed({ net: this.#net.checked }));
    this.#box.addEventListener("toggle", () => this.#box.open && (opened(), this.offer()));
    this.#box.addEventListener("keydown", (event) => event.key === "Escape" && this.#close(event));
    this.#box.addEventListener("focusout", ({ relatedTarget }) => relatedTarget && !this.#box.contains(relatedTarget) && (this.#box.open = false));
    this.#list.addEventListener("change", () => this.#choose());
  }

  /** Show what is chosen for a symbol. */
  choose(symbol, { net, quotes }) {
    this.#symbol = symbol;
    this.#chosen = quotes;
    this.#net.checked = net;
    write(this.#names, [symbol.split("/")[1], ...quotes].join(" + "));
    if (this.#box.open) this.offer();
  }

  /** Say what the chosen prices do not include. */
  say(text) {
    write(this.#said, text);
  }

  /** List the currencies that can be pooled, once they are known. */
  offer() {
    const offered = poolable(this.#counts(), this.#symbol);
    const names = [...new Set([...offered, ...this.#chosen])];
    const full = this.#chosen.length >= QUOTES_MAX;
    const focused = document.activeElement?.value;
    this.#list.replaceChildren(...names.map((quote) => {
      const label = document.createElement("label");
      const checked = this.#chosen.includes(quote);
      label.append(Object.assign(document.createElement("input"), { type: "checkbox", value: quote, checked, disabled: full && !checked }), quote);
      return label;
    }));
    [...this.#list.querySelectorAll("input")].find(({ value }) => value === focused)?.focus();
    hide(this.#none, names.length > 0);
  }

  #choose() {
    const boxes = [...this.#list.querySelectorAll("input")];
    this.#changed({ quotes: boxes.filter(({ checked }) => checked).map(({ value }) => value) });
  }

  #close(event) {
    event.preventDefault();
    this.#box.open = false;
    this.#box.querySelector("summary").focus();
  }

  /** Keep the conversions of an update. */
  read(conversions) {
    this.#conversions = conversions;
  }

  /** Write each conversion and its age, which grows between updates. */
  showFigures(sinceMs) {
    const lines = this.#conversions.map((step) => [worded(step, sinceMs), step.reason === null]);
    while (this.#steps.childElementCount > lines.length) this.#steps.lastChild.remove();
    while (this.#steps.childElementCount < lines.length) this.#steps.append(document.createElement("li"));
    lines.forEach(([text, live], at) => {
      write(this.#steps.children[at], text);
      mark(this.#steps.children[at], "data-live", live ? "yes" : "no");
    });
    hide(this.#steps, !lines.length);
  }
}

/** Describe a conversion: its pair, where it is traded, its best prices and its age, or why it is not live. */
export function worded({ symbol, members, exchanges, bid, ask, ageMs, reason }, sinceMs) {
  const of = `${members.length === 1 ? "the book" : "the books"} of ${listOf(members)}`;
  if (reason !== null) return `${symbol} is not live (${reason.replaceAll("_", " ")}): without ${of}.`;
  const prices = [bid, ask].map((level) => level?.[0] ?? "none").join(" to ");
  return `${symbol} on ${listOf(exchanges)}: ${prices}, ${quoteAge(ageMs + sinceMs)} old, for ${of}.`;
}
