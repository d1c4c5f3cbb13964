/* Groups one side of a book by a price step, in 128 bits: for views whose sums exceed 64 bits.
 *
 * Prices are at the scale of such a view, below 10^36; a bin sums at most as many amounts below
 * 10^18 as a book has levels. A level costs a comparison, a bin two divisions.
 */
#ifndef ONEBOOK_BINS_H
#define ONEBOOK_BINS_H

#include "_digits.h"
#include "_side.h"

typedef struct {
    wide price;
    wide amount;
} Bin;

typedef struct { /* a cursor at the best level that is in no bin yet */
    Walk walk;
    bool more;
    bool rising; /* asks: worse is higher */
    wide unit;   /* factor to the scale of the view */
    wide step;   /* 0: each level is a bin */
} Bins;

static inline wide wide_of(uint64_t high, uint64_t low) { return (wide)high << 64 | low; }

static inline uint64_t high_word(wide value) { return (uint64_t)(value >> 64); }

static inline uint64_t low_word(wide value) { return (uint64_t)value; }

/* Begin at the best level, or at the top that lies over it; prices get `moved` more decimals. */
static inline void bins_open(
    Bins *bins, const Side *levels, const Level *top, int side, int moved, wide step
) {
    memset(bins, 0, sizeof(*bins));
    bins->more = walk_open_under(&bins->walk, levels, top);
    bins->rising = side != 0;
    bins->unit = power10[moved];
    bins->step = step;
}

static inline wide bins_price(const Bins *bins) {
    int64_t key = bins->walk.level->key;
    return (wide)(key < 0 ? -key : key) * bins->unit;
}

/* Fill the next bin; its price is a multiple of the step, away from the touch.
 *
 * Bids below one step are in no bin: no bid has the price 0.
 */
static inline bool bins_next(Bins *bins, Bin *bin) {
    wide price;
    if (!bins->more) return false;
    price = bins_price(bins);
    if (bins->step) price = (price + (bins->rising ? bins->step - 1 : 0)) / bins->step * bins->step;
    if (price == 0) return bins->more = false;
    bin->price = price;
    bin->amount = 0;
    do {
        bin->amount += (wide)bins->walk.level->amount;
        bins->more = walk_next(&bins->walk);
    } while (bins->more
             && (bins->rising ? bins_price(bins) <= price : bins_price(bins) >= price));
    return true;
}

#endif
