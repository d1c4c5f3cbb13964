// Number formatting: the same number of decimals within a column, so that digits are aligned.

export const PRICE_DECIMALS_MAX = 12; // of a price on the page
const FINE_DIGITS = 9; // of a price after fees or a conversion, whose exact text has up to 25
const NAMED_MAX = 3; // exchanges named in a sentence
const FEWER_AFTER_MS = 10_000;
const formats = new Map();
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export function fixed(value, decimals) {
  let format = formats.get(decimals);
  if (!format) {
    const options = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    formats.set(decimals, (format = new Intl.NumberFormat("en", options)));
  }
  return format.format(value);
}

/** The number of decimals that the numbers need, up to `max`; exponents such as 1e-7 are counted too. */
export function decimals(values, max) {
  let most = 0;
  for (const value of values) {
    const [digits, exponent = "0"] = String(value).split("e");
    const places = (digits.split(".")[1] ?? "").length - Number(exponent);
    if (places > most) most = places;
    if (most >= max) return max;
  }
  return most;
}

/** The most decimals of the prices of a book: those after fees or conversions are rounded to nine digits. */
export function decimalsMax({ fine }, price) {
  if (!fine || !(price > 0)) return PRICE_DECIMALS_MAX;
  return Math.min(PRICE_DECIMALS_MAX, Math.max(0, FINE_DIGITS - 1 - Math.floor(Math.log10(price))));
}

/** An amount in a column with this many decimals; an amount that would become 0 is shown as below the smallest one.
*/
export function rounded(value, places) {
  const least = 10 ** -places;
  return value > 0 && value < least / 2 ? `<${fixed(least, places)}` : fixed(value, places);
}

/** Numbers with as many decimals as they need together, such as the labels of an axis. */
export function texts(values) {
  const places = decimals(values.map((value) => Number(value.toPrecision(12))), PRICE_DECIMALS_MAX);
  return values.map((value) => fixed(value, places));
}

/** The unit for a column whose largest amount is `largest`, so that none needs more than about eight characters. */
export function unitOf(largest) {
  if (largest >= 1e11) return { unit: 1e9, suffix: "B" };
  return largest >= 1e8 ? { unit: 1e6, suffix: "M" } : { unit: 1, suffix: "" };
}

/** Decimals that give an amount about six digits. */
export function amountDecimals(largest) {
  if (!(largest > 0)) return 2;
  return Math.min(8, Math.max(0, 5 - Math.floor(Math.log10(largest))));
}

/** Decimals of a column: more immediately, fewer only after a while, so that its width does not flicker. */
export class Places {
  #count = 0;
  #neededMs = -Infinity;

  /** The number of decimals to write if this many are needed now. */
  of(needed, nowMs) {
    if (needed >= this.#count || nowMs - this.#neededMs >= FEWER_AFTER_MS) {
      this.#count = needed;
      this.#neededMs = nowMs;
    }
    return this.#count;
  }
}

/** A number with about six digits, however small; for a large one, all digits before the point. */
export function sixDigits(value) {
  if (!value) return "0";
  return fixed(value, Math.min(20, Math.max(0, 5 - Math.floor(Math.log10(Math.abs(value))))));
}

/** Steps for binning prices: powers of ten and their halves, from about the finest useful one. */
export function groupSteps(price) {
  if (!(price > 0)) return [];
  const finest = Math.floor(Math.log10(price)) - 5;
  return [0, 1, 2, 3].flatMap((up) => [power(finest + up), power(finest + up, 5)]);
}

/** The smallest step of 1, 2 or 5 times a power of ten that is not below a value, as decimal text. */
export function stepFrom(value) {
  const exponent = Math.floor(Math.log10(value));
  const times = [1, 2, 5].find((each) => each * 10 ** exponent >= value * (1 - 1e-9));
  return times ? power(exponent, times) : power(exponent + 1);
}

function power(exponent, times = 1) {
  return exponent >= 0 ? `${times}${"0".repeat(exponent)}` : (times / 10 ** -exponent).toFixed(-exponent);
}

/** The first names, and the number of further ones. */
export function listOf(names) {
  const more = names.length - NAMED_MAX;
  return names.slice(0, NAMED_MAX).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** Format a number of bytes with a suitable unit. */
export function size(bytes, decimals) {
  let unit = "B";
  for (const larger of ["KiB", "MiB", "GiB", "TiB"]) {
    if (Number(bytes.toFixed(unit === "B" ? 0 : decimals)) < 1_024) break;
    bytes /= 1_024;
    unit = larger;
  }
  return `${fixed(bytes, unit === "B" ? 0 : decimals)} ${unit}`;
}

export function age(ms) {
  return ms < 60_000 ? `${Math.floor(ms / 1000)} s` : `${Math.floor(ms / 60_000)} min`;
}

/** The age of a quote: more precise, because it decides whether a crossing can be real. */
export function quoteAge(ms) {
  if (!(ms >= 0)) return "age unknown";
  return ms < 1_000 ? `${Math.round(ms)} ms` : ms < 60_000 ? `${(ms / 1_000).toFixed(1)} s` : age(ms);
}

/** A time ago; "now" only while live. */
export function ago(ms, live = true) {
  return live && ms < 1000 ? "now" : `${age(ms)} ago`;
}

/** A signed number, with a true minus sign. */
export function signed(value, places) {
  return `${value > 0 ? "+" : value < 0 ? "−" : ""}${fixed(Math.abs(value), places)}`;
}

/** Per cent of a price with four decimals, or with two digits if there would be fewer: a spread above 0 is not
0.0000. */
export function finePercent(value) {
  const size = Math.abs(value);
  return value.toFixed(size > 0 && size < 0.001 ? Math.min(12, 1 - Math.floor(Math.log10(size))) : 4);
}

/** An axis label in few characters: 1,200,000 is 1.2M. */
export function short(value) {
  return compact.format(value);
}
