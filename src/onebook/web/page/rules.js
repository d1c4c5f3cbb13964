// Decides when alerts fire; does not access the document. A rule fires once when its threshold is crossed, and again
// only after the value has returned by a margin, or the event has been over for a while. Only live data is checked.

import { decimals, finePercent, fixed, PRICE_DECIMALS_MAX } from "./format.js";
import { sizeOf, symbolOf } from "./state.js";

export const KINDS = ["price", "spread", "crossing", "lost"];
export const PRICE_MARGIN = 0.0005; // of the threshold price, away from it
export const SPREAD_MARGIN = 0.1; // of the threshold spread, below it
export const QUIET_MS = 5_000; // a crossing or absence must be over for this time
const PERCENT = /^\d{1,3}(\.\d{1,6})?$/;
const EXCHANGE = /^[a-z0-9_]{1,32}$/;

/**
 * Parse a rule that was typed or stored; null if invalid: {kind, symbol, value} with a text `value`, empty for any
 * exchange.
 * Kinds are price (value), spread (minimum, percent), crossing (minimum, percent after fees), lost (exchange).
 */
export function ruleOf({ kind, symbol, value }) {
  const name = symbolOf(String(symbol ?? ""));
  const text = String(value ?? "").trim();
  const valid = {
    price: sizeOf(text),
    spread: PERCENT.test(text) && Number(text) > 0 ? text : null,
    crossing: PERCENT.test(text || "0") ? text || "0" : null,
    lost: !text || EXCHANGE.test(text.toLowerCase()) ? text.toLowerCase() : null,
  }[kind];
  return name && KINDS.includes(kind) && valid !== null ? { kind, symbol: name, value: valid } : null;
}

/** Describe a rule. */
export function worded({ kind, symbol, value }) {
  return {
    price: `${symbol} crosses ${plain(Number(value))}`,
    spread: `${symbol} has a spread of ${value} % or more`,
    crossing: `${symbol} is crossed by more than ${value} % after fees`,
    lost: `${symbol} loses ${value || "an exchange"}`,
  }[kind];
}

/** Fires when an event begins, and again only after it was over. */
class Trigger {
  #armed = null; // null before the first check: an existing condition is not an event
  #overMs = null; // since when the condition is over

  /** `on`: the event is present; `over`: it is certainly absent, for `quietMs` before it may fire again. */
  fires(on, over, nowMs, quietMs = 0) {
    this.#armed ??= !on;
    if (!over) this.#overMs = null;
    else if (nowMs - (this.#overMs ??= nowMs) >= quietMs) this.#armed = true;
    if (!on || !this.#armed) return false;
    this.#armed = false;
    return true;
  }

  /** Handle a time without data. */
  pause() {
    this.#overMs = null;
  }
}

/** Watches one rule. */
export class Watch {
  #rule;
  #triggers = new Map(); // by exchange; other kinds have one
  #side = 0; // the price is above (1) or below (-1) the threshold
  #armed = true;
  #seen = false; // whether a book arrived, so that exchanges can be lost

  constructor(rule) {
    this.#rule = rule;
  }

  /**
   * Return the messages to show. `facts` are those of an update: `live`, `mid` and `spread` (percent) or null,
   * `best()`, the
   * best crossing, null, or undefined if unknown, and `left`, the exchanges missing from the book.
   */
  check(facts, nowMs) {
    if (!facts.live) {
      for (const trigger of this.#triggers.values()) trigger.pause();
      return [];
    }
    return this[this.#rule.kind](facts, nowMs);
  }

  price({ mid }) {
    const value = Number(this.#rule.value);
    if (mid == null) return [];
    const side = Math.sign(mid - value);
    const crossed = this.#armed && this.#side !== 0 && side !== this.#side;
    const way = this.#side < 0 ? "rose" : "fell";
    // Once the price is far enough from the threshold, on either side, the next crossing counts.
    if (this.#side === 0 || Math.abs(mid - value) >= value * PRICE_MARGIN) [this.#side, this.#armed] = [side, true];
    else if (crossed) this.#armed = false;
    return crossed ? [`${this.#rule.symbol} ${way} to ${plain(mid)} (alert at ${plain(value)})`] : [];
  }

  spread({ spread }, nowMs) {
    const value = Number(this.#rule.value);
    if (spread == null) return [];
    if (!this.#trigger("").fires(spread >= value, spread < value * (1 - SPREAD_MARGIN), nowMs)) return [];
    return [`${this.#rule.symbol}: the spread is ${finePercent(spread)} %`];
  }

  crossing({ best }, nowMs) {
    const pair = best();
    if (pair === undefined) return [];
    const on = pair !== null && pair.percent > Number(this.#rule.value);
    if (!this.#trigger("").fires(on, !on, nowMs, QUIET_MS)) return [];
    return [`${this.#rule.symbol} is crossed: buy on ${pair.buy}, sell on ${pair.sell}, ${pair.percent.toFixed(4)} % after fees`];
  }

  lost({ left }, nowMs) {
    const { symbol, value } = this.#rule;
    const gone = new Set(value ? left.filter((name) => name === value) : left);
    const fired = [...new Set([...gone, ...this.#triggers.keys()])].filter((name) => {
      // An exchange that was in the book until now has no trigger yet.
      if (this.#seen && !this.#triggers.has(name)) this.#trigger(name).fires(false, true, nowMs);
      return this.#trigger(name).fires(gone.has(name), !gone.has(name), nowMs, QUIET_MS);
    });
    this.#seen = true;
    return fired.length ? [`${symbol} lost ${fired.join(", ")}`] : [];
  }

  #trigger(name) {
    if (!this.#triggers.has(name)) this.#triggers.set(name, new Trigger());
    return this.#triggers.get(name);
  }
}

/** A price with all its decimals. */
function plain(price) {
  return fixed(price, decimals([price], PRICE_DECIMALS_MAX));
}
