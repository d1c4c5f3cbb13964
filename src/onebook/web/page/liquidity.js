// Liquidity over time: the amount at each price, in columns of a second or more; does not access the document.
//
// A column contains the book at the end of its time, in bins of `step` around its mid. Prices outside the updates
// are unknown, which differs from empty. Memory is fixed: COLUMNS x ROWS numbers.

export const COLUMNS = 600; // ten minutes of seconds
export const COLUMN_MS = 1_000; // of the present, and by default
export const ROWS = 192; // bins of a column
export const EVENTS_MAX = 200; // lost exchanges that are kept
export const CARRIED_MAX = 3; // columns filled by a quiet book; after more the page was asleep, and they stay unknown
export const RANGE_MAX_PERCENT = 5; // on each side, if no range is chosen
const NUDGE = 1e-6; // of a bin: as a double, a price on the border of two bins may be slightly below it
const SLACK = 1.3; // factor by which a step may be too fine or too coarse
const SETTLE = 10; // columns for which another step must fit better before it is used
const FADE = 60; // the same for a darker colour scale
const SCALE_QUANTILE = 0.95; // of a column's amounts, which gets the brightest colour

// Marks along the time axis
export const CROSSED = 1; // the best bid was at or above the best ask
export const LOST = 2; // an exchange left the book
export const OUTAGE = 4; // no prices: the connection or its updates were lost

export class Liquidity {
  step = 0; // the height of a bin, a difference of prices; 0 before the first book
  top = 0; // the amount of the brightest colour
  last = -1; // the newest column
  first = -1; // the oldest stored column
  revision = 0; // rises whenever existing columns change
  events = []; // {column, text}
  #rows; // number of bins shown
  #percent = null; // of the mid on each side; null: the whole book
  #amounts = new Float32Array(COLUMNS * ROWS);
  #bases = new Float64Array(COLUMNS); // the lowest bin of each column
  #bids = new Float64Array(COLUMNS).fill(NaN); // best bid; NaN if none
  #asks = new Float64Array(COLUMNS).fill(NaN);
  #lows = new Float64Array(COLUMNS).fill(NaN); // lower bound of the known prices; NaN: none
  #highs = new Float64Array(COLUMNS).fill(NaN);
  #nearLows = new Float64Array(COLUMNS); // lower bound of the prices known for every exchange
  #nearHighs = new Float64Array(COLUMNS);
  #flags = new Uint8Array(COLUMNS);
  #open = false; // whether the last book is still current
  #left = null; // exchanges missing from the book; null before the first book
  #unsuitedMs = null; // since when another step has fitted better
  #brightMs = -Infinity; // when an amount last needed the current colour scale
  #carriedMax;
  #columnMs;

  /** With `carriedMax` a quiet book is copied into this many columns: a past one into all, because nothing was missed. */
  constructor(rows = ROWS / 2, carriedMax = CARRIED_MAX, columnMs = COLUMN_MS) {
    this.#rows = rows;
    this.#carriedMax = carriedMax;
    this.#columnMs = columnMs;
  }

  /** Milliseconds of a column. */
  get columnMs() {
    return this.#columnMs;
  }

  /** Set the number of visible bins, which determines the step. */
  set rows(rows) {
    if (rows === this.#rows) return;
    this.#rows = rows;
    this.#unsuitedMs = -Infinity;
  }

  /** Show this many per cent of the mid on each side; null shows the book as far as it extends. */
  set percent(percent) {
    if (percent === this.#percent) return;
    this.#percent = percent;
    this.#unsuitedMs = -Infinity;
  }

  clear() {
    this.step = this.top = 0;
    this.last = this.first = -1;
    this.#open = false;
    this.#unsuitedMs = null;
    this.#left = null;
    this.events = [];
    for (let column = 0; column < COLUMNS; column += 1) this.#blank(column, 0);
    this.revision += 1;
  }

  /**
   * Add a book from `readBook`; `left` are the exchanges missing from it, `unit` is the price step of its levels
   * if they are binned.
   */
  add({ bids, asks, stats, horizons }, left, nowMs, unit = 0) {
    const { best_bid: bid, best_ask: ask } = stats;
    const mid = bid == null || ask == null ? (bid ?? ask) : (bid + ask) / 2;
    this.advance(nowMs);
    if (mid == null) return this.gap(nowMs);
    this.#open = true;
    const low = bids.length ? bids.at(-1).price : mid;
    const high = asks.length ? asks.at(-1).price : mid;
    this.#suit(mid, Math.max(mid - low, high - mid), unit, nowMs);
    const column = this.last;
    const slot = column % COLUMNS;
    if (this.first < 0) this.first = column;
    this.#bases[slot] = this.bin(mid) - ROWS / 2;
    this.#bids[slot] = bid ?? NaN;
    this.#asks[slot] = ask ?? NaN;
    this.#lows[slot] = low;
    this.#highs[slot] = high - unit / 2; // the price of binned asks is the upper end of the bin
    this.#nearLows[slot] = horizons.bids[0]?.price ?? -Infinity;
    this.#nearHighs[slot] = horizons.asks[0]?.price ?? Infinity;
    this.#amounts.fill(0, slot * ROWS, (slot + 1) * ROWS);
    this.#fill(slot, bids, unit / 2);
    this.#fill(slot, asks, -unit / 2);
    this.#flags[slot] = (this.#flags[slot] & LOST) | (stats.crossed ? CROSSED : 0);
    this.#notice(column, left);
    if (!this.top) this.#rescale(column, nowMs);
  }

  #fill(slot, levels, shift) {
    const base = this.#bases[slot];
    const from = slot * ROWS;
    for (const { price, amount } of levels) {
      const row = this.bin(price + shift) - base;
      if (row >= 0 && row < ROWS) this.#amounts[from + row] += amount;
    }
  }

  /** Mark the exchanges that have left the book since the last call. */
  #notice(column, left) {
    const lost = this.#left ? left.filter((name) => !this.#left.has(name)) : [];
    this.#left = new Set(left);
    if (!lost.length) return;
    this.#flags[column % COLUMNS] |= LOST;
    this.events.push({ column, text: `${lost.join(", ")} lost` });
    if (this.events.length > EVENTS_MAX) this.events.shift();
  }

  /** Advance the time: a quiet book is copied into the new columns; for a withdrawn one, they stay blank. */
  advance(nowMs) {
    const column = Math.floor(nowMs / this.#columnMs);
    if (this.last < 0) this.last = column;
    const carried = this.#open && column - this.last <= this.#carriedMax;
    const outage = this.first >= 0 && !this.#open ? OUTAGE : 0;
    for (let next = Math.max(this.last + 1, column - COLUMNS + 1); next <= column; next += 1) {
      if (carried) this.#copy((next - 1) % COLUMNS, next % COLUMNS);
      else this.#blank(next % COLUMNS, outage);
    }
    if (column <= this.last) return;
    const closed = this.last;
    this.last = column;
    if (this.first >= 0) this.first = Math.max(this.first, column - COLUMNS + 1);
    while (this.events.length && this.events[0].column <= column - COLUMNS) this.events.shift();
    if (this.first >= 0) this.#rescale(closed, nowMs);
  }

  /** Withdraw the prices: from now on nothing is known. */
  gap(nowMs) {
    this.advance(nowMs);
    if (this.first < 0) return;
    this.#open = false;
    this.#flags[this.last % COLUMNS] |= OUTAGE;
  }

  /** Begin at a time with a blank column, because nothing before it will be added. */
  begin(nowMs) {
    this.advance(nowMs);
    this.first = this.last;
  }

  /** Leave the column of a time blank: its book was not read, or with `OUTAGE` not recorded. */
  skip(nowMs, flags = 0) {
    this.#open = false;
    this.advance(nowMs);
    this.#blank(this.last % COLUMNS, flags);
  }

  #copy(from, to) {
    this.#amounts.copyWithin(to * ROWS, from * ROWS, (from + 1) * ROWS);
    for (const each of this.#columns()) each[to] = each[from];
    this.#flags[to] = this.#flags[from] & CROSSED;
  }

  #blank(slot, flags) {
    this.#amounts.fill(0, slot * ROWS, (slot + 1) * ROWS);
    for (const each of this.#columns()) each[slot] = NaN;
    this.#flags[slot] = flags;
  }

  #columns() {
    return [this.#bases, this.#bids, this.#asks, this.#lows, this.#highs, this.#nearLows, this.#nearHighs];
  }

  // Reading

  /** The bin of a price: bin n covers the prices from n to n + 1 steps. */
  bin(price) {
    return Math.floor(price / this.step + NUDGE);
  }

  /** Whether a column is stored and has a book. */
  has(column) {
    return this.first >= 0 && column >= this.first && column <= this.last && !Number.isNaN(this.#lows[column % COLUMNS]);
  }

  /** The amount in a bin; NaN if unknown. */
  amount(column, bin) {
    const slot = column % COLUMNS;
    if (!this.has(column) || bin < this.bin(this.#lows[slot]) || bin > this.bin(this.#highs[slot])) return NaN;
    const row = bin - this.#bases[slot];
    return row >= 0 && row < ROWS ? this.#amounts[slot * ROWS + row] : NaN;
  }

  /** The average amount in each of `bins` bins from `lowest` on, over the columns with a book; unknown amounts count as 0. */
  averages(lowest, bins) {
    const sums = new Float64Array(bins);
    let count = 0;
    for (let column = this.first; this.first >= 0 && column <= this.last; column += 1) {
      if (!this.has(column)) continue;
      count += 1;
      const slot = column % COLUMNS;
      const offset = slot * ROWS - this.#bases[slot];
      const from = Math.max(lowest, this.bin(this.#lows[slot]), this.#bases[slot]);
      const to = Math.min(lowest + bins - 1, this.bin(this.#highs[slot]), this.#bases[slot] + ROWS - 1);
      for (let bin = from; bin <= to; bin += 1) sums[bin - lowest] += this.#amounts[offset + bin];
    }
    return sums.map((sum) => sum / count);
  }

  /** Whether the amount in a bin is a lower bound, because some exchange's book is not known there. */
  least(column, bin) {
    const slot = column % COLUMNS;
    return bin < this.bin(this.#nearLows[slot]) || bin > this.bin(this.#nearHighs[slot]);
  }

  bid(column) {
    return this.#bids[column % COLUMNS];
  }

  ask(column) {
    return this.#asks[column % COLUMNS];
  }

  /** The middle of a column; NaN without a book. */
  mid(column) {
    const [bid, ask] = [this.bid(column), this.ask(column)];
    if (Number.isNaN(bid)) return ask;
    return Number.isNaN(ask) ? bid : (bid + ask) / 2;
  }

  flags(column) {
    return column > this.last - COLUMNS && column <= this.last ? this.#flags[column % COLUMNS] : 0;
  }

  // Step and colour scale

  /** Choose the step for the visible range; another one must fit for a while first, so that columns seldom change. */
  #suit(mid, reach, unit, nowMs) {
    const far = (mid * (this.#percent ?? RANGE_MAX_PERCENT)) / 100;
    const half = this.#percent === null ? Math.min(reach, far) : far;
    const least = half > 0 ? (2 * half) / this.#rows : mid * 1e-6; // crossed sides may have no range
    const whole = multiple(this.step, unit);
    const suits = this.step && whole && stepOf(least / SLACK, unit) <= this.step && stepOf(least * SLACK, unit) >= this.step;
    if (suits && this.#unsuitedMs !== -Infinity) {
      this.#unsuitedMs = null;
      return;
    }
    this.#unsuitedMs ??= nowMs;
    if (this.step && whole && nowMs - this.#unsuitedMs < SETTLE * this.#columnMs) return;
    this.#unsuitedMs = null;
    const wanted = stepOf(least, unit);
    if (wanted !== this.step) this.#resample(wanted, nowMs);
  }

  /** Rebin to another step: the amount of a bin is assumed to be spread evenly over its known prices. */
  #resample(step, nowMs) {
    const before = this.step;
    this.step = step;
    if (this.first < 0) return;
    const held = new Float32Array(ROWS);
    for (let column = this.first; column <= this.last; column += 1) {
      if (!this.has(column)) continue;
      const slot = column % COLUMNS;
      const from = slot * ROWS;
      const old = this.#bases[slot];
      const base = this.bin(this.mid(column)) - ROWS / 2;
      held.set(this.#amounts.subarray(from, from + ROWS));
      this.#amounts.fill(0, from, from + ROWS);
      this.#bases[slot] = base;
      held.forEach((amount, row) => {
        if (!amount) return;
        const low = Math.max(((old + row) * before) / step, this.bin(this.#lows[slot])) - base;
        const high = Math.min(((old + row + 1) * before) / step, this.bin(this.#highs[slot]) + 1) - base;
        for (let to = Math.max(0, Math.floor(low + NUDGE)); to < Math.min(ROWS, high - NUDGE); to += 1) {
          const part = (Math.min(high, to + 1) - Math.max(low, to)) / (high - low);
          this.#amounts[from + to] += amount * part;
        }
      });
      // Prices outside the old bins are unknown in the new ones.
      this.#lows[slot] = Math.max(this.#lows[slot], old * before);
      this.#highs[slot] = Math.min(this.#highs[slot], (old + ROWS) * before - before / 2);
    }
    this.top = 0;
    this.#rescale(this.has(this.last) ? this.last : this.last - 1, nowMs);
    this.revision += 1;
  }

  /** Assign the brightest colour to a column's largest amounts; a fainter scale only after a while. */
  #rescale(column, nowMs) {
    if (!this.has(column)) return;
    const slot = column % COLUMNS;
    const amounts = this.#amounts.subarray(slot * ROWS, (slot + 1) * ROWS).filter((amount) => amount > 0).sort();
    if (!amounts.length) return;
    const wanted = 2 ** Math.ceil(Math.log2(amounts[Math.floor((amounts.length - 1) * SCALE_QUANTILE)]));
    if (wanted * 2 >= this.top) this.#brightMs = nowMs;
    if (wanted <= this.top && nowMs - this.#brightMs < FADE * this.#columnMs) return;
    this.#brightMs = nowMs;
    this.top = wanted;
    this.revision += 1;
  }
}

/** A round step of at least this size; for levels in bins of `unit`, a multiple of it, so that levels share bins. */
export function stepOf(least, unit = 0) {
  const exponent = Math.floor(Math.log10(Math.max(least, unit)));
  for (let power = exponent; power <= exponent + 2; power += 1) {
    for (const digit of unit ? [1, 1.5, 2, 3, 4, 5, 6, 8] : [1, 2, 5]) {
      const step = Number(`${digit}e${power}`);
      if (step >= least * (1 - NUDGE) && step >= unit * (1 - NUDGE) && multiple(step, unit)) return step;
    }
  }
  return unit * Math.ceil(least / unit);
}

/** Whether a step is a whole number of units. */
function multiple(step, unit) {
  return !unit || Math.abs(step / unit - Math.round(step / unit)) < NUDGE;
}
