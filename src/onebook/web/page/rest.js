// Requests to the REST API with the key of this tab.

const TIMEOUT_MS = 20_000;

/** The service answered with an error; the message is for the reader. */
export class Refused extends Error {}

async function request(path, options = {}) {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const answer = await fetch(`/api/v1${path}`, { cache: "no-store", signal, ...options });
  const found = await answer.json().catch(() => null);
  if (answer.ok && found) return found;
  throw new Refused(found?.message ?? `The service returned HTTP ${answer.status}.`);
}

/** A session for one key, which is opened by the first request. */
export class Rest {
  #key;
  #token = null;

  constructor(key) {
    this.#key = key;
  }

  /** Whether the key was accepted. */
  get accepted() {
    return this.#token !== null;
  }

  /** Open the session, unless it is open. */
  async open() {
    if (this.accepted) return;
    const headers = { "Content-Type": "application/json" };
    const answer = await request("/authenticate", { method: "POST", headers, body: JSON.stringify({ api_key: this.#key }) });
    this.#token = answer.session_token;
  }

  /** Send a GET request; after a refusal the next one opens another session, because this one may have ended. */
  async get(path, query) {
    await this.open();
    const headers = { Authorization: `Bearer ${this.#token}` };
    try {
      return await request(`${path}?${new URLSearchParams(query)}`, { headers });
    } catch (error) {
      this.#token = null;
      throw error;
    }
  }
}
