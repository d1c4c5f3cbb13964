/* Converts the levels of books into another currency, level by level of a conversion book.
 *
 * Books that share a conversion book use it up together, the cheapest order first. A unit that two
 * levels of the conversion book would share is charged at the worse one. Numbers that exceed 128
 * bits are reported as a misfit, and Python's integers are used.
 */
#ifndef ONEBOOK_CONVERSION_H
#define ONEBOOK_CONVERSION_H

#include "_merge.h"

enum { CONVERSION_DONE, CONVERSION_MISFIT, CONVERSION_MEMORY };
enum { SHIFT_DIGITS = 38 }; /* ten to this power fits a `wide` */

typedef struct { /* one side of a conversion book, best first; asks have negated keys */
    const Merged *levels;
    int32_t count;
    int price_scale;
    int amount_scale;
    bool inverse; /* its base currency is the one converted into */
} Rates;

typedef struct { /* the converted side of a member */
    Side *side;
    int price_scale; /* of its book */
    int64_t factor; /* that its fee puts on prices */
    int64_t key; /* of the worst level so far, which is not yet in `side` */
    int64_t amount; /* 0 before the first level */
    int32_t room; /* free places before the worst level, in a block that is filled from its end */
    bool cut; /* a worse level exists that is not in `side` */
    bool done; /* it has as many levels as are needed */
    int64_t bound; /* the outermost key within which no level is missing; NO_KEY: its worst level */
} Converted;

static inline uint64_t magnitude(int64_t key) {
    return key < 0 ? (uint64_t)-key : (uint64_t)key;
}

/* Multiply by a power of ten; false if it does not fit. */
static inline bool wide_shift(wide *number, int decimals) {
    wide unit = 1;
    if (*number == 0) return true;
    if (decimals > SHIFT_DIGITS) return false;
    for (; decimals > 19; decimals -= 19) unit *= power10[19];
    return !__builtin_mul_overflow(*number, unit * power10[decimals], number);
}

/* How much of the other currency a level converts, `decimals` finer than its own scale. */
static inline bool rate_capacity(const Rates *rates, int32_t at, int decimals, wide *capacity) {
    *capacity = (wide)rates->levels[at].amount;
    if (rates->inverse) *capacity *= magnitude(rates->levels[at].key);
    return wide_shift(capacity, decimals);
}

/* Convert a price, rounded away from the touch; false if a number does not fit. */
static inline bool rate_price(
    const Rates *rates, int32_t at, uint64_t price, int scale, int side, int decimals,
    wide *converted
) {
    wide above = price, below = 1, rate = magnitude(rates->levels[at].key);
    int shift = decimals + (rates->inverse ? rates->price_scale : -rates->price_scale) - scale;
    if (rates->inverse) below = rate;
    else above *= rate;
    /* Not by a chosen pointer, which would keep both numbers in memory. */
    if (shift < 0 ? !wide_shift(&below, -shift) : !wide_shift(&above, shift)) return false;
    if (side) {
        if (__builtin_add_overflow(above, below - 1, &above)) return false;
    }
    if (above >> 64 || below >> 64) *converted = above / below;
    else *converted = (uint64_t)above / (uint64_t)below;
    return true;
}

/* Store the worst level so far, without a search; false if out of memory. */
static inline bool converted_store(Converted *member) {
    Side *side = member->side;
    Level *level;
    if (member->amount == 0) return true;
    if (member->room == 0) {
        if (block_add(side, 0) == NULL) return false;
        member->room = BLOCK_LEVELS;
    }
    level = &side->blocks[0]->levels[--member->room];
    level->key = side->lows[0] = member->key;
    level->amount = member->amount;
    side->blocks[0]->count++;
    side->count++;
    return true;
}

/* Store the last level, and move the last block's levels to its start, where readers expect them. */
static inline bool converted_end(Converted *member) {
    Block *block;
    if (!converted_store(member)) return false;
    if (member->room == 0) return true;
    block = member->side->blocks[0];
    memmove(block->levels, &block->levels[member->room], block->count * sizeof(Level));
    block_pad(block);
    return true;
}

/* Set how far the levels of a member are known: to one unit before its next level. */
static inline int convert_bound(
    const Cursor *cursor, Converted *member, const Rates *rates, int32_t at, int side, int decimals
) {
    wide price;
    uint64_t own = magnitude(cursor->walk.level->key);
    int64_t bound;
    if (!rate_price(rates, at, own, member->price_scale, side, decimals, &price))
        return CONVERSION_MISFIT;
    if (price >= power10[KEY_DIGITS]) return CONVERSION_DONE;
    bound = (side ? -(int64_t)price : (int64_t)price) + 1;
    member->bound = member->amount && member->key < bound ? member->key : bound;
    return CONVERSION_DONE;
}

/* Convert one side of the books under the cursors.
 *
 * `price_scale` is that of the heads and `amount_scale` that of the cursors' amounts. If `ranked`,
 * readers order levels like the cursors, and need no more than `depth` net prices; else they need
 * `depth` levels of each member. `used` is how many rates the result depends on.
 */
static inline int convert_side(
    Cursors *cursors, Converted *members, const Rates *rates, int side, int price_scale,
    int amount_scale, int decimals, int depth, bool ranked, int32_t *used
) {
    int finer = rates->amount_scale + (rates->inverse ? rates->price_scale : 0) - price_scale
        - amount_scale;
    int costs = finer > 0 ? finer : 0, capacities = finer < 0 ? -finer : 0;
    wide capacity = 0, unit, cost, price, net, worst = 0;
    ptrdiff_t open = cursors->count; /* members that need more levels */
    int32_t at = -1, shown = 0; /* the number of net prices, of which `worst` is the worst */
    int64_t best, amount, taken, ignored, key;
    bool more = true;
    while (more && (best = best_of(cursors->heads, cursors->count)) != NO_KEY) {
        int index = __builtin_ctzll(found_from(cursors->heads, cursors->count, best));
        Cursor *cursor = &cursors->cursors[index];
        Converted *member = &members[__builtin_ctzll(cursor->member)];
        uint64_t own = magnitude(cursor->walk.level->key);
        amount = cursor->walk.level->amount;
        unit = (wide)magnitude(best) * (uint64_t)cursor->amounts;
        if (!wide_shift(&unit, costs)) return CONVERSION_MISFIT;
        while (amount) {
            if (capacity < unit)
                taken = 0;
            else if (!__builtin_mul_overflow(unit, (wide)amount, &cost) && cost <= capacity)
                taken = amount;
            else
                taken = (int64_t)(capacity / unit);
            if (taken == 0) {
                if (++at >= rates->count) {
                    more = false;
                    break;
                }
                if (!rate_capacity(rates, at, capacities, &capacity)) return CONVERSION_MISFIT;
                continue;
            }
            if (!rate_price(rates, at, own, member->price_scale, side, decimals, &price))
                return CONVERSION_MISFIT;
            key = side ? -(int64_t)price : (int64_t)price;
            if (member->done) {
                /* Its units still use up the conversion book. */
            } else if (price == 0 || price >= power10[KEY_DIGITS]) {
                member->cut = true;
            } else if (member->amount && member->key == key) {
                member->amount += taken; /* both are below 10^18 */
                if (member->amount >= (int64_t)power10[KEY_DIGITS])
                    member->amount = (int64_t)power10[KEY_DIGITS] - 1;
            } else {
                net = price * (uint64_t)member->factor;
                /* Rounding differs by less than a unit: no later order has a better net price. */
                if (ranked && shown >= depth
                    && (side ? net >= worst + member->factor : net + member->factor <= worst))
                    more = false;
                if (!more) break;
                if (!ranked && member->amount && member->side->count + 1 == depth) {
                    member->done = member->cut = true;
                    member->bound = key + 1;
                    more = --open > 0;
                    if (!more) break;
                    continue;
                }
                if (!converted_store(member)) return CONVERSION_MEMORY;
                member->key = key;
                member->amount = taken;
                if (shown == 0 || (side ? net > worst : net < worst)) {
                    worst = net;
                    shown++;
                }
            }
            amount -= taken;
            capacity -= unit * (wide)taken;
        }
        if (more && !cursor_take(cursor, &cursors->heads[index], &ignored))
            return CONVERSION_MISFIT;
        if (more && cursors->heads[index] == NO_KEY && !member->done) more = --open > 0;
    }
    for (int index = 0; index < cursors->count; index++) {
        Converted *member = &members[__builtin_ctzll(cursors->cursors[index].member)];
        if (cursors->heads[index] != NO_KEY) {
            member->cut = true;
            if (at < rates->count && !member->done
                && convert_bound(&cursors->cursors[index], member, rates, at, side, decimals)
                    != CONVERSION_DONE)
                return CONVERSION_MISFIT;
        }
        if (!converted_end(member)) return CONVERSION_MEMORY;
    }
    *used = at + 1; /* one more than there are if they did not suffice */
    return CONVERSION_DONE;
}

#endif
