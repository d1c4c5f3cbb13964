// A clock that continues while the computer sleeps, unlike `performance.now()` on some systems, and the delay
// of updates: on a slow connection they wait in buffers, although each one looks new.

const SLEPT_MS = 1_000; // minimum jump of the clock after a sleep; setting the clock looks the same

let offset = Date.now() - performance.now();
let slept = 0;

/** Milliseconds since the page was opened; never decreases. */
export function now() {
  const ahead = Date.now() - performance.now() - offset;
  offset += ahead;
  if (ahead >= SLEPT_MS) slept += ahead;
  return performance.now() + slept;
}

/**
 * Measures the delay of updates from the service's timestamps. The offset between its clock and ours is taken from
 * the fastest update, or is larger if a clock was set back: an update that follows an answer is younger than the
 * request.
 */
export class Lateness {
  #least = Infinity;
  #askedMs = null;

  /** The delay in milliseconds of the update that arrives now. */
  of(timestamp) {
    const nowMs = Date.now();
    const took = nowMs - Date.parse(timestamp);
    const youngest = this.#askedMs === null ? -Infinity : took - (nowMs - this.#askedMs);
    this.#askedMs = null;
    if (youngest > this.#least) this.#least = youngest;
    if (took < this.#least) this.#least = took;
    return Math.max(0, took - this.#least) || 0;
  }

  /** The age in milliseconds of an update that may be older than its delivery, and so measures none. */
  ageOf(timestamp) {
    return Math.max(0, Date.now() - Date.parse(timestamp) - this.#least) || 0;
  }

  /** Record that a request sent at this time was answered. */
  answered(askedMs) {
    this.#askedMs = askedMs;
  }
}
