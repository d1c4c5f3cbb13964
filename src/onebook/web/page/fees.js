// The user's taker fees, in percent by exchange: stored only in this browser, shared by its tabs.

const SLOT = "onebook.fees";
const OTHERS = 0.1; // a usual taker fee of a small account
const FEE_MIN = -1;
const FEE_MAX = 10;

export class Fees {
  #others;
  #own;
  #changed;

  /** `at` finds an element of the page; `changed` is called after each edit. */
  constructor(at, changed) {
    this.#changed = changed;
    this.#load();
    addEventListener("storage", ({ key }) => (key === SLOT || key === null) && this.#reload());
    at("fees-reset").addEventListener("click", () => this.#reset());
    at("fees").addEventListener("input", (event) => this.#edit(event.target));
    this.rows = at("fee-rows");
    this.others = at("fee-others");
    this.#show();
  }

  /** The fee of an exchange in percent. */
  of = (exchange) => this.#own[exchange] ?? this.#others;

  /** One input per exchange; an empty one stands for the common fee. */
  list(exchanges) {
    this.rows.replaceChildren(
      ...exchanges.map((name) => {
        const label = document.createElement("label");
        label.className = "fee";
        const input = Object.assign(document.createElement("input"), {
          type: "number", min: FEE_MIN, max: FEE_MAX, step: "any", inputMode: "decimal",
          name,
        });
        label.append(`${name} `, input, " %");
        return label;
      }),
    );
    this.#show();
  }

  #show() {
    this.others.value = this.#others;
    for (const each of this.rows.querySelectorAll("input")) {
      Object.assign(each, { value: this.#own[each.name] ?? "", placeholder: this.#others });
    }
  }

  #edit(input) {
    const value = input.value === "" ? undefined : Number(input.value);
    if (value !== undefined && !(value >= FEE_MIN && value <= FEE_MAX)) return;
    if (input === this.others) {
      this.#others = value ?? OTHERS;
      for (const each of this.rows.querySelectorAll("input")) each.placeholder = this.#others;
    } else if (value === undefined) delete this.#own[input.name];
    else this.#own[input.name] = value;
    this.#save();
  }

  #reset() {
    this.#others = OTHERS;
    this.#own = {};
    this.#show();
    this.#save();
  }

  /** Handle a change made in another tab. */
  #reload() {
    this.#load();
    this.#show();
    this.#changed();
  }

  #load() {
    this.#others = OTHERS;
    this.#own = {};
    try {
      const kept = JSON.parse(localStorage.getItem(SLOT)) ?? {};
      const valid = ([, fee]) => typeof fee === "number" && fee >= FEE_MIN && fee <= FEE_MAX;
      this.#own = Object.fromEntries(Object.entries(kept.own ?? {}).filter(valid));
      if (valid(["", kept.others])) this.#others = kept.others;
    } catch { /* storage is off, or holds what is no table */ }
  }

  #save() {
    try {
      localStorage.setItem(SLOT, JSON.stringify({ others: this.#others, own: this.#own }));
    } catch { /* storage is off: the fees last as long as the page */ }
    this.#changed();
  }
}
