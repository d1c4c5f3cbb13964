// Types of onebook.js.

/** Base of the client's errors: `code` for programs, the message for people. */
export class ServiceError extends Error {
  /** The service's error code, a close code as text, or a code of this client. */
  readonly code: string;
  /** Further fields of the service's error, such as `suggestedSymbols`. */
  readonly details: Record<string, unknown>;
  /** Seconds after which the service suggests a retry, or null. */
  readonly retryAfterS: number | null;
  constructor(
    code: string,
    message: string,
    more?: { details?: Record<string, unknown>; retryAfterS?: number | null },
  );
}
/** A retry would fail in the same way. */
export class Refused extends ServiceError {}
/** A temporary failure; a retry may succeed. */
export class Unavailable extends ServiceError {}

/** The reason why a view is not live. The client retries after `retryInS`. */
export interface Problem {
  code: string;
  message: string;
  /** Seconds until the next attempt. */
  retryInS: number;
}

/** Statistics of the levels in a view; numbers as decimal text, null if a side is empty. */
export interface MarketStats {
  bestBid: string | null;
  bestAsk: string | null;
  spread: string | null;
  /** Of the mid price, 4 decimals. */
  spreadPercent: string | null;
  midPrice: string | null;
  totalBidVolume: string | null;
  totalAskVolume: string | null;
  participatingExchanges: string;
  /** One exchange's best bid is at or above another's best ask. */
  crossed: boolean;
}

/** One price; numbers are decimal text, exactly as the service prints them. */
export interface Level {
  price: string;
  /** The exact sum over the exchanges. */
  amount: string;
  /** The exchanges at this price; empty with `levels: "array"` without `split`. */
  exchanges: string[];
  /** Parallel to `exchanges`; empty without the option `split`. */
  amounts: string[];
  /** With the option `net`: the price of each exchange before its fee; absent with `group`. */
  gross?: string[];
}

/** The cost of buying or selling one size. */
export interface Filled {
  by: "amount" | "notional";
  /** As requested. */
  size: string;
  /** In the base currency. */
  amount: string;
  /** Cost or proceeds of `amount`, in the quote currency. */
  notional: string;
  average: string | null;
  /** The worst price in the fill; with `fees`, after the fee. */
  worst: string | null;
  /** Number of prices needed; only without the option `fees`. */
  levels?: string;
  /** Whether these books hold the whole size; if not, the fill takes all their levels. */
  complete: boolean;
  /** Exchanges whose book is not known as far as `worst` or, if the fill is incomplete, to its end: the real cost may be lower. */
  uncovered: string[];
  /** By exchange, the largest amount first. */
  split: { exchange: string; amount: string; notional: string; fee?: string; limit?: string }[];
  /** Sum of the fees. With the option `fees`, `split` is the best split after fees, respecting lots and minimums. */
  fees?: string;
  /** With `fees`: paid (`notional` + `fees`) or received (`notional` - `fees`). */
  net?: string;
  net_average?: string | null;
  /** With `fees`: the part of the cost caused by lots, minimums and `max_exchanges`. */
  extra?: string;
  /** With `fees`: the amount in the books that lots or minimums do not allow. */
  unplaced?: string;
  /** With `fees`: whether it is the best split within the rules. */
  exact?: boolean;
  /** With `fees`: age of the oldest data among the exchanges of the split, in milliseconds. */
  oldest_ms?: string | null;
  /** With `fees`: exchanges of the split whose lot, minimum amount or minimum notional is unknown; they may refuse the order. */
  unknown_rules?: string[];
}

/** When the prices of one channel were sent and received, in microseconds since 1970. */
export interface LayerTimes {
  /** By the exchange's clock; null if not sent. */
  exchange: number | null;
  /** By the service's clock. */
  received: number;
}

/** Times of one exchange's best price and other levels. */
export interface ExchangeTimes {
  /** Of the best bid and ask. */
  top: LayerTimes;
  /** Of the other levels. */
  depth: LayerTimes;
  /** The service's clock minus the exchange's, in microseconds; null before it was measured. */
  offset: number | null;
  /** Error of `offset`, in microseconds; null: unknown, and `offset` includes the minimum latency of a message. */
  error: number | null;
}

/** A pair of exchanges where one bids more, after both fees, than the other asks; numbers as decimal text. */
export interface Crossing {
  /** What happened since the previous update. One that ended has only the exchanges and `lastedMs`. */
  phase: "began" | "changed" | "lasts" | "ended";
  buy: string;
  sell: string;
  lastedMs: number;
  /** The amount that can be traded at the minimum profit or better. */
  amount?: string;
  /** The highest price to pay, before the fee. */
  buyLimit?: string;
  /** The lowest price to receive, before the fee. */
  sellLimit?: string;
  /** The profit in the quote currency, before fees. */
  gross?: string;
  /** The profit in the quote currency, after fees. */
  profit?: string;
  /** The profit in percent of what is paid, rounded down to 6 decimals. */
  percent?: string;
  buyAgeMs?: number;
  sellAgeMs?: number;
  /** Whether the coin can be moved from `buy` to `sell`; absent while it is unknown for both. */
  transferable?: Transferable;
}

/** Whether a coin can be moved between two exchanges; null is unknown. */
export interface Transferable {
  coin: string;
  /** false: an exchange does not allow it; true: a network of the same name is open on both. */
  possible: boolean | null;
  buy: CoinTransfer | null;
  sell: CoinTransfer | null;
}

/** Deposits and withdrawals of a coin on one exchange; null is unknown. */
export interface CoinTransfer {
  /** The library that read them. */
  via: string;
  readAtMs: number;
  deposit: boolean | null;
  withdraw: boolean | null;
  /** Fees in the coin, as decimal text. */
  networks: { network: string; deposit: boolean | null; withdraw: boolean | null; withdrawFee: string | null }[];
}

/** How some books of a view with the option `quotes` are converted. */
export interface Conversion {
  /** The pair, such as USDC/USDT. */
  symbol: string;
  /** The books that it converts, such as kraken:USDC. */
  members: string[];
  /** Whose books of the pair are used. */
  exchanges: string[];
  /** Whose books of the pair are not live. */
  staleExchanges: string[];
  /** Best price, after the fee with `fees`, and amount, as decimal text; null while it is not live. */
  bid: [string, string] | null;
  ask: [string, string] | null;
  /** Age of the oldest of these books. */
  ageMs: number | null;
  /** Why it is not live; null while it is. */
  reason: string | null;
}

/** The merged book of one symbol, best levels first; empty while it is not live. */
export class View {
  symbol: string;
  /** Your name for a second view of the symbol; null for the unnamed one. */
  view: string | null;
  live: boolean;
  /** Why it is not live. */
  problem: Problem | null;
  /** Best first. */
  bids: Level[];
  /** Best first. */
  asks: Level[];
  /** The highest bid; null if there are no bids. Cheaper than `bids[0]`, which makes the whole side. */
  readonly bestBid: Level | null;
  /** The lowest ask; null if there are no asks. */
  readonly bestAsk: Level | null;
  /** Empty while the view is not live. */
  marketStats: Partial<MarketStats>;
  /** Left out because their book is not live. */
  staleExchanges: string[];
  /** Requested exchanges that are not served, with the reason. */
  rejected: Record<string, string>;
  /** With `fees: "published"`, the fee of each book, in percent, and where it is from; `old` after 180 days. */
  publishedFees: { exchange: string; symbol: string; percent: string; source: "instruments" | "page"; date: string; page?: string; old?: boolean }[];
  /** The last known state of each exchange that changed its state. */
  states: Record<string, "syncing" | "live" | "stale" | "offline">;
  /** Milliseconds by exchange, with the option `ages`. */
  ages: Record<string, number>;
  /** The outermost known prices by exchange, with the option `coverage`; null for a completely known side. */
  coverage: Record<string, { bids: string | null; asks: string | null }>;
  /** The cost of each size, with the option `fill`; numbers as decimal text. */
  fill: { buy?: Filled[]; sell?: Filled[] };
  /** With the option `crossings`: the most profitable first; those that ended come first, once. */
  crossings: Crossing[];
  /** With the option `quotes`: how books in other quotes are converted. */
  conversions: Conversion[];
  /** With the option `times`: microseconds since 1970; null without this option. */
  times: { merged: number; sent: number; exchanges: Record<string, ExchangeTimes> } | null;
  /** ISO 8601, UTC, microseconds; empty after a short update (`on: "best"` with `mode: "delta"`). */
  timestamp: string;
  /** Rises by one with each update of the view. */
  updateNumber: number;
  /** Number of states that the client skipped before this update because it did not read. */
  skipped: number;
  /** Whether the update is one of the service's history: with the option `start`, until the present is reached. */
  past: boolean;
  constructor(symbol: string, view?: string | null);
  /** Apply an update, delta or status, parsed by `parseExact`; false if a resync is needed. */
  apply(message: Record<string, any>): boolean;
  /** Empty the view. */
  lose(problem: Problem | null): void;
  /** The checksum of the current levels, as in a delta. */
  checksum(): number;
  /** A copy that later updates do not change. */
  copy(): View;
}

/** Yielded by `watch`: a live view, or one with the reason why it is not live. */
export type WatchedView = View & ({ live: true; problem: null } | { live: false; problem: Problem });

export interface BookOptions {
  /** Names, "all" (the default), or a list with "all" and "-name" for all but some. */
  exchanges?: string[] | "all";
  /** Your name for a second view of the symbol on the connection, at most 32 characters. */
  view?: string;
  /** Levels per side, 1 to 500; 20 by default. */
  depth?: number;
  /** Minimum milliseconds between two updates, 10 to 60,000, or 0 for immediate updates; 100 by default. */
  intervalMs?: number;
  /** "delta" sends only the levels that changed; a `View` has all levels in both modes. "full" by default. */
  mode?: "full" | "delta";
  /** "array" needs fewer bytes; a `View` is the same, except that levels have exchanges only with `split`. */
  levels?: "object" | "array";
  /** The amount of each exchange at a level. */
  split?: boolean;
  /** Price step for grouping levels; bids round down, asks up. */
  group?: string;
  /** The age of each exchange's data. */
  ages?: boolean;
  /** The price up to which the book of each exchange is known. */
  coverage?: boolean;
  /** Compute the cost of buying and selling these sizes, as decimal text: amounts in the base, notionals in the quote. */
  fill?: {
    amounts?: string[]; notionals?: string[];
    /** With `fees`: the worst price before fees, exchanges to leave out, maximum exchanges of a split. */
    limit?: string; exclude?: string[]; max_exchanges?: number;
  } | null;
  /** Taker fees in percent by exchange as decimal text, "*" for all others; or "key", the API key's fee table; or "published", the base fees that the exchanges state themselves. */
  fees?: Record<string, string> | "key" | "published" | null;
  /** Order levels by price after the fee; needs `fees`. */
  net?: boolean;
  /** Only levels within this many basis points of the mid, as decimal text. */
  within?: string | null;
  /** When the prices of each exchange were sent and received, and the update was merged and sent. */
  times?: boolean;
  /** An update only when the best price of a side or its amount, or a crossing, changes; short with `mode: "delta"`. */
  on?: "best" | "crossing" | null;
  /** With `fees`: exchanges that cross after fees, with at least this profit in percent, as decimal text. */
  crossings?: string | null;
  /** Quote currencies whose books are converted and pooled into the symbol's own quote, at most 8. */
  quotes?: string[] | null;
  /** Form of the updates on the wire: binary (the default, if the service knows it) or JSON. */
  encoding?: "json" | "protobuf";
  /** Begin at this moment of the service's history: ISO 8601, UTC if without a zone, or microseconds since 1970. Not for `orderBook`. */
  start?: string | number;
  /** With `start`: recorded seconds per second, at most 1000; 1 by default, 0 as fast as possible. */
  speed?: number;
}

/** Symbols of `watch`: one, several, or the options of each; a list of options is several views of a symbol. */
export type Symbols = string | Iterable<string> | Record<string, BookOptions | BookOptions[]>;

export interface AsOf {
  /** A moment of the service's history: ISO 8601, UTC if without a zone, or microseconds since 1970. */
  asOf?: string | number;
}

export interface QualityOptions {
  /** ISO 8601, UTC if without a zone, or microseconds since 1970; a day before `end` by default. */
  start?: string | number;
  /** Now by default. */
  end?: string | number;
  /** All by default. */
  exchanges?: string[];
  /** All by default. */
  symbols?: string[];
  /** A row for each of them; `exchange` by default. */
  by?: "exchange" | "symbol" | "hour" | "book";
}

export interface RecordedOptions {
  /** ISO 8601, UTC if without a zone, or microseconds since 1970; a day before `end` by default. */
  start?: string | number;
  /** Now by default; at most 31 days after `start`. */
  end?: string | number;
}

/** A time without a gap. */
export interface RecordedSpan {
  from: string;
  to: string;
}

/** The recorded times of a pair. */
export interface Recorded {
  symbol: string;
  from: string;
  to: string;
  /** The first recorded moment of the whole history, of any pair; null if there is none. */
  first: string | null;
  /** The last recorded moment of the whole history. */
  last: string | null;
  recorded: RecordedSpan[];
  /** By exchange. */
  exchanges: Record<string, RecordedSpan[]>;
}

export interface WatchOptions extends BookOptions {
  /** false: a separate view for each exchange of each symbol, with the exchange's name as `view`; true by default. */
  merged?: boolean;
  /** Consecutive failures before `Unavailable` is thrown; null, the default, for no limit. */
  attemptsMax?: number | null;
  /** Seconds of silence before a connection is closed; 10 by default. A ping is sent after half of this time. */
  silenceMaxS?: number;
  /** Seconds within which a ping must be answered, or the connection is closed; 10 by default. */
  pingTimeoutS?: number;
  /** Ends the iteration. */
  signal?: AbortSignal;
}

export interface ClientOptions {
  /** A constructor like the browser's; needed if there is no global `WebSocket`. */
  WebSocket?: new (url: string) => unknown;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
  /** Maximum attempts of a REST request; 5 by default. */
  attemptsMax?: number;
  /** Replaces `Math.random` for the jitter of retries. */
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
  /** Newest time; now by default. */
  end?: Date | number;
  /** Begin at the oldest time that the exchange keeps or that was collected, instead of at `start`. */
  everything?: boolean;
  /** Records per request, up to 10,000; 1,000 by default. */
  pageRecords?: number;
  testnet?: boolean;
  demo?: boolean;
  /** Add the exchange's own row to each record, as `raw`. */
  includeRaw?: boolean;
  /** Reconcile the records with the account's balances. */
  verify?: boolean;
  /** Read only the service's collected records, or only the exchange; both by default, each event once. */
  source?: "collected" | "exchange";
}

export interface FollowOptions extends Pick<SessionOptions, "attemptsMax" | "silenceMaxS" | "pingTimeoutS"> {
  /** Begin with the history since then; from now on by default. */
  start?: Date | number;
  testnet?: boolean;
  demo?: boolean;
  /** Add the exchange's own row to each record, as `raw`. */
  includeRaw?: boolean;
}

/** A record received by a subscription, or a state of the subscription. */
export interface LiveTransaction {
  /** "history": a record from before the subscription; "updated": a record that was received before has changed. */
  change: "history" | "new" | "updated" | "status";
  /** Such as "kraken:treasury"; the exchange, for its first account. */
  account: string;
  /** Null for a status. */
  record: TransactionRecord | null;
  /** Whether the exchange can be read, and how new records are found; null for a record. */
  status: {
    /** "ended": the credentials now belong to another account; then `Refused` (`account_changed`) is thrown. */
    state: "live" | "interrupted" | "ended";
    reason: string | null;
    /** Unix ms up to which everything was sent. */
    completeTo: number;
    types: { transactionType: string; source: "stream" | "polling"; delayS: number }[];
    /** The types that cannot be followed. */
    errors: TransactionError[];
  } | null;
}

/** An amount of a currency; `amountStr` has every digit. */
export interface Money {
  currency: string;
  amount: number;
  amountStr: string;
}

/** One event of an exchange account; its fields in words: docs/reference/transactions.md. */
export interface TransactionRecord {
  transactionId: string;
  /** Unix ms. */
  timestamp: number;
  label: string;
  sentCurrency?: Money;
  receivedCurrency?: Money;
  fee: Money | null;
  sender: { name: string | null; publicName: string | null; walletId: string | null } | null;
  description: { title: string; desc: string };
  datetime: string;
  updatedAt: number | null;
  exchange: string;
  environment: string;
  type: string;
  unifiedType: string | null;
  kind: string;
  nativeType: string | null;
  status: "pending" | "completed" | "failed" | "cancelled" | "reversed" | "unknown";
  nativeStatus: string | null;
  /** Completed records of "primary" may be summed: they contain each event once. */
  view: "primary" | "summary" | "ledger" | "snapshot";
  /** `name` in answers of several or of named accounts, such as "kraken:treasury". */
  account: { wallet: string | null; uid: string | null; name?: string } | null;
  direction: "in" | "out" | "both" | "none";
  side: string | null;
  asset: string | null;
  amount: string | null;
  instrument: {
    symbol: string;
    category: string;
    contractType: string | null;
    base: string | null;
    quote: string | null;
    settle: string | null;
    expiry: number | null;
  } | null;
  price: string | null;
  quantity: string | null;
  quantityUnit: string | null;
  value: string | null;
  /** Positive is paid, negative is a rebate. */
  fees: { currency: string | null; amount: string; rate: string | null; kind: string; native: string }[];
  position: Record<
    | "sizeAfter" | "closedSize" | "entryPrice" | "exitPrice" | "leverage" | "realisedPnl" | "openFee" | "closeFee"
    | "funding" | "fundingRate" | "markPrice" | "sessionPrice",
    string | null
  > | null;
  balance: Record<
    | "before" | "after" | "change" | "cashFlow" | "total" | "available" | "locked" | "borrowed" | "interest"
    | "unrealisedPnl" | "usdValue",
    string | null
  > | null;
  chain: {
    network: string | null;
    networkNative: string | null;
    txHash: string | null;
    txIndex: string | null;
    blockHash: string | null;
    confirmations: number | null;
    fromAddress: string | null;
    toAddress: string | null;
    tag: string | null;
  } | null;
  transfer: Record<"fromAccount" | "toAccount" | "fromUid" | "toUid", string | null> | null;
  ids: Record<
    "native" | "orderId" | "clientOrderId" | "tradeId" | "txHash" | "transferId" | "sequence" | "blockTradeId",
    string | null
  >;
  related: string[];
  relatedType: string | null;
  incomplete: string[];
  /** The exchange's own row, with the option `includeRaw`. */
  raw?: Record<string, any>;
}

/** Coverage of the requested range, for one type. */
export interface Coverage {
  transactionType: string;
  /** Unix ms from which this page and the earlier ones contain everything; null: nothing. */
  from: number | null;
  to: number;
  complete: boolean;
  /** Why it is incomplete: a code. */
  reason: string | null;
  /** Unix ms before which the exchange keeps nothing; null if no limit is known. */
  floor: number | null;
  /** The part answered from the service's own collection, Unix ms. */
  collected?: { from: number; to: number };
  /** Events of this type that answers never contain, and why. */
  omitted?: string;
  /** In answers of several accounts. */
  account?: string;
}

/** A type that could not be read completely. */
export interface TransactionError {
  transactionType: string;
  error: string;
  message: string;
  exchangeCode: number | string | null;
  retryable: boolean;
  /** In answers of several accounts. */
  account?: string;
}

export interface TransactionPage {
  records: TransactionRecord[];
  coverage: Coverage[];
  errors: TransactionError[];
  partial: boolean;
  nextCursor: string | null;
  summary: { totalCount: number; byType: Record<string, number>; dateRange: Record<string, any> };
  /** Entries of `coverage` that are incomplete although the exchange keeps the records. */
  missing: Coverage[];
  /** Transfers between the accounts, in answers of several accounts; null in others. */
  ownTransfers: OwnTransfers | null;
  /** The result of `verify`; null without it. */
  verification: Verification | null;
}

/** Transfers between accounts of one request; the pairs of all pages are those of one answer. */
export interface OwnTransfers {
  /** Number of pairs decided on this page. */
  count: number;
  /** The first 10,000 of them. */
  pairs: OwnTransfer[];
  /** Number of records whose other side may be on the next page; 0 on the last one. */
  open: number;
  /** Ids of records that were given up because more than 150 were open; usually none. */
  unmatched: string[];
}

/** A withdrawal from one account that is a deposit at another. */
export interface OwnTransfer {
  /** Ids of the two records. */
  withdrawal: string;
  deposit: string;
  fromAccount: string;
  toAccount: string;
  asset: string;
  amount: string;
  /** What proves it: the transaction, the exchange's own id, or the address. */
  evidence: "transaction" | "exchange" | "address";
}

/** Records compared with the exchange's balances. */
export interface Verification {
  /** Whether everything that was compared agrees; null if nothing was compared or a check is open. */
  holds: boolean | null;
  checks: {
    name: string;
    state: "holds" | "broken" | "open" | "not_checked";
    checked: number;
    broken: number;
    open: number;
    breaks: Record<string, any>[];
    reason: string | null;
  }[];
  /** What the exchange's data cannot prove. */
  unproven: { what: string; why: string }[];
  /** The balance of each coin of a wallet over the range. */
  ledger: Record<string, any>[];
  orders: Record<string, any>;
  grades: {
    transactionType: string;
    grade: "proven" | "partly_proven" | "contradicted" | "as_answered";
    why: string | null;
  }[];
  /** In answers of several accounts: the verification of each. */
  accounts?: Record<string, Verification>;
}

export interface Exchanges {
  supportedExchanges: string[];
  activeExchanges: string[];
  totalSupported: number;
  totalActive: number;
  exchangeStatus: Record<string, "active" | "maintenance" | "offline" | "limited">;
  /** Exchanges without a native connector, each with the library that provides its books. */
  via: Record<string, string>;
}

/** The pairs of all exchanges. */
export interface AllPairs {
  exchanges: Record<string, string[]>;
  totalExchanges: number;
  totalPairs: number;
  commonPairs: string[];
}

/** The pairs of one exchange. */
export interface ExchangePairs {
  exchange: string;
  pairs: string[];
  totalPairs: number;
  categories: Record<string, string[]>;
}

export interface Health {
  status: "healthy" | "degraded" | "draining";
  unifiedApi: "operational" | "unavailable";
  availableExchanges: string[];
  supportedExchanges: number;
  timestamp: string;
  websocketEndpoint: string;
  activeExchanges: number;
  version: string;
}

/** Whether an exchange accepts the operator's credentials. */
export interface CredentialsCheck {
  success: boolean;
  message: string;
  exchange: string;
  error?: string;
  credentialsSource?: string;
  accountInfo?: Record<string, any>;
}

/** The handlers of a session; an error thrown by one ends `run`. */
export interface SessionOptions {
  /** Consecutive failures before `Unavailable` is thrown; null, the default, for no limit. */
  attemptsMax?: number | null;
  /** Seconds of silence before a connection is closed; 10 by default. A ping is sent after half of this time. */
  silenceMaxS?: number;
  /** Seconds within which a ping must be answered, or the connection is closed; 10 by default. */
  pingTimeoutS?: number;
  /** Ends `run`. */
  signal?: AbortSignal;
  state?: (state: { name: "connecting" | "live" | "waiting"; problem: Problem | null }) => void;
  /** A view changed: by a message or, with null, because it is no longer live. It is not a copy. */
  view?: (view: View, message: Record<string, any> | null) => void;
  /** The last subscribe was accepted; the reply is as on the wire. */
  accepted?: (view: View, reply: Record<string, any>) => void;
  /** The previous subscription remains. */
  refused?: (view: View, error: Refused) => void;
  /** Any other message, such as `data_limit_warning` or `history_end`. */
  notice?: (message: DataLimitWarning | Record<string, any>) => void;
}

/** 80 % of the monthly allowance is used up, or all of it. */
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

/** Books of several symbols over one connection, across reconnects; the subscriptions may change. */
export class Session {
  /** Characters of all messages so far. */
  readonly receivedCharacters: number;
  /** Connect, and reconnect, until `stop`; throws errors that end the session permanently. */
  run(): Promise<void>;
  stop(): void;
  /** Milliseconds since the last message; 0 without a connection. */
  readonly silentMs: number;
  /** Add a symbol or another `view` of it, or change exchanges and options of a subscribed one. */
  subscribe(symbol: string, options?: BookOptions): View;
  /** End a subscription. */
  unsubscribe(symbol: string, view?: string | null): void;
  has(symbol: string, view?: string | null): boolean;
  /** Send one message and return its reply, both as on the wire; repeated if the connection ends first. */
  ask(message: Record<string, any>): Promise<Record<string, any>>;
  /** Request the merged book of one symbol once; absent options are those of its subscription. */
  orderBook(symbol: string, options?: BookOptions & AsOf): Promise<View>;
  /** List the exchanges and the state of their feeds. */
  exchanges(): Promise<Exchanges>;
  /** List the pairs of all exchanges. */
  pairs(): Promise<AllPairs>;
  /** List the pairs of one exchange. */
  pairs(exchange: string): Promise<ExchangePairs>;
  /** Return the round trip in milliseconds; without an answer within `pingTimeoutS` the connection is closed. */
  ping(): Promise<number>;
}

/** A client of one service. Every error is a `ServiceError` with the service's code. */
export class Onebook {
  constructor(url: string, apiKey: string, options?: ClientOptions);
  /** Iterate over the newest view of each symbol, across reconnects; leaving the loop closes the connection. */
  watch(symbols: Symbols, options?: WatchOptions): AsyncGenerator<WatchedView, void, void>;
  /** Return a connection without subscriptions. */
  session(options?: SessionOptions): Session;
  /** Request the merged book of one symbol once. */
  orderBook(symbol: string, options?: BookOptions & AsOf): Promise<View>;
  /** List the exchanges and the state of their feeds. */
  exchanges(): Promise<Exchanges>;
  /** List the pairs of all exchanges. */
  pairs(): Promise<AllPairs>;
  /** List the pairs of one exchange. */
  pairs(exchange: string): Promise<ExchangePairs>;
  /** Return usage and allowance of the key. */
  usage(): Promise<KeyUsage>;
  /** Return the key's taker fees in percent by exchange; "*": all others. */
  fees(): Promise<Record<string, string>>;
  /** Replace the key's whole fee table; subscriptions keep the fees they were opened with. */
  changeFees(fees: Record<string, string>): Promise<Record<string, string>>;
  /** The recorded quality of exchanges: uptime, failures, ages and crossings; throws `Unavailable` without a history. */
  quality(options?: QualityOptions): Promise<Record<string, unknown>>;
  /** When books of a pair were recorded, and by which exchanges; throws `Unavailable` without a history. */
  recorded(symbol: string, options?: RecordedOptions): Promise<Recorded>;
  /** Return the health of the service. */
  health(): Promise<Health>;
  /** Verify the operator's credentials with the exchange. */
  validateCredentials(exchange: string, options?: { testnet?: boolean; demo?: boolean }): Promise<CredentialsCheck>;
  /** Iterate over the records of an exchange account, newest first; throws `Refused` at the end if some are missing, unless `partialAllowed`. */
  transactions(
    exchange: string | string[],
    types?: string[] | string,
    options?: TransactionOptions & { partialAllowed?: boolean },
  ): AsyncGenerator<TransactionRecord, void, void>;
  /** Iterate over transactions page by page, with coverage and errors. */
  transactionPages(
    exchange: string | string[],
    types?: string[] | string,
    options?: TransactionOptions,
  ): AsyncGenerator<TransactionPage, void, void>;
  /** Iterate over new and changed records as they happen, across reconnects; a record is repeated only if it changes. */
  followTransactions(
    exchange: string | string[],
    types?: string[] | string,
    options?: FollowOptions,
  ): AsyncGenerator<LiveTransaction, void, void>;
}

/** The fields of a binary update (`onebook.proto`) by their names there. */
export function updateOf(frame: ArrayBuffer): Record<string, unknown>;

/** Turns the binary updates of one subscription into messages that `View.apply` takes. */
export class PackedReader {
  /** @param table the `exchanges` of the reply to the subscription  @param about members of each message */
  constructor(table: string[], about: object);
  message(update: Record<string, unknown>): object;
}

export function crc32(text: string): number;
export function compareDecimals(left: string, right: string): number;
export function parseExact(text: string): any;
export function pauseS(code: number, attempt: number, givenS?: number | null, random?: () => number): number;
