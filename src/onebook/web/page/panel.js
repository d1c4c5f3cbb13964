// The panel of one symbol: its subscription and the cards of its book.

import { PriceAges } from "./ages.js";
import { Backfill, SPAN_MS } from "./backfill.js";
import { now } from "./clock.js";
import { Columns, originOf, ZOOMS } from "./columns.js";
import { imbalance, PROBE, Rate, readBook, unknownAt } from "./book.js";
import { Cost } from "./cost.js";
import { Crossed } from "./crossed.js";
import { Depth, reaching } from "./depth.js";
import { age, ago, amountDecimals, decimals, decimalsMax, finePercent, fixed, groupSteps, listOf, Places, PRICE_DECIMALS_MAX, quoteAge, signed, size } from "./format.js";
import { drawSoon } from "./frames.js";
import { Heat } from "./heat.js";
import { History } from "./history.js";
import { percent } from "./holders.js";
import { Ladder } from "./ladder.js";
import { RANGE_MAX_PERCENT } from "./liquidity.js";
import { Members } from "./members.js";
import { Past } from "./past.js";
import { Prices } from "./prices.js";
import { radios } from "./radios.js";
import { Search } from "./search.js";
import { panelOf, symbolOf } from "./state.js";
import { hide, mark, write } from "./write.js";

const FAR_ROWS = 25; // a ladder with more rows, or with bins, extends beyond the known part of some books
const DEPTH_MIN = 25; // minimum levels requested: depth and shares need them
const WAITING = "waiting for the first book";
const NO_FEES = { "*": "0" }; // of routes and crossings while the fees are unknown
const RATE_WINDOW_MS = 5_000;
const COLUMN_BINS = 100; // maximum bins per side of a column of an hour or a day: a heat map has about as many
const OLD_MS = 1_000; // without an update before the ladder is marked old
const BUSY_PER_S = 1; // updates per second; above this rate, silence is not a quiet market
const LOST_MS = 2_000; // without an update before the prices of a busy book are withdrawn
const GREY_MS = 3_000; // without an update before the prices of a quiet book are grey

export class Panel {
  subscribed = ""; // the symbol shown
  #asked = null; // the last view requested
  #view = null; // the view shown: the last one accepted
  #site;
  #unread = null; // the newest update since the last drawing
  #book = null; // the drawn book
  #reading = {}; // arguments of `readBook` for the accepted view
  #kept = {}; // the accepted choices of prices and step
  #unknownFees = []; // exchanges that net prices leave out
  #timeMs = NaN; // the recorded time of a book that is played
  #readMs = 0; // when it was read: the time of its points in charts, even after a sleep between two frames
  #undrawn = false; // whether the charts do not have it yet
  #left = [];
  #filledMs = NaN; // until when the charts have the minutes before
  #filledIn = 0; // the step of the levels of the minutes before a past moment
  #zoom = ZOOMS[0]; // how much time the charts show before a past moment
  #zooms; // the radio buttons for it
  #places = new Places(); // for exact prices beside a binned ladder
  #updatedAt = 0;
  #lateMs = 0; // delay of the last update
  #linked = false;
  #busy = false; // whether the rate before the last update was at least BUSY_PER_S
  #live = false; // whether updates arrive
  #lost = false; // show nothing as live until an update arrives
  #withdrawn = false; // the withdrawal shown on the page
  #returned = false; // whether the past was left, whose states are not those of now
  #reply = {}; // to the last live subscription
  answering = true; // whether the connection delivers anything

  /**
   * @param wanted what to show, as `panelOf` has it
   * @param site the page: `subscribe(symbol, options)`, `unsubscribe(symbol, view)`, `has(symbol)` of its
   *   session; `options(symbol)`, `times(symbol)`, `ask(message)` of its session, `recorded(symbol, fromMs, toMs)`, `fees`, `watches(symbol)` of its alerts, `counts()`, `readPairs()`, `notice(text, names, panel)`, `check(symbol, facts, nowMs)` of its alerts,
   *   `settled(panel)`, `changed()`, `taken(symbol, panel)`, `remove(panel)`
   */
  constructor(template, wanted, site) {
    [this.bar, this.element] = template.content.cloneNode(true).children;
    this.wanted = { ...wanted };
    this.#site = site;
    const find = (selector) => this.element.querySelector(selector) ?? this.bar.querySelector(selector);
    this.find = find;
    this.rate = new Rate(RATE_WINDOW_MS);
    this.ages = new PriceAges();
    this.ladder = new Ladder(find(".ladder"), (...point) => this.#readOut(...point));
    const subscriptions = {
      subscribe: (options) => site.subscribe(this.subscribed, options),
      unsubscribe: ({ symbol, view: name }) => site.unsubscribe(symbol, name),
    };
    const view = {
      subscribe: (options) => (this.past.active ? this.past.part(options) : subscriptions.subscribe(options)),
      unsubscribe: (found) => this.past.forget(found) || subscriptions.unsubscribe(found),
    };
    this.backfill = new Backfill({
      view: subscriptions,
      add: (...given) => this.#addPast(...given),
      ended: (whole) => this.#endFill(whole),
    });
    this.columns = new Columns({
      ask: (options, atMs) => this.past.request(options, atMs),
      recorded: (fromMs, toMs) => site.recorded(this.subscribed, fromMs, toMs),
      ended: (problem) => this.#endColumns(problem),
    });
    const zooms = ZOOMS.map(({ name }) => [name, name]);
    this.#zooms = radios(find(".zoom"), zooms, this.#zoom.name, (name) => this.#zoomTo(ZOOMS.find((zoom) => zoom.name === name)));
    this.depth = new Depth(find(".deep"), {
      range: wanted.range,
      view,
      received: (...given) => this.#reach(...given),
      awaited: () => this.heat.visible,
      changed: (range) => {
        Object.assign(this.wanted, { range });
        this.heat.range = range;
        this.#followParts(now());
        if (this.past.resting) this.#fillPast();
        site.changed();
      },
    });
    this.history = new History(find(".history"), find(".history-text"));
    this.heat = new Heat(find(".heat-map"), find(".heat-text"), find(".heat-spoken"), wanted.range, {
      chosen: (timeMs) => this.past.choose(timeMs),
      zoomed: (further) => this.#zoomTo(ZOOMS[ZOOMS.indexOf(this.#zoom) + further]),
    });
    this.members = new Members(find(".members tbody"), find(".members-sum"));
    this.crossed = new Crossed(find(".crossings"), {
      profit: wanted.profit,
      view,
      changed: (profit) => this.#choosePart({ profit }),
    });
    this.cost = new Cost(find(".cost"), {
      ...wanted,
      fees: site.fees,
      view,
      changed: (chosen) => this.#choosePart(chosen),
    });
    this.parts = [this.depth, this.cost, this.crossed, this.backfill, this.columns];
    this.past = new Past(find(".past"), find(".back"), {
      symbol: () => this.subscribed,
      options: () => ({ symbol: this.subscribed, ...this.#bookOptions }),
      ask: (message) => site.ask(message),
      recorded: (fromMs, toMs) => site.recorded(this.subscribed, fromMs, toMs),
      alerts: () => site.watches(this.subscribed),
      begin: () => this.#leavePresent(),
      end: () => this.#return(),
      show: (...given) => this.#showPast(...given),
      none: (text) => (this.members.none(), this.#turn(this.past.atMs), this.#forget(text)),
      rest: () => this.#fillPast(),
      play: (options) => this.#play(options),
      playPart: (options) => subscriptions.subscribe(options),
      stop: () => this.#stop(),
      partShown: (found, book) => this.#showPart(found, book),
    });
    this.prices = new Prices(this.element, {
      counts: site.counts,
      opened: site.readPairs,
      changed: (chosen) => this.#change(chosen),
    });
    this.search = new Search(find(".combo"), {
      counts: site.counts,
      current: () => this.wanted.symbol,
      opened: site.readPairs,
      chosen: (name) => this.choose(name),
    });
    this.ladder.resize(site.options().depth);
    find(".symbol").value = wanted.symbol;
    find(".group").addEventListener("change", (event) => this.#change({ group: event.target.value }));
    find(".remove").addEventListener("click", () => site.remove(this));
    this.#newBook();
  }

  // Subscription

  choose(name) {
    const symbol = symbolOf(name);
    const input = this.find(".symbol");
    if (symbol === this.wanted.symbol && symbol === this.#asked?.symbol) {
      input.value = symbol;
      return;
    }
    if (!symbol || this.#site.taken(symbol, this)) {
      this.#site.notice(symbol ? `${symbol} is already shown.` : "A symbol is a pair such as BTC/USDT.");
      input.value = this.subscribed || this.wanted.symbol;
      return;
    }
    this.#leavePast();
    input.value = symbol;
    // Keep the user's size, unless it is in a currency of the previous symbol.
    const kept = this.wanted.by === "notional" && symbol.split("/")[1] === this.wanted.symbol.split("/")[1];
    const { size, by } = kept ? this.wanted : panelOf(symbol);
    this.cost.choose(size, by);
    this.#change({ symbol, group: "", size, by, quotes: [] });
  }

  #change(wanted) {
    Object.assign(this.wanted, wanted);
    this.#showPrices();
    this.#site.changed();
    this.subscribe();
  }

  /** Handle a choice that concerns a card alone. */
  #choosePart(wanted) {
    Object.assign(this.wanted, wanted);
    this.#site.changed();
    this.#followParts(now());
  }

  /** The options that all views of the panel have. */
  get #terms() {
    const { exchanges } = this.#site.options(this.wanted.symbol);
    const { quotes } = this.wanted;
    return { exchanges, ...(quotes.length && { quotes }) };
  }

  /** Those of the levels: after the fees of the page, if they are wanted and known. */
  get #levelTerms() {
    const fees = this.wanted.net ? this.#site.fees.option : null;
    return { ...this.#terms, ...(fees && { fees, net: true }) };
  }

  /** Show the selected kind of prices, and the exchanges that it leaves out. */
  #showPrices() {
    const { fees } = this.#site;
    const { symbol, net } = this.wanted;
    const basis = fees.settled && !fees.option ? `Before fees: ${fees.problem}` : "";
    this.prices.choose(symbol, this.wanted);
    const left = this.#unknownFees.length ? `Left out, because their fee is unknown: ${listOf(this.#unknownFees)}.` : "";
    this.prices.say(net ? basis || left : "");
    this.cost.say(basis);
    this.crossed.say(basis);
  }

  /** Handle the fees of the page, which were loaded or changed. */
  feesChanged() {
    this.#showPrices();
    if (this.wanted.net && this.#site.fees.settled) this.subscribe();
    this.#followParts(now());
  }

  /** Request the symbol. The shown one stays subscribed until the new one is accepted. */
  subscribe() {
    const { exchanges } = this.#site.options(this.wanted.symbol);
    if (exchanges !== "all" && !exchanges.length) return this.#leaveNone();
    const { symbol, net } = this.wanted;
    if (net && !this.#site.fees.settled) return; // until the fees are loaded
    if (this.past.active) return this.past.again();
    const before = this.#asked;
    this.#asked = this.#site.subscribe(symbol, this.#bookOptions);
    // An earlier choice without an answer is no longer shown.
    if (before && before !== this.#asked && before !== this.#view) this.#site.unsubscribe(before.symbol);
  }

  /** The options of the book. */
  get #bookOptions() {
    const { depth, intervalMs } = this.#site.options(this.wanted.symbol);
    const { group } = this.wanted;
    const terms = this.#levelTerms;
    return {
      ...terms,
      depth: Math.max(depth, DEPTH_MIN),
      interval_ms: intervalMs,
      mode: "delta",
      levels: "array",
      split: true,
      ages: true,
      // Horizons make updates a quarter longer. A short ladder rarely reaches one, so it uses those of the depth chart's
      // view, which are up to a second old, or five while the chart is not visible.
      coverage: depth >= FAR_ROWS || Boolean(group),
      ...(group && { group }),
      ...(group && !terms.net && { fill: { amounts: [PROBE] } }), // a route has lots, which no probe fits
    };
  }

  /** Handle a changed selection of exchanges. */
  recolour() {
    this.ladder.recolour();
    this.members.recolour();
    this.cost.again();
    this.draw();
  }

  /** Subscribe again, because the options of the page have changed. */
  follow() {
    if (document.hidden) this.#leaveParts();
    if (this.#asked) this.subscribe();
  }

  /** End the subscription: the panel is removed. */
  leave() {
    this.#leavePast();
    this.#unsubscribe();
  }

  #unsubscribe() {
    for (const view of new Set([this.#asked, this.#view])) if (view) this.#site.unsubscribe(view.symbol);
    this.#asked = this.#view = null;
    this.#leaveParts();
  }

  #leaveParts() {
    for (const part of this.parts) part.leave();
  }

  /** Handle that no exchange is ticked: nothing is subscribed and nothing is shown as live. */
  #leaveNone() {
    this.leave();
    this.wanted.symbol = this.subscribed || this.wanted.symbol;
    this.subscribed = "";
    this.#newBook("choose at least one exchange");
    this.members.begin([], []);
    this.#site.notice("Choose at least one exchange.");
  }

  asksFor(view) {
    return this.#asked === view;
  }

  shows(view) {
    return this.#view === view;
  }

  // Input

  /** The last subscribe was accepted. */
  accepted(view, reply) {
    const before = this.subscribed;
    this.#view = view;
    this.subscribed = this.wanted.symbol = view.symbol;
    this.find(".symbol").value = view.symbol;
    if (before !== this.subscribed) {
      if (before) this.#site.unsubscribe(before);
      this.#newBook();
    }
    this.#reply = reply;
    const { group, net, quotes } = this.wanted;
    if (String(quotes) !== String(this.#kept.quotes) || net !== this.#kept.net) this.#forgetLevels();
    this.#kept = { group, net, quotes };
    this.#unknownFees = reply.unknown_fee ?? [];
    this.#readAs();
    this.#showPrices();
    this.members.begin(reply.exchanges, reply.rejected ?? [], { keep: before === this.subscribed && !this.#returned });
    this.#returned = false;
    this.#followParts(now());
    this.#site.settled(this);
  }

  /** Read books with the options that are wanted now. */
  #readAs() {
    const { group, quotes, symbol } = this.wanted;
    const { fees } = this.#levelTerms;
    this.#reading = { binned: Boolean(group), feeOf: fees ? this.#site.fees.reader(symbol, this.#reply) : null, fine: Boolean(fees || quotes.length) };
    this.#write("th.price", fees ? "Net price" : "Price");
  }

  /** Forget what is drawn over time: levels of other prices do not continue it. */
  #forgetLevels() {
    for (const card of [this.depth, this.heat, this.history]) card.clear();
  }

  /** Handle a refusal of the last subscribe; what was shown before stays. */
  refused({ message, details }) {
    if (this.past.active) {
      this.#asked = this.#view = null;
      return this.past.refused(message);
    }
    const kept = this.subscribed && this.wanted.symbol !== this.subscribed;
    this.#asked = this.#view;
    if (kept) {
      this.wanted.symbol = this.find(".symbol").value = this.subscribed;
      this.#site.changed();
      if (!this.#site.has(this.subscribed)) this.subscribe(); // a new session
    }
    else if (this.subscribed) {
      Object.assign(this.wanted, this.#kept);
      this.find(".group").value = this.wanted.group;
      this.#showPrices();
      this.#site.changed();
    }
    if (!this.subscribed) this.#newBook("no book");
    const still = kept ? ` Still showing ${this.subscribed}.` : "";
    this.#site.notice(message + still, details.suggestedSymbols, this);
  }

  /** Handle an update of the shown view, which arrived this late. */
  update(view, lateMs) {
    const { bids, asks, marketStats, ages, fill, staleExchanges } = view;
    const coverage = Object.keys(view.coverage).length ? view.coverage : this.depth.coverage;
    this.#unread = { bids, asks, marketStats, ages, fill, coverage, staleExchanges, ...this.#reading };
    this.prices.read(view.conversions);
    this.#updatedAt = now();
    this.#lateMs = lateMs;
    if (view.past) {
      this.#unread.timeMs = Date.parse(view.timestamp);
      this.past.played(this.#unread.timeMs);
    }
    this.rate.add(this.#updatedAt);
    this.#busy = this.rate.between(this.#updatedAt) >= BUSY_PER_S;
    this.#lost = false;
    this.showAge();
    this.draw();
    if (document.hidden) this.#read(this.#updatedAt); // hidden pages draw no frames, but alerts must not wait
  }

  /** Handle an update of the view of a card, which is this old. */
  updatePart(part, view, oldMs) {
    part.update(view, now(), oldMs);
    if (part === this.backfill) return; // hundreds a second
    if (part === this.crossed && this.#book) this.#check(now());
    this.draw();
  }

  // The past

  /** End the live subscription: from now on nothing here is live. */
  #leavePresent() {
    this.subscribed ||= this.wanted.symbol;
    this.#unsubscribe();
    this.history.gap(now());
    this.#turn(this.past.atMs);
    this.members.turn(true);
    this.#forget("waiting for the past book");
  }

  /** Subscribe to the live book again. */
  #return() {
    this.#unsubscribe();
    this.#present();
    this.members.turn(false);
    this.#forget("waiting for the live book");
    this.#returned = true;
    this.subscribe();
  }

  /** Leave the past for another choice. */
  #leavePast() {
    if (!this.past.active) return;
    this.past.ended();
    this.#unsubscribe();
    this.#present();
    this.members.turn(false);
    this.#forget();
    this.#returned = true;
  }

  /** The play has reached the present: `history_end`. */
  reachedPresent() {
    if (!this.past.playing) return;
    this.past.reachedPresent(`${this.subscribed} is live again.`);
    this.#leaveParts();
    this.#present();
    this.members.reachedPresent();
    this.#updatedAt = now();
    this.showAge();
  }

  #present() {
    this.heat.turn();
    this.history.turn(false);
    this.#showZoom(ZOOMS[0]);
  }

  /** Empty the charts over time, for the past from a time on. */
  #turn(fromMs) {
    this.heat.turn(Math.floor(fromMs / 1_000) * 1_000);
    this.history.turn(true);
  }

  /** Show the book of a moment. */
  #showPast(view, states) {
    for (const part of this.parts) part.clear(); // they are of another moment
    this.#readAs();
    const { bids, asks, marketStats, ages, fill, coverage, staleExchanges } = view;
    this.#unread = { bids, asks, marketStats, ages, fill, coverage, staleExchanges, ...this.#reading };
    this.prices.read(view.conversions);
    this.#updatedAt = now();
    this.#lateMs = 0;
    this.members.then(states);
    this.showAge();
    this.draw();
  }

  /** Show the book of a card. */
  #showPart(found, view) {
    const part = this.parts.find((each) => each.shows(found));
    if (!part) return;
    if (part !== this.cost) part.accepted({});
    this.updatePart(part, view, 0);
  }

  /** Request the other cards of a past moment, and the minutes before it. */
  #fillPast() {
    this.#followParts(now());
    const { atMs, since } = this.past;
    const mid = this.#book?.stats.mid_price;
    if (!mid || document.hidden) return;
    for (const part of [this.backfill, this.columns]) part.leave();
    if (this.#zoom !== ZOOMS[0]) return this.#fillColumns(mid);
    const fromMs = Math.max(atMs - SPAN_MS, since ?? atMs);
    this.#turn(fromMs);
    this.#filledMs = NaN;
    const { group, depth } = reaching(this.wanted.range, mid);
    this.backfill.begin(fromMs, atMs, { ...this.#levelTerms, group, depth }, this.#reading, now());
    this.#filledIn = Number(group);
  }

  /** Request the columns of an hour or a day before the moment. */
  #fillColumns(mid) {
    const { atMs } = this.past;
    this.heat.turn(originOf(this.#zoom, atMs), this.#zoom.columnMs);
    this.#filledMs = NaN;
    const { group, depth } = reaching(this.wanted.range === "all" ? RANGE_MAX_PERCENT : this.wanted.range, mid, null, COLUMN_BINS);
    const probe = this.#levelTerms.net ? {} : { fill: { amounts: [PROBE] } };
    this.#filledIn = Number(group);
    const options = { symbol: this.subscribed, ...this.#levelTerms, ...probe, group, depth, levels: "array", coverage: true };
    this.columns.begin(this.#zoom, atMs, options, this.#reading);
    this.#showColumns();
  }

  /** Show the columns that were read so far. */
  #showColumns() {
    const { columns, missing } = this.columns.take() ?? {};
    if (!columns) return;
    const { atMs } = this.past;
    const said = missing ? `${columns.length - missing} of ${columns.length} columns read.` : "";
    this.heat.replace(columns, atMs, this.#filledIn, said);
    const origin = originOf(this.#zoom, atMs) - performance.timeOrigin;
    this.history.replace(columns.map((each, at) => {
      const { mid_price: mid = null, spread = null } = each?.book.stats ?? {};
      return [Math.min(origin + (at + 1) * this.#zoom.columnMs, atMs - performance.timeOrigin), mid, spread];
    }));
  }

  /** All columns were read, or reading failed. */
  #endColumns(problem) {
    const { read, bytes } = this.columns.cost;
    this.#showColumns();
    this.heat.drawFilled(now());
    this.#filledMs = this.past.atMs;
    const cost = read ? `The ${this.#zoom.text} before: ${read} books, ${size(bytes, 0)} before compression.` : "";
    this.past.tell([cost, problem].filter(Boolean).join(" "));
  }

  /** Show another time before the moment; in the present, go back to now. */
  #zoomTo(zoom) {
    if (!zoom || zoom === this.#zoom) return;
    this.#showZoom(zoom);
    if (!this.past.active) this.past.open();
    else if (this.past.resting) this.#fillPast();
    this.#write(".heat-spoken", `The ${zoom.text} before the moment`);
  }

  #showZoom(zoom) {
    this.#zoom = zoom;
    for (const each of this.#zooms) each.checked = each.value === zoom.name;
  }

  /** Add a book of the minutes before. */
  #addPast(book, left, timeMs) {
    this.heat.fill(book, left, this.heat.since(timeMs), this.#filledIn);
    this.history.add(book.stats, timeMs - performance.timeOrigin, true, false);
    this.#filledMs = timeMs;
  }

  /** The minutes before end at the moment, or early. */
  #endFill(whole) {
    if (whole) {
      this.heat.until(this.heat.since(this.past.atMs));
      this.#filledMs = this.past.atMs;
    } else this.heat.note("The minutes before could not be read in time; move the slider to try again.");
  }

  /** Use a book of the depth view in the heat map: its levels extend farther. */
  #reach(book, step, left, timestamp) {
    if (!this.past.active) this.heat.reach(book, step, now());
    else if (this.past.playing) this.heat.fill({ ...book, stats: this.#book.stats }, left, this.heat.since(Date.parse(timestamp)), step);
  }

  #play(options) {
    const whole = this.#asked || this.#filledMs === this.past.atMs || this.#zoom !== ZOOMS[0]; // the charts have everything until this moment, or what was read of it
    this.#leaveParts();
    if (!whole) this.#turn(this.past.atMs);
    for (const card of [this.cost, this.crossed]) card.clear();
    this.#asked = this.#site.subscribe(this.subscribed, options);
  }

  #stop() {
    this.#unsubscribe();
  }

  status(message) {
    this.members.status(message.exchange, message.state, message.detail || message.reason);
  }

  /** Handle a new or lost connection. */
  set linked(linked) {
    this.#linked = linked;
    if (this.past.active) {
      // A past moment stays what it was, and the session continues a play.
    } else if (!linked) {
      this.#leaveParts();
      this.members.lost();
      this.#lost = true;
    } else if (!this.#site.has(this.wanted.symbol)) this.subscribe(); // was refused before, but may be accepted now
    this.answering = linked;
    this.showAge();
  }

  get hasBook() {
    return this.#book !== null || this.#unread !== null;
  }

  // Display

  #newBook(text = WAITING) {
    this.ages.clear();
    this.#unknownFees = [];
    for (const card of [this.heat, this.history]) card.clear();
    this.#name(this.wanted.symbol);
    this.find(".group").replaceChildren(new Option("exact", ""));
    this.#forget(text);
  }

  /** Show no book. */
  #forget(text = WAITING) {
    this.#book = this.#unread = null;
    this.#updatedAt = 0;
    this.#left = [];
    this.#places = new Places();
    this.prices.read([]);
    for (const card of [this.ladder, ...this.parts]) card.clear();
    for (const name of [".best-bid", ".best-ask", ".mid", ".live-count"]) this.#write(name, "—");
    this.#tilt(null);
    this.find(".crossed").hidden = true;
    this.find(".spread").textContent = text;
    this.#busy = this.#lost = this.#withdrawn = false;
    this.members.known = true;
    this.showAge();
  }

  #name(symbol) {
    this.find(".title").textContent = symbol;
    for (const each of [this.bar, this.element]) each.setAttribute("aria-label", symbol);
    this.find(".remove").setAttribute("aria-label", `Remove ${symbol}`);
    this.cost.name(symbol);
    this.crossed.name(symbol);
    this.heat.name(symbol);
    this.#showPrices();
  }

  /** Draw at most once per frame, however fast books arrive. */
  draw() {
    drawSoon(this);
  }

  /** Read the newest update and find the visible rows. */
  measure(nowMs) {
    if (this.#unread) this.#read(nowMs);
    if (this.#book) this.ladder.place(this.#site.options().depth);
  }

  #read(nowMs) {
    this.#book = readBook(this.#unread);
    this.#left = this.#unread.staleExchanges;
    this.#timeMs = this.#unread.timeMs ?? NaN;
    this.#unread = null;
    this.#undrawn = true;
    this.#readMs = nowMs;
    this.#check(nowMs);
  }

  #check(nowMs) {
    if (this.past.active) return; // alerts are about now
    const { mid_price: mid, spread_percent: spread } = this.#book.stats;
    const best = () => this.crossed.best;
    this.#site.check(this.subscribed, { live: this.#live, mid, spread, left: this.#left, best }, nowMs);
  }

  /** Write the differences in the ladder and the prices. */
  drawBook(nowMs) {
    const book = this.#book;
    if (!book) return;
    this.ladder.show(book, nowMs);
    if (this.#withdrawn) return;
    const { stats } = book;
    const price = this.#pricer(book, nowMs);
    this.#write(".mid", price(stats.mid_price, 1));
    this.#write(".best-bid", price(stats.best_bid));
    this.#write(".best-ask", price(stats.best_ask));
    this.#write(".spread", spreadText(stats, price));
    hide(this.find(".crossed"), !stats.crossed);
  }

  /** Write the differences in the other cards. */
  drawCards(nowMs) {
    const book = this.#book;
    if (!book || this.#withdrawn) return;
    const price = this.#pricer(book, nowMs);
    const addedMs = this.past.active ? this.#timeMs - performance.timeOrigin : this.#readMs;
    if (this.#undrawn && addedMs) this.history.add(book.stats, addedMs, book.fine);
    this.members.show(book, this.#left, this.#lateMs, nowMs);
    this.members.showFigures(nowMs - this.#updatedAt + this.#lateMs, nowMs);
    if (!this.past.active) this.crossed.write(nowMs, this.#when, book.ages, nowMs - this.#updatedAt + this.#lateMs);
    this.cost.show(price);
    this.history.write();
    const { depth } = this.#site.options();
    this.#tilt(imbalance(book, depth));
    this.#write(".imbalance-of", depth);
    if (this.find(".group").length === 1) this.#listSteps(book.stats.mid_price);
  }

  /** Draw the heat map and the depth chart. */
  drawCharts() {
    const book = this.#book;
    if (!book || this.#withdrawn) return;
    this.depth.show(book.stats.mid_price);
    this.depth.write();
    if (!this.#undrawn) return;
    this.#undrawn = false;
    if (!this.past.active) this.heat.add(book, this.#left, this.#readMs, book.binned ? Number(this.wanted.group) : 0);
  }

  /** Returns a price format: the ladder's or, as a binned ladder has too few decimals, that of the exact prices. */
  #pricer(book, nowMs) {
    const { binned, stats } = book;
    if (!binned) return (value, more) => this.ladder.price(value, more);
    const exact = [stats.best_bid, stats.best_ask].filter((each) => each != null);
    const places = this.#places.of(decimals(exact, decimalsMax(book, exact[0])), nowMs);
    return (value, more = 0) => (value == null ? "—" : fixed(value, places + more));
  }

  #listSteps(mid) {
    const steps = groupSteps(mid);
    const { group } = this.wanted;
    if (group && !steps.includes(group)) steps.push(group);
    this.find(".group").append(...steps.map((step) => new Option(step, step)));
    this.find(".group").value = group;
  }

  /** Show by how much bids or asks predominate: a number, and a bar from the middle to that side. */
  #tilt(share) {
    const percent = Math.round(100 * (share ?? 0));
    this.#write(".imbalance", share === null ? "—" : `${signed(percent, 0)} %`);
    const bar = this.find(".tilt");
    const ends = [Math.min(0, percent), Math.max(0, percent)].map((each) => `${50 + each / 2}%`);
    ["--from", "--to"].forEach((name, at) => {
      if (bar.style.getPropertyValue(name) !== ends[at]) bar.style.setProperty(name, ends[at]);
    });
    mark(bar, "data-side", percent < 0 ? "asks" : "bids");
  }

  get #when() {
    return this.#live ? "now" : "at the last update";
  }

  #write(name, text) {
    write(this.find(name), text);
  }

  /**
   * After OLD_MS without an update, or when updates are this late, the ladder is marked old, with its age. Without
   * the
   * connection, and after LOST_MS without an update from a busy book, its prices, costs, crossings and states are
   * withdrawn.
   */
  showAge() {
    mark(this.element, "data-past", this.past?.active ? "yes" : "no");
    if (this.past?.active) {
      this.#live = false;
      for (const [name, value] of [["data-live", "past"], ["data-old", "no"]]) mark(this.element, name, value);
      return hide(this.find(".old"), true);
    }
    const silentMs = now() - this.#updatedAt;
    const ageMs = silentMs + this.#lateMs;
    const oldMs = Math.max(OLD_MS, 1.5 * this.#site.options(this.wanted.symbol).intervalMs);
    if (this.#busy && silentMs >= Math.max(LOST_MS, oldMs)) this.#lost = true;
    const shown = this.#linked && this.answering && !this.#lost && this.#updatedAt > 0;
    const live = shown && ageMs < oldMs;
    this.#live = live;
    if (this.#updatedAt) this.#withdraw(this.#lost || !this.answering);
    mark(this.element, "data-live", shown && (live || ageMs < (this.#busy ? Infinity : GREY_MS)) ? "yes" : "no");
    mark(this.element, "data-old", live ? "no" : "yes");
    const old = !live && this.#updatedAt > 0;
    hide(this.find(".old"), !old);
    const slow = this.#linked && (silentMs < this.#lateMs || silentMs < OLD_MS);
    const lost = !this.#linked && silentMs < OLD_MS;
    const silence = lost ? "Connection lost" : `No update for ${age(silentMs)}`;
    if (old) this.#write(".old", slow ? `Updates arrive ${(this.#lateMs < OLD_MS ? quoteAge : age)(this.#lateMs)} late` : silence);
  }

  /** Show no price, cost, crossing or exchange as live, or show all of them again. */
  #withdraw(withdrawn) {
    if (this.#withdrawn === withdrawn) return;
    this.#withdrawn = withdrawn;
    this.members.known = !withdrawn || !this.#linked; // without a connection their states already show it
    if (!withdrawn) return this.draw();
    this.history.gap(now());
    this.heat.gap(now());
    this.crossed.withdraw();
    this.cost.withdraw();
    for (const name of [".best-bid", ".best-ask", ".mid", ".live-count"]) this.#write(name, "—");
    this.#tilt(null);
    this.#write(".spread", "not live");
    hide(this.find(".crossed"), true);
  }

  /** Figures that change with time alone; called twice a second. */
  showFigures(nowMs) {
    this.showAge();
    if (this.past.active) return this.#showPastFigures(nowMs);
    const ageMs = nowMs - this.#updatedAt + this.#lateMs;
    if (this.#live && this.subscribed) this.ages.follow(nowMs, () => this.#site.times(this.subscribed));
    this.#write(".price-age", this.#book && !this.#withdrawn ? this.ages.text(this.#book, ageMs, nowMs) : "");
    this.#write(".rate", this.rate.perSecond(nowMs).toFixed(1));
    this.#write(".age", this.#updatedAt ? ago(ageMs, this.#live) : "—");
    this.#write(".live-count", this.#withdrawn ? "—" : this.members.live);
    this.members.showFigures(ageMs, nowMs);
    this.#followParts(nowMs);
    if (this.#book && !this.#withdrawn) this.crossed.showFigures(nowMs, this.#when, this.#book.ages, ageMs);
    this.prices.showFigures(ageMs);
    this.history.showFigures(nowMs + this.#lateMs, this.#live);
    this.heat.advance(nowMs);
  }

  /** The same of a past book, which gets no older. */
  #showPastFigures(nowMs) {
    this.past.showFigures(nowMs);
    this.backfill.check(nowMs);
    this.#write(".price-age", "");
    this.#write(".rate", this.past.playing ? this.rate.perSecond(nowMs).toFixed(1) : "0");
    this.#write(".age", "past");
    this.#write(".live-count", this.#book ? this.members.live : "—");
    this.members.showFigures(0, nowMs);
    this.#followParts(nowMs);
    if (this.#book) this.crossed.showFigures(this.#updatedAt, "then", this.#book.ages, 0);
    this.prices.showFigures(0);
    this.#showColumns();
    this.history.drawFilled();
    this.history.showFigures(nowMs, false);
    this.heat.drawFilled(nowMs);
  }

  /** Subscribe to what the cards need. */
  #followParts(nowMs) {
    if (!this.subscribed || this.subscribed !== this.wanted.symbol || !this.#linked) return;
    const { size, by, most, profit } = this.wanted;
    const { intervalMs } = this.#site.options(this.subscribed);
    const { fees } = this.#site;
    if (fees.settled) {
      const terms = { ...this.#terms, fees: fees.option ?? NO_FEES, intervalMs };
      if (!document.hidden) this.cost.follow({ ...terms, size, by, most });
      if (!document.hidden || this.#site.watches(this.subscribed)) this.crossed.follow({ ...terms, profit });
    }
    if (!(this.#live || this.past.active) || !this.#book || document.hidden) return;
    if (this.past.playing && !this.#view) return; // a connection may play two views, one of which may be ending
    this.depth.follow(nowMs, this.#book.stats.mid_price, this.#levelTerms, { ...this.#reading, binned: true });
  }

  /** The value of everything up to a level; for bins only a bound is known. */
  #worth({ cost, total }, side, quote, bounded) {
    const worth = `${bounded ? "at least " : ""}${fixed(cost, 2)} ${quote}`;
    if (bounded) return worth;
    if (this.#book.binned) return `${side === "asks" ? "at most" : "at least"} ${worth}`;
    const best = this.#book[side][0].price;
    const average = cost / total;
    const slip = finePercent(Math.abs((100 * (average - best)) / best));
    return `${worth}, ${this.ladder.price(average, 2)} on average, ${slip} % off the best`;
  }

  /** Describe the total of a purchase or sale up to a level, and all exchanges at that level. */
  #readOut(level, side, spoken) {
    let text = "Point at a level, tap it, or use the arrow keys to see the total up to it and the exchanges at that level.";
    if (level && !this.#withdrawn) {
      const [base, quote] = this.wanted.symbol.split("/");
      const to = side === "asks" ? "Buying up to" : "Selling down to";
      const amount = `${fixed(level.total, amountDecimals(level.total))} ${base}`;
      const before = (gross) => (gross === undefined ? "" : ` at ${fixed(gross, decimals([gross], PRICE_DECIMALS_MAX))} before its fee`);
      const shares = level.shares
        .map(([name, held, gross]) => `${name} ${percent(held / level.amount)}`.trim() + before(gross))
        .join(", ");
      const unknown = unknownAt(this.#book, side, level.price);
      const least = unknown.length ? "at least " : "";
      text = `${to} ${this.ladder.price(level.price)}: ${least}${amount} for ${this.#worth(level, side, quote, unknown.length)}. Here: ${shares}.`;
      if (unknown.length) text += ` The ${unknown.length === 1 ? "book" : "books"} of ${listOf(unknown)} ${unknown.length === 1 ? "is" : "are"} not known this far out.`;
    }
    this.#write(".readout", text);
    if (spoken) this.#write(".spoken", text);
  }
}

function spreadText({ spread, mid_price: mid }, price) {
  if (spread == null) return "one side is empty";
  return `spread ${price(spread)} (${finePercent((100 * spread) / mid)} %)`;
}
