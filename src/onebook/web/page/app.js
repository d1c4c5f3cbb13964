// The first page: a key and a choice become a subscription; what comes back is shown as it is.

import { Rate, readBook } from "./book.js";
import { Connection } from "./connection.js";
import { Depth } from "./depth.js";
import { age, ago, groupSteps } from "./format.js";
import { Ladder } from "./ladder.js";
import { Members } from "./members.js";
import { code, dress } from "./palette.js";

const LEVELS = 25;
const INTERVAL_MS = 200; // five books a second: what an eye can follow
const RATE_WINDOW_MS = 5_000;
const OLD_MS = 3_000; // a book without an update for so long is dimmed, with its age
const FIND_FROM = 10; // exchanges: fewer are seen at a glance
const KEY_SLOT = "onebook.key";
const WS_URL = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/ws`;

const at = (id) => document.getElementById(id);
const ladder = new Ladder(at("asks"), at("bids"));
const depth = new Depth(at("depth"));
const members = new Members(document.querySelector("#members tbody"), at("members-sum"));
const rate = new Rate(RATE_WINDOW_MS);

let connection = null;
let symbol = "BTC/USDT";
let subscribed = ""; // the symbol whose books we show; others that still arrive are passed over
let held = ""; // what this connection is subscribed to
let asked = 0; // the id of the last subscribe
const requests = new Map(); // symbols of subscribes without an answer, by id
let book = null;
let left = [];
let updatedAt = 0;
let characters = 0;
let drawing = false;
let linked = false;
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

/** Ask for a symbol. The one that is shown stays subscribed until the new one is accepted. */
function subscribe(wanted = symbol) {
  const boxes = [...document.querySelectorAll("#exchanges input")];
  const ticked = boxes.filter((box) => box.checked).map((box) => box.value);
  if (boxes.length && !ticked.length) return leaveNone();
  asked += 1;
  requests.set(asked, wanted);
  const message = {
    type: "subscribe_aggregated",
    id: asked,
    symbol: wanted,
    exchanges: ticked.length < boxes.length ? ticked : "all",
    depth: LEVELS,
    interval_ms: INTERVAL_MS,
    levels: "array",
    split: true,
  };
  if (at("group").value && wanted === subscribed) message.group = at("group").value;
  connection.send(message);
}

/** No exchange is ticked: nothing is subscribed and nothing is shown as live. */
function leaveNone() {
  asked += 1;
  requests.clear();
  if (subscribed) connection.send({ type: "unsubscribe_aggregated", symbol: subscribed });
  symbol = subscribed || symbol;
  subscribed = held = "";
  newBook("choose at least one exchange");
  members.begin([], []);
  notice("Choose at least one exchange.");
}

/** Whether a message answers the last subscribe; answers to earlier ones are passed over. */
function isLast(message) {
  const wanted = requests.get(message.id);
  requests.delete(message.id);
  return message.id === asked && wanted !== undefined;
}

// What comes in

const handlers = {
  aggregated_subscription_response(message) {
    const wanted = requests.get(message.id);
    if (!isLast(message)) {
      // An older choice was accepted after a newer one was made: it is not shown, so not kept.
      if (wanted !== subscribed && wanted !== symbol) {
        connection.send({ type: "unsubscribe_aggregated", symbol: message.symbol });
      }
      return;
    }
    const before = subscribed;
    symbol = subscribed = held = message.symbol;
    at("symbol").value = symbol;
    if (before !== subscribed) {
      if (before) connection.send({ type: "unsubscribe_aggregated", symbol: before });
      newBook();
    }
    members.begin(message.exchanges, message.rejected ?? []);
    notice("");
  },
  aggregated_orderbook_update(message) {
    if (message.symbol !== subscribed) return;
    book = readBook(message.data);
    left = message.data.stale_exchanges;
    updatedAt = performance.now();
    rate.add(updatedAt);
    showAge();
    draw();
  },
  exchange_status(message) {
    if (message.symbol !== subscribed) return;
    members.status(message.exchange, message.state, message.detail || message.reason);
  },
  exchanges_data: (message) => showExchanges(message.data.supported_exchanges),
  pairs_data: (message) => showPairs(message.data),
  pong(message) {
    at("latency").textContent = (performance.now() - message.client_time).toFixed(1);
  },
  error: refused,
  subscription_error: refused,
  authentication_error: (message) => notice(message.message),
  rate_limit_warning: (message) => notice(message.message),
  data_limit_warning: (message) => notice(message.message),
  data_limit_exceeded: (message) => notice(message.message),
};

/** Something was refused; where it is the last subscribe, what was shown before stays. */
function refused(message) {
  const wanted = requests.get(message.id);
  if (wanted !== undefined && !isLast(message)) return;
  const kept = wanted !== undefined && subscribed && wanted !== subscribed;
  if (kept) {
    symbol = at("symbol").value = subscribed;
    if (!held) subscribe(); // the connection is a new one
  }
  notice(message.message + (kept ? ` Still showing ${subscribed}.` : ""), message.suggested_symbols);
}

function received(message, length) {
  characters += length;
  handlers[message.type]?.(message);
}

function newBook(text = "waiting for the first book") {
  book = null;
  updatedAt = 0;
  left = [];
  ladder.clear();
  depth.clear();
  for (const id of ["best-bid", "best-ask"]) at(id).textContent = "—";
  at("crossed").hidden = true;
  showAge();
  at("group").replaceChildren(new Option("exact", ""));
  at("title-symbol").textContent = symbol;
  at("mid").textContent = "—";
  at("spread").textContent = text;
}

// What is shown

function showLink(state, text, seconds) {
  at("link").dataset.state = state;
  if (at("link-text").textContent !== text) at("link-text").textContent = text;
  at("link-wait").textContent = seconds === undefined ? "" : `Trying again in ${seconds} s`;
  const inside = ["connecting", "live", "waiting"].includes(state);
  const focused = document.activeElement;
  at("key-form").hidden = inside;
  at("choice").hidden = at("market").hidden = !inside;
  // The focus goes with the form that is hidden; without this it would fall back to the page.
  if (inside && at("key-form").contains(focused)) at("symbol").focus();
  if (!inside && at("choice").contains(focused)) at("key").focus();
  linked = state === "live";
  if (!linked) {
    held = "";
    requests.clear();
    members.lost();
  }
  showAge();
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

/** A book is shown at full brightness only while updates come; else dimmed, with its age. */
function showAge() {
  const ageMs = performance.now() - updatedAt;
  const live = linked && updatedAt > 0 && ageMs < OLD_MS;
  at("market").dataset.live = live ? "yes" : "no";
  at("old").hidden = live || !updatedAt;
  at("old").textContent = `No update for ${age(ageMs)}`;
}

function showFigures() {
  const now = performance.now();
  showAge();
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
    dress(input, name);
    label.title = code(name);
    label.append(input, name);
    box.append(label);
  }
  at("find-tools").hidden = names.length < FIND_FROM;
  showTicked();
}

function showTicked() {
  const boxes = [...document.querySelectorAll("#exchanges input")];
  at("ticked").textContent = `${boxes.filter((box) => box.checked).length} of ${boxes.length}`;
}

/** Show the exchanges whose name contains what was typed; the choice stays as it is. */
function find() {
  const wanted = at("find").value.trim().toLowerCase();
  for (const label of at("exchanges").children) label.hidden = !label.textContent.includes(wanted);
  members.filter(wanted);
}

/** Tick or clear every exchange that is shown. */
function tick(checked) {
  for (const label of at("exchanges").children) {
    if (!label.hidden) label.firstChild.checked = checked;
  }
  showTicked();
  subscribe();
}

function showPairs({ exchanges = {} }) {
  const names = [...new Set(Object.values(exchanges).flat())].sort();
  at("symbols").replaceChildren(...names.map((name) => new Option(name, name)));
}

function choose(name) {
  symbol = at("symbol").value = name.trim().toUpperCase();
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
at("group").addEventListener("change", () => subscribe());
at("exchanges").addEventListener("change", () => {
  showTicked();
  subscribe();
});
at("find").addEventListener("input", find);
at("tick-all").addEventListener("click", () => tick(true));
at("tick-none").addEventListener("click", () => tick(false));
at("rows").addEventListener("change", draw);
at("leave").addEventListener("click", () => {
  forgetKey();
  connection?.leave();
});

at("rows").value = matchMedia("(max-width: 34rem)").matches ? "8" : "12";
setInterval(showFigures, 500);
begin();
