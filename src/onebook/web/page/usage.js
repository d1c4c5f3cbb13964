// The allowance of the key: the used part, and when it will be used up at the current rate.
// The report has the key in its address, so it is requested only when the user opens it.

import { size } from "./format.js";

const EVERY_MS = 20_000;
const DAY_MS = 86_400_000;

/** The effect of a rate on an allowance: bytes at the reset, and when it is exhausted before that. Pure. */
export function forecast({ used, limit, bytesPerMs, nowMs, resetMs }) {
  const atReset = used + bytesPerMs * Math.max(0, resetMs - nowMs);
  const endsMs = bytesPerMs > 0 ? nowMs + Math.max(0, limit - used) / bytesPerMs : Infinity;
  return { atReset, endsMs: endsMs < resetMs ? endsMs : null };
}

export class Usage {
  #at;
  #client = null;
  #asking = false;
  #timer = 0;
  #first = null; // {bytes, ms}: start of the rate measurement

  constructor(at) {
    this.#at = at;
    at("usage").addEventListener("toggle", () => this.#follow());
  }

  /** The client whose key is connected, or null. */
  set client(client) {
    this.#client = client;
    this.#first = null;
    this.#follow();
  }

  #follow() {
    clearInterval(this.#timer);
    if (!this.#client || !this.#at("usage").open) return;
    this.#timer = setInterval(() => this.#ask(), EVERY_MS);
    this.#ask();
  }

  async #ask() {
    if (this.#asking) return;
    const client = this.#client;
    this.#asking = true;
    try {
      const report = await client.usage();
      if (client === this.#client) this.#show(report);
    } catch (error) {
      this.#at("usage-text").textContent = error.message;
    } finally {
      this.#asking = false;
    }
  }

  #show({ usedBytes: used, limitBytes: limit, share, resetsAt }) {
    const nowMs = Date.now();
    const percent = Number((100 * share).toFixed(2));
    const resetMs = resetsAt.getTime();
    const measuredMs = performance.now(); // the system clock may change
    if (!this.#first || used < this.#first.bytes) this.#first = { bytes: used, ms: measuredMs };
    this.#at("usage-text").textContent =
      `${size(used, 2)} of ${size(limit, 2)} used (${percent || !used ? percent : "under 0.01"} %); reset ${inDays(resetMs - nowMs)}.`;
    this.#at("usage-bar").value = percent;
    const lasted = measuredMs - this.#first.ms;
    if (lasted < EVERY_MS / 2) {
      this.#at("forecast").textContent = "Measuring the rate of this key.";
      return;
    }
    const bytesPerMs = (used - this.#first.bytes) / lasted;
    const { atReset, endsMs } = forecast({ used, limit, bytesPerMs, nowMs, resetMs });
    const rate = `At the rate of the last ${Math.round(lasted / 60_000) || 1} min (${size(bytesPerMs * DAY_MS, 2)} a day)`;
    this.#at("forecast").textContent = endsMs
      ? `${rate} the allowance will run out on  ${new Date(endsMs).toLocaleDateString("en", { dateStyle: "medium" })}.`
      : `${rate} ${size(atReset, 2)} will have been used by the reset.`;
  }
}

/** The time until an event in whole days, as the service's report counts them. */
function inDays(ms) {
  const days = Math.floor(ms / DAY_MS);
  return days > 1 ? `in ${days} days` : days === 1 ? "in 1 day" : "in less than a day";
}
