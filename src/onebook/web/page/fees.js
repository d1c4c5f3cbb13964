// The taker fees of the key, in percent by exchange: loaded once the key is accepted, edited as a draft, and saved for
// all users of the key. A fee stays decimal text, as the service has it.

const FEE = /^-?\d{1,2}(\.\d{1,6})?$/; // as the service reads it
const FEE_MAX = 10; // percent, of a fee or a rebate
const ALL = "*"; // all exchanges that a table does not name
const MEANING = "a number of percent from -10 to 10 with at most 6 decimals, such as 0.075";

/** The exchange of a book: `kraken:USD` is the book of kraken in USD. */
const exchangeOf = (book) => book.split(":", 1)[0];

export class Fees {
  #client = null;
  #changed;
  #draft = {}; // what the inputs have
  #others;
  #rows;
  #said;
  #table = null; // of the key, by exchange; null until it is loaded
  settled = false; // whether it is loaded, or failed to load
  problem = ""; // why there are no fees, as a sentence

  /** `at` finds an element of the page; `changed` is called when the key's table was loaded or saved. */
  constructor(at, changed) {
    this.#changed = changed;
    this.#said = at("fees-said");
    this.#rows = at("fee-rows");
    this.#others = at("fee-others");
    this.#others.name = ALL;
    at("fees").addEventListener("input", ({ target }) => this.#edit(target));
    at("fees-save").addEventListener("click", () => this.#save());
    at("fees-undo").addEventListener("click", () => (this.#fill(), this.#say("")));
  }

  /** The client whose key is connected, or null. */
  set client(client) {
    this.#client = client;
    this.settled = false;
    this.#take(null, "");
  }

  /** Load the key's table, which the service has once the key is accepted. */
  async load() {
    if (this.#table) return;
    await this.#ask((client) => client.fees(), (table) => ((this.settled = true), this.#take(table, "")));
    if (this.#table || !this.#client) return;
    this.settled = true; // without fees: the table could not be loaded
    this.problem = this.#said.textContent;
    this.#changed();
  }

  /** The option `fees` of a view: the key's table; null without one. */
  get option() {
    return this.#table && Object.keys(this.#table).length ? this.#table : null;
  }

  /** The fee of a book's exchange in percent as text; undefined if unknown. */
  of = (book) => this.#table?.[exchangeOf(book)] ?? this.#table?.[ALL];

  /** One input per exchange; an empty one stands for the fee of all others. */
  list(exchanges) {
    this.#rows.replaceChildren(
      ...exchanges.map((name) => {
        const label = document.createElement("label");
        label.className = "fee";
        const input = Object.assign(document.createElement("input"), { inputMode: "decimal", autocomplete: "off", name });
        label.append(`${name} `, input, " %");
        return label;
      }),
    );
    this.#fill();
  }

  get #inputs() {
    return [this.#others, ...this.#rows.querySelectorAll("input")];
  }

  /** Show the key's table in the inputs. */
  #fill() {
    this.#draft = { ...this.#table };
    for (const input of this.#inputs) {
      input.value = this.#draft[input.name] ?? "";
      input.removeAttribute("aria-invalid");
    }
    this.#offer();
  }

  #offer() {
    for (const input of this.#inputs) if (input !== this.#others) input.placeholder = this.#draft[ALL] ?? "unknown";
  }

  #edit(input) {
    const text = input.value.trim().replace("−", "-");
    if (text) this.#draft[input.name] = text;
    else delete this.#draft[input.name];
    if (valid(text)) input.removeAttribute("aria-invalid");
    else input.setAttribute("aria-invalid", "true");
    this.#say("Not saved yet.");
    this.#offer();
  }

  async #save() {
    const wrong = this.#inputs.find(({ name }) => !valid(this.#draft[name] ?? ""));
    if (wrong) {
      this.#say(`The fee of ${wrong === this.#others ? "all others" : wrong.name} must be ${MEANING}.`);
      return wrong.focus();
    }
    await this.#ask((client) => client.changeFees(this.#draft), (table) => this.#take(table, "Saved as the table of this key."));
  }

  /** Send a request about the key's table; an error is said, and leaves the draft as it is. */
  async #ask(request, done) {
    const client = this.#client;
    if (!client) return;
    this.#say("Waiting for the service.");
    try {
      const table = await request(client);
      if (client === this.#client) done(table);
    } catch (error) {
      if (client === this.#client) this.#say(error.message);
    }
  }

  #take(table, said) {
    this.#table = table;
    this.problem = "this key has no taker fees yet; enter them in the settings.";
    this.#fill();
    this.#say(said);
    this.#changed();
  }

  #say(text) {
    this.#said.textContent = text;
  }
}

const valid = (text) => !text || (FEE.test(text) && Math.abs(Number(text)) <= FEE_MAX);
