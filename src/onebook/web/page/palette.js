// The colours of the exchanges that the user picked, at most eight: stored in this browser, shared by its tabs.
// A colour is the name of a variable in base.css.

import { hide } from "./write.js";

const SLOT = "onebook.colours";
const HUES = Array.from({ length: 8 }, (_, at) => `--hue-${at + 1}`);
export const PICKED_MAX = HUES.length;

let picked = read(); // exchange of each colour; null if free

function read() {
  let names = [];
  try { names = JSON.parse(localStorage.getItem(SLOT)) ?? []; } catch { /* storage is off, or holds no list */ }
  return HUES.map((_, at) => (typeof names[at] === "string" ? names[at] : null));
}

/** Give an exchange the first free colour, or remove its colour. */
export function pick(exchange, on) {
  const at = picked.indexOf(on ? null : exchange);
  if (at < 0 || (on && picked.includes(exchange))) return;
  picked[at] = on ? exchange : null;
  try { localStorage.setItem(SLOT, JSON.stringify(picked)); } catch { /* storage is off: as long as the page */ }
}

/** Call `changed` when another tab changes the colours. */
export function followPicks(changed) {
  addEventListener("storage", ({ key }) => {
    if (key !== SLOT && key !== null) return;
    picked = read();
    changed();
  });
}

/** The colour of a book's exchange, or null: `kraken:USD` has that of kraken. */
export function hueOf(book) {
  return HUES[picked.indexOf(book.split(":", 1)[0])] ?? null;
}

export const pickedCount = () => picked.filter(Boolean).length;

/** A square for the colour of an exchange. */
export function swatch() {
  const element = document.createElement("i");
  element.className = "swatch";
  return element;
}

/** Give a square the colour of an exchange; without a colour it is hidden. */
export function dress(element, exchange) {
  const hue = hueOf(exchange);
  hide(element, hue === null);
  if (hue) paint(element, hue);
}

/** Set the colour of an element, only where it changes. */
export function paint(element, hue) {
  const value = `var(${hue})`;
  if (element.style.getPropertyValue("--hue") !== value) element.style.setProperty("--hue", value);
}
