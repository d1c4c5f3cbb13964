// A further view of a panel's symbol, which one of its cards subscribes to under a name.

export class Part {
  #name;
  #view = null;
  #asked = ""; // its options as text
  #site;

  /** `site` is the panel: `subscribe(options)` returns a view of its symbol, `unsubscribe(view)` ends it. */
  constructor(name, site) {
    this.#name = name;
    this.#site = site;
  }

  /** Subscribe with these options; returns true if they differ from the last ones. */
  follow(options) {
    const asked = JSON.stringify(options);
    if (this.#view && asked === this.#asked) return false;
    this.#asked = asked;
    this.#view = this.#site.subscribe({ view: this.#name, mode: "delta", levels: "array", ...options });
    return true;
  }

  /** End the subscription. */
  leave() {
    if (this.#view) this.#site.unsubscribe(this.#view);
    this.#view = null;
  }

  shows(view) {
    return this.#view !== null && view === this.#view;
  }
}
