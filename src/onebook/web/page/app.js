// The main page: converts a key and the user's choices to subscriptions, and shows the updates unchanged.

import { Onebook } from "../client/onebook.js";
import { Alerts } from "./alerts.js";
import { Choice } from "./choice.js";
import { Lateness, now } from "./clock.js";
import { Drawer } from "./drawer.js";
import { Fees } from "./fees.js";
import { age } from "./format.js";
import { Panel } from "./panel.js";
import { Rest } from "./rest.js";
import { listed } from "./search.js";
import { panelOf, PANELS_MAX, RATES, readState, ROWS, writeState } from "./state.js";
import { Usage } from "./usage.js";

const AGES_EVERY_MS = 200;
const FIGURES_EVERY_MS = 500;
const HIDDEN_AFTER_MS = 10_000; // a tab hidden for longer gets few updates
const HIDDEN_INTERVAL_MS = 60_000; // the maximum of the service
const HIDDEN_WATCHED_MS = 1_000; // interval of a symbol with an alert
const INSIDE = ["inside", "bars", "add", "settings", "panels"]; // elements shown during a session
const KEY_SLOT = "onebook.key";
const LATE_MS = 1_000; // a ping checks longer delays
const LATE_PING_EVERY_MS = 2_000;
const WARNINGS = ["rate_limit_warning", "data_limit_warning"];
const NARROW = "(max-width: 34rem)"; // as in book.css
const PING_EVERY_MS = 30_000;
const PING_AFTER_MS = 1_000; // silence before a ping: an open socket does not prove that the connection works
const ROW_PX = 20; // height of a ladder row, as in panel.css
const ROOM_PX = 222; // space above and below the levels
const [ROWS_MIN, ROWS_USUAL_MAX] = [12, 22]; // unless the user chooses
const SILENT_MS = 2_000; // if a connection delivers nothing for this time, no price is shown as live
const TIMES = { depth: 1, times: true, ages: false, coverage: false, split: false, fill: null }; // of a request
const USUAL = ["BTC/USDT", "ETH/USDT", "SOL/USDT", "DOGE/USDT", "BTC/USD", "ETH/USD"];

const at = (id) => document.getElementById(id);
const state = readState(location.hash, { rows: rowsOfScreen() });
const fees = new Fees(at, {
  published: state.published,
  changed: () => panels.forEach((panel) => panel.feesChanged()),
  chosen: (published) => ((state.published = published), site.changed()),
  symbols: () => panels.map((panel) => panel.wanted.symbol),
});
const usage = new Usage(at);
const drawer = new Drawer(at);
const choice = new Choice(at, {
  chosen: state.exchanges,
  changed: (names) => ((state.exchanges = names), changed()),
  found: (text) => panels.forEach((panel) => panel.members.filter(text)),
  recoloured: () => panels.forEach((panel) => panel.recolour()),
});

const alerts = new Alerts(document.querySelector("#alerts .alerts"), {
  symbol: () => panels[0].wanted.symbol,
  notice: (text) => notice(text),
});

let session = null;
let rest = null; // with the key of the session
let link = "idle"; // the state of the session
let lateness = new Lateness(); // delay of this connection's updates
let measuring = false;
let measuredAt = -Infinity;
let retryAtMs = null; // time of the next connection attempt
let panels = [];
let counts = new Map(); // number of exchanges by symbol
let askedPairs = false;
let noticeOf = null; // panel of the notice; the service for its warnings
let ignored = ""; // message about invalid symbols in the address, until the next choice
let hidden = false; // whether the tab has been hidden for a while
let hiding = 0; // the timer

// Connecting

function connect(key) {
  session?.stop();
  const client = new Onebook(location.origin, key);
  usage.client = fees.client = client;
  rest = new Rest(key);
  const mine = (session = client.session({
    state: showState,
    view: shown,
    accepted: (view, reply) => {
      fees.heard(view.symbol, reply);
      if (view.view) partOf(view).part?.accepted(reply);
      else asker(view)?.accepted(view, reply);
    },
    refused: (view, error) => (partOf(view).part ?? asker(view))?.refused(error),
    notice: warned,
  }));
  for (const panel of panels) panel.subscribe();
  const ended = (name, text) => mine === session && ((session = null), showLink(name, text));
  mine.run().then(() => ended("idle", "Not connected"), (error) => ended("stopped", error.message));
}

function leave() {
  forgetKey();
  session?.stop();
}

const asker = (view) => panels.find((panel) => panel.asksFor(view));

/** The card that has subscribed to a view, and its panel; neither if the view is that of a panel. */
function partOf(view) {
  const panel = panels.find(({ parts }) => parts.some((part) => part.shows(view)));
  return { panel, part: panel?.parts.find((part) => part.shows(view)) };
}

/** A view has changed, by a message or because it is no longer live. */
function shown(view, message) {
  if (view.view) return view.live && message?.type !== "exchange_status" && showPart(view);
  const panel = panels.find((each) => each.shows(view));
  if (message?.type === "exchange_status") panel?.status(message);
  else if (view.live) showUpdate(view, panel);
  // A gap needs no notice: the shown book was complete, and the next one arrives immediately.
  else if (link === "live" && view.problem?.retryInS) notice(view.problem.message, [], panel ?? asker(view));
}

function showPart(view) {
  const { panel, part } = partOf(view);
  panel?.updatePart(part, view, view.past ? 0 : lateness.ageOf(view.timestamp));
}

function showUpdate(view, panel) {
  const lateMs = view.past ? 0 : lateness.of(view.timestamp);
  panel?.update(view, lateMs);
  if (lateMs >= LATE_MS && now() - measuredAt >= LATE_PING_EVERY_MS) measure();
}

function warned({ type, message, symbol, view }) {
  if (type === "history_end" && view == null) panels.find((panel) => panel.subscribed === symbol)?.reachedPresent();
  if (WARNINGS.includes(type)) notice(message, [], session);
}

function showState({ name, problem }) {
  if (name === "connecting") {
    lateness = new Lateness();
    showLink(name, "Connecting");
  } else if (name === "waiting") showLink(name, problem.message, problem.retryInS);
  else {
    showLink(name, "Connected");
    measure();
    fees.load();
    session.exchanges().then(({ supportedExchanges: names }) => (choice.list(names), fees.list(names)), () => {});
  }
}

/** Measure the round trip, which also detects a dead connection; without an answer the last value stays. */
async function measure() {
  if (!session || measuring) return;
  measuring = true;
  const [asked, askedMs] = [lateness, Date.now()];
  try {
    at("latency").textContent = (await session.ping()).toFixed(1);
    asked.answered(askedMs);
  } catch {
    // the connection has ended, which the page already shows
  }
  measuring = false;
  measuredAt = now();
}

function showLink(name, text, retryInS = null) {
  link = name;
  sayLink(link, text);
  retryAtMs = retryInS === null ? null : performance.now() + retryInS * 1_000;
  showWait();
  const inside = ["connecting", "live", "waiting"].includes(link);
  const focused = document.activeElement;
  const entered = inside && at("panels").hidden;
  at("key-form").hidden = inside;
  if (!inside) delete document.documentElement.dataset.entering; // set by theme.js
  const lost = INSIDE.some((id) => at(id).contains(focused)) || drawer.contains(focused);
  for (const id of INSIDE) at(id).hidden = !inside;
  if (entered) drawer.restore();
  if (!inside) drawer.hide();
  // Hiding the form would move the focus to the page.
  if (inside && at("key-form").contains(focused)) panels[0].find(".symbol").focus();
  if (!inside && lost) at("key").focus();
  if (link === "live" || (link === "connecting" && !panels.some((panel) => panel.hasBook))) notice("");
  for (const panel of panels) panel.linked = link === "live";
  if (link === "stopped") forgetKey();
}

function sayLink(name, text) {
  at("link").dataset.state = name;
  if (at("link-text").textContent !== text) at("link-text").textContent = text;
}

/** Mark what is old, at least twice a second: an open but silent connection does not count as live. */
function showAges() {
  if (document.hidden) return;
  if (link === "live") {
    const { silentMs } = session;
    const silent = silentMs >= SILENT_MS;
    if (silentMs >= PING_AFTER_MS) measure();
    sayLink(silent ? "silent" : "live", silent ? `No answer for ${age(silentMs)}` : "Connected");
    for (const panel of panels) panel.answering = !silent;
  }
  for (const panel of panels) panel.showAge();
}

function showWait() {
  const leftS = retryAtMs === null ? null : Math.max(0, Math.ceil((retryAtMs - performance.now()) / 1_000));
  at("link-wait").textContent = leftS === null ? "" : `Retrying in ${leftS} s`;
}

function notice(text, symbols = [], about = null) {
  const buttons = symbols.map((name) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
    button.className = "quiet";
    button.addEventListener("click", () => {
      const panel = about ?? panels[0];
      panel.choose(name);
      panel.find(".symbol").focus(); // the button is hidden with the notice
    });
    return button;
  });
  noticeOf = about;
  at("notice").replaceChildren(text || ignored, ...buttons);
  at("notice").hidden = !(text || ignored);
}

// Panels: one per symbol, side by side

const site = {
  subscribe: (symbol, options) => session?.subscribe(symbol, options) ?? null,
  unsubscribe: (symbol, view) => session?.unsubscribe(symbol, view),
  ask: (message) => session?.ask(message) ?? Promise.reject(new Error("Not connected.")),
  recorded: (symbol, fromMs, toMs) => rest.get(`/history/${symbol}`, { from: String(fromMs * 1_000), to: String(toMs * 1_000) }),
  times: (symbol) => session?.orderBook(symbol, TIMES),
  has: (symbol) => session?.has(symbol) ?? false,
  options: (symbol) => ({ exchanges: chosen(), depth: state.rows, intervalMs: intervalOf(symbol) }),
  watches: (symbol) => alerts.watches(symbol),
  check: (symbol, facts, nowMs) => alerts.check(symbol, facts, nowMs),
  fees,
  counts: () => counts,
  readPairs() {
    if (askedPairs || !session) return;
    askedPairs = true;
    session.pairs().then(showPairs, () => (askedPairs = false));
  },
  notice,
  /** Called when a panel shows what it requested; notices about other panels or the key stay. */
  settled: (panel) => (noticeOf === null || noticeOf === panel) && notice(""),
  changed() {
    ignored = "";
    keepState();
  },
  taken: (symbol, panel) => panels.some((each) => each !== panel && each.wanted.symbol === symbol),
  remove(panel) {
    panel.leave();
    panel.element.remove();
    panel.bar.remove();
    panels = panels.filter((each) => each !== panel);
    showPanels();
    panels[0].find(".symbol").focus();
  },
};

function intervalOf(symbol) {
  if (!hidden) return 1_000 / state.rate;
  return alerts.watches(symbol) ? HIDDEN_WATCHED_MS : HIDDEN_INTERVAL_MS;
}

function addPanel(wanted) {
  const panel = new Panel(at("panel"), wanted, site);
  panels.push(panel);
  at("panels").append(panel.element);
  at("bars").append(panel.bar);
  showPanels();
  return panel;
}

function showPanels() {
  at("panels").dataset.count = panels.length;
  at("add").disabled = panels.length >= PANELS_MAX;
  for (const panel of panels) panel.find(".remove").hidden = panels.length === 1;
  if (panels.length) keepState();
}

/** Show one more symbol, the first usual one that is not shown yet, ready to be replaced. */
function addNext() {
  const names = [...USUAL.filter((name) => !counts.size || counts.has(name)), ...counts.keys()];
  const symbol = names.find((name) => !site.taken(name, null));
  if (!symbol) return notice("All listed symbols are shown.");
  const panel = addPanel(panelOf(symbol));
  panel.subscribe();
  panel.linked = link === "live";
  panel.find(".symbol").focus();
}

function keepState() {
  const fragment = writeState({ ...state, panels: panels.map((panel) => panel.wanted) });
  history.replaceState(null, "", location.pathname + location.search + fragment);
  at("address").value = location.href;
  at("copied").textContent = "The link does not contain the key.";
}

async function copyAddress() {
  at("address").select();
  try {
    await navigator.clipboard.writeText(at("address").value);
    at("copied").textContent = "Copied. The link does not contain the key.";
  } catch {
    at("copied").textContent = "The link is selected: copy it with the keyboard."; // the page may not copy
  }
}

/** The exchanges to subscribe to: the ticked ones, or those in the address until the list has arrived. */
function chosen() {
  return state.exchanges ?? "all";
}

/** An option of all panels has changed. */
function changed() {
  site.changed();
  for (const panel of panels) panel.subscribe();
}

/** Number of levels that fit this screen. */
function rowsOfScreen() {
  if (matchMedia(NARROW).matches) return ROWS[0];
  const room = (innerHeight - ROOM_PX) / (2 * ROW_PX);
  return ROWS.findLast((rows) => rows === ROWS_MIN || (rows <= ROWS_USUAL_MAX && rows <= room));
}

/** After a resize: as many levels as fit, unless the user chose their number. */
function fit() {
  const before = state.rowsUsual;
  state.rowsUsual = rowsOfScreen();
  if (state.rows !== before || state.rowsUsual === before) return;
  at("rows").value = state.rows = state.rowsUsual;
  for (const panel of panels) panel.draw();
  keepState();
}

function showPairs(data) {
  counts = listed(data);
  for (const panel of panels) {
    if (document.activeElement === panel.find(".symbol")) panel.search.show();
    panel.prices.offer();
  }
}

/** Update what changes with time alone, while it is visible. */
function showFigures() {
  if (document.hidden) return;
  const nowMs = now();
  for (const panel of panels) panel.showFigures(nowMs);
  showWait();
  if (session) at("received").textContent = (session.receivedCharacters / 1e6).toFixed(2);
}

/** Receive books slowly while the tab is hidden, because invisible updates would use up the allowance. */
function hide(away) {
  if (hidden === away) return;
  hidden = away;
  for (const panel of panels) panel.follow();
}

function seen() {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(hide, HIDDEN_AFTER_MS, true);
  else {
    hide(false);
    showAges();
    showFigures();
    measure(); // detects a connection that died while the computer slept
  }
}

// The key is kept only in this tab. `onebook demo` passes one in `#key=`.

function forgetKey() {
  usage.client = fees.client = rest = null;
  try { sessionStorage.removeItem(KEY_SLOT); } catch { /* storage is off */ }
}

function keep(key) {
  try { sessionStorage.setItem(KEY_SLOT, key); } catch { /* storage is off */ }
  connect(key);
}

function begin() {
  let { key } = state;
  delete state.key;
  for (const [id, values, value] of [["rows", ROWS, state.rows], ["rate-max", RATES, state.rate]]) {
    at(id).replaceChildren(...values.map((each) => new Option(each)));
    at(id).value = value;
  }
  for (const wanted of state.panels) addPanel(wanted);
  if (state.ignored.length) {
    ignored = `Not shown, because it is not a pair such as BTC/USDT: ${state.ignored.join(", ")}.`;
    notice("");
  }
  try { key ??= sessionStorage.getItem(KEY_SLOT); } catch { /* storage is off */ }
  if (key) keep(key);
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keep(at("key").value.trim());
  at("key").value = "";
});
at("rows").addEventListener("change", () => {
  state.rows = ROWS.find((rows) => rows === Number(at("rows").value));
  changed();
});
at("rate-max").addEventListener("change", () => {
  state.rate = RATES.find((rate) => rate === Number(at("rate-max").value));
  changed();
});
at("copy").addEventListener("click", copyAddress);
at("add").addEventListener("click", addNext);
at("leave").addEventListener("click", leave);
// Another address of this page was opened in this tab: read it as on load.
addEventListener("hashchange", () => location.reload());

// The header may take two rows; what is sticky below it must not be covered.
const header = document.querySelector(".top");
new ResizeObserver(() => document.documentElement.style.setProperty("--header", `${header.offsetHeight}px`)).observe(header);

document.addEventListener("visibilitychange", seen);
addEventListener("resize", fit);
addEventListener("online", measure); // connections of the previous network are dead

setInterval(showAges, AGES_EVERY_MS);
setInterval(showFigures, FIGURES_EVERY_MS);
setInterval(measure, PING_EVERY_MS);
begin();
