// A clock that continues while the computer sleeps, unlike `performance.now()` on some systems, and the delay of
// updates: on a slow connection they wait in buffers, although each looks new.

const SLEPT_MS = 1_000; // minimum jump of the clock after a sleep; setting the clock looks the same

let offset = Date.now() - performance.now();
let slept = 0;

/** Milliseconds since the page was opened, never less than before. */
export function now() {
  const ahead = Date.now() - performance.now() - offset;
  offset += ahead;
  if (ahead >= SLEPT_MS) slept += ahead;
  return performance.now() + slept;
}

/**
 * How late updates come, by the times that the service writes into them. Its clock and ours differ by what the quickest
 * update took, or by more where one of them was set: an update that follows an answer is younger than the question.
 */
export class Lateness {
  #least = Infinity;
  #askedMs = null;

  /** How many milliseconds late the update is that comes now. */
  of(timestamp) {
    const nowMs = Date.now();
    const took = nowMs - Date.parse(timestamp);
    const youngest = this.#askedMs === null ? -Infinity : took - (nowMs - this.#askedMs);
    this.#askedMs = null;
    if (youngest > this.#least) this.#least = youngest;
    if (took < this.#least) this.#least = took;
    return Math.max(0, took - this.#least) || 0;
  }

  /** A question of this time was answered. */
  answered(askedMs) {
    this.#askedMs = askedMs;
  }
}
