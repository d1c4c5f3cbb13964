// The taker fees of the page: the table of the key, or the fees that exchanges publish. The table, in percent by exchange,
// is loaded once the key is accepted, edited as a draft, and saved for all users of the key. A fee stays decimal text, as
// the service has it.

import { PUBLISHED } from "./state.js";
import { hide } from "./write.js";

const FEE = /^-?\d{1,2}(\.\d{1,6})?$/; // as the service reads it
const FEE_MAX = 10; // percent, of a fee or a rebate
const ALL = "*"; // all exchanges that a table does not name
const MEANING = "a number of percent from -10 to 10 with at most 6 decimals, such as 0.075";

/** The exchange and the symbol of a book in a view of `symbol`: `kraken:USD` is the book of kraken in USD. */
function pairOf(book, symbol) {
  const [exchange, quote] = book.split(":");
  return [exchange, quote ? `${symbol.split("/")[0]}/${quote}` : symbol];
}

export class Fees {
  #at;
  #client = null;
  #changed;
  #draft = {}; // what the inputs have
  #loaded = false; // whether the key's table is loaded, or failed to load
  #others;
  #replies = new Map(); // the last reply to a view with published fees, by symbol
  #rows;
  #said;
  #table = null; // of the key, by exchange; null until it is loaded
  published; // whether the fees are those that exchanges publish
  problem = ""; // why there are no fees, as a sentence

  /**
   * `at` finds an element of the page. `changed` is called when the fees are others: chosen, loaded or saved; `chosen(published)`
   * before that if the user chose; `symbols()` returns those that are shown.
   */
  constructor(at, { published, changed, chosen, symbols }) {
    this.#at = at;
    this.#changed = changed;
    this.symbols = symbols;
    this.published = published;
    const of = at("fees-of");
    of.value = published ? PUBLISHED : "key";
    of.addEventListener("change", () => {
      chosen((this.published = of.value === PUBLISHED));
      this.#show();
      changed();
    });
    this.#said = at("fees-said");
    this.#rows = at("fee-rows");
    this.#others = at("fee-others");
    this.#others.name = ALL;
    at("fees").addEventListener("input", ({ target }) => this.#edit(target));
    at("fees-save").addEventListener("click", () => this.#save());
    at("fees-undo").addEventListener("click", () => (this.#fill(), this.#say("")));
    at("fees").addEventListener("toggle", () => this.#show());
    this.#show();
  }

  /** The client whose key is connected, or null. */
  set client(client) {
    this.#client = client;
    this.#loaded = false;
    this.#take(null, "");
  }

  /** Load the key's table, which the service has once the key is accepted. */
  async load() {
    if (this.#table) return;
    await this.#ask((client) => client.fees(), (table) => ((this.#loaded = true), this.#take(table, "")));
    if (this.#table || !this.#client) return;
    this.#loaded = true; // without fees: the table could not be loaded
    this.problem = this.#said.textContent;
    this.#changed();
  }

  /** Whether the option `fees` is known. */
  get settled() {
    return this.published || this.#loaded;
  }

  /** The option `fees` of a view: the published ones, or the key's table; null without one. */
  get option() {
    if (this.published) return PUBLISHED;
    return this.#table && Object.keys(this.#table).length ? this.#table : null;
  }

  /** Description of the fees, to follow the word "after". */
  get named() {
    return this.published ? "the taker fees that exchanges publish" : "the taker fees of this key";
  }

  /** Returns a function that finds the fee of a book in percent as text, undefined if unknown; `reply` is that to its view. */
  reader(symbol, { published_fees: stated }) {
    if (!stated) return (book) => this.#table?.[pairOf(book, symbol)[0]] ?? this.#table?.[ALL];
    const percents = new Map(stated.map((fee) => [`${fee.exchange} ${fee.symbol}`, fee.percent]));
    return (book) => percents.get(pairOf(book, symbol).join(" "));
  }

  /** Keep the reply to a view, which has the published fees of its books. */
  heard(symbol, reply) {
    if (!reply.published_fees) return;
    this.#replies.set(symbol, reply);
    this.#show();
  }

  /** Show the chosen fees: the key's table in inputs, or the published fees as a list. */
  #show() {
    hide(this.#at("fees-key"), this.published);
    hide(this.#at("fees-published"), !this.published);
    if (!this.published || !this.#at("fees").open) return;
    const shown = this.symbols();
    for (const symbol of this.#replies.keys()) if (!shown.includes(symbol)) this.#replies.delete(symbol);
    const replies = [...this.#replies.values()];
    const stated = new Map(replies.flatMap((reply) => reply.published_fees).map((fee) => [`${fee.exchange} ${fee.symbol}`, fee]));
    this.#at("stated").replaceChildren(...[...stated].sort().map(([, fee]) => statedItem(fee)));
    const unknown = [...new Set(replies.flatMap((reply) => reply.unknown_fee ?? []))].sort();
    const said = unknown.length ? `Without a published fee, so left out: ${unknown.join(", ")}.` : "";
    this.#at("stated-unknown").textContent = replies.length ? said : "Waiting for the first book.";
  }

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

/** A published fee: its pair, percent, source and date. */
function statedItem({ exchange, symbol, percent, source, date, page, old }) {
  const item = document.createElement("li");
  const [name, fee, from] = ["span", "b", "small"].map((tag) => item.appendChild(document.createElement(tag)));
  name.textContent = `${exchange} ${symbol}`;
  fee.textContent = `${percent} %`;
  if (source === "page" && page?.startsWith("https://")) {
    from.append(Object.assign(document.createElement("a"), { href: page, rel: "noreferrer", target: "_blank", textContent: "page" }));
    from.append(` of the exchange, ${date}`);
  } else from.textContent = `list of pairs, read on ${date}`;
  if (old) from.append(Object.assign(document.createElement("b"), { textContent: " old", title: "More than 180 days ago" }));
  return item;
}

const valid = (text) => !text || (FEE.test(text) && Math.abs(Number(text)) <= FEE_MAX);
