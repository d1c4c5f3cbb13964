// Live order books in React: useOrderBook(books, "BTC/USDT", { depth: 10 }).
//
//   const books = new Books(new Onebook(url, key)); // one for the page, outside of components
//   function Best({ symbol }) {
//     const book = useOrderBook(books, symbol, { depth: 1 });
//     if (!book.live) return book.problem?.message ?? "Connecting";
//     return `${book.bestBid?.price} / ${book.bestAsk?.price}`;
//   }
//
// All components share one connection, on which each choice of options is a view with a name. A book is a
// snapshot that never changes: the next update is another object.
// https://react.dev/reference/react/useSyncExternalStore

import { View } from "onebook";
import { useSyncExternalStore } from "react";

const LINGER_MS = 1_000; // a component that is mounted again at once keeps its subscription

/** The newest book of a symbol, not live until the first one is there. */
export function useOrderBook(books, symbol, options = {}) {
  const { subscribe, getSnapshot } = books.of(symbol, options);
  return useSyncExternalStore(subscribe, getSnapshot, getSnapshot);
}

/** The books that components show, over one connection while there are any. */
export class Books {
  #client;
  #session = null;
  #choices = new Map(); // every choice so far, by symbol and options

  constructor(client) {
    this.#client = client;
  }

  /** What React subscribes to: the same functions for each equal choice. */
  of(symbol, options) {
    const key = JSON.stringify([symbol, options]);
    let choice = this.#choices.get(key);
    if (!choice) {
      choice = { symbol, options: { ...options, view: `view ${this.#choices.size}` }, listeners: new Set(), leaving: 0 };
      choice.snapshot = new View(symbol);
      choice.subscribe = (listener) => this.#join(choice, listener);
      choice.getSnapshot = () => choice.snapshot;
      this.#choices.set(key, choice);
    }
    return choice;
  }

  #join(choice, listener) {
    const { symbol, options, listeners } = choice;
    clearTimeout(choice.leaving);
    listeners.add(listener);
    this.#session ??= this.#begin();
    if (!this.#session.has(symbol, options.view)) this.#session.subscribe(symbol, options);
    return () => {
      listeners.delete(listener);
      if (!listeners.size) choice.leaving = setTimeout(() => this.#leave(choice), LINGER_MS);
    };
  }

  #leave(choice) {
    this.#session?.unsubscribe(choice.symbol, choice.options.view);
    choice.snapshot = new View(choice.symbol); // what was live is not, for the next component
    if (this.#used.length) return;
    this.#session?.stop();
    this.#session = null;
  }

  get #used() {
    return [...this.#choices.values()].filter(({ listeners }) => listeners.size);
  }

  #begin() {
    const session = this.#client.session({
      view: (view) => this.#show(view, view.copy()),
      refused: (view, error) => this.#show(view, failed(view.symbol, error)),
    });
    session.run().catch((error) => {
      if (session === this.#session) this.#session = null;
      for (const choice of this.#used) show(choice, failed(choice.symbol, error));
    });
    return session;
  }

  #show({ view }, snapshot) {
    const choice = [...this.#choices.values()].find(({ options }) => options.view === view);
    show(choice, snapshot);
  }
}

function show(choice, snapshot) {
  choice.snapshot = Object.freeze(snapshot);
  for (const listener of choice.listeners) listener();
}

/** A book that is unavailable, with the reason. */
function failed(symbol, { code, message }) {
  const view = new View(symbol);
  view.lose({ code, message, retryInS: Infinity });
  return view;
}
