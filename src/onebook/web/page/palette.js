// One look and one short code for each exchange, given in the order in which they become known.
// Colours are distinguishable with every kind of colour vision (after Okabe and Ito, with their yellow
// darkened for light grounds); from the ninth exchange on a pattern distinguishes those of one colour.

const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f7ee7", "#999933"];
const PATTERNS = ["solid", "slanted", "barred", "dotted", "framed"];
const TILE = { width: 8, height: 8 }; // CSS pixels, of a pattern on a canvas
const places = new Map();
const inks = new Map();
const codes = new Map();
const taken = new Set();

function look(exchange) {
  if (!places.has(exchange)) places.set(exchange, places.size);
  const place = places.get(exchange);
  return {
    hue: HUES[place % HUES.length],
    pattern: PATTERNS[Math.floor(place / HUES.length) % PATTERNS.length],
  };
}

/** Give an element the colour and the pattern of an exchange. */
export function dress(element, exchange) {
  const { hue, pattern } = look(exchange);
  element.style.setProperty("--hue", hue);
  element.dataset.pattern = pattern;
}

/** The colour and the pattern of an exchange as a fill of a canvas; `scale` is device pixels per CSS pixel. */
export function ink(exchange, context, scale) {
  const key = `${exchange} ${scale}`;
  if (!inks.has(key)) {
    const { hue, pattern } = look(exchange);
    inks.set(key, pattern === "solid" ? hue : tiled(context, hue, pattern, scale));
  }
  return inks.get(key);
}

/** What a pattern leaves out is transparent, so that it suits every ground. */
function tiled(context, hue, pattern, scale) {
  const tile = document.createElement("canvas");
  Object.assign(tile, { width: Math.round(TILE.width * scale), height: Math.round(TILE.height * scale) });
  const brush = tile.getContext("2d");
  brush.scale(tile.width / TILE.width, tile.height / TILE.height);
  brush.fillStyle = hue;
  brush.fillRect(0, 0, TILE.width, TILE.height);
  brush.globalCompositeOperation = "destination-out";
  CUTS[pattern](brush);
  const fill = context.createPattern(tile, "repeat");
  fill.setTransform(new DOMMatrix().scale(TILE.width / tile.width, TILE.height / tile.height));
  return fill;
}

const CUTS = {
  slanted(brush) {
    brush.lineWidth = 2;
    brush.beginPath();
    for (const from of [-8, -4, 0, 4, 8]) {
      brush.moveTo(from - 2, 10);
      brush.lineTo(from + 10, -2);
    }
    brush.stroke();
  },
  barred(brush) {
    for (const top of [1, 5]) brush.fillRect(0, top, TILE.width, 2);
  },
  dotted(brush) {
    for (const [x, y] of [[2, 2], [6, 2], [2, 6], [6, 6]]) {
      brush.beginPath();
      brush.arc(x, y, 1.2, 0, 2 * Math.PI);
      brush.fill();
    }
  },
  framed(brush) {
    brush.fillRect(2, 2, 4, 4);
  },
};

/** Three letters of the name, its first among them, that no other exchange has. */
export function code(exchange) {
  if (!codes.has(exchange)) {
    const found = candidates(exchange.toUpperCase()).find((each) => !taken.has(each));
    codes.set(exchange, found ?? exchange.toUpperCase());
    taken.add(codes.get(exchange));
  }
  return codes.get(exchange);
}

function candidates(name) {
  const made = [name.slice(0, 3)];
  for (let second = 1; second < name.length; second += 1) {
    for (let third = second + 1; third < name.length; third += 1) {
      made.push(name[0] + name[second] + name[third]);
    }
  }
  return made;
}
