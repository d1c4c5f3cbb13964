// The exchanges at a level: the largest by name with their share, as many as fit into their column.

const NAMED_MAX = 3;
const GAP = "\u2002\u2009"; // between two names
const SWATCH = 14; // width of a colour square and its gap
const pen = document.createElement("canvas").getContext("2d");
const widths = new Map(); // width of each name in the canvas font

/** Read the font of an element; call it where the layout is read. */
export function measureIn(element) {
  const { fontWeight, fontSize, fontFamily } = getComputedStyle(element);
  pen.font = `${fontWeight} ${fontSize} ${fontFamily}`;
  widths.clear();
}

function widthOf(text) {
  if (!widths.has(text)) widths.set(text, pen.measureText(text).width);
  return widths.get(text);
}

/** A share as text; empty for an exchange that has all of it. */
export function percent(share) {
  if (share === 1) return "";
  return share < 0.005 ? "<1 %" : `${Math.round(100 * share)} %`;
}

/** Shorten a name to fit `room` pixels. */
function cut(name, room) {
  let shown = name;
  for (let length = name.length - 1; length > 0 && pen.measureText(shown).width > room; length -= 1) {
    shown = `${name.slice(0, length)}…`;
  }
  return shown;
}

/**
 * Select from [exchange, amount] pairs, largest first: [{exchange, text}] for the names that fit into `room` pixels,
 * at least one, shortened or without its share if necessary, and the number of further exchanges.
 */
export function holders(shares, room, hueOf) {
  const total = shares.reduce((sum, [, amount]) => sum + amount, 0);
  const named = [];
  let left = room - (shares.length > 1 ? widthOf("+99") : 0);
  for (const [exchange, amount] of shares.slice(0, NAMED_MAX)) {
    const text = `${exchange} ${percent(amount / total)}`.trim();
    const space = left - (shares.length > 1 ? widthOf(GAP) : 0) - (hueOf(exchange) ? SWATCH : 0);
    left = space - widthOf(exchange) - (shares.length > 1 ? widthOf(" 99 %") : 0);
    if (left < 0 && named.length) break;
    named.push({ exchange, text: (left < 0 ? cut(exchange, space) : text) + (shares.length > 1 ? GAP : "") });
  }
  return { named, more: shares.length - named.length };
}
