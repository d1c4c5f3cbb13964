// The user's alerts: an editable list stored in this browser, with a sound and, if the user allows it,
// a browser notification. rules.js decides when an alert fires.

import { KINDS, ruleOf, Watch, worded } from "./rules.js";

const SLOT = "onebook.alerts";
export const RULES_MAX = 50;
const FIRED_MAX = 20; // fired alerts that are listed
const SOUND_EVERY_MS = 2_000; // minimum interval
const NOTES = [[880, 0], [1_175, 0.13]]; // frequency in hertz, start in seconds
const NOTE_S = 0.12;
const LOUDNESS = 0.15;
const WORDS = {
  price: { name: "Price crosses", value: "Price", hint: "" },
  spread: { name: "Spread above", value: "Per cent", hint: "0.05" },
  crossing: { name: "Crossed after fees", value: "Per cent after fees", hint: "0" },
  lost: { name: "Exchange lost", value: "Exchange", hint: "any" },
};

export class Alerts {
  #watches = new Map(); // by rule
  #form;
  #list;
  #fired;
  #answer;
  #sound = true;
  #notify = false;
  #audio = null;
  #soundedMs = -Infinity;
  #site;

  /**
   * Fills `box`. `site` is the page: `symbol()`, the suggested symbol, and `notice(text)`.
   */
  constructor(box, site) {
    this.#site = site;
    this.#form = made("form", { className: "alert-form", autocomplete: "off" });
    this.#list = made("ul", { className: "alert-list" });
    this.#fired = made("ol", { className: "alert-fired" });
    this.#answer = made("p", { className: "hint" });
    this.#answer.setAttribute("role", "status");
    const kinds = made("select", { name: "kind" });
    kinds.setAttribute("aria-label", "Alert when");
    kinds.append(...KINDS.map((kind) => new Option(WORDS[kind].name, kind)));
    const symbol = made("input", { name: "symbol", placeholder: "Symbol", spellcheck: false, maxLength: 64 });
    symbol.setAttribute("aria-label", "Symbol");
    const value = made("input", { name: "value", spellcheck: false, maxLength: 32, inputMode: "decimal" });
    this.#form.append(kinds, symbol, value, made("button", { type: "submit", className: "quiet", textContent: "Add" }));
    kinds.addEventListener("change", () => this.#offer());
    this.#form.addEventListener("focusin", () => (symbol.value ||= site.symbol()));
    this.#form.addEventListener("submit", (event) => (event.preventDefault(), this.#add()));
    box.append(this.#form, this.#answer, this.#list, this.#ways(), this.#fired);
    this.#offer();
    this.#read();
    this.#show();
    // Browsers play sound only after the user has interacted with the page.
    for (const name of ["pointerdown", "keydown"]) addEventListener(name, () => this.#wake(), { once: true });
  }

  /** Whether a symbol has a rule. */
  watches(symbol) {
    return [...this.#watches.keys()].some((rule) => rule.symbol === symbol);
  }

  /** Check an update of a symbol; see `Watch.check`. */
  check(symbol, facts, nowMs) {
    for (const [rule, watch] of this.#watches) {
      if (rule.symbol === symbol) for (const text of watch.check(facts, nowMs)) this.#fire(text, nowMs);
    }
  }

  // The list

  #add() {
    const { kind, symbol, value } = Object.fromEntries(new FormData(this.#form));
    const rule = ruleOf({ kind, symbol: symbol || this.#site.symbol(), value });
    const same = rule && [...this.#watches.keys()].some((each) => worded(each) === worded(rule));
    if (!rule) return this.#say(`Enter a symbol such as BTC/USDT and a valid ${WORDS[kind].value.toLowerCase()}.`);
    if (same) return this.#say("This alert already exists.");
    if (this.#watches.size >= RULES_MAX) return this.#say(`At most ${RULES_MAX} alerts are possible.`);
    this.#watches.set(rule, new Watch(rule));
    this.#wake();
    this.#form.elements.value.value = "";
    this.#say(`Added: ${worded(rule)}.`);
    this.#keep();
  }

  #remove(rule) {
    this.#watches.delete(rule);
    this.#say(`Removed: ${worded(rule)}.`);
    this.#keep();
    (this.#list.querySelector("button") ?? this.#form.elements.kind).focus(); // the button was removed with its alert
  }

  #offer() {
    const { value, kind } = this.#form.elements;
    value.setAttribute("aria-label", WORDS[kind.value].value);
    value.placeholder = WORDS[kind.value].hint || WORDS[kind.value].value;
    value.inputMode = kind.value === "lost" ? "text" : "decimal";
  }

  #show() {
    this.#list.replaceChildren(...[...this.#watches.keys()].map((rule) => {
      const item = made("li", { textContent: worded(rule) });
      const button = made("button", { type: "button", className: "quiet", textContent: "✕" });
      button.setAttribute("aria-label", `Remove: ${worded(rule)}`);
      button.addEventListener("click", () => this.#remove(rule));
      item.append(button);
      return item;
    }));
    this.#list.hidden = !this.#watches.size;
  }

  #say(text) {
    this.#answer.textContent = text;
  }

  // Storage

  #read() {
    let kept = {};
    try { kept = JSON.parse(localStorage.getItem(SLOT)) ?? {}; } catch { /* storage is off, or not ours */ }
    const rules = Array.isArray(kept.rules) ? kept.rules.slice(0, RULES_MAX).map((each) => ruleOf(each ?? {})) : [];
    for (const rule of rules) if (rule) this.#watches.set(rule, new Watch(rule));
    this.#sound = kept.sound !== false;
    this.#notify = kept.notify === true && allowed();
    this.#form.parentElement.querySelector("[name=sound]").checked = this.#sound;
    this.#form.parentElement.querySelector("[name=notify]").checked = this.#notify;
  }

  #keep() {
    const kept = { rules: [...this.#watches.keys()], sound: this.#sound, notify: this.#notify };
    try { localStorage.setItem(SLOT, JSON.stringify(kept)); } catch { /* storage is off */ }
    this.#show();
  }

  // Notification

  #ways() {
    const row = made("p", { className: "alert-ways" });
    const choice = (name, text, chosen) => {
      const label = made("label", {});
      const input = made("input", { type: "checkbox", name });
      input.addEventListener("change", () => chosen(input));
      label.append(input, ` ${text}`);
      return label;
    };
    const test = made("button", { type: "button", className: "quiet", textContent: "Test the sound" });
    test.addEventListener("click", () => this.#wake(true)?.then(() => this.#play()));
    row.append(
      choice("sound", "Sound", ({ checked }) => ((this.#sound = checked), this.#keep())),
      choice("notify", "Browser notification", (input) => this.#askNotify(input)),
      test,
    );
    return row;
  }

  /** Request permission from the browser; called on the user's click. */
  async #askNotify(input) {
    this.#notify = false;
    if (input.checked) {
      const supported = typeof Notification !== "undefined";
      const answer = supported ? await Notification.requestPermission() : "absent";
      this.#notify = input.checked && answer === "granted";
      if (!supported) this.#say("This browser does not support notifications.");
      else if (!this.#notify) this.#say("Notifications of this page are blocked; allow them in the browser settings.");
    }
    input.checked = this.#notify;
    this.#keep();
  }

  #fire(text, nowMs) {
    const item = made("li", { textContent: `${new Date().toLocaleTimeString()} ${text}` });
    this.#fired.prepend(item);
    while (this.#fired.childElementCount > FIRED_MAX) this.#fired.lastChild.remove();
    this.#site.notice(text);
    if (this.#sound && nowMs - this.#soundedMs >= SOUND_EVERY_MS) {
      this.#soundedMs = nowMs;
      this.#play();
    }
    if (this.#notify && allowed()) notification(text);
  }

  /** Prepare the sound, which a browser allows only while it handles a click or key press. */
  #wake(wanted = this.#sound && this.#watches.size > 0) {
    const acted = navigator.userActivation?.hasBeenActive ?? true; // otherwise the browser would log an error
    if (!wanted || !acted || typeof AudioContext === "undefined") return null;
    this.#audio ??= new AudioContext();
    return this.#audio.resume().catch(() => {});
  }

  /** Two short notes. */
  #play() {
    const audio = this.#audio;
    if (audio?.state !== "running") return; // it would play later
    for (const [hertz, laterS] of NOTES) {
      const begin = audio.currentTime + laterS;
      const [tone, loudness] = [audio.createOscillator(), audio.createGain()];
      tone.frequency.value = hertz;
      loudness.gain.setValueAtTime(0, begin);
      loudness.gain.linearRampToValueAtTime(LOUDNESS, begin + 0.01);
      loudness.gain.linearRampToValueAtTime(0, begin + NOTE_S);
      tone.connect(loudness).connect(audio.destination);
      tone.start(begin);
      tone.stop(begin + NOTE_S);
    }
  }
}

function allowed() {
  return typeof Notification !== "undefined" && Notification.permission === "granted";
}

function notification(text) {
  try {
    const shown = new Notification("Onebook", { body: text, tag: text, silent: true });
    shown.onclick = () => (window.focus(), shown.close());
  } catch { /* a phone shows them for service workers only; the notice on the page is there */ }
}

function made(name, members) {
  return Object.assign(document.createElement(name), members);
}
