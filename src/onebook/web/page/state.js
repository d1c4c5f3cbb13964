// The page's state as the fragment of its address, so that a link shows others the same view. The key is never part
// of it; `#key=` is read once, for `onebook demo`, and removed.

export const ROWS = [8, 10, 12, 14, 16, 18, 20, 22, 25, 50, 100, 200];
export const RATES = [1, 2, 5, 10];
export const PANELS_MAX = 6;
const SYMBOL = /^[A-Z0-9][A-Z0-9.:_-]*\/[A-Z0-9][A-Z0-9.:_-]*$/;
const SYMBOL_MAX = 64;
const SYMBOL_USUAL = "BTC/USDT";
const THOUSANDS = /^\d{1,3}(,\d{3})+(\.\d+)?$/;
const DECIMAL = /^(?!0*\.?0*$)\d{1,18}(\.\d{1,18})?$/;

export const PROFITS = ["0", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"]; // minimum of crossings, in percent after fees
export const QUOTES_MAX = 8; // pooled quote currencies, besides the symbol's own; the service has no more
const NET = "net"; // prices after fees, in an address
export const PUBLISHED = "published"; // fees that exchanges publish, as the option `fees` and in an address
export const PARTS_MAX = ["", "1", "2", "3", "4", "5", "6", "8"]; // maximum exchanges of a route; "": any number
const QUOTE = /^[A-Z0-9]{1,20}$/;

export const RANGES = ["0.1", "0.5", "1", "2", "5", "all"]; // of the depth chart, in percent of the mid
const usual = { rate: 5, range: "0.5" };

// For quote currencies that are not worth about a dollar, a size of similar value.
const SIZES = { BTC: "0.1", ETH: "3", BNB: "15", SOL: "60", JPY: "1500000", KRW: "14000000" };

/** What a panel shows for a symbol until the user chooses. */
export function panelOf(symbol) {
  const size = SIZES[symbol.split("/")[1]] ?? "10000";
  return { symbol, group: "", size, by: "notional", range: usual.range, most: "", net: false, quotes: [], profit: PROFITS[0] };
}

/** A symbol in the service's spelling, or null. */
export function symbolOf(text) {
  const name = text.trim().toUpperCase();
  return name.length <= SYMBOL_MAX && SYMBOL.test(name) ? name : null;
}

/** A size in the form of the option `fill`, or null: "1,5" means 1.5 to some and must not become 15. */
export function sizeOf(text) {
  const spaced = text.replaceAll(/[\s_]/g, "").replace(/^\./, "0.");
  const plain = THOUSANDS.test(spaced) ? spaced.replaceAll(",", "") : spaced;
  return DECIMAL.test(plain) ? plain : null;
}

/** The quote currencies that an address names, without the symbol's own. */
function quotesOf(text, symbol) {
  const valid = text.split(",").filter((quote) => QUOTE.test(quote) && quote !== symbol.split("/")[1]);
  return [...new Set(valid)].slice(0, QUOTES_MAX);
}

/** Read a fragment; invalid parts keep their defaults. `rows` is the number of levels that fit this screen. */
export function readState(fragment, { rows }) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const number = (name, allowed, otherwise) =>
    allowed.includes(Number(given.get(name))) ? Number(given.get(name)) : otherwise;
  const column = (name) => given.getAll(name);
  const [groups, sizes, kinds, parts, ranges, prices, baskets, profits] =
    ["step", "size", "by", "most", "range", "prices", "quotes", "profit"].map(column);
  const panels = [];
  const ignored = []; // invalid symbols
  const names = column("symbol").length ? column("symbol") : [SYMBOL_USUAL];
  names.forEach((text, at) => {
    const symbol = symbolOf(text);
    if (!symbol) ignored.push(text.slice(0, SYMBOL_MAX));
    if (!symbol || panels.length >= PANELS_MAX || panels.some((each) => each.symbol === symbol)) return;
    panels.push({
      symbol,
      group: sizeOf(groups[at] ?? "") ?? "",
      size: sizeOf(sizes[at] ?? "") ?? panelOf(symbol).size,
      by: kinds[at] === "amount" ? "amount" : "notional",
      most: PARTS_MAX.includes(parts[at]) ? parts[at] : "",
      range: RANGES.includes(ranges[at]) ? ranges[at] : usual.range,
      net: prices[at] === NET,
      quotes: quotesOf(baskets[at] ?? "", symbol),
      profit: PROFITS.includes(profits[at]) ? profits[at] : PROFITS[0],
    });
  });
  const exchanges = given.get("exchanges");
  return {
    key: given.get("key"),
    rows: number("levels", ROWS, rows),
    rowsUsual: rows,
    rate: number("rate", RATES, usual.rate),
    published: given.get("fees") === PUBLISHED,
    exchanges: exchanges?.split(",").filter((name) => /^[a-z0-9_]+$/.test(name)) ?? null,
    ignored,
    panels: panels.length ? panels : [panelOf(SYMBOL_USUAL)],
  };
}

/** Write the fragment of a state. */
export function writeState({ rows, rowsUsual, rate, published, exchanges, panels }) {
  const given = new URLSearchParams();
  const columns = [
    ["symbol", ({ symbol }) => symbol], ["step", ({ group }) => group], ["size", ({ size }) => size], ["by", ({ by }) => by],
    ["most", ({ most }) => most], ["range", ({ range }) => range], ["prices", ({ net }) => (net ? NET : "")], ["quotes", ({ quotes }) => quotes.join()],
    ["profit", ({ profit }) => profit],
  ];
  for (const [name, text] of columns) {
    const same = panels.every((panel) => text(panel) === text(panelOf(panel.symbol)));
    if (name === "symbol" ? panels.length > 1 || panels[0].symbol !== SYMBOL_USUAL : !same) {
      for (const panel of panels) given.append(name, text(panel));
    }
  }
  if (rows !== rowsUsual) given.set("levels", rows);
  if (rate !== usual.rate) given.set("rate", rate);
  if (published) given.set("fees", PUBLISHED);
  if (exchanges !== null) given.set("exchanges", exchanges.join(","));
  const text = given.toString().replaceAll("%2F", "/").replaceAll("%2C", ",");
  return text && `#${text}`;
}
