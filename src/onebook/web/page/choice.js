// The list of exchanges in the drawer: which ones are subscribed, and which have a colour on the page.

import { followPicks, hueOf, paint, pick, PICKED_MAX, pickedCount } from "./palette.js";

const FIND_FROM = 10; // fewer exchanges need no search field

export class Choice {
  #at;
  #box;
  #chosen;
  #changed;
  #found;
  #recoloured;

  /**
   * `chosen` lists the exchanges that are ticked at first, null for all. `changed(names)`, with null for all,
   * `found(text)` and `recoloured()` are called after an action of the user.
   */
  constructor(at, { chosen, changed, found, recoloured }) {
    this.#at = at;
    this.#box = at("exchanges");
    this.#chosen = chosen;
    this.#changed = changed;
    this.#found = found;
    this.#recoloured = recoloured;
    this.#box.addEventListener("change", () => this.#tell());
    this.#box.addEventListener("click", ({ target }) => target.matches(".pick") && this.#pick(target));
    at("find").addEventListener("input", () => this.#find());
    at("tick-all").addEventListener("click", () => this.#tick(true));
    at("tick-none").addEventListener("click", () => this.#tick(false));
    followPicks(() => this.#repaint());
  }

  /** List the exchanges, once. */
  list(names) {
    if (this.#box.childElementCount) return;
    for (const name of names) {
      const row = document.createElement("div");
      row.className = "choice";
      const label = document.createElement("label");
      const checked = this.#chosen === null || this.#chosen.includes(name);
      const input = Object.assign(document.createElement("input"), { type: "checkbox", value: name, checked });
      label.append(input, Object.assign(document.createElement("span"), { textContent: name }));
      const colour = Object.assign(document.createElement("button"), { type: "button", className: "pick", value: name });
      colour.setAttribute("aria-label", `Colour ${name}`);
      row.append(label, colour);
      this.#box.append(row);
    }
    this.#at("find-tools").hidden = names.length < FIND_FROM;
    this.#sum();
    this.#repaint();
  }

  get #inputs() {
    return [...this.#box.querySelectorAll("input")];
  }

  #sum() {
    const inputs = this.#inputs;
    this.#at("ticked").textContent = `${inputs.filter((each) => each.checked).length} of ${inputs.length}`;
  }

  #tell() {
    const inputs = this.#inputs;
    const names = inputs.filter((each) => each.checked).map((each) => each.value);
    this.#sum();
    this.#changed(names.length < inputs.length ? names : null);
  }

  /** Show the exchanges whose name contains the search text; the choice is unchanged. */
  #find() {
    const wanted = this.#at("find").value.trim().toLowerCase();
    for (const row of this.#box.children) row.hidden = !row.textContent.includes(wanted);
    this.#found(wanted);
  }

  /** Tick or clear all visible exchanges. */
  #tick(checked) {
    for (const each of this.#inputs) if (!each.closest(".choice").hidden) each.checked = checked;
    this.#tell();
  }

  #pick({ value: name }) {
    pick(name, hueOf(name) === null);
    this.#repaint();
  }

  #repaint() {
    const full = pickedCount() === PICKED_MAX;
    for (const each of this.#box.querySelectorAll(".pick")) {
      const hue = hueOf(each.value);
      if (hue) paint(each, hue);
      else each.style.removeProperty("--hue");
      each.setAttribute("aria-pressed", String(hue !== null));
      each.disabled = full && hue === null;
      each.title = each.disabled ? `${PICKED_MAX} exchanges have a colour` : `Colour ${each.value}`;
    }
    this.#recoloured();
  }
}
