// A combobox of all listed symbols, those listed by most exchanges first.
// https://www.w3.org/WAI/ARIA/apg/patterns/combobox/

import { symbolOf } from "./state.js";

const SHOWN_MAX = 12;
let made = 0;

/** The number of exchanges that list each symbol, from the data of `pairs_data`. */
export function listed({ exchanges = {} }) {
  const counts = new Map();
  for (const names of Object.values(exchanges)) {
    for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}

/** The symbols that match the text: exact, then by prefix, then by number of exchanges. */
export function matches(counts, typed) {
  const wanted = typed.trim().toUpperCase();
  const compact = wanted.replaceAll(/[^A-Z0-9]/g, "");
  const rank = (name) => (name === wanted ? 0 : name.startsWith(wanted) ? 1 : 2);
  return [...counts]
    .filter(([name]) => name.includes(wanted) || (compact && name.replace("/", "").includes(compact)))
    .sort((a, b) => rank(a[0]) - rank(b[0]) || b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .slice(0, SHOWN_MAX);
}

export class Search {
  #input;
  #list;
  #active = -1;
  #found = [];

  /** `counts()` returns the listed symbols, `current()` the panel's symbol; `chosen(name)` gets the chosen or typed
  one. */
  constructor(root, { counts, current, opened, chosen }) {
    this.#input = root.querySelector(".symbol");
    this.#list = root.querySelector(".options");
    this.#list.id = `symbols-${(made += 1)}`;
    this.#input.setAttribute("aria-controls", this.#list.id);
    this.counts = counts;
    this.current = current;
    this.chosen = chosen;
    this.#input.addEventListener("focus", () => (opened(), this.#input.select()));
    this.#input.addEventListener("input", () => this.show());
    this.#input.addEventListener("change", () => this.#choose(this.#input.value));
    this.#input.addEventListener("blur", () => this.#close());
    this.#input.addEventListener("keydown", (event) => this.#key(event));
    // Otherwise the input would lose the focus, which ends the choice. Touches may scroll the list.
    this.#list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.#list.addEventListener("click", (event) => {
      const at = [...this.#list.children].indexOf(event.target.closest("li"));
      if (at >= 0) this.#choose(this.#found[at][0]);
    });
  }

  /** List the matches for the text; if it is the panel's own symbol, nothing was typed, and all match. */
  show() {
    const typed = this.#input.value;
    this.#found = matches(this.counts(), typed === this.current() ? "" : typed);
    this.#active = -1;
    this.#list.replaceChildren(...this.#found.map(([name, count], at) => option(`${this.#list.id}-${at}`, name, count)));
    this.#list.hidden = !this.#found.length;
    this.#list.scrollIntoView({ block: "nearest" });
    this.#input.setAttribute("aria-expanded", String(!this.#list.hidden));
    this.#input.removeAttribute("aria-activedescendant");
  }

  #key(event) {
    if (event.key === "Escape") {
      this.#input.value = this.current();
      return this.#close();
    }
    if (event.key === "Tab" && this.#active >= 0) return this.#choose(this.#found[this.#active][0]);
    if (event.key === "Enter") return this.#choose(this.#meant());
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    if (this.#list.hidden) this.show();
    if (!this.#found.length) return;
    this.#active = (this.#active + step + this.#found.length) % this.#found.length;
    [...this.#list.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === this.#active)));
    this.#input.setAttribute("aria-activedescendant", `${this.#list.id}-${this.#active}`);
    this.#list.children[this.#active].scrollIntoView({ block: "nearest" });
  }

  /** The choice of Enter: the marked symbol, the typed text, or if that is not a pair its first match. */
  #meant() {
    if (this.#active >= 0) return this.#found[this.#active][0];
    const typed = this.#input.value;
    const [first] = symbolOf(typed) || !typed.trim() ? [] : matches(this.counts(), typed);
    return first?.[0] ?? typed;
  }

  #choose(name) {
    this.#close();
    this.chosen(name);
  }

  #close() {
    this.#list.hidden = true;
    this.#active = -1;
    this.#input.setAttribute("aria-expanded", "false");
    this.#input.removeAttribute("aria-activedescendant");
  }
}

function option(id, name, count) {
  const item = document.createElement("li");
  Object.assign(item, { id, role: "option" });
  item.setAttribute("aria-selected", "false");
  const many = document.createElement("small");
  many.textContent = count === 1 ? "1 exchange" : `${count} exchanges`;
  item.append(name, " ", many);
  return item;
}
