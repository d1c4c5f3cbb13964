// One WebSocket that comes back by the close-code rule: 40xx stop, 41xx back off, 42xx return at
// the time given; a break of the network backs off like 41xx.

const BACK_OFF_MIN_MS = 1_000;
const BACK_OFF_MAX_MS = 30_000;
const PING_EVERY_MS = 30_000;
const SILENCE_MAX_MS = 45_000; // a ping is answered within 30 s: beyond this the line is dead

/** What a close means: {stop} or {waitMs}. Pure, so that it can be read and tested as a table. */
export function afterClose(code, { attempt, givenMs, random = Math.random() }) {
  if (code >= 4000 && code < 4100) return { stop: true };
  if (code >= 4200 && code < 4300) return { waitMs: givenMs ?? BACK_OFF_MIN_MS };
  const ceiling = Math.min(BACK_OFF_MAX_MS, BACK_OFF_MIN_MS * 2 ** attempt);
  return { waitMs: BACK_OFF_MIN_MS + random * (ceiling - BACK_OFF_MIN_MS / 2) };
}

const REASONS = {
  4001: "No key arrived in time.",
  4002: "The key is not valid, suspended or expired.",
  4003: "The monthly data allowance of this key is used up.",
  4004: "This key has all the connections its tier allows.",
  4108: "This page read too slowly.",
  4113: "Too many messages were sent.",
  4129: "The service is full.",
  4200: "The service is restarting.",
};

export class Connection {
  #key;
  #socket = null;
  #attempt = 0;
  #givenMs = null;
  #timers = new Set();
  #heardAt = 0;

  /** `on` has: state(name, text, seconds to the next attempt), open(), message(object, characters). */
  constructor(url, key, on) {
    this.url = url;
    this.#key = key;
    this.on = on;
  }

  open() {
    this.on.state("connecting", "Connecting");
    const socket = (this.#socket = new WebSocket(this.url));
    this.#heardAt = performance.now();
    socket.onopen = () => this.send({ type: "authenticate", api_key: this.#key });
    socket.onmessage = (event) => this.#received(event.data);
    socket.onclose = (event) => socket === this.#socket && this.#closed(event);
    this.#every(1_000, () => this.#watch());
    this.#every(PING_EVERY_MS, () => this.ping());
  }

  send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  ping() {
    this.send({ type: "ping", client_time: performance.now() });
  }

  leave() {
    const socket = this.#socket;
    this.#socket = null;
    this.#clear();
    socket?.close(1000);
    this.on.state("idle", "Not connected");
  }

  #received(text) {
    this.#heardAt = performance.now();
    const message = JSON.parse(text);
    if (message.type === "welcome" && message.session_id) {
      this.#attempt = 0;
      this.on.state("live", "Connected");
      this.on.open();
    } else if (message.type === "server_shutdown") {
      this.#givenMs = message.reconnect_in_ms;
    }
    this.on.message(message, text.length);
  }

  #watch() {
    if (performance.now() - this.#heardAt < SILENCE_MAX_MS) return;
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.#closed({ code: 1006 });
  }

  #closed({ code }) {
    this.#clear();
    this.#socket = null;
    const next = afterClose(code, { attempt: this.#attempt++, givenMs: this.#givenMs });
    this.#givenMs = null;
    const reason = REASONS[code] ?? "The connection broke.";
    if (next.stop) return this.on.state("stopped", reason);
    let left = Math.ceil(next.waitMs / 1_000);
    const say = () => this.on.state("waiting", reason, Math.max(0, left--));
    say();
    this.#every(1_000, say);
    const timer = setTimeout(() => (this.#clear(), this.open()), next.waitMs);
    this.#timers.add(() => clearTimeout(timer));
  }

  #every(ms, act) {
    const timer = setInterval(act, ms);
    this.#timers.add(() => clearInterval(timer));
  }

  #clear() {
    for (const stop of this.#timers) stop();
    this.#timers.clear();
  }
}
