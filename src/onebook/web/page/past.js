// Back in time: a bar over the cards of a panel with which the reader chooses a recorded moment, or plays from it into
// the present. The panel shows the book of that moment; while it does, nothing on it is live.
//
// `at` is the chosen moment. A dragged slider chooses many: one request is open at a time, and the next one is for the
// newest moment. The other cards are requested once the slider rests.

import { View } from "../client/onebook.js";
import { now } from "./clock.js";
import { listOf } from "./format.js";
import { hide, mark, write } from "./write.js";

// Ranges of the slider in seconds, with the step of an arrow key.
const SPANS = [[900, 1, "15 min"], [3_600, 1, "1 hour"], [21_600, 10, "6 hours"], [86_400, 30, "24 hours"], [604_800, 300, "7 days"], [2_678_400, 1_800, "31 days"]];
const SPAN_USUAL = 3_600;
const SPEEDS = [1, 10, 60]; // recorded seconds per second
const PLAY_UPDATES_MAX = 20; // a second, of one view
const ASK_EVERY_MS = 150; // minimum between two moments of a dragged slider
const REST_MS = 500; // without another moment, before the other cards are requested
const REFRESH_MS = 30_000; // minimum between two requests for the recorded times, which grow
const REFRESH_SHARE = 0.01; // of the slider's range, which is when the growth is seen
const SVG = "http://www.w3.org/2000/svg";
export const NOT_RECORDED = "history_not_found";
const LEAST_PX = 3; // of a recorded time on the track, of a thousand
const written = new Intl.DateTimeFormat("en", { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, timeZoneName: "short" });
const short = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export class Past {
  active = false; // whether the panel shows the past
  playing = false;
  #root;
  #button;
  #site;
  #slider;
  #exact;
  #at = 0; // the chosen moment, in ms since 1970
  #shown = null; // the moment of the shown book
  #wanted = false; // whether the chosen moment is to be requested
  #asking = false;
  #resting = 0; // the timer
  #rested = false; // whether the other cards may be requested
  #told = ""; // about the charts over time
  #parts = new Map(); // options of the other cards' views, by the object that stands for the view
  #asked = new Set(); // unanswered requests for their books
  #times = null; // the recorded times of the slider's range
  #timesMs = -Infinity; // when they were requested
  #loading = null; // the last request for them
  #span = SPANS.find(([seconds]) => seconds === SPAN_USUAL);

  /**
   * `site` is the panel: `ask(message)` sends a question; `recorded(fromMs, toMs)` returns the recorded times;
   * `options()` are those of its book; `begin()` and `end()` leave the present and return to it; `show(view, states)`
   * shows the book of a moment, `none(text)` that there is none, `rest()` that the other cards may follow;
   * `play(options)`, `playPart(options)` and `stop()` subscribe and unsubscribe; `partShown(view, book)` delivers the
   * book of a card; `alerts()` says whether alerts watch the symbol.
   */
  constructor(root, button, site) {
    [this.#root, this.#button, this.#site] = [root, button, site];
    this.#slider = root.querySelector(".past-slider");
    this.#exact = root.querySelector(".past-exact");
    const [spans, speeds] = [root.querySelector(".past-span"), root.querySelector(".past-speed")];
    spans.replaceChildren(...SPANS.map(([seconds, , name]) => new Option(name, seconds, false, seconds === SPAN_USUAL)));
    speeds.replaceChildren(...SPEEDS.map((speed) => new Option(`${speed}×`, speed)));
    button.addEventListener("click", () => this.open());
    root.querySelector(".past-live").addEventListener("click", () => this.close());
    root.querySelector(".past-play").addEventListener("click", () => this.#toggle());
    this.#slider.addEventListener("input", () => this.#go(Number(this.#slider.value) * 1_000));
    this.#slider.addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      this.#toggle();
    });
    this.#exact.addEventListener("change", () => {
      const chosen = new Date(this.#exact.value).getTime();
      if (chosen) this.#go(chosen);
    });
    spans.addEventListener("change", () => {
      this.#span = SPANS.find(([seconds]) => seconds === Number(spans.value));
      this.#place();
      this.#load();
    });
    speeds.addEventListener("change", () => this.playing && this.#play());
    root.addEventListener("keydown", ({ key }) => key === "Escape" && this.close());
  }

  /** Leave the present, at the newest recorded moment. */
  async open() {
    if (this.active) return;
    mark(this.#button, "aria-expanded", "true");
    this.active = true;
    this.playing = false;
    this.#shown = null;
    this.#at = Math.floor(Date.now() / 1_000) * 1_000;
    this.#site.begin();
    this.#showPlay();
    write(this.#root.querySelector(".past-time"), "—");
    this.#showEnd(false);
    hide(this.#button, true);
    this.#place();
    this.#slider.focus();
    this.#say("Looking for recorded times.");
    await this.#load();
    if (!this.active || this.#shown !== null) return;
    if (!this.#times) return;
    const { last } = this.#times;
    if (last === null) return this.#missing("Nothing has been recorded yet.");
    if (last < this.#at) this.#at = Math.floor(last / 1_000) * 1_000;
    this.#go(this.#at);
  }

  /** Return to the present, or close the bar there. */
  close() {
    const wasActive = this.active;
    this.ended();
    if (wasActive) this.#site.end();
  }

  /** A play has reached the present: the bar stays until it is closed, because the page below it would jump. */
  reachedPresent(text) {
    const focused = this.#root.contains(document.activeElement);
    this.ended();
    this.#showEnd(true);
    this.#say(text);
    if (focused) this.#root.querySelector(".past-live").focus();
  }

  #showEnd(reached) {
    hide(this.#root, !reached && !this.active);
    mark(this.#root, "data-reached", reached ? "yes" : "no");
    write(this.#root.querySelector(".past-what b"), reached ? "Live" : "Past");
    write(this.#root.querySelector(".past-live"), reached ? "Close" : "Back to live");
    if (reached) write(this.#root.querySelector(".past-time"), "");
  }

  /** The past is left. */
  ended() {
    const focused = this.#root.contains(document.activeElement);
    this.active = this.playing = this.#wanted = this.#rested = false;
    clearTimeout(this.#resting);
    this.#parts.clear();
    this.#times = this.#shown = null;
    this.#showEnd(false);
    hide(this.#button, false);
    mark(this.#button, "aria-expanded", "false");
    if (focused) this.#button.focus();
  }

  /** Request the book again, with other options. */
  again() {
    if (this.playing) this.#play();
    else this.#go(this.#at);
  }

  /** Called twice a second. */
  showFigures(nowMs) {
    const everyMs = Math.max(REFRESH_MS, REFRESH_SHARE * this.#span[0] * 1_000);
    if (this.active && nowMs - this.#timesMs >= everyMs) this.#load();
  }

  /** When the recording that contains the chosen moment began, in ms; null if this is unknown. */
  get since() {
    return this.#times?.recorded.find(([from, to]) => from <= this.#at && this.#at <= to)?.[0] ?? null;
  }

  /** Whether the moment stands still, so that the other cards show it. */
  get resting() {
    return this.active && !this.playing && this.#rested;
  }

  /** The chosen moment in ms. */
  get atMs() {
    return this.#at;
  }

  // The chosen moment

  #go(atMs) {
    if (this.playing) this.#pause();
    this.#at = Math.min(atMs, Date.now());
    this.#rested = false;
    this.#told = "";
    clearTimeout(this.#resting);
    this.#place();
    this.#wanted = true;
    if (!this.#asking) this.#ask();
  }

  async #ask() {
    this.#asking = true;
    while (this.#wanted) {
      this.#wanted = false;
      const atMs = this.#at;
      try {
        const reply = await this.request(this.#site.options(), atMs);
        if (this.active && !this.playing) this.#show(reply, atMs);
      } catch (error) {
        const text = error.code === NOT_RECORDED ? await this.#absence(atMs) : "";
        if (this.active && !this.playing && !this.#wanted) this.#missing(text || error.message);
      }
      if (this.#wanted) await new Promise((done) => setTimeout(done, ASK_EVERY_MS));
    }
    this.#asking = false;
    if (!this.active || this.playing || this.#shown === null) return;
    this.#resting = setTimeout(() => this.#rest(), REST_MS);
  }

  /** Request a book of a moment. */
  request({ interval_ms, mode, view, on, ...options }, atMs) {
    const as_of = new Date(atMs).toISOString();
    return this.#site.ask({ type: "get_aggregated_orderbook", as_of, ...options });
  }

  #show(reply, atMs) {
    const view = viewOf(reply);
    if (!view) return this.#missing("The book of this moment is damaged.");
    this.#shown = atMs;
    this.#site.show(view, reply.data.states);
    this.#write();
    this.#say(this.#standing);
  }

  #missing(text) {
    this.#shown = null;
    this.#site.none("not recorded");
    this.#write();
    this.#say(text);
  }

  /** Say that the chosen books are not recorded at a moment, and when they are; "" if the recorded times are unknown. */
  async #absence(atMs) {
    await this.#loading;
    if (!this.#times) return "";
    const { symbol, exchanges } = this.#site.options();
    const some = exchanges === "all" ? this.#times.recorded : exchanges.flatMap((name) => this.#times.exchanges.get(name) ?? []);
    const on = exchanges === "all" ? "" : ` on ${listOf(exchanges)}`;
    return unrecorded(`${symbol}${on}`, some, atMs, this.#times);
  }

  /** Request the other cards. */
  async #rest() {
    this.#rested = true;
    const atMs = this.#at;
    this.#say("Reading the rest of this moment.");
    for (const found of this.#parts.keys()) this.#askPart(found);
    this.#site.rest(); // what it adds is requested at once
    const failures = await Promise.all(this.#asked);
    if (this.#rested && this.#at === atMs) this.#say(failures.find(Boolean) ?? this.#standing);
  }

  /** What is said while the past stands still. */
  get #standing() {
    return [this.#told, this.#site.alerts() ? "Its alerts wait until you are back." : ""].filter(Boolean).join(" ");
  }

  /** Say something about the charts over time, until another moment is chosen. */
  tell(text) {
    this.#told = text;
    if (this.active && !this.playing && this.#rested) this.#say(this.#standing);
  }

  /** Go to a moment, from elsewhere than this bar. */
  choose(atMs) {
    if (this.active) this.#go(atMs);
  }

  // Views of the other cards

  /** Subscribe to the view of a card; while the past stands still, its book is requested once. */
  part(options) {
    if (this.playing && options.view === "depth") return this.#site.playPart(this.#played(options));
    const found = { symbol: this.#site.symbol(), view: options.view };
    for (const each of this.#parts.keys()) if (each.view === found.view) this.#parts.delete(each);
    this.#parts.set(found, options);
    if (this.#rested) this.#askPart(found);
    return found;
  }

  /** End the view of a card; false if it is a subscription. */
  forget(view) {
    return this.#parts.delete(view);
  }

  #askPart(found) {
    const asked = this.#readPart(found);
    this.#asked.add(asked);
    asked.then(() => this.#asked.delete(asked));
  }

  /** Returns why there is no book; "" if there is one. */
  async #readPart(found) {
    const atMs = this.#at;
    try {
      const view = viewOf(await this.request({ ...this.#parts.get(found), symbol: this.#site.symbol() }, atMs));
      const current = this.#rested && this.#at === atMs && this.#parts.has(found);
      if (view && current) this.#site.partShown(found, view);
      return view ? "" : "A book of this moment is damaged.";
    } catch (error) {
      return error.message;
    }
  }

  // Playing

  #toggle() {
    if (this.playing) {
      this.#pause();
      this.#go(this.#at);
    } else if (this.#shown !== null) this.#play();
  }

  get #speed() {
    return Number(this.#root.querySelector(".past-speed").value);
  }

  #play() {
    this.playing = true;
    this.#wanted = this.#rested = false;
    clearTimeout(this.#resting);
    this.#showPlay();
    this.#parts.clear();
    this.#say("Costs and crossings follow when you pause.");
    this.#site.play(this.#played(this.#site.options()));
  }

  /** The options of a play; an interval counts recorded time. */
  #played({ symbol, interval_ms, ...options }) {
    const speed = this.#speed;
    const interval = Math.max(interval_ms, (1_000 * speed) / PLAY_UPDATES_MAX);
    return { ...options, interval_ms: Math.min(60_000, interval), start: new Date(this.#at).toISOString(), speed };
  }

  #pause() {
    this.playing = false;
    this.#showPlay();
    this.#site.stop();
  }

  #showPlay() {
    const button = this.#root.querySelector(".past-play");
    write(button, this.playing ? "❚❚ Pause" : "▶ Play");
  }

  /** An update of this time was played. */
  played(timeMs) {
    this.#at = this.#shown = timeMs;
    this.#place();
    this.#write();
  }

  /** A play was refused. */
  refused(text) {
    this.playing = false;
    this.#showPlay();
    this.#missing(text);
  }

  // Display

  #say(text) {
    write(this.#root.querySelector(".past-said"), text);
  }

  /** Write the time of the shown book. */
  #write() {
    write(this.#root.querySelector(".past-time"), this.#shown === null ? "Not recorded" : written.format(this.#shown));
  }

  /** Move the slider to the chosen moment, and its range if the moment is outside. */
  #place() {
    const [seconds, step] = this.#span;
    const at = Math.floor(this.#at / 1_000);
    let [low, high] = [Number(this.#slider.min), Number(this.#slider.max)];
    if (high - low !== seconds || at < low || at > high) {
      const end = Math.floor((this.#times?.last ?? Date.now()) / 1_000);
      high = at > end - seconds ? Math.max(end, at) : Math.min(end, at + Math.floor(seconds / 2));
      low = high - seconds;
      Object.assign(this.#slider, { min: low, max: high, step });
      if (this.#times) this.#load();
    }
    this.#slider.value = at;
    const local = new Date(this.#at - new Date(this.#at).getTimezoneOffset() * 60_000);
    if (document.activeElement !== this.#exact) this.#exact.value = local.toISOString().slice(0, 19);
    this.#describe();
  }

  /** Say the chosen moment to a screen reader: a number of seconds would mean nothing. */
  #describe() {
    const count = this.#times ? [...this.#times.exchanges.values()].filter((spans) => spans.some(([from, to]) => from <= this.#at && this.#at <= to)).length : null;
    const recorded = count === null ? "" : count ? `, recorded from ${count} exchanges` : ", not recorded";
    mark(this.#slider, "aria-valuetext", written.format(this.#at) + recorded);
  }

  // Recorded times

  #load() {
    return (this.#loading = this.#readTimes());
  }

  async #readTimes() {
    this.#timesMs = now();
    const [low, high] = [Number(this.#slider.min), Number(this.#slider.max)].map((each) => each * 1_000);
    try {
      const found = await this.#site.recorded(low, high + 1_000);
      if (!this.active) return;
      // Within whole milliseconds: the times have microseconds.
      const spans = (list) => list.map(({ from, to }) => [Date.parse(from) + 1, Date.parse(to)]);
      this.#times = {
        first: found.first === null ? null : Date.parse(found.first),
        last: found.last === null ? null : Date.parse(found.last),
        recorded: spans(found.recorded),
        exchanges: new Map(Object.entries(found.exchanges).map(([name, list]) => [name, spans(list)])),
      };
      this.#drawTrack(low, high);
      this.#describe();
    } catch (error) {
      if (this.active && !this.#times) this.#missing(error.message);
    }
  }

  /** Draw the recorded times behind the slider. */
  #drawTrack(low, high) {
    const place = (ms) => (1_000 * (ms - low)) / (high - low);
    this.#root.querySelector(".past-track").replaceChildren(...this.#times.recorded.map(([from, to]) => {
      const rect = document.createElementNS(SVG, "rect");
      const width = Math.max(LEAST_PX, place(to) - place(from));
      for (const [name, value] of Object.entries({ x: place(from), y: 0, width, height: 1 })) rect.setAttribute(name, value);
      return rect;
    }));
  }
}

/**
 * The sentence that nothing of a book is recorded at a moment, and from when it is. `spans` are its recorded times near the
 * moment, `first` and `last` the ends of the whole history.
 */
export function unrecorded(book, spans, atMs, { first, last }) {
  const until = Math.max(...spans.map(([, to]) => to).filter((to) => to < atMs));
  const from = Math.min(...spans.map(([since]) => since).filter((since) => since > atMs));
  const recorded = [];
  if (until > -Infinity) recorded.push(`until ${short.format(until)}`);
  if (from < Infinity) recorded.push(`${recorded.length ? "again " : ""}from ${short.format(from)} on`);
  let when = "; choose a longer time to see when it is";
  if (recorded.length) when = `: it is recorded ${recorded.join(" and ")}`;
  else if (first !== null && atMs < first) when = `: the history begins on ${short.format(first)}`;
  else if (last !== null && atMs > last) when = `: the history ends on ${short.format(last)}`;
  return `Nothing of ${book} is recorded then${when}.`;
}

/** The view of a reply, null if its checksum is wrong. */
export function viewOf(reply) {
  const view = new View(reply.symbol);
  return view.apply({ ...reply, type: "aggregated_orderbook_update" }) ? view : null;
}
