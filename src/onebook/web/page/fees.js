// The user's taker fees, in percent by exchange: stored in this browser, shared by its tabs. The table of the key is
// read and replaced only when the user asks for it, because both need a REST session.

const SLOT = "onebook.fees";
const OTHERS = 0.1; // a usual taker fee of a small account
const [FEE_MIN, FEE_MAX] = [-10, 10]; // of the service
const DECIMALS = 6; // of the service
const ALL = "*"; // all exchanges that a table does not name

export class Fees {
  #others;
  #own;
  #changed;
  #client = null;

  /** `at` finds an element of the page; `changed` is called after each edit. */
  constructor(at, changed) {
    this.#changed = changed;
    this.#load();
    addEventListener("storage", ({ key }) => (key === SLOT || key === null) && this.#reload());
    at("fees-reset").addEventListener("click", () => this.#reset());
    at("fees").addEventListener("input", (event) => this.#edit(event.target));
    this.said = at("fees-said");
    at("fees-load").addEventListener("click", () => this.#ask((client) => client.fees(), (table) => this.#take(table)));
    at("fees-save").addEventListener("click", () =>
      this.#ask((client) => client.changeFees(this.#table()), () => "Saved as the table of this key."));
    this.rows = at("fee-rows");
    this.others = at("fee-others");
    this.#show();
  }

  /** The fee of an exchange in percent. */
  of = (exchange) => this.#own[exchange] ?? this.#others;

  /** The client whose key is connected, or null. */
  set client(client) {
    this.#client = client;
    this.said.textContent = "";
  }

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

  /** Send a request about the key's table, and say what `done` returns for the answer. */
  async #ask(request, done) {
    const client = this.#client;
    if (!client) return;
    this.said.textContent = "Waiting for the service.";
    let said;
    try {
      const answer = await request(client);
      said = client === this.#client ? done(answer) : "";
    } catch (error) {
      said = client === this.#client ? error.message : "";
    }
    this.said.textContent = said;
  }

  /** Use the table of the key; it may have no fee for all others. */
  #take({ [ALL]: others, ...own }) {
    if (others === undefined && !Object.keys(own).length) return "This key has no table yet.";
    this.#own = Object.fromEntries(Object.entries(own).map(([name, fee]) => [name, Number(fee)]));
    if (others !== undefined) this.#others = Number(others);
    this.#show();
    this.#save();
    return others === undefined ? `Loaded. The table has no fee for all others: ${this.#others} % stays.` : "Loaded.";
  }

  /** The fees as a table of the service: decimal text. */
  #table() {
    const text = (fee) => fee.toFixed(DECIMALS).replace(/\.?0+$/, "");
    const fees = Object.entries({ ...this.#own, [ALL]: this.#others });
    return Object.fromEntries(fees.map(([name, fee]) => [name, text(fee)]));
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
