// One look and one short code for each exchange, given in the order in which they become known.
// Colours are told apart by every kind of colour vision (after Okabe and Ito, with their yellow
// darkened for light grounds); from the ninth exchange on a pattern tells those of one colour apart.

const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f7ee7", "#999933"];
const PATTERNS = ["solid", "slanted", "barred", "dotted", "framed"];
const places = new Map();
const codes = new Map();
const taken = new Set();

/** Give an element the colour and the pattern of an exchange. */
export function dress(element, exchange) {
  if (!places.has(exchange)) places.set(exchange, places.size);
  const place = places.get(exchange);
  element.style.setProperty("--hue", HUES[place % HUES.length]);
  element.dataset.pattern = PATTERNS[Math.floor(place / HUES.length) % PATTERNS.length];
}

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
