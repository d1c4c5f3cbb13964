// The JavaScript client of Onebook: live merged books, transactions and usage.
//
//   import { Onebook } from "onebook";
//   const client = new Onebook("http://127.0.0.1:8000", key);
//   for await (const view of client.watch("BTC/USDT", { depth: 10, mode: "delta" })) {
//     console.log(view.bestBid?.price ?? view.problem?.message ?? view.staleExchanges);
//   }
//
// One module without dependencies, for browsers and Node >= 20, modelled on the Python client.
// Prices and amounts are decimal text, exactly as the service prints them.

const FINAL_CODES = [4000, 4099];
const BUSY_CODES = [4100, 4199];
const DRAINING_CODES = [4200, 4299];
const NO_CLOSE_FRAME = 1006;
const PROTOCOL_ERROR = "protocol_error"; // a message has an unexpected shape
// Consecutive connections with an invalid message before a session ends: the first one may have been damaged on its
// way, but a service of another version sends them forever.
const INVALID_MAX = 3;
const INCOMPATIBLE = "The versions of client and service may be incompatible.";
const BACKOFF_BASE_S = 0.25;
const BACKOFF_BUSY_S = 1;
const BACKOFF_MAX_S = 30;
const OPEN_TIMEOUT_S = 10;
const ANSWER_TIMEOUT_S = 10;
const CLOSE_WAIT_S = 5; // for the close after a connection error message
const RESYNC_PAUSE_S = 1; // between two requests for the full book of one symbol
const STABLE_S = 10; // a connection that was live for this long resets the backoff
const SILENCE_MAX_S = 10; // a ping is sent after half of this time
const PING_TIMEOUT_S = 10;
const REQUEST_TIMEOUT_S = 90;
const FOLLOW_MARGIN_MS = 60_000; // before now, where following begins
const FOLLOW_AGAIN_MS = 7 * 86_400_000; // reread after a lost connection
const FOLLOWED_IDS_MAX = 20_000;
const RETRY_AFTER_MAX_S = 3600;
const RETRY_WAIT_MAX_S = 60; // a longer Retry-After raises an error instead
const ATTEMPTS_MAX = 5;
const PAGE_RECORDS = 1000;
const IDLE_PAGES_MAX = 5; // consecutive pages without progress
const CHECKSUM_LEVELS = 25;
const PERCENT_DECIMALS = 4; // of the spread
const NAMES_KEPT_MAX = 10_000; // combinations of exchanges of one view
const TRANSIENT = new Set([408, 425, 429]);
const ERRORS = new Set(["error", "authentication_error", "subscription_error", "data_limit_exceeded"]);
const CLOSE_REASONS = {
  1006: "The connection was lost.",
  4001: "The client did not authenticate in time.",
  4002: "The API key is invalid, suspended or expired.",
  4003: "The monthly data allowance of this key is exhausted.",
  4004: "This key has reached the connection limit of its tier.",
  4108: "The client read too slowly.",
  4113: "The client sent too many messages.",
  4129: "The service is full.",
  4200: "The service is restarting.",
};
const SHORT = new Set(["best", "crossing"]); // updates without levels, of `on` with `mode: "delta"`
const CHANGES = new Set(["aggregated_orderbook_delta", "best", "crossing"]); // of a view that has had its first update
const UPDATES = new Set(["aggregated_orderbook_update", "exchange_status", ...CHANGES]);

/**
 * A shape is a function that returns "", or a description of the part of a value that has another shape. A book has
 * thousands of values, so shapes are created once and produce text only for a fault. Exact numbers are text, see
 * `parseExact`.
 */
const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;
const isText = (value) => typeof value === "string";
const isNumber = (value) => (isText(value) || typeof value === "number") && NUMBER.test(value);
const faults = {
  text: (value) => (isText(value) ? "" : " is not text"),
  textOrNull: (value) => (value === null || isText(value) ? "" : " is not text or null"),
  flag: (value) => (typeof value === "boolean" ? "" : " is not true or false"),
  number: (value) => (isNumber(value) ? "" : " is not a number"),
  numberOrNull: (value) => (value === null || isNumber(value) ? "" : " is not a number or null"),
  whole: (value) => (isNumber(value) && Number.isInteger(Number(value)) ? "" : " is not a whole number"),
  time: (value) => (isText(value) && !isNaN(new Date(value)) ? "" : " is not a time"),
};

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

const list = (shape) => (value) => {
  if (!Array.isArray(value)) return " is not a list";
  for (let at = 0; at < value.length; at += 1) {
    const fault = shape(value[at]);
    if (fault) return `[${at}]${fault}`;
  }
  return "";
};

/** Converts member names between camel case here and snake case on the wire, at one level or at all levels. */
const camel = (name) => name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());
const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const renamed = (members, rename) => Object.fromEntries(Object.entries(members).map(([name, value]) => [rename(name), value]));
const camelCased = (members) => renamed(members, camel);
const asSent = (options) => renamed(options, snake);

/** A record, or another answer whose member names are fixed; `raw` is unchanged. */
function camelCasedThrough(value) {
  if (Array.isArray(value)) return value.map(camelCasedThrough);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [camel(name), name === "raw" ? each : camelCasedThrough(each)]),
  );
}

/** An object with these members; a member whose name ends with "?" may be absent. */
const object = (shapes) => {
  const members = Object.entries(shapes).map(([name, shape]) => [name.replace("?", ""), name.endsWith("?"), shape]);
  return (value) => {
    if (!isObject(value)) return " is not an object";
    for (const [name, optional, shape] of members) {
      const fault = value[name] === undefined ? !optional && " is missing" : shape(value[name]);
      if (fault) return `.${name}${fault}`;
    }
    return "";
  };
};

/** An object whose members have any name and one shape. */
const objectOf = (shape) => (value) => {
  if (!isObject(value)) return " is not an object";
  for (const name of Object.keys(value)) {
    const fault = shape(value[name]);
    if (fault) return `.${name}${fault}`;
  }
  return "";
};

/** Throw if a value from the service has another shape. */
function required(kind, value, shape) {
  const fault = shape(value);
  if (fault) throw new Unavailable(PROTOCOL_ERROR, `The service sent an invalid ${kind}: ${fault.replace(/^[. ]/, "")}.`);
}

function dataOf(reply) {
  required("reply", reply, DATA);
  return reply.data;
}

/** The exchange, its amount, and with `net` its price before the fee. */
const isPart = (part) =>
  Array.isArray(part) && [2, 3].includes(part.length) && isText(part[0]) && part.slice(1).every(isNumber);

/** The shape of a level: as an object or an array, with the amount of each exchange if `split` is requested. */
const levelShape = (split) => (raw) => {
  if (Array.isArray(raw)) {
    const parted = raw.length === 3 ? Array.isArray(raw[2]) && raw[2].every(isPart) : raw.length === 2 && !split;
    return parted && isNumber(raw[0]) && isNumber(raw[1]) ? "" : " is not a level";
  }
  if (!isObject(raw)) return " is not a level";
  const { price, amount, exchanges, amounts, gross = [] } = levelOf(raw);
  const right =
    isNumber(price) && isNumber(amount) && !list(faults.text)(exchanges) && ![amounts, gross].some(list(faults.number));
  if (!right) return " is not a level";
  return amounts.length === exchanges.length || (!split && !amounts.length) ? "" : " does not have one amount per exchange";
};

const DATA = object({ data: object({}) });
const FILLS = list(object({
  by: faults.text, size: faults.number, amount: faults.number, notional: faults.number, average: faults.numberOrNull,
  worst: faults.numberOrNull, "levels?": faults.whole, complete: faults.flag, uncovered: list(faults.text),
  split: list(object({ exchange: faults.text, amount: faults.number, notional: faults.number, "fee?": faults.number, "limit?": faults.number })),
  ...Object.fromEntries(["fees?", "net?", "extra?", "unplaced?"].map((name) => [name, faults.number])),
  "net_average?": faults.numberOrNull, "exact?": faults.flag, "oldest_ms?": faults.numberOrNull, "unknown_rules?": list(faults.text),
}));
const STATS = object({
  ...Object.fromEntries(
    ["best_bid", "best_ask", "spread", "spread_percent", "mid_price", "total_bid_volume", "total_ask_volume"]
      .map((name) => [name, faults.numberOrNull]),
  ),
  participating_exchanges: faults.whole, crossed: faults.flag,
});
const wholeOrNull = (raw) => (raw === null ? "" : faults.whole(raw));
const LAYER = object({ exchange: wholeOrNull, received: faults.whole });
const flagOrNull = (raw) => (raw === null ? "" : faults.flag(raw));
const COIN = object({
  via: faults.text, read_at_ms: faults.whole, deposit: flagOrNull, withdraw: flagOrNull,
  networks: list(object({
    network: faults.text, deposit: flagOrNull, withdraw: flagOrNull, withdraw_fee: faults.numberOrNull,
  })),
});
const coinOrNull = (raw) => (raw === null ? "" : COIN(raw));
const TRANSFERABLE = object({ coin: faults.text, possible: flagOrNull, buy: coinOrNull, sell: coinOrNull });
const CROSSING = object({
  phase: faults.text, buy: faults.text, sell: faults.text, lasted_ms: faults.whole,
  ...Object.fromEntries(
    ["amount?", "buy_limit?", "sell_limit?", "gross?", "profit?", "percent?"].map((name) => [name, faults.number]),
  ),
  "buy_age_ms?": faults.whole, "sell_age_ms?": faults.whole, "transferable?": TRANSFERABLE,
});
const EXTRAS = {
  ages: objectOf(faults.whole),
  coverage: objectOf(object({ bids: faults.numberOrNull, asks: faults.numberOrNull })),
  fill: object({ buy: FILLS, sell: FILLS }),
  crossings: list(CROSSING),
  times: object({
    merged: faults.whole, sent: faults.whole,
    exchanges: objectOf(object({ top: LAYER, depth: LAYER, offset: wholeOrNull, error: wholeOrNull })),
  }),
};
const ERROR = object({ message: faults.text, "error?": faults.text, "retry_after?": faults.number });
const SHAPES = {
  exchange_status: object({ symbol: faults.text, "view?": faults.text, exchange: faults.text, state: faults.text }),
  aggregated_subscription_response: object({
    symbol: faults.text, "view?": faults.text, "rejected?": list(object({ exchange: faults.text, reason: faults.text })),
    "number?": faults.whole, "exchanges?": list(faults.text), "published_fees?": list(object({
      exchange: faults.text, symbol: faults.text, percent: faults.text, source: faults.text, date: faults.text,
      "page?": faults.text, "old?": faults.flag,
    })),
  }),
  server_shutdown: object({ reconnect_in_ms: faults.number }),
  exchanges_data: DATA,
  pairs_data: DATA,
  error: ERROR,
  authentication_error: ERROR,
  subscription_error: ERROR,
  data_limit_exceeded: ERROR,
};
const everyText = (value) => (isObject(value) && Object.values(value).every(isText) ? "" : " is not an object of texts");
const FEES = object({ fees: everyText });
const SESSION = object({ session_token: faults.text });
const USAGE = object({
  username: faults.text, billing_tier: faults.text, api_key_active: faults.flag,
  data_usage: object({ bytes_used: faults.whole, bytes_limit: faults.whole }),
  billing_period: object({ reset_date: faults.time }),
});
const PAGE = object({
  transactions: list(object({})),
  coverage: list(object({ transaction_type: faults.text, complete: faults.flag, reason: faults.textOrNull })),
  errors: list(object({ message: faults.text })),
  partial: faults.flag, next_cursor: faults.textOrNull, summary: object({}),
});

const best = (raw) =>
  (raw === null || (Array.isArray(raw) && raw.length === 2 && raw.every(isNumber)) ? "" : " is not a level");

const CONVERSION = object({
  symbol: faults.text, members: list(faults.text), exchanges: list(faults.text), stale_exchanges: list(faults.text),
  bid: best, ask: best, age_ms: wholeOrNull, reason: faults.textOrNull,
});

/** The shape of an update, a delta or a book, for the options of a subscription. */
function bookShape(type, options) {
  const levels = list(levelShape(options.split));
  const extras = Object.entries(EXTRAS).filter(([name]) => options[name]);
  if (options.quotes) extras.push(["conversions?", list(CONVERSION)]);
  if (SHORT.has(type)) {
    return object({ symbol: faults.text, "view?": faults.text, bid: best, ask: best, ...Object.fromEntries(extras) });
  }
  return object({
    symbol: faults.text, "view?": faults.text, timestamp: faults.text,
    data: object({
      bids: levels, asks: levels, market_stats: STATS, stale_exchanges: list(faults.text), ...Object.fromEntries(extras),
    }),
    ...(type !== "aggregated_orderbook_data" && { update_number: faults.whole, "skipped?": faults.whole }),
    ...(type === "aggregated_orderbook_delta" && { previous_update_number: faults.whole, checksum: faults.whole }),
  });
}

const between = (code, [low, high]) => low <= code && code <= high;
const sleep = (seconds, signal) =>
  new Promise((resolve) => {
    const done = () => (clearTimeout(timer), signal?.removeEventListener("abort", done), resolve());
    const timer = setTimeout(done, seconds * 1000);
    signal?.addEventListener("abort", done, { once: true });
  });

/** The errors of this client: `code` is for programs, the message for people. */
export class ServiceError extends Error {
  constructor(code, message, { details = {}, retryAfterS = null } = {}) {
    super(message);
    this.name = new.target.name;
    this.code = code;
    this.details = details;
    this.retryAfterS = retryAfterS;
  }
}

/** A permanent error: a retry would fail in the same way. */
export class Refused extends ServiceError {}

/** A temporary error: a retry may succeed. */
export class Unavailable extends ServiceError {}

/** Parse a message with every number as text, so that no number becomes a binary double. */
export function parseExact(text) {
  const quoted = text.replace(
    /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g,
    (token) => (token[0] === '"' ? token : `"${token}"`),
  );
  return JSON.parse(quoted);
}

const PRECISE_BYTES = 7; // of a varint that a double holds exactly
const DOUBLE_DECIMALS = 15; // of a fraction that a double holds as an integer, with a 1 before it
const INT_DECIMALS = 9; // the same of 32 bits
const [COLON, POINT, ZERO] = [58, 46, 48];
const WORD = 64n;
const FIGURE_DECIMALS_MAX = 100;
const SCALE_MAX = 40; // decimals; a service sends at most 18, and those of a fee
const TEXT_MAX = 2 * (SCALE_MAX + 3); // of a level: two numbers, each with a colon before it
const TIME_US_MAX = 253_402_300_799_999_999; // the end of the year 9999

const broken = (fault) => new Unavailable(PROTOCOL_ERROR, `The service sent an invalid binary update: ${fault}.`);
const utf8 = new TextDecoder();
const zigzag = (value) => {
  if (typeof value === "bigint") return value & 1n ? -Number((value + 1n) / 2n) : Number(value / 2n);
  return value % 2 ? -(value + 1) / 2 : value / 2;
};

/** Reads the fields of protobuf messages: https://protobuf.dev/programming-guides/encoding/. */
class Reader {
  constructor(bytes, at = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }

  /** A number: a double where it is exact, else a BigInt. */
  varint() {
    const { bytes } = this;
    let byte = bytes[this.at++];
    if (byte < 128 && this.at <= this.end) return byte;
    let value = byte & 127;
    let unit = 128;
    for (let read = 1; read < PRECISE_BYTES; read += 1, unit *= 128) {
      byte = bytes[this.at++];
      value += (byte & 127) * unit;
      if (byte < 128) return this.#inside(value);
    }
    let large = BigInt(value);
    for (let shift = 7n * BigInt(PRECISE_BYTES); shift < WORD; shift += 7n) {
      byte = bytes[this.at++];
      large |= BigInt(byte & 127) << shift;
      if (byte < 128) return this.#inside(large <= Number.MAX_SAFE_INTEGER ? Number(large) : BigInt.asUintN(64, large));
    }
    throw broken(this.at > this.end ? "it is cut off" : "a number is too long");
  }

  #inside(value) {
    if (this.at > this.end) throw broken("it is cut off");
    return value;
  }

  /** A reader of a length-delimited field. */
  part() {
    const length = Number(this.varint());
    const start = this.at;
    if (!(start + length <= this.end)) throw broken("it is cut off");
    this.at += length;
    return new Reader(this.bytes, start, this.at);
  }

  skip(kind) {
    if (kind === 0) this.varint();
    else if (kind === 2) this.part();
    else if (kind === 1 || kind === 5) this.at += kind === 1 ? 8 : 4;
    else throw broken("a field has an unknown type");
    if (this.at > this.end) throw broken("it is cut off");
  }

  numbers() {
    const list = this.part();
    const found = [];
    while (list.at < list.end) found.push(list.varint());
    return found;
  }

  fixed32() {
    const { bytes, at } = this;
    this.skip(5);
    return (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0;
  }

  text() {
    const { at, end } = this.part();
    return utf8.decode(this.bytes.subarray(at, end));
  }
}

// The types of fields: the wire type, the value of an absent one, and how one is read, given the one before.
const WHOLE = [0, () => 0, (reader) => Number(reader.varint())];
const FLAG = [0, () => false, (reader) => reader.varint() > 0];
const MAYBE = [0, () => null, (reader) => Number(reader.varint())];
const SIGNED = [0, () => 0, (reader) => zigzag(reader.varint())];
const MAYBE_SIGNED = [0, () => null, (reader) => zigzag(reader.varint())];
const FIXED = [5, () => null, (reader) => reader.fixed32()];
const NUMBERS = [2, () => [], (reader, before) => (before.length ? before.concat(reader.numbers()) : reader.numbers())];
const SIGNEDS = [2, () => [], (reader, before) => before.concat(reader.numbers().map(zigzag))];
const TEXT = [2, () => "", (reader) => reader.text()];
const MAYBE_TEXT = [2, () => null, (reader) => reader.text()];
const TEXTS = [2, () => [], (reader, before) => [...before, reader.text()]];
const one = (message) => [2, () => null, (reader) => message(reader.part())];
const many = (message) => [2, () => [], (reader, before) => [...before, message(reader.part())]];

/** A function that reads a message, whose fields are named and in the order of their numbers, from 1. */
function message(...fields) {
  const named = [null, ...fields];
  const empty = Object.fromEntries(fields.map(([name, [, absent]]) => [name, absent()]));
  return (reader) => {
    const found = { ...empty };
    while (reader.at < reader.end) {
      const tag = reader.varint();
      const kind = Number(tag) & 7;
      const field = named[(Number(tag) - kind) / 8];
      if (!field || field[1][0] !== kind) reader.skip(kind);
      else found[field[0]] = field[1][2](reader, found[field[0]]);
    }
    return found;
  };
}

const FILL_MESSAGE = message(
  ["by_notional", FLAG], ["figures", NUMBERS], ["complete", FLAG], ["uncovered", NUMBERS], ["exchanges", NUMBERS],
  ["parts", NUMBERS], ["levels", WHOLE], ["exact", FLAG], ["unknown_rules", NUMBERS], ["oldest_ms", MAYBE],
);
const CROSSING_MESSAGE = message(
  ["phase", WHOLE], ["buy", WHOLE], ["sell", WHOLE], ["lasted_ms", WHOLE], ["figures", NUMBERS], ["buy_age_ms", WHOLE],
  ["sell_age_ms", WHOLE], ["transferable", MAYBE_TEXT],
);
const LAYER_MESSAGE = message(["exchange_us", MAYBE_SIGNED], ["received_us", SIGNED]);
const EXCHANGE_TIMES_MESSAGE = message(
  ["exchange", WHOLE], ["top", one(LAYER_MESSAGE)], ["depth", one(LAYER_MESSAGE)], ["offset_us", MAYBE_SIGNED],
  ["error_us", MAYBE_SIGNED],
);
const TIMES_MESSAGE = message(["merged_us", WHOLE], ["sent_us", WHOLE], ["exchanges", many(EXCHANGE_TIMES_MESSAGE)]);
const CONVERSION_MESSAGE = message(
  ["symbol", TEXT], ["members", NUMBERS], ["exchanges", TEXTS], ["stale_exchanges", TEXTS], ["bid", NUMBERS],
  ["ask", NUMBERS], ["age_ms", MAYBE], ["reason", MAYBE_TEXT],
);
const UPDATE_MESSAGE = message(
  ["subscription", WHOLE], ["update_number", WHOLE], ["elapsed_us", MAYBE_SIGNED], ["checksum", FIXED], ["bids", NUMBERS],
  ["asks", NUMBERS], ["stale", NUMBERS], ["bid_parts", NUMBERS], ["ask_parts", NUMBERS], ["bid_gross", NUMBERS],
  ["ask_gross", NUMBERS], ["time_us", WHOLE], ["price_scale", WHOLE], ["amount_scale", WHOLE], ["gross_scale", WHOLE],
  ["skipped", WHOLE], ["ages_ms", SIGNEDS], ["coverage", NUMBERS], ["buys", many(FILL_MESSAGE)],
  ["sells", many(FILL_MESSAGE)], ["crossings", many(CROSSING_MESSAGE)], ["times", one(TIMES_MESSAGE)],
  ["conversions", many(CONVERSION_MESSAGE)], ["json", MAYBE_TEXT], ["exchanges", TEXTS], ["symbol", TEXT], ["id", TEXT],
  ["view", MAYBE_TEXT],
);

/** The fields of a binary update by their names in `onebook.proto`; unknown ones are skipped. */
export const updateOf = (buffer) => UPDATE_MESSAGE(new Reader(new Uint8Array(buffer)));

const UNITS = Array.from({ length: DOUBLE_DECIMALS + 1 }, (_, scale) => 10 ** scale);

/** An integer at a scale as decimal text without trailing zeros. */
function decimalOf(mantissa, scale) {
  if (!scale) return String(mantissa);
  if (typeof mantissa === "number" && scale <= DOUBLE_DECIMALS) {
    const whole = Math.floor(mantissa / UNITS[scale]);
    const left = mantissa - whole * UNITS[scale];
    return left ? `${whole}.${trimmed(String(UNITS[scale] + left), 1)}` : String(whole); // the 1 before keeps zeros
  }
  const text = String(mantissa).padStart(scale + 1, "0");
  const point = text.length - scale;
  const decimals = trimmed(text, point);
  return decimals ? `${text.slice(0, point)}.${decimals}` : text.slice(0, point);
}

/** The text from an index without trailing zeros. */
function trimmed(text, start) {
  let end = text.length;
  while (end > start && text.charCodeAt(end - 1) === ZERO) end -= 1;
  return text.slice(start, end);
}

/** Decode a list of figures to decimal text; null for absent figures. */
function decimalsOf(numbers) {
  const found = [];
  for (let at = 0; at < numbers.length; ) {
    const form = Number(numbers[at++]);
    if (form === 0) {
      found.push(null);
      continue;
    }
    const flags = (form - 1) & 3;
    const scale = (form - 1 - flags) / 4;
    let digits = numbers[at++];
    if (flags & 1 && at < numbers.length) digits = (BigInt(numbers[at]) << WORD) | BigInt(digits);
    at += flags & 1;
    if (at > numbers.length || !(scale <= FIGURE_DECIMALS_MAX)) throw broken("a figure is cut off or too long");
    found.push((flags & 2 ? "-" : "") + decimalOf(digits, scale));
  }
  return found;
}

/** Decode exactly `count` figures, none of them absent. */
function figuresOf(numbers, count) {
  const found = decimalsOf(numbers);
  if (found.length !== count || found.includes(null)) throw broken("a list has another length");
  return found;
}

const bitsOf = (bits) => {
  const found = [];
  if (typeof bits === "bigint") for (let at = 0; bits; at += 1, bits >>= 1n) bits & 1n && found.push(at);
  else for (let at = 0; bits >= 1; at += 1, bits = Math.floor(bits / 2)) bits % 2 && found.push(at);
  return found;
};

/** Reads the binary updates of one subscription, given its table of exchanges, into its book. */
export class PackedReader {
  #names = new Map(); // by the bits of a level
  #scales = [0, 0, 0];
  #timeUs = 0;
  #bids = []; // rows, best first
  #asks = [];

  constructor(table, about) {
    this.table = table;
    this.about = about;
  }

  /** A message for `View.apply`, with the book's levels in place of changes. */
  message(update) {
    const { update_number, elapsed_us, checksum, skipped } = update;
    const type = elapsed_us === null ? "aggregated_orderbook_update" : "aggregated_orderbook_delta";
    const message = { type, ...this.about, update_number, skipped, packed: () => this.#applied(update) };
    if (elapsed_us !== null) message.previous_update_number = update_number - 1;
    if (checksum !== null) message.checksum = checksum;
    return message;
  }

  /** Apply an update; return the book, which later updates do not change. */
  #applied(update) {
    const changed = update.elapsed_us !== null;
    if (!changed) this.#scales = scalesOf(update);
    this.#timeUs = changed ? this.#timeUs + update.elapsed_us : update.time_us;
    if (!(this.#timeUs >= 0 && this.#timeUs <= TIME_US_MAX)) throw broken("its time is impossible");
    this.#bids = this.#rowsAfter(changed ? this.#bids : NOTHING, -1, update.bids, update.bid_parts, update.bid_gross);
    this.#asks = this.#rowsAfter(changed ? this.#asks : NOTHING, 1, update.asks, update.ask_parts, update.ask_gross);
    return new PackedState(this, this.#bids, this.#asks, this.#scales, this.#timeUs, this.#extrasOf(update));
  }

  /** The rows of a side after changes, both best first, in a new array; a row never changes. */
  #rowsAfter(rows, direction, numbers, parts, gross) {
    if (!numbers.length && !parts.length && !gross.length) return rows;
    const known = 2 ** this.table.length;
    const split = parts.length > 0 || gross.length > 0;
    const found = [];
    let [own, before] = [NOTHING, NOTHING];
    let [price, at, next, i] = [null, 0, 0, 0];
    while (i < numbers.length) {
      const step = numbers[i++];
      const amount = numbers[i++];
      const bits = amount ? numbers[i++] : 0;
      if (bits === undefined || amount === undefined) throw broken("a level is cut off");
      if (bits >= known) throw broken("an exchange is not in the table");
      if (price !== null && !step) throw broken("a price occurs twice");
      price = price === null ? step : plus(price, direction > 0 ? step : -step);
      if (price < 0) throw broken("a price is negative");
      while (next < rows.length && (direction > 0 ? rows[next].price < price : rows[next].price > price)) found.push(rows[next++]);
      if (next < rows.length && rows[next].price === price) next += 1;
      if (!amount) continue;
      if (split) {
        const end = at + this.namesOf(bits).length;
        [own, before] = [parts.slice(at, end), gross.slice(at, end)];
        at = end;
      }
      found.push(new PackedRow(price, amount, bits, own, before));
    }
    if ([parts, gross].some(({ length }) => length !== 0 && length !== at)) throw broken("it has more or fewer amounts than exchanges");
    while (next < rows.length) found.push(rows[next++]);
    return found;
  }

  namesOf(bits) {
    let names = this.#names.get(bits);
    if (names) return names;
    names = bitsOf(bits).map((at) => this.table[at]);
    if (this.#names.size < NAMES_KEPT_MAX) this.#names.set(bits, names);
    return names;
  }

  #named(positions) {
    return positions.map((at) => {
      if (!(at < this.table.length)) throw broken("an exchange is not in the table");
      return this.table[at];
    });
  }

  /** What an update has besides levels, as members of `data` in JSON. */
  #extrasOf(update) {
    const extras = { stale_exchanges: this.#named(update.stale) };
    if (update.ages_ms.length) {
      if (update.ages_ms.length !== this.table.length) throw broken("a list has another length");
      extras.ages = Object.fromEntries(this.table.map((name, at) => [name, update.ages_ms[at]]).filter(([, age]) => age >= 0));
    }
    if (update.coverage.length) {
      const ends = decimalsOf(update.coverage);
      const shown = this.table.filter((_, at) => !update.stale.includes(at));
      if (ends.length !== 2 * shown.length) throw broken("a list has another length");
      extras.coverage = Object.fromEntries(shown.map((name, at) => [name, { bids: ends[2 * at], asks: ends[2 * at + 1] }]));
    }
    if (update.buys.length || update.sells.length) {
      const [buy, sell] = [update.buys, update.sells].map((side) => side.map((each) => this.#fill(each)));
      extras.fill = { buy, sell };
    }
    if (update.crossings.length) extras.crossings = update.crossings.map((each) => this.#crossing(each));
    if (update.times) extras.times = this.#times(update.times);
    if (update.conversions.length) extras.conversions = update.conversions.map((each) => this.#conversion(each));
    return extras;
  }

  #fill(fill) {
    const figures = decimalsOf(fill.figures);
    const routed = figures.length === ROUTE_FIGURES.length;
    const names = routed ? ROUTE_FIGURES : FILL_FIGURES;
    const missing = figures.some((figure, at) => figure === null && !["average", "worst", "net_average"].includes(names[at]));
    if (figures.length !== names.length || missing) throw broken("a list has another length");
    const exchanges = this.#named(fill.exchanges);
    const each = routed ? ["amount", "notional", "fee", "limit"] : ["amount", "notional"];
    const parts = figuresOf(fill.parts, exchanges.length * each.length);
    return {
      by: fill.by_notional ? "notional" : "amount",
      ...Object.fromEntries(names.map((name, at) => [name, figures[at]])),
      complete: fill.complete, uncovered: this.#named(fill.uncovered),
      split: exchanges.map((exchange, row) => ({
        exchange, ...Object.fromEntries(each.map((name, at) => [name, parts[row * each.length + at]])),
      })),
      ...(routed
        ? {
            exact: fill.exact, unknown_rules: this.#named(fill.unknown_rules),
            oldest_ms: fill.oldest_ms === null ? null : String(fill.oldest_ms),
          }
        : { levels: String(fill.levels) }),
    };
  }

  #crossing({ phase, buy, sell, lasted_ms, figures, buy_age_ms, sell_age_ms, transferable }) {
    if (!PHASES[phase]) throw broken("a phase is unknown");
    const [buyName, sellName] = this.#named([buy, sell]);
    const head = { phase: PHASES[phase], buy: buyName, sell: sellName, lasted_ms };
    if (!phase) return head;
    const numbers = figuresOf(figures, CROSSING_FIGURES.length);
    return { ...head, ...Object.fromEntries(CROSSING_FIGURES.map((name, at) => [name, numbers[at]])), buy_age_ms, sell_age_ms, ...movedOf(transferable) };
  }

  #times({ merged_us, sent_us, exchanges }) {
    const layer = (found) => ({
      exchange: found && found.exchange_us !== null ? merged_us - found.exchange_us : null,
      received: merged_us - (found ? found.received_us : 0),
    });
    const found = exchanges.map((each) => [
      this.#named([each.exchange])[0],
      { top: layer(each.top), depth: layer(each.depth), offset: each.offset_us, error: each.error_us },
    ]);
    return { merged: merged_us, exchanges: Object.fromEntries(found), sent: sent_us };
  }

  #conversion({ symbol, members, exchanges, stale_exchanges, bid, ask, age_ms, reason }) {
    const [bids, asks] = [bid, ask].map((side) => (side.length ? figuresOf(side, 2) : null));
    return { symbol, members: this.#named(members), exchanges, stale_exchanges, bid: bids, ask: asks, age_ms, reason };
  }
}

function movedOf(text) {
  if (text === null) return {};
  let transferable = null;
  try {
    transferable = parseExact(text);
  } catch {
    // refused by its shape
  }
  if (TRANSFERABLE(transferable)) throw broken("a transfer is invalid");
  return { transferable };
}

const NOTHING = Object.freeze([]);
const PHASES = ["ended", "began", "changed", "lasts"];
const CROSSING_FIGURES = ["amount", "buy_limit", "sell_limit", "gross", "profit", "percent"];
const FILL_FIGURES = ["size", "amount", "notional", "average", "worst"];
const ROUTE_FIGURES = [...FILL_FIGURES, "fees", "net", "net_average", "extra", "unplaced"];

function scalesOf({ price_scale, amount_scale, gross_scale }) {
  const scales = [price_scale, amount_scale, gross_scale];
  if (!(Math.max(...scales) <= SCALE_MAX)) throw broken("its numbers have too many decimals");
  return scales;
}

/** The sum of two integers: a double where it is exact, else a BigInt. */
function plus(a, b) {
  if (typeof a === "number" && typeof b === "number" && Number.isSafeInteger(a + b)) return a + b;
  const sum = BigInt(a) + BigInt(b);
  return Number.isSafeInteger(Number(sum)) ? Number(sum) : sum;
}

/** One level as integers, and what was made of it: the level that clients see, and the CRC-32 of `:price:amount`. */
class PackedRow {
  constructor(price, amount, bits, parts, gross) {
    this.price = price;
    this.amount = amount;
    this.bits = bits;
    this.parts = parts;
    this.gross = gross;
    this.level = null;
    this.sum = 0;
    this.length = 0; // of the text in the sum
  }
}

/** A book at one moment: levels and texts are made when they are read. */
class PackedState {
  constructor(reader, bids, asks, scales, timeUs, extras) {
    this.reader = reader;
    this.rows = { bids, asks };
    this.scales = scales;
    this.timeUs = timeUs;
    this.extras = extras;
  }

  side(name) {
    return this.rows[name].map((row) => (row.level ??= this.#level(row)));
  }

  best(name) {
    const [row] = this.rows[name];
    return row ? (row.level ??= this.#level(row)) : null;
  }

  #level({ price, amount, bits, parts, gross }) {
    const [priceScale, amountScale, grossScale] = this.scales;
    const level = {
      price: decimalOf(price, priceScale), amount: decimalOf(amount, amountScale),
      exchanges: this.reader.namesOf(bits), amounts: parts.length ? parts.map((part) => decimalOf(part, amountScale)) : [],
    };
    if (gross.length) level.gross = gross.map((each) => decimalOf(each, grossScale));
    return level;
  }

  get timestamp() {
    const time = new Date(Math.floor(this.timeUs / 1000)).toISOString().slice(0, -1);
    return `${time}${String(this.timeUs % 1000).padStart(3, "0")}Z`;
  }

  /** `marketStats`, as the service computes them. */
  stats() {
    const { bids, asks } = this.rows;
    const [priceScale, amountScale] = this.scales;
    const total = (rows) => (rows.length ? decimalOf(rows.map(({ amount }) => amount).reduce(plus), amountScale) : null);
    const [bestBid, bestAsk] = [bids, asks].map(([row]) => (row ? decimalOf(row.price, priceScale) : null));
    let spread = null, spreadPercent = null, midPrice = null, crossed = false;
    if (bids.length && asks.length) {
      const [bid, ask] = [BigInt(bids[0].price), BigInt(asks[0].price)];
      const [apart, twice] = [bid > ask ? bid - ask : ask - bid, bid + ask];
      const percent = twice && (2n * apart * 2_000_000n + twice) / (2n * twice);
      const sign = bid > ask ? "-" : "";
      crossed = bid >= ask;
      spread = sign + decimalOf(apart, priceScale);
      spreadPercent = (percent ? sign : "") + decimalOf(percent, PERCENT_DECIMALS);
      midPrice = decimalOf(twice * 5n, priceScale + 1);
    }
    const members = [...bids, ...asks].reduce((all, { bits }) => all | BigInt(bits), 0n);
    return {
      bestBid, bestAsk, spread, spreadPercent, midPrice, totalBidVolume: total(bids), totalAskVolume: total(asks),
      participatingExchanges: String(bitsOf(members).length), crossed,
    };
  }

  /** The checksum of `View.checksum`, from the sum of each level, which is computed once. */
  checksum() {
    const [priceScale, amountScale] = this.scales;
    let sum = CRC_BEFORE_COLON;
    let empty = true;
    for (const rows of [this.rows.bids, this.rows.asks]) {
      const count = Math.min(rows.length, CHECKSUM_LEVELS);
      for (let at = 0; at < count; at += 1) {
        const row = rows[at];
        if (!row.length) {
          prefix(row, row.amount, amountScale);
          prefix(row, row.price, priceScale);
        }
        sum = crcMoved(sum, row.length) ^ row.sum;
        empty = false;
      }
    }
    return empty ? 0 : (sum ^ CRC_START) >>> 0;
  }
}

/** Put a colon and a number, as `decimalOf` writes it, before the text in the sum of a row, from the last digit. */
function prefix(row, number, scale) {
  let { sum, length } = row;
  const whole = typeof number === "number" && scale <= INT_DECIMALS ? Math.floor(number / UNITS[scale]) : Infinity;
  if (whole < 2 ** 31) {
    let [left, digits] = [(number - whole * UNITS[scale]) | 0, scale]; // 32 bits are divided faster
    if (left) {
      for (; left % 10 === 0; digits -= 1) left = (left / 10) | 0;
      for (; digits > 0; digits -= 1) {
        const tenth = (left / 10) | 0;
        sum ^= CRC_TABLES[256 * length++ + ZERO + left - 10 * tenth];
        left = tenth;
      }
      sum ^= CRC_TABLES[256 * length++ + POINT];
    }
    left = whole | 0;
    do {
      const tenth = (left / 10) | 0;
      sum ^= CRC_TABLES[256 * length++ + ZERO + left - 10 * tenth];
      left = tenth;
    } while (left);
  } else {
    const text = decimalOf(number, scale);
    for (let at = text.length - 1; at >= 0; at -= 1) sum ^= CRC_TABLES[256 * length++ + text.charCodeAt(at)];
  }
  row.sum = sum ^ CRC_TABLES[256 * length + COLON];
  row.length = length + 1;
}

// Entry `256 * zeros + byte` is the CRC-32 of a byte with so many zero bytes after it, from 0. As CRC-32 is linear, that
// of a text is the XOR of those of its bytes, each with the length behind it as zeros.
const CRC_TABLES = new Int32Array(256 * TEXT_MAX);
const CRC_START = -1;
const CRC_BEFORE_COLON = -258633757; // crcByte(CRC_BEFORE_COLON, COLON) is CRC_START
const crcByte = (sum, byte) => CRC_TABLES[(sum ^ byte) & 0xff] ^ (sum >>> 8);

for (let byte = 0; byte < 256; byte += 1) {
  let sum = byte;
  for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? 0xedb88320 ^ (sum >>> 1) : sum >>> 1;
  CRC_TABLES[byte] = sum;
}
for (let at = 256; at < CRC_TABLES.length; at += 1) CRC_TABLES[at] = crcByte(CRC_TABLES[at - 256], 0);

/** The sum after `length` zero bytes, at least 4; XORed with that of a text of this length, it is the sum after the text. */
function crcMoved(sum, length) {
  const at = 256 * length;
  return (
    CRC_TABLES[at - 256 + (sum & 0xff)] ^ CRC_TABLES[at - 512 + ((sum >>> 8) & 0xff)] ^
    CRC_TABLES[at - 768 + ((sum >>> 16) & 0xff)] ^ CRC_TABLES[at - 1024 + (sum >>> 24)]
  );
}

/** CRC-32 (the one of zlib) of ASCII text. */
export function crc32(text) {
  let sum = CRC_START;
  for (let at = 0; at < text.length; at += 1) sum = crcByte(sum, text.charCodeAt(at));
  return (sum ^ CRC_START) >>> 0;
}

/** Compare decimal texts by their exact values, beyond the precision of a double. */
export function compareDecimals(left, right) {
  if (left === right) return 0;
  const nearly = Number(left) - Number(right);
  if (nearly) return nearly; // rounding keeps the order; only equal doubles need the digits
  const [a, b] = [left, right].map((text) => {
    const [whole, fraction = ""] = text.replace("-", "").split(".");
    return { negative: text[0] === "-", whole: whole.replace(/^0+(?=\d)/, ""), fraction };
  });
  if (a.negative !== b.negative) return a.negative ? -1 : 1;
  const sign = a.negative ? -1 : 1;
  if (a.whole.length !== b.whole.length) return sign * (a.whole.length - b.whole.length);
  const width = Math.max(a.fraction.length, b.fraction.length);
  const [x, y] = [a, b].map((each) => each.whole + each.fraction.padEnd(width, "0"));
  return x === y ? 0 : x < y ? -sign : sign;
}

function levelOf(raw) {
  if (!Array.isArray(raw)) {
    const level = { price: raw.price, amount: raw.amount, exchanges: raw.exchanges, amounts: raw.amounts ?? [] };
    return raw.gross ? { ...level, gross: raw.gross } : level;
  }
  const [price, amount, parts = []] = raw;
  const level = { price, amount, exchanges: parts.map(([name]) => name), amounts: parts.map(([, part]) => part) };
  return parts[0]?.length === 3 ? { ...level, gross: parts.map(([, , before]) => before) } : level;
}

/**
 * Return a side after changes, best levels first. The array is new, so that copying a view is cheap, but
 * unchanged levels remain the same objects.
 */
function merged(levels, changes, direction) {
  const order = (a, b) => direction * compareDecimals(a.price, b.price);
  const side = [];
  let at = 0;
  for (const level of changes.map(levelOf).sort(order)) {
    while (at < levels.length && order(levels[at], level) < 0) side.push(levels[at++]);
    if (at < levels.length && order(levels[at], level) === 0) at += 1;
    if (!/^-?0(\.0+)?$/.test(level.amount)) side.push(level);
  }
  while (at < levels.length) side.push(levels[at++]);
  return side;
}

/** Convert the numbers of an object, parsed as text, to numbers: microseconds fit a double. */
function numbersOf(value) {
  if (!isObject(value)) return value === null ? null : Number(value);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, numbersOf(each)]));
}

// Members of a view that are computed on first access after a binary update.
const MADE_WHEN_READ = {
  bids: (state) => state.side("bids"),
  asks: (state) => state.side("asks"),
  marketStats: (state) => state.stats(),
  timestamp: (state) => state.timestamp,
};

/** The newest merged book of one symbol, best levels first. */
export class View {
  #made = {}; // members that were read or set
  #state = null; // of the last binary update

  static #members = Object.fromEntries(Object.entries(MADE_WHEN_READ).map(([name, make]) => [name, {
    enumerable: true,
    get() {
      return (this.#made[name] ??= make(this.#state));
    },
    set(value) {
      this.#made[name] = value;
    },
  }]));

  constructor(symbol, view = null) {
    Object.defineProperties(this, View.#members); // own ones, so that a view can be spread and listed
    this.symbol = symbol;
    this.view = view; // name of this view, if the symbol has several
    this.rejected = {}; // requested exchanges that are not served, with the reason
    this.publishedFees = []; // with fees: "published", the fee of each book
    this.past = false; // with the option start, until the present is reached
    this.lose(null);
  }

  /** The highest bid; null if there are no bids. */
  get bestBid() {
    return this.#best("bids");
  }

  /** The lowest ask; null if there are no asks. */
  get bestAsk() {
    return this.#best("asks");
  }

  #best(side) {
    if (!this.#state || this.#made[side]) return this[side][0] ?? null;
    return this.#state.best(side);
  }

  /** Empty the view until the next full update, because of a problem. */
  lose(problem) {
    Object.assign(this, {
      live: false, problem, bids: [], asks: [], marketStats: {}, staleExchanges: [], states: {},
      ages: {}, coverage: {}, fill: {}, crossings: [], conversions: [], times: null, timestamp: "", updateNumber: 0,
      skipped: 0,
    });
  }

  /** Apply one update, delta or status message, parsed by `parseExact`; false means that a resync is needed. */
  apply(message) {
    if (message.type === "exchange_status") {
      this.states = { ...this.states, [message.exchange]: message.state };
      return true;
    }
    if (SHORT.has(message.type)) return this.#takeBest(message);
    const changed = message.type === "aggregated_orderbook_delta";
    if (changed && Number(message.previous_update_number) !== this.updateNumber) return false;
    if (message.packed) return this.#takePacked(message);
    const { data } = message;
    this.bids = merged(changed ? this.bids : [], data.bids, -1);
    this.asks = merged(changed ? this.asks : [], data.asks, 1);
    this.live = true;
    this.problem = null;
    this.marketStats = camelCased(data.market_stats);
    this.staleExchanges = data.stale_exchanges;
    this.#takeExtras(data);
    this.timestamp = message.timestamp;
    this.updateNumber = Number(message.update_number ?? 0);
    this.skipped = Number(message.skipped ?? 0);
    return message.checksum === undefined || Number(message.checksum) === this.checksum();
  }

  #takePacked(message) {
    this.#state = message.packed();
    this.#made = {};
    this.live = true;
    this.problem = null;
    this.staleExchanges = this.#state.extras.stale_exchanges;
    this.#takeExtras(this.#state.extras);
    this.updateNumber = message.update_number;
    this.skipped = message.skipped;
    return message.checksum === undefined || message.checksum === this.#state.checksum();
  }

  /** Apply a short update: only the best levels. */
  #takeBest(message) {
    [this.bids, this.asks] = [message.bid, message.ask].map((raw) => (raw ? [levelOf(raw)] : []));
    this.marketStats = {};
    this.#takeExtras(message);
    this.timestamp = "";
    this.updateNumber += 1;
    this.skipped = 0;
    return true;
  }

  /** Read the members that a view only has if they were requested. */
  #takeExtras(data) {
    this.ages = numbersOf(data.ages ?? {});
    this.coverage = data.coverage ?? {};
    this.fill = data.fill ?? {};
    this.crossings = (data.crossings ?? []).map(crossingOf);
    this.conversions = (data.conversions ?? []).map(conversionOf);
    this.times = data.times ? numbersOf(data.times) : null;
  }

  /** CRC-32 of the best levels' `price:amount` text, bids then asks, joined by colons. */
  checksum() {
    const best = [...this.bids.slice(0, CHECKSUM_LEVELS), ...this.asks.slice(0, CHECKSUM_LEVELS)];
    return crc32(best.map(({ price, amount }) => `${price}:${amount}`).join(":"));
  }

  /** A copy that later updates do not change. */
  copy() {
    const copy = new View(this.symbol);
    for (const name of Object.keys(this)) if (!(name in MADE_WHEN_READ)) copy[name] = this[name];
    [copy.#made, copy.#state] = [{ ...this.#made }, this.#state];
    return copy;
  }
}

/** A crossing of an update; durations and ages become numbers. */
function crossingOf(raw) {
  const counts = ["lasted_ms", "buy_age_ms", "sell_age_ms"].filter((name) => name in raw);
  const found = camelCased({ ...raw, ...Object.fromEntries(counts.map((name) => [name, Number(raw[name])])) });
  return raw.transferable ? { ...found, transferable: transferableOf(raw.transferable) } : found;
}

function transferableOf(raw) {
  const coin = (state) => state && camelCasedThrough({ ...state, read_at_ms: Number(state.read_at_ms) });
  return { ...raw, buy: coin(raw.buy), sell: coin(raw.sell) };
}

function conversionOf(raw) {
  return camelCased({ ...raw, age_ms: raw.age_ms === null ? null : Number(raw.age_ms) });
}

/** A request for one book, which is answered as JSON, whatever updates would be. */
function bookQuestion(symbol, { encoding, ...options }) {
  return { type: "get_aggregated_orderbook", symbol, ...asSent(options) };
}

/** The view of one book requested once. */
function viewOf(reply, options) {
  required("aggregated_orderbook_data", reply, bookShape("aggregated_orderbook_data", options));
  const view = new View(reply.symbol, reply.view);
  view.apply({ ...reply, type: "aggregated_orderbook_update" });
  return view;
}

/** Seconds until the next attempt: exponential with full jitter, or as requested by the service. */
export function pauseS(code, attempt, givenS = null, random = Math.random) {
  const base = between(code, BUSY_CODES) ? BACKOFF_BUSY_S : BACKOFF_BASE_S;
  const ceiling = Math.min(BACKOFF_MAX_S, base * 2 ** Math.min(attempt, 16));
  if (between(code, DRAINING_CODES) && givenS !== null) return givenS;
  if (between(code, BUSY_CODES)) return (ceiling * (1 + random())) / 2;
  return Math.max(givenS ?? 0, ceiling * random());
}

/** The addresses of REST and the WebSocket. Without a scheme, a host with a port is http, one without a port https. */
function addressesOf(url) {
  const hasPort = /^(\[[^\]]*\]|[^:/[]*):/.test(url);
  let parts;
  try {
    parts = new URL(/\/\//.test(url) ? url : `${hasPort ? "http" : "https"}://${url}`);
  } catch {
    parts = null;
  }
  if (!parts || !/^(https?|wss?):$/.test(parts.protocol) || parts.port === "0") {
    throw new Refused(
      "invalid_url",
      `"${url}" is not a service URL: use https://, http://, wss:// or ws://, ` +
        "for example http://127.0.0.1:8000.",
    );
  }
  const s = /^(https|wss):$/.test(parts.protocol) ? "s" : "";
  const place = parts.host + parts.pathname.replace(/\/+$/, "").replace(/(\/api\/v1)?(\/ws)?$/, "");
  return { host: parts.host, rest: `http${s}://${place}/api/v1`, websocket: `ws${s}://${place}/api/v1/ws` };
}

/** A wait requested by the service, in seconds, limited to what a client waits. */
const waitS = (number, perSecond = 1) => Math.min(RETRY_AFTER_MAX_S, Math.max(0, Number(number) / perSecond)) || 0;

function errorOf(kind, code, message, body) {
  const { type, error, message: text, timestamp, id, success, ...details } = body;
  const given = body.retry_after === undefined ? null : waitS(body.retry_after);
  return new kind(code, message, { details: camelCased(details), retryAfterS: given });
}

/** Find out over HTTP why a connection could not be opened, because browsers do not report it. */
async function notOpened(addresses, fetch, place, stopping = []) {
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(OPEN_TIMEOUT_S * 1000), ...stopping]);
    const answer = await fetch(`${addresses.rest}/health`, { signal });
    if (answer.status === 404) {
      throw new Refused("http_404", `${place} returned HTTP 404: check the path of the URL.`);
    }
    return ["no_handshake", `${place} returned HTTP ${answer.status} but did not open a WebSocket.`];
  } catch (error) {
    if (error instanceof ServiceError) throw error;
    const reason = error.cause?.code ?? error.cause?.errors?.[0]?.code ?? "";
    if (/CERT|SELF_SIGNED|UNABLE_TO_VERIFY/.test(reason)) {
      throw new Refused("untrusted_certificate", `The certificate of ${place} is not trusted: ${reason}.`);
    }
    if (reason === "ECONNREFUSED") return ["unreachable", `Connection refused by ${place}.`];
    if (reason === "ENOTFOUND") return ["unknown_host", `Unknown host name ${place}.`];
    const own = globalThis.location?.host === place; // a page of the service itself: its certificate and origin are valid
    const alike = " In a browser, an untrusted certificate and a refused origin look the same.";
    return ["unreachable", `Cannot reach ${place}${reason ? `: ${reason}` : ""}.${own ? "" : alike}`];
  }
}

/** One WebSocket connection: yields messages in order, then the close code and reason. */
class Connection {
  #wake = () => {};
  #inbox = [];
  #ended = null;
  #waitedMs = null; // time spent waiting for the pong; null without an unanswered ping
  #checkedAt = performance.now();

  constructor(WebSocket, url, { silenceMaxS, pingTimeoutS }) {
    this.opened = false;
    this.socket = new WebSocket(url);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => this.#put(() => this.#inbox.push(data));
    this.socket.onopen = () => this.#put(() => (this.opened = true));
    // An open socket also gets a close event with the code; before it is open, Node 20 has none.
    this.socket.onerror = () => this.opened || this.#put(() => (this.#ended ??= { code: NO_CLOSE_FRAME, reason: "" }));
    this.socket.onclose = ({ code, reason }) => this.#put(() => (this.#ended ??= { code, reason }));
    this.silenceMaxMs = silenceMaxS * 1000;
    this.pingTimeoutMs = pingTimeoutS * 1000;
    this.heardAt = performance.now();
  }

  #put(change) {
    this.heardAt = performance.now();
    change();
    this.#wake();
  }

  /** Wait for an event, at most this many seconds. */
  async #change(seconds) {
    let timer;
    await new Promise((resolve) => {
      this.#wake = resolve;
      timer = setTimeout(resolve, Math.max(0, seconds) * 1000);
    });
    clearTimeout(timer);
    this.#wake = () => {};
  }

  wake() {
    this.#wake();
  }

  /** Wait until it is open; false if it ended or did not open in time. */
  async open(signal) {
    const byMs = performance.now() + OPEN_TIMEOUT_S * 1000;
    while (!this.opened && !this.#ended && !signal?.aborted && performance.now() < byMs) {
      await this.#change((byMs - performance.now()) / 1000);
    }
    return this.opened && !this.#ended;
  }

  /** Return the next message as text or ArrayBuffer, {code, reason} at the end, or null at the timeout in seconds. */
  async next(seconds) {
    if (!this.#inbox.length && !this.#ended) await this.#change(seconds);
    return this.#inbox.shift() ?? this.#ended;
  }

  /** Return when to check the connection again. */
  get checkAt() {
    const leftMs = this.#waitedMs === null ? Infinity : this.pingTimeoutMs - this.#waitedMs;
    return this.#checkedAt + Math.max(0, Math.min(this.#stepMs, leftMs));
  }

  get #stepMs() {
    return Math.min(this.silenceMaxMs, this.pingTimeoutMs) / 4;
  }

  /**
   * The action that is due: "ping" after silence; "silent" or "no_answer" after an unanswered ping, the only proof
   * that a connection is dead. At most one step counts between two checks, because the runtime may have been
   * suspended, like a background tab, with the pong still unread.
   */
  check() {
    const now = performance.now();
    const [silentMs, passedMs] = [now - this.heardAt, now - this.#checkedAt];
    this.#checkedAt = now;
    if (this.#waitedMs === null) return silentMs >= this.silenceMaxMs / 2 ? "ping" : null;
    this.#waitedMs += Math.min(passedMs, this.#stepMs);
    if (silentMs >= this.silenceMaxMs && this.#waitedMs >= this.silenceMaxMs / 4) return "silent";
    return this.#waitedMs >= this.pingTimeoutMs ? "no_answer" : null;
  }

  /** Record the answer to a ping. */
  answered() {
    this.#waitedMs = null;
  }

  send(message) {
    if (this.socket.readyState !== 1) return;
    if (message.type === "ping" && this.#waitedMs === null) {
      this.#waitedMs = 0;
      this.#checkedAt = performance.now();
    }
    this.socket.send(JSON.stringify(message));
  }

  close() {
    this.socket.close(1000);
  }
}

function parsed(text) {
  try {
    const exact = typeof text === "string" && text.includes('"aggregated_orderbook_');
    const message = exact ? parseExact(text) : JSON.parse(text);
    if (typeof message.type === "string") return message;
  } catch {
    // handled below
  }
  throw new Refused("not_onebook", "The server does not speak Onebook's protocol: check the URL.");
}

/** Convert a Date or Unix ms. Anything else is an error, because it would be sent as null, which means unbounded. */
function millisecondsOf(time) {
  const ms = Number(time);
  if (!Number.isInteger(ms)) throw new TypeError(`A time must be a Date or Unix ms as an integer, not ${time}.`);
  return ms;
}

/** List symbols and the options of each view from an argument of `watch`: a symbol, several, or options by symbol. */
function viewsOf(symbols) {
  if (typeof symbols === "string") return [[symbols, {}]];
  if (Symbol.iterator in symbols) return [...symbols].map((symbol) => [symbol, {}]);
  return Object.entries(symbols).flatMap(([symbol, views]) => [views].flat().map((options) => [symbol, options]));
}

/** Exchanges as a list, in the service's spelling. */
const namesOf = (exchanges) => [exchanges ?? "all"].flat().map((name) => name.trim().toLowerCase());
const isNamed = (name) => name !== "all" && !name.startsWith("-");

/** A view for each exchange of each symbol, named after the exchange; "all" stands for the supported ones. */
function apart(views, supported) {
  return views.flatMap(([symbol, options]) => {
    const names = namesOf(options.exchanges);
    const more = names.every(isNamed) ? [] : supported.filter((name) => !names.includes(`-${name}`));
    const chosen = new Set([...names.filter(isNamed), ...more]);
    if (!chosen.size) throw new Refused("invalid_parameters", `exchanges: none is left for ${symbol}.`);
    return [...chosen].map((name) => [symbol, { ...options, exchanges: [name], view: name }]);
  });
}

/** The views that `watch` yields: the newest of each symbol of one session. */
class Watching {
  constructor(client, views, { attemptsMax, silenceMaxS, pingTimeoutS, signal, merged = true, ...options }) {
    this.newest = new Set();
    this.wake = () => {};
    this.good = 0; // subscriptions that are not refused
    this.session = client.session({
      attemptsMax, silenceMaxS, pingTimeoutS, signal,
      view: (view, message) => (view.live || message === null) && this.show(view),
      refused: (view, error) => {
        this.good -= 1;
        if (error.code !== "invalid_symbol" || !this.good) throw error;
        view.lose({ code: error.code, message: error.message, retryInS: 0 }); // one of several
        this.show(view);
      },
    });
    this.choices = views.map(([symbol, own]) => [symbol, { ...options, ...own }]);
    if (merged) this.subscribe(this.choices);
    else if (this.choices.every(([, { exchanges }]) => namesOf(exchanges).every(isNamed))) {
      this.subscribe(apart(this.choices, []));
    } else this.unlisted = true;
  }

  subscribe(choices) {
    for (const [symbol, options] of choices) this.session.subscribe(symbol, options);
    this.good += choices.length;
  }

  /** Subscribe to every exchange of the service separately, which requires their names. */
  async list() {
    const { supportedExchanges } = await this.session.exchanges();
    this.subscribe(apart(this.choices, supportedExchanges));
  }

  show(view) {
    this.newest.add(view);
    this.wake();
  }

  async *iterate() {
    let failure = null;
    let done = false;
    const running = this.session
      .run()
      .catch((error) => (failure ??= error))
      .finally(() => ((done = true), this.wake()));
    // If the session ends first, `run` has the reason.
    if (this.unlisted) this.list().catch((error) => error.code !== "stopped" && ((failure ??= error), this.session.stop()));
    try {
      while (true) {
        for (const view of this.newest) {
          this.newest.delete(view);
          yield view.copy();
        }
        if (this.newest.size) continue;
        if (done && failure) throw failure;
        if (done) return;
        await new Promise((resolve) => ((this.wake = resolve), (this.newest.size || done) && resolve()));
      }
    } finally {
      this.session.stop();
      await running;
    }
  }
}

const nothing = () => {};

/** The key of a subscription: the symbol and the name of the view, if any. */
const keyOf = (symbol, view) => (view == null ? symbol : JSON.stringify([symbol, view]));

/**
 * Subscriptions over consecutive connections, which may change while it runs: it reconnects,
 * subscribes again, and requests the full book after a gap. `watch` and the page are built on it.
 *
 * The handlers, each optional:
 * - `state({ name, problem })`: "connecting", "live" (the key is accepted) or "waiting", with the
 *   problem and its `retryInS`.
 * - `view(view, message)`: a view changed, by a message or, with null, because it is no longer live.
 * - `accepted(view, reply)`, `refused(view, error)`: the answer to the last subscribe of a symbol.
 *   After a refusal the previous subscription remains. An error thrown by a handler ends `run`.
 * - `notice(message)`: any other message, such as `data_limit_warning` or `history_end`.
 */
export class Session {
  #connection = null;
  #stopping = new AbortController();
  #subscriptions = new Map(); // by key: {view, key, about, options, next, id, held, applied, playedUntil}
  #sent = new Map(); // {key, options} of each unanswered subscribe and resync, by id
  #asked = new Map(); // {question, resolve, reject} of each unanswered question, by id
  #due = new Map(); // deadlines of actions and expected messages, by kind and key
  #resynced = new Map();
  #numbered = new Map(); // subscriptions by the number of their binary updates
  #lastId = 0;
  #failures = 0;
  #invalid = 0; // consecutive connections that ended with an invalid message
  #liveSince = null;
  #cause = null;
  #reconnectAt = null; // ms, as performance.now()

  constructor(client, options = {}) {
    const { attemptsMax = null, silenceMaxS = SILENCE_MAX_S, pingTimeoutS = PING_TIMEOUT_S, signal, ...handlers } = options;
    if (!client.WebSocket) {
      throw new Refused(
        "no_websocket",
        "This runtime has no global WebSocket: pass one as option WebSocket (the package ws has it), " +
          "or start Node 20 with --experimental-websocket.",
      );
    }
    this.client = client;
    this.attemptsMax = attemptsMax;
    this.silenceMaxS = silenceMaxS;
    this.pingTimeoutS = pingTimeoutS;
    this.handlers = { state: nothing, view: nothing, accepted: nothing, refused: nothing, notice: nothing, ...handlers };
    this.receivedCharacters = 0;
    // Removed when the session ends, because the signal may outlive many sessions.
    signal?.addEventListener("abort", () => this.stop(), { once: true, signal: this.#stopping.signal });
    if (signal?.aborted) this.stop();
  }

  /** End `run`, which then resolves. */
  stop() {
    this.#stopping.abort();
    this.#connection?.wake();
  }

  /** Keep connections open until `stop`; throws errors that end the session permanently. */
  async run() {
    const { signal } = this.#stopping;
    try {
      while (!signal.aborted) {
        this.#liveSince = null;
        this.handlers.state({ name: "connecting", problem: null });
        const [code, message, closeCode, givenS] = await this.#connected();
        if (signal.aborted) return;
        if (this.#liveSince !== null && performance.now() - this.#liveSince >= STABLE_S * 1000) {
          this.#failures = this.#invalid = 0;
        }
        this.#invalid = code === PROTOCOL_ERROR ? this.#invalid + 1 : 0;
        if (this.#invalid >= INVALID_MAX) throw new Refused(code, `${message} ${INCOMPATIBLE}`);
        const retryInS = pauseS(closeCode, this.#failures, givenS, this.client.random);
        this.#failures += 1;
        if (this.attemptsMax !== null && this.#failures >= this.attemptsMax) {
          throw new Unavailable(code, message, { retryAfterS: retryInS });
        }
        this.#lost({ code, message, retryInS });
        await sleep(retryInS, signal);
      }
    } finally {
      this.#stopping.abort();
      this.#reject(new Unavailable("stopped", "The session is closed."));
    }
  }

  /**
   * Subscribe to a symbol, or change the options of its subscription. `view` is your name for an additional
   * subscription of the symbol.
   */
  subscribe(symbol, { view, ...options } = {}) {
    const key = keyOf(symbol, view);
    let found = this.#subscriptions.get(key);
    if (!found) {
      const about = view == null ? { symbol } : { symbol, view };
      found = { view: new View(symbol, view), key, about, options: null, next: null, id: null, held: false, applied: null };
      this.#subscriptions.set(key, found);
    }
    found.next = { exchanges: "all", ...asSent(options) };
    if (this.#connection?.opened) this.#subscribe(found);
    return found.view;
  }

  /** End the subscription of a symbol, or of one of its views, if any. */
  unsubscribe(symbol, view) {
    const found = this.#subscriptions.get(keyOf(symbol, view));
    if (!found) return;
    for (const [name, each] of this.#subscriptions) if (each === found) this.#subscriptions.delete(name);
    for (const kind of ["answer", "subscribe", "resync"]) this.#due.delete(`${kind} ${found.key}`);
    if (!found.held) return; // if it is accepted later, it is ended then
    for (const [id, { key }] of this.#sent) if (key === found.key) this.#sent.delete(id);
    this.#connection.send({ type: "unsubscribe_aggregated", ...found.about, symbol: found.view.symbol });
  }

  /** Return the milliseconds since the last message of the connection; 0 without a connection. */
  get silentMs() {
    return this.#connection ? performance.now() - this.#connection.heardAt : 0;
  }

  /** Return whether a symbol, or one of its views, is subscribed, or will be once connected. */
  has(symbol, view) {
    return this.#subscriptions.has(keyOf(symbol, view));
  }

  /** Send a message and return its reply; repeated on the next connection if this one ends first. */
  ask(message) {
    if (this.#stopping.signal.aborted) return Promise.reject(new Unavailable("stopped", "The session is closed."));
    const id = this.#nextId();
    const question = { ...message, id };
    return new Promise((resolve, reject) => {
      this.#asked.set(id, { question, resolve, reject });
      if (this.#connection?.opened) this.#connection.send(question);
    });
  }

  /**
   * The round trip to the service in milliseconds; throws `Unavailable` without a connection, or if the connection
   * ends without an answer, as it does after `pingTimeoutS`.
   */
  async ping() {
    if (!this.#connection?.opened) throw new Unavailable("not_connected", "Not connected.");
    const sentAt = performance.now();
    await this.ask({ type: "ping", client_time: String(this.#lastId + 1) }); // a pong has no id
    return performance.now() - sentAt;
  }

  /** Return the merged book of a symbol once; missing options are those of its subscription. */
  async orderBook(symbol, options = {}) {
    const question = bookQuestion(symbol, options);
    if (this.#numbered.size) question.encoding = "json"; // not that of the subscription
    return viewOf(await this.ask(question), options);
  }

  /** The exchanges and whether their feeds are live. */
  async exchanges() {
    return camelCased(dataOf(await this.ask({ type: "get_exchanges" })));
  }

  /** The pairs of one exchange, or of all. */
  async pairs(exchange) {
    return camelCased(dataOf(await this.ask({ type: "get_pairs", ...(exchange ? { exchange } : {}) })));
  }

  #nextId() {
    return String((this.#lastId += 1));
  }

  #lost(problem) {
    this.handlers.state({ name: "waiting", problem });
    for (const found of this.#each()) {
      found.view.lose(problem);
      this.handlers.view(found.view, null);
    }
  }

  #each() {
    return new Set(this.#subscriptions.values());
  }

  #reject(error, chosen = () => true) {
    for (const [id, asked] of this.#asked) {
      if (!chosen(asked)) continue;
      this.#asked.delete(id);
      asked.reject(error);
    }
  }

  /** Keep one connection until it ends; returns code, sentence, close code, seconds to wait. */
  async #connected() {
    const { addresses, WebSocket, fetch, place } = this.client;
    const { signal } = this.#stopping;
    const connection = (this.#connection = new Connection(WebSocket, addresses.websocket, this));
    try {
      if (!(await connection.open(signal))) {
        if (signal.aborted) return ["stopped", "", NO_CLOSE_FRAME, null];
        return [...(await notOpened(addresses, fetch, place, [signal])), NO_CLOSE_FRAME, null];
      }
      return await this.#converse(connection);
    } catch (error) {
      if (error.code !== PROTOCOL_ERROR) throw error;
      return [error.code, error.message, NO_CLOSE_FRAME, null];
    } finally {
      this.#connection = null;
      for (const found of this.#each()) {
        Object.assign(found, { held: false, applied: null });
        if (found.playedUntil && found.options) found.options = { ...found.options, start: found.playedUntil };
      }
      this.#reject(new Unavailable("not_connected", "The connection ended."), ({ question }) => question.type === "ping");
      connection.close();
    }
  }

  async #converse(connection) {
    this.#due.clear();
    this.#resynced.clear();
    this.#sent.clear();
    this.#numbered.clear();
    this.#cause = null;
    this.#reconnectAt = null;
    connection.send({ type: "authenticate", api_key: this.client.apiKey });
    for (const found of this.#each()) this.#subscribe(found);
    for (const { question } of this.#asked.values()) connection.send(question);
    while (!this.#stopping.signal.aborted) {
      const waits = [...this.#due.values(), connection.checkAt];
      const came = await connection.next((Math.min(...waits) - performance.now()) / 1000);
      if (this.#stopping.signal.aborted) break;
      if (came && typeof came === "object" && "code" in came) return this.#closed(came);
      if (came instanceof ArrayBuffer) {
        this.receivedCharacters += came.byteLength;
        this.#receivedPacked(updateOf(came));
      } else if (came !== null) {
        this.receivedCharacters += came.length;
        const left = this.#received(parsed(came));
        if (left) return left;
      }
      const overdue = this.#actOnTime(connection);
      if (overdue) return overdue;
    }
    return ["stopped", "", NO_CLOSE_FRAME, null];
  }

  #subscribe(found) {
    const options = found.next ?? found.options;
    found.applied ??= options;
    const encoding = found.inJson ? {} : { encoding: "protobuf" };
    found.id = this.#request(found, { type: "subscribe_aggregated", ...encoding, ...options }, options);
  }

  #resync(found) {
    this.#resynced.set(found, performance.now());
    this.#request(found, { type: "resync" }, found.applied);
  }

  #request(found, message, options) {
    const id = this.#nextId();
    this.#sent.set(id, { key: found.key, options });
    this.#due.set(`answer ${found.key}`, performance.now() + ANSWER_TIMEOUT_S * 1000);
    this.#connection.send({ ...message, ...found.about, id });
    return id;
  }

  #actOnTime(connection) {
    const due = connection.check();
    if (due === "ping") this.ping().catch(nothing); // fails if the connection ends, which is handled elsewhere
    else if (due === "silent") return [due, `No message for ${this.silenceMaxS} s.`, NO_CLOSE_FRAME, null];
    else if (due) return [due, `A ping was not answered within ${this.pingTimeoutS} s.`, NO_CLOSE_FRAME, null];
    for (const [name, atMs] of [...this.#due]) {
      if (atMs > performance.now()) continue;
      this.#due.delete(name);
      const [kind, key] = [name.slice(0, name.indexOf(" ")), name.slice(name.indexOf(" ") + 1)];
      if (kind === "close") throw new Refused(this.#cause.code, this.#cause.message);
      if (kind === "answer") {
        return ["no_answer", `The service did not answer within ${ANSWER_TIMEOUT_S} s.`, NO_CLOSE_FRAME, null];
      }
      const found = this.#subscriptions.get(key);
      if (kind === "subscribe") this.#subscribe(found);
      else this.#resync(found);
    }
    return null;
  }

  /** Handle a binary update, unless its subscription is ending. */
  #receivedPacked(update) {
    const found = this.#numbered.get(update.subscription);
    if (!found || this.#subscriptions.get(found.key) !== found) return;
    if (!update.json) return this.#applied(found, found.reader.message(update));
    this.#updated({ ...parsed(update.json), ...found.about, symbol: found.view.symbol, skipped: update.skipped });
  }

  #received(message) {
    if (SHAPES[message.type]) required(message.type, message, SHAPES[message.type]);
    if (UPDATES.has(message.type)) this.#updated(message);
    else if (this.#asked.has(message.id ?? message.client_time)) this.#answered(message);
    else if (ERRORS.has(message.type)) return this.#failed(message);
    else if (message.type === "aggregated_subscription_response") this.#accepted(message);
    else if (message.type === "welcome") this.#welcomed(message);
    else if (message.type === "server_shutdown") {
      this.#reconnectAt = performance.now() + waitS(message.reconnect_in_ms, 1000) * 1000;
      this.#cause = { code: "server_shutdown", message: CLOSE_REASONS[4200] };
    } else {
      if (message.type === "history_end") this.#reachedPresent(message);
      this.handlers.notice(message);
    }
    return null;
  }

  /** Subscribe to the live book from now on. */
  #reachedPresent({ symbol, view }) {
    const found = this.#subscriptions.get(keyOf(symbol, view));
    if (!found?.view.past) return;
    found.view.past = false;
    found.playedUntil = null;
    const { start, speed, ...options } = found.options;
    found.options = options;
  }

  /** Handle the welcome, which is sent before the key, and again with a session id once the key is accepted. */
  #welcomed(message) {
    if (!message.session_id) return;
    if (!this.#subscriptions.size) this.#liveSince = performance.now();
    this.handlers.state({ name: "live", problem: null });
  }

  #answered(message) {
    const id = message.id ?? message.client_time;
    const { question, resolve, reject } = this.#asked.get(id);
    this.#asked.delete(id);
    if (question.type === "ping") this.#connection.answered();
    if (!ERRORS.has(message.type)) return resolve(message);
    const kind = message.retry_after === undefined ? Refused : Unavailable;
    reject(errorOf(kind, message.error ?? message.type, message.message, message));
  }

  #updated(message) {
    const found = this.#subscriptions.get(keyOf(message.symbol, message.view));
    if (message.type !== "exchange_status") required(message.type, message, bookShape(message.type, found?.applied ?? {}));
    if (!found) return;
    if (message.type === "exchange_status") {
      found.view.apply(message);
      return this.handlers.view(found.view, message);
    }
    this.#applied(found, message);
  }

  /** Apply an update, and request the full book after a gap. */
  #applied(found, message) {
    const { view, key } = found;
    if (CHANGES.has(message.type) && !view.live) return; // a full book will follow
    this.#due.delete(`answer ${key}`);
    if (view.apply(message)) {
      this.#liveSince ??= performance.now();
      if (view.past && view.timestamp) found.playedUntil = view.timestamp;
      return this.handlers.view(view, message);
    }
    view.lose({ code: "gap", message: "An update is missing or damaged; a full book was requested.", retryInS: 0 });
    this.handlers.view(view, null);
    const atMs = (this.#resynced.get(found) ?? -Infinity) + RESYNC_PAUSE_S * 1000;
    if (performance.now() >= atMs) this.#resync(found);
    else this.#due.set(`resync ${key}`, atMs);
  }

  #failed(message) {
    const code = message.error ?? message.type;
    const id = String(message.id ?? "");
    if (this.#sent.has(id)) {
      const found = this.#subscriptions.get(this.#sent.get(id).key);
      this.#sent.delete(id);
      if (found) this.#denied(found, id, code, message);
      return null;
    }
    const retryS = waitS(message.retry_after ?? 0);
    if (message.type !== "error") throw errorOf(Refused, code, message.message, message);
    this.#cause = { code, message: message.message };
    if (retryS) return [code, message.message, NO_CLOSE_FRAME, retryS];
    this.#due.set("close ", performance.now() + CLOSE_WAIT_S * 1000);
    return null;
  }

  /** Handle a refused subscribe or resync: repeat it if it may succeed later. */
  #denied(found, id, code, message) {
    const retryS = waitS(message.retry_after ?? 0);
    const { key, view } = found;
    if (retryS) {
      this.#due.delete(`answer ${key}`);
      this.#due.set(`subscribe ${key}`, performance.now() + retryS * 1000);
      view.lose({ code, message: message.message, retryInS: retryS });
      return this.handlers.view(view, null);
    }
    if (id !== found.id && found.next) return; // for earlier options
    const refusesEncoding = code === "invalid_parameters" && message.message.includes("encoding");
    if (refusesEncoding && !found.inJson && (found.next ?? found.options)?.encoding === undefined) {
      found.inJson = true; // a service of an earlier version
      return this.#subscribe(found);
    }
    this.#due.delete(`answer ${key}`);
    found.next = null;
    if (!found.options) this.unsubscribe(view.symbol, view.view);
    else if (!found.held) this.#subscribe(found); // as accepted on the previous connection
    this.handlers.refused(view, errorOf(Refused, code, message.message, message));
  }

  #accepted(message) {
    const id = String(message.id);
    const sent = this.#sent.get(id);
    if (!sent) return;
    this.#sent.delete(id);
    const { key, options } = sent;
    const { symbol, view } = message;
    const found = this.#subscriptions.get(key);
    if (!found) return this.#connection.send({ type: "unsubscribe_aggregated", symbol, view });
    found.held = true;
    found.applied = options; // may be earlier options: their updates arrive until the newest are accepted
    found.view.symbol = symbol; // the service may normalise it, for example to capitals
    this.#subscriptions.set(keyOf(symbol, view), found);
    for (const [number, each] of this.#numbered) if (each === found) this.#numbered.delete(number);
    if (message.number) {
      this.#numbered.set(Number(message.number), found);
      found.reader = new PackedReader(message.exchanges, { symbol, ...(view == null ? {} : { view }) });
    }
    if (id !== found.id) return; // for earlier options
    const answer = `answer ${key}`; // its book arrives within seconds
    if (this.#due.has(answer)) this.#due.set(answer, performance.now() + ANSWER_TIMEOUT_S * 1000);
    found.options = found.next ?? found.options;
    found.next = null;
    found.view.past = found.options.start !== undefined;
    found.playedUntil = null;
    found.view.rejected = Object.fromEntries((message.rejected ?? []).map((each) => [each.exchange, each.reason]));
    found.view.publishedFees = message.published_fees ?? [];
    this.handlers.accepted(found.view, message);
  }

  #closed({ code, reason }) {
    const named = this.#cause?.code ?? String(code);
    const text = this.#cause?.message ?? (CLOSE_REASONS[code] || reason || `The service closed the connection with code ${code}.`);
    if (between(code, FINAL_CODES)) throw new Refused(named, text);
    // Counted from the notice, because a draining service closes at the announced time.
    const reconnectS = this.#reconnectAt === null ? null : Math.max(0, this.#reconnectAt - performance.now()) / 1000;
    return [named, text, code, reconnectS];
  }
}

/** A client of one service for one API key. */
export class Onebook {
  #token = null;
  #authenticating = null;

  constructor(url, apiKey, options = {}) {
    this.addresses = addressesOf(url);
    this.place = this.addresses.host;
    Object.defineProperty(this, "apiKey", { value: apiKey }); // not enumerable
    this.WebSocket = options.WebSocket ?? globalThis.WebSocket;
    this.fetch = options.fetch ?? ((...words) => globalThis.fetch(...words));
    this.attemptsMax = options.attemptsMax ?? ATTEMPTS_MAX;
    this.random = options.random ?? Math.random;
  }

  /** Yield the newest view of each symbol indefinitely, across reconnects; leaving the loop closes. */
  watch(symbols, options = {}) {
    const views = viewsOf(symbols);
    if (!views.length) throw new Refused("invalid_parameters", "symbols: give at least one, such as BTC/USDT.");
    return new Watching(this, views, options).iterate();
  }

  /** Subscriptions that may change while it runs; see `Session`. */
  session(options = {}) {
    return new Session(this, options);
  }

  /** The merged book of one symbol, once. */
  async orderBook(symbol, options = {}) {
    const reply = await this.#ask(bookQuestion(symbol, options));
    return viewOf(reply, options);
  }

  /** The exchanges and whether their feeds are live. */
  async exchanges() {
    return camelCased(dataOf(await this.#ask({ type: "get_exchanges" })));
  }

  /** The pairs of one exchange, or of all. */
  async pairs(exchange) {
    return camelCased(dataOf(await this.#ask({ type: "get_pairs", ...(exchange ? { exchange } : {}) })));
  }

  /** The key's usage of its monthly allowance. */
  async usage() {
    const report = await this.#request("GET", `/data-usage/${encodeURIComponent(this.apiKey)}`);
    required("usage report", report, USAGE);
    const { bytes_used: usedBytes, bytes_limit: limitBytes } = report.data_usage;
    return {
      username: report.username, tier: report.billing_tier, active: report.api_key_active,
      usedBytes, limitBytes, remainingBytes: Math.max(0, limitBytes - usedBytes),
      exceeded: usedBytes > limitBytes, share: limitBytes ? usedBytes / limitBytes : 1,
      resetsAt: new Date(report.billing_period.reset_date),
    };
  }

  /** The key's taker fees in percent by exchange; "*": all others. */
  async fees() {
    return this.#feesOf(await this.#request("GET", "/fees", undefined, true));
  }

  /** Replace the key's whole fee table; subscriptions keep the fees they were opened with. */
  async changeFees(fees) {
    return this.#feesOf(await this.#request("PUT", "/fees", { fees }, true));
  }

  #feesOf(answer) {
    required("fee table", answer, FEES);
    return answer.fees;
  }

  /** The recorded quality of exchanges: uptime, failures, ages and crossings. */
  async quality({ start, end, exchanges = [], symbols = [], by = "exchange" } = {}) {
    const asked = { from: start, to: end, exchanges: exchanges.join(), symbols: symbols.join(), by };
    const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value));
    return camelCasedThrough(await this.#request("GET", `/exchanges/quality?${query}`, undefined, true));
  }

  /** When books of a pair were recorded, and by which exchanges. */
  async recorded(symbol, { start, end } = {}) {
    const query = new URLSearchParams(Object.entries({ from: start, to: end }).filter(([, value]) => value));
    const path = symbol.split("/").map(encodeURIComponent).join("/");
    return await this.#request("GET", `/history/${path}?${query}`, undefined, true);
  }

  /** The health of the service. */
  async health() {
    return camelCasedThrough(await this.#request("GET", "/health"));
  }

  /** Whether the exchange accepts the operator's credentials. */
  async validateCredentials(exchange, { testnet = false, demo = false } = {}) {
    const asked = demo ? { exchange, testnet, demo } : { exchange, testnet };
    return camelCasedThrough(await this.#request("POST", "/transactions/validate-credentials", asked, true));
  }

  /** Yield all records of an exchange account, newest first, over as many pages as needed. */
  async *transactions(exchange, types = [], { partialAllowed = false, ...options } = {}) {
    let last = null;
    for await (const page of this.transactionPages(exchange, types, options)) {
      yield* page.records;
      last = page;
    }
    if (last?.missing.length && !partialAllowed) {
      const { errors, coverage } = last;
      throw new Refused("incomplete", missingOf(last), { details: { errors, coverage } });
    }
  }

  /** Yield pages of records, each with its coverage and errors. */
  async *transactionPages(exchange, types = [], { start, end, pageRecords = PAGE_RECORDS, ...options } = {}) {
    const request = { exchange, limit: pageRecords, ...asSent(options) };
    if (types.length) request.transaction_types = typeof types === "string" ? [types] : types;
    if (start != null) request.start_time = millisecondsOf(start);
    if (end != null) request.end_time = millisecondsOf(end);
    let before = null;
    for (let idle = 0; ; ) {
      const answer = await this.#request("POST", "/transactions", request, true);
      required("page of transactions", answer, PAGE);
      const page = pageOf(answer);
      yield page;
      if (page.nextCursor === null) return;
      if (page.nextCursor === request.cursor && page.records.length) {
        throw new Unavailable("no_progress", "The service returned the same cursor again.");
      }
      const further = page.records.length || JSON.stringify(before?.coverage) !== JSON.stringify(page.coverage);
      idle = further ? 0 : idle + 1;
      if (idle >= IDLE_PAGES_MAX) {
        throw new Unavailable("no_progress", missingOf(page), { details: { errors: page.errors } });
      }
      if (idle) await sleep(pauseS(NO_CLOSE_FRAME, idle, null, this.random));
      request.cursor = page.nextCursor;
      before = page;
    }
  }

  /**
   * Yield the records of an account as they happen, indefinitely and across reconnects: each record once, and again
   * when it changes. With `start` it begins with the history; leaving the loop closes the connection.
   */
  async *followTransactions(exchange, types = [], { start, attemptsMax, silenceMaxS, pingTimeoutS, ...options } = {}) {
    const request = { action: "subscribe_transactions", exchange, limit: PAGE_RECORDS, ...asSent(options) };
    if (types.length) request.transaction_types = typeof types === "string" ? [types] : types;
    const firstMs = start == null ? Date.now() - FOLLOW_MARGIN_MS : millisecondsOf(start);
    const [seen, events] = [new Map(), []];
    let [asking, begun, startMs, ended, wake] = [false, false, firstMs, null, nothing];

    const ask = (fields) => {
      asking = true;
      session.ask({ ...request, start_time: startMs, ...fields }).then(received, failed).finally(() => (asking = false));
    };
    const received = (message) => {
      if (message.type === "transaction_response") {
        for (const record of message.transactions.toReversed()) put(record, begun ? "new" : start == null ? null : "history");
      } else if (message.type === "transaction_complete") {
        if (message.next_cursor !== null) ask({ cursor: message.next_cursor, live: false });
        else begun = true;
      } else if (message.type === "transaction") put(message.transaction, "new", message.exchange);
      else if (message.type === "transaction_status") {
        events.push({ change: "status", account: message.exchange, record: null, status: camelCasedThrough(message) });
        // A reconnect would mix two accounts.
        if (message.state === "ended") ended ??= new Refused("account_changed", message.reason);
      }
      wake();
    };
    const put = (record, change, account = record.account?.name ?? record.exchange) => {
      const { raw, ...stated } = record;
      if (record.incomplete.includes("timestamp")) Object.assign(stated, { timestamp: 0, datetime: "" }); // it is the time of the read
      const [id, content] = [record.transactionId, JSON.stringify(stated)];
      const before = seen.get(id);
      seen.delete(id);
      seen.set(id, content);
      if (seen.size > FOLLOWED_IDS_MAX) seen.delete(seen.keys().next().value);
      if (before === content || (before === undefined && change === null)) return;
      const named = before === undefined ? change : "updated";
      events.push({ change: named, account, record: camelCasedThrough(record), status: null });
    };
    const failed = (error) => {
      ended ??= error;
      wake();
    };
    const state = ({ name }) => {
      if (name !== "live" || asking) return; // an unanswered request is sent again by the session
      if (begun) startMs = Math.max(firstMs, Date.now() - FOLLOW_AGAIN_MS);
      ask({});
    };
    const session = new Session(this, { attemptsMax, silenceMaxS, pingTimeoutS, state, notice: received });
    session.run().catch(failed);
    try {
      while (true) {
        while (events.length) yield events.shift();
        if (ended) throw ended;
        await new Promise((resolve) => (wake = resolve));
      }
    } finally {
      session.stop();
    }
  }

  /** Send one question over a separate connection. */
  async #ask(message) {
    const connection = new Connection(this.WebSocket, this.addresses.websocket, {});
    try {
      if (!(await connection.open())) {
        throw new Unavailable(...(await notOpened(this.addresses, this.fetch, this.place)));
      }
      connection.send({ type: "authenticate", api_key: this.apiKey });
      connection.send({ ...message, id: "1" });
      return await this.#reply(connection);
    } finally {
      connection.close();
    }
  }

  async #reply(connection) {
    const byMs = performance.now() + ANSWER_TIMEOUT_S * 1000;
    let cause = null;
    while (true) {
      const came = await connection.next((byMs - performance.now()) / 1000);
      if (came === null) {
        throw new Unavailable("no_answer", `The service did not answer within ${ANSWER_TIMEOUT_S} s.`);
      }
      if (typeof came === "object" && "code" in came) {
        const kind = between(came.code, FINAL_CODES) ? Refused : Unavailable;
        throw new kind(cause?.code ?? String(came.code), cause?.message ?? (came.reason || "The connection was lost."));
      }
      const reply = parsed(came);
      if (ERRORS.has(reply.type)) {
        required(reply.type, reply, ERROR);
        cause = { code: reply.error ?? reply.type, message: reply.message };
        if (reply.id === "1" || reply.type === "authentication_error") {
          throw errorOf(reply.retry_after === undefined ? Refused : Unavailable, cause.code, cause.message, reply);
        }
      } else if (reply.id === "1") return reply;
    }
  }

  /** Send a request, and retry while that may help: new session, Retry-After, full jitter. */
  async #request(method, path, body, session = false) {
    for (let attempt = 0, renewed = false; ; ) {
      const token = session ? await this.#session() : null;
      try {
        return await this.#answer(method, path, body, token);
      } catch (error) {
        if (token && !renewed && ["session_expired", "invalid_session"].includes(error.code)) {
          renewed = true;
          if (this.#token === token) this.#token = null;
          continue;
        }
        if (!(error instanceof Unavailable)) throw error;
        attempt += 1;
        const waitS = pauseS(NO_CLOSE_FRAME, attempt, error.retryAfterS, this.random);
        if (attempt >= this.attemptsMax || waitS > RETRY_WAIT_MAX_S) throw error;
        await sleep(waitS);
      }
    }
  }

  async #session() {
    if (this.#token) return this.#token;
    this.#authenticating ??= this.#request("POST", "/authenticate", { api_key: this.apiKey }).finally(
      () => (this.#authenticating = null),
    );
    const answer = await this.#authenticating;
    required("session", answer, SESSION);
    return (this.#token = answer.session_token);
  }

  async #answer(method, path, body, token) {
    const headers = { Accept: "application/json" };
    const privately = { cache: "no-store", referrerPolicy: "no-referrer" }; // the usage path contains the key
    if (body) headers["Content-Type"] = "application/json";
    if (token) headers.Authorization = `Bearer ${token}`;
    let answer, text;
    try {
      const signal = AbortSignal.timeout(REQUEST_TIMEOUT_S * 1000);
      answer = await this.fetch(this.addresses.rest + path, { ...privately, method, headers, signal, body: body && JSON.stringify(body) });
      text = await answer.text();
    } catch (error) {
      if (error.name === "TimeoutError") throw new Unavailable("timeout", `${this.place} did not respond in time.`);
      throw new Unavailable(...(await notOpened(this.addresses, this.fetch, this.place)));
    }
    let found = null;
    try {
      found = JSON.parse(text);
    } catch {
      // handled below
    }
    if (answer.ok && found !== null) return found;
    const transient = TRANSIENT.has(answer.status) || answer.status >= 500;
    if (typeof found?.error === "string") {
      const kind = transient && found.error !== "data_limit_exceeded" ? Unavailable : Refused;
      const error = errorOf(kind, found.error, found.message ?? `${this.place} returned HTTP  ${answer.status}.`, found);
      const after = answer.headers.get("Retry-After");
      error.retryAfterS = after === null ? null : waitS(after);
      throw error;
    }
    throw new (transient ? Unavailable : Refused)(
      `http_${answer.status}`,
      `${this.place} returned HTTP ${answer.status} without the service's JSON: check the address.`,
    );
  }
}

function pageOf(answer) {
  const { partial, next_cursor: nextCursor } = answer;
  const [records, coverage, errors] = [answer.transactions, answer.coverage, answer.errors].map(camelCasedThrough);
  const missing = coverage.filter((each) => !each.complete && each.reason !== "older_not_kept");
  const [ownTransfers, verification] = [answer.own_transfers ?? null, answer.verification ?? null].map(camelCasedThrough);
  const summary = camelCased(answer.summary);
  return { records, coverage, errors, partial, nextCursor, summary, missing, ownTransfers, verification };
}

function missingOf(page) {
  const types = page.missing.map((each) => each.transactionType).join(", ");
  const causes = [...new Set(page.errors.map((each) => each.message))].join(" ");
  return `Not all records could be read (${types}). ${causes}`.trim();
}
