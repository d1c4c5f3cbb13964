// Types of onebook.js.

/** What the client throws: `code` for programs, the message for people. */
export class ServiceError extends Error {
  readonly code: string;
  readonly details: Record<string, unknown>;
  readonly retryAfterS: number | null;
  constructor(
    code: string,
    message: string,
    more?: { details?: Record<string, unknown>; retryAfterS?: number | null },
  );
}
/** A retry would fail in the same way. */
export class Refused extends ServiceError {}
/** It failed now and may succeed later. */
export class Unavailable extends ServiceError {}

/** Why a view is not live; a retry is under way. */
export interface Problem {
  code: string;
  message: string;
  retryInS: number;
}

/** One price; numbers are decimal text, exactly as the service prints them. */
export interface Level {
  price: string;
  amount: string;
  exchanges: string[];
  /** Parallel to `exchanges`; empty without the option `split`. */
  amounts: string[];
}

/** What buying or selling one size would cost. */
export interface Filled {
  by: "amount" | "notional";
  size: string;
  amount: string;
  notional: string;
  average: string | null;
  worst: string | null;
  levels: string;
  complete: boolean;
  uncovered: string[];
  split: { exchange: string; amount: string; notional: string }[];
}

/** The merged book of one symbol, best levels first; empty while it is not live. */
export class View {
  symbol: string;
  live: boolean;
  problem: Problem | null;
  bids: Level[];
  asks: Level[];
  /** Numbers as decimal text, null where a side is empty. */
  marketStats: Record<string, string | boolean | null>;
  staleExchanges: string[];
  /** Exchanges that were asked for and are not served, with the reason. */
  rejected: Record<string, string>;
  states: Record<string, "syncing" | "live" | "stale" | "offline">;
  /** Milliseconds by exchange, with the option `ages`. */
  ages: Record<string, number>;
  coverage: Record<string, { bids: string | null; asks: string | null }>;
  /** The cost of each size, with the option `fill`; numbers as decimal text. */
  fill: { buy?: Filled[]; sell?: Filled[] };
  timestamp: string;
  updateNumber: number;
  constructor(symbol: string);
  apply(message: Record<string, any>): boolean;
  lose(problem: Problem | null): void;
  checksum(): number;
  copy(): View;
}

/** What `watch` yields: a view that is live, or why it is not. */
export type WatchedView = View & ({ live: true; problem: null } | { live: false; problem: Problem });

export interface BookOptions {
  exchanges?: string[] | "all";
  depth?: number;
  interval_ms?: number;
  mode?: "full" | "delta";
  levels?: "object" | "array";
  split?: boolean;
  group?: string;
  ages?: boolean;
  coverage?: boolean;
  fill?: { amounts?: string[]; notionals?: string[] };
}

export interface WatchOptions extends BookOptions {
  /** Failures in a row after which `Unavailable` is thrown; null, the default, for no end. */
  attemptsMax?: number | null;
  /** Seconds after which a connection that is silent is given up; 10 by default. A ping is sent after half of it. */
  silenceMaxS?: number;
  /** Seconds within which a ping must be answered, or the connection is given up; 10 by default. */
  pingTimeoutS?: number;
  /** Ends the iteration. */
  signal?: AbortSignal;
}

export interface ClientOptions {
  /** A constructor like the browser's; needed where there is no global one. */
  WebSocket?: new (url: string) => unknown;
  fetch?: typeof fetch;
  /** Attempts of a REST request that may succeed later; 5 by default. */
  attemptsMax?: number;
  random?: () => number;
}

export interface KeyUsage {
  username: string;
  tier: string;
  active: boolean;
  usedBytes: number;
  limitBytes: number;
  remainingBytes: number;
  exceeded: boolean;
  share: number;
  resetsAt: Date;
}

export interface TransactionOptions {
  /** Oldest time: a Date, or Unix ms; 30 days before `end` by default. */
  start?: Date | number;
  end?: Date | number;
  /** Records of one request, up to 10,000. */
  pageRecords?: number;
  testnet?: boolean;
  include_raw?: boolean;
  verify?: boolean;
}

export interface TransactionPage {
  records: Record<string, any>[];
  coverage: Record<string, any>[];
  errors: Record<string, any>[];
  partial: boolean;
  nextCursor: string | null;
  summary: Record<string, any>;
  missing: Record<string, any>[];
}

/** What the handlers of a session are called with; an error that one throws ends `run`. */
export interface SessionOptions {
  /** Failures in a row after which `Unavailable` is thrown; null, the default, for no end. */
  attemptsMax?: number | null;
  /** Seconds after which a connection that is silent is given up; 10 by default. A ping is sent after half of it. */
  silenceMaxS?: number;
  /** Seconds within which a ping must be answered, or the connection is given up; 10 by default. */
  pingTimeoutS?: number;
  /** Ends `run`. */
  signal?: AbortSignal;
  state?: (state: { name: "connecting" | "live" | "waiting"; problem: Problem | null }) => void;
  /** A view changed: by a message or, with null, because it is no longer live. It is not a copy. */
  view?: (view: View, message: Record<string, any> | null) => void;
  accepted?: (view: View, reply: Record<string, any>) => void;
  /** The subscription as it was before stays. */
  refused?: (view: View, error: Refused) => void;
  /** Any other message, such as `data_limit_warning`. */
  notice?: (message: DataLimitWarning | Record<string, any>) => void;
}

/** Most of a key's monthly allowance is used, or all of it. */
export interface DataLimitWarning {
  type: "data_limit_warning";
  message: string;
  /** What to do. */
  action_required: string;
  data_usage: {
    used_gb: number;
    limit_gb: number;
    remaining_gb: number;
    /** 0 until the allowance is used up. */
    exceeded_by_gb: number;
    usage_percentage: number;
    bytes_used: number;
    bytes_limit: number;
  };
  /** When the next period begins. */
  reset_date: string;
  timestamp: string;
}

/** Subscriptions that may change, over one connection after the other. */
export class Session {
  /** Characters of all messages so far. */
  readonly receivedCharacters: number;
  /** Hold connections until `stop`; throws what ends the session for good. */
  run(): Promise<void>;
  stop(): void;
  /** Subscribe to a symbol, or change the options of its subscription. */
  subscribe(symbol: string, options?: BookOptions): View;
  unsubscribe(symbol: string): void;
  has(symbol: string): boolean;
  /** The reply to one message; asked again on the next connection if this one ends before. */
  ask(message: Record<string, any>): Promise<Record<string, any>>;
  /** The merged book of a symbol, once; options that are absent are those of its subscription. */
  orderBook(symbol: string, options?: BookOptions): Promise<View>;
  exchanges(): Promise<Record<string, any>>;
  pairs(exchange?: string): Promise<Record<string, any>>;
  /** The round trip in milliseconds; a connection that does not answer within `pingTimeoutS` is given up. */
  ping(): Promise<number>;
}

/** A client of one service for one API key. */
export class Onebook {
  constructor(url: string, apiKey: string, options?: ClientOptions);
  watch(symbols: string | Iterable<string>, options?: WatchOptions): AsyncGenerator<WatchedView, void, void>;
  session(options?: SessionOptions): Session;
  orderBook(symbol: string, options?: BookOptions): Promise<View>;
  exchanges(): Promise<Record<string, any>>;
  pairs(exchange?: string): Promise<Record<string, any>>;
  usage(): Promise<KeyUsage>;
  health(): Promise<Record<string, any>>;
  validateCredentials(exchange: string, options?: { testnet?: boolean }): Promise<Record<string, any>>;
  transactions(
    exchange: string,
    types?: string[] | string,
    options?: TransactionOptions & { partialAllowed?: boolean },
  ): AsyncGenerator<Record<string, any>, void, void>;
  transactionPages(
    exchange: string,
    types?: string[] | string,
    options?: TransactionOptions,
  ): AsyncGenerator<TransactionPage, void, void>;
}

export function crc32(text: string): number;
export function compareDecimals(left: string, right: string): number;
export function parseExact(text: string): any;
export function pauseS(code: number, attempt: number, givenS?: number | null, random?: () => number): number;
