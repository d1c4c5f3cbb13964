// One colour for each exchange, told apart by every kind of colour vision (after Okabe and Ito,
// with their yellow darkened for light grounds). The short code stands beside it everywhere.

const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f7ee7", "#999933"];
const known = new Map();

export function hue(exchange) {
  if (!known.has(exchange)) known.set(exchange, HUES[known.size % HUES.length]);
  return known.get(exchange);
}

export function code(exchange) {
  return exchange.slice(0, 3).toUpperCase();
}
