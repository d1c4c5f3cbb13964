// The first page: a key and a choice become a subscription; what comes back is shown as it is.

import { Rate, readBook } from "./book.js";
import { Connection } from "./connection.js";
import { Depth } from "./depth.js";
import { ago, groupSteps } from "./format.js";
import { Ladder } from "./ladder.js";
import { Members } from "./members.js";
import { hue } from "./palette.js";

const LEVELS = 25;
const INTERVAL_MS = 200; // five books a second: what an eye can follow
const RATE_WINDOW_MS = 5_000;
const KEY_SLOT = "onebook.key";
const WS_URL = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/ws`;

const at = (id) => document.getElementById(id);
const ladder = new Ladder(at("asks"), at("bids"));
const depth = new Depth(at("depth"));
const members = new Members(document.querySelector("#members tbody"));
const rate = new Rate(RATE_WINDOW_MS);

let connection = null;
let symbol = "BTC/USDT";
let subscribed = ""; // the symbol whose books we show; others that still arrive are passed over
let book = null;
let left = [];
let updatedAt = 0;
let characters = 0;
let drawing = false;
let askedPairs = false;

// Connecting

function connect(key) {
  connection?.leave();
  characters = 0;
  connection = new Connection(WS_URL, key, { state: showLink, open: opened, message: received });
  connection.open();
}

function opened() {
  connection.send({ type: "get_exchanges" });
  connection.ping();
  subscribe();
}

function subscribe() {
  const unticked = document.querySelectorAll("#exchanges input:not(:checked)").length;
  const ticked = [...document.querySelectorAll("#exchanges input:checked")].map((box) => box.value);
  const message = {
    type: "subscribe_aggregated",
    symbol,
    exchanges: unticked && ticked.length ? ticked : "all",
    depth: LEVELS,
    interval_ms: INTERVAL_MS,
    levels: "array",
    split: true,
  };
  if (at("group").value) message.group = at("group").value;
  if (subscribed && subscribed !== symbol) {
    connection.send({ type: "unsubscribe_aggregated", symbol: subscribed });
  }
  connection.send(message);
}

// What comes in

const handlers = {
  aggregated_subscription_response(message) {
    if (message.symbol !== symbol) return;
    if (subscribed !== symbol) newBook();
    subscribed = symbol;
    members.begin(message.exchanges, message.rejected ?? []);
    notice("");
  },
  aggregated_orderbook_update(message) {
    if (message.symbol !== subscribed) return;
    book = readBook(message.data);
    left = message.data.stale_exchanges;
    updatedAt = performance.now();
    rate.add(updatedAt);
    at("market").dataset.live = "yes";
    draw();
  },
  exchange_status(message) {
    if (message.symbol === subscribed) members.status(message.exchange, message.state, message.reason);
  },
  exchanges_data: (message) => showExchanges(message.data.supported_exchanges),
  pairs_data: (message) => showPairs(message.data),
  pong(message) {
    at("latency").textContent = (performance.now() - message.client_time).toFixed(1);
  },
  error: (message) => notice(message.message),
  authentication_error: (message) => notice(message.message),
  subscription_error: (message) => notice(message.message, message.suggested_symbols),
  rate_limit_warning: (message) => notice(message.message),
  data_limit_warning: (message) => notice(message.message),
  data_limit_exceeded: (message) => notice(message.message),
  server_shutdown: (message) => notice(message.message),
};

function received(message, length) {
  characters += length;
  handlers[message.type]?.(message);
}

function newBook() {
  book = null;
  ladder.clear();
  at("group").replaceChildren(new Option("exact", ""));
  at("title-symbol").textContent = symbol;
  at("mid").textContent = "—";
  at("spread").textContent = "waiting for the first book";
}

// What is shown

function showLink(state, text) {
  at("link").dataset.state = state;
  at("link-text").textContent = text;
  const inside = ["connecting", "live", "waiting"].includes(state);
  at("key-form").hidden = inside;
  at("choice").hidden = at("market").hidden = !inside;
  if (state !== "live") at("market").dataset.live = "no";
  if (state === "connecting" && !book) notice("");
  if (state === "live") notice("");
  if (state === "stopped") forgetKey();
}

function notice(text, symbols = []) {
  const buttons = symbols.map((name) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
    button.className = "quiet";
    button.addEventListener("click", () => choose(name));
    return button;
  });
  at("notice").replaceChildren(text, ...buttons);
  at("notice").hidden = !text;
}

/** At most one drawing a frame, however fast books come. */
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (book) showBook();
  });
}

function showBook() {
  const { stats } = book;
  ladder.show(book, Number(at("rows").value));
  depth.show(book);
  members.show(book, left);
  at("mid").textContent = ladder.price(stats.mid_price, 1);
  at("best-bid").textContent = ladder.price(stats.best_bid);
  at("best-ask").textContent = ladder.price(stats.best_ask);
  at("spread").textContent = spreadText(stats);
  at("crossed").hidden = !stats.crossed;
  if (at("group").length === 1) {
    at("group").append(...groupSteps(stats.mid_price).map((step) => new Option(step, step)));
  }
}

function spreadText({ spread, spread_percent: percent }) {
  if (spread == null) return "one side is empty";
  return `spread ${ladder.price(spread)} (${percent.toFixed(4)} %)`;
}

function showFigures() {
  const now = performance.now();
  at("rate").textContent = rate.perSecond(now).toFixed(1);
  at("received").textContent = (characters / 1e6).toFixed(2);
  at("age").textContent = updatedAt ? ago(now - updatedAt) : "—";
}

function showExchanges(names) {
  const box = at("exchanges");
  if (box.childElementCount) return;
  for (const name of names) {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type: "checkbox", value: name, checked: true });
    label.style.setProperty("--hue", hue(name));
    label.append(input, name);
    box.append(label);
  }
}

function showPairs({ exchanges = {} }) {
  const names = [...new Set(Object.values(exchanges).flat())].sort();
  at("symbols").replaceChildren(...names.map((name) => new Option(name, name)));
}

function choose(name) {
  symbol = name.trim().toUpperCase();
  at("symbol").value = symbol;
  at("group").value = "";
  subscribe();
}

// The key: in this tab only. `#key=` lets `onebook demo` open the page ready to go.

function forgetKey() {
  try { sessionStorage.removeItem(KEY_SLOT); } catch { /* storage is off */ }
}

function keep(key) {
  try { sessionStorage.setItem(KEY_SLOT, key); } catch { /* storage is off */ }
  connect(key);
}

function begin() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has("symbol")) symbol = at("symbol").value = given.get("symbol").toUpperCase();
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  let key = given.get("key");
  try { key ??= sessionStorage.getItem(KEY_SLOT); } catch { /* storage is off */ }
  if (key) keep(key);
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keep(at("key").value.trim());
  at("key").value = "";
});
at("choice").addEventListener("submit", (event) => event.preventDefault());
at("symbol").addEventListener("change", () => choose(at("symbol").value));
at("symbol").addEventListener("focus", () => {
  if (!askedPairs) connection?.send({ type: "get_pairs" });
  askedPairs = true;
});
at("group").addEventListener("change", subscribe);
at("exchanges").addEventListener("change", subscribe);
at("rows").addEventListener("change", draw);
at("leave").addEventListener("click", () => {
  forgetKey();
  connection?.leave();
});

at("rows").value = matchMedia("(max-width: 34rem)").matches ? "8" : "12";
setInterval(showFigures, 500);
begin();
