/* The k-way merge of the tops of many books, at common scales, and the states it fills.
 *
 * A linear search for the best of at most 64 heads is faster than a heap, because the heads are
 * adjacent in memory. Keys stay below 10^18 and amounts below 2^62; if a number at the common scale
 * exceeds them, the merge reports that it does not fit and the view uses Python's integers.
 */
#ifndef ONEBOOK_MERGE_H
#define ONEBOOK_MERGE_H

#include "_digits.h"
#include "_side.h"

enum {
    MEMBERS_MAX = 64,
    AMOUNT_BITS = 62,
    KEY_DIGITS = 18
};

#define NO_KEY INT64_MIN /* below every key */

typedef struct {
    int64_t key;
    int64_t amount;
    uint64_t members; /* one bit for each contributing book */
} Merged;

typedef struct {
    Merged *levels[2]; /* best first */
    int64_t *parts[2]; /* the members' amounts of each level, one level after the other */
    int32_t counts[2];
    int32_t part_counts[2];
    uint64_t members; /* that any level has */
    bool fits;
} State;

typedef struct { /* one live book */
    const Side *sides;
    const Level *tops; /* that lie over the sides; NULL without */
    int price_scale;
    int amount_scale;
    int member;
    bool bounded[2]; /* whether levels beyond its worst are unknown */
    int64_t factors[2]; /* that a fee puts on the prices of each side; 1 without fees */
} Source;

typedef struct { /* a cursor at the best remaining level of a book */
    Walk walk;
    int64_t keys; /* factors to the common scales, and the largest values they may be applied to */
    int64_t amounts;
    int64_t key_max;
    int64_t amount_max;
    uint64_t member; /* its bit */
} Cursor;

typedef struct {
    int64_t heads[MEMBERS_MAX + 4]; /* keys at the common scale, padded with NO_KEY */
    Cursor cursors[MEMBERS_MAX];
    ptrdiff_t count;
} Cursors;

/* Allocate both sides; `members` is 0 if parts are not kept. */
static inline bool state_alloc(State *state, int depth, int members) {
    for (int side = 0; side < 2; side++) {
        state->levels[side] = calloc(depth, sizeof(Merged));
        state->parts[side] = calloc(depth * members + 1, sizeof(int64_t));
        if (state->levels[side] == NULL || state->parts[side] == NULL) return false;
    }
    return true;
}

static inline void state_free(State *state) {
    for (int side = 0; side < 2; side++) {
        free(state->levels[side]);
        free(state->parts[side]);
    }
}

/* Copy a state to `to`, which has the same capacity. */
static inline void state_copy(State *to, const State *state) {
    for (int side = 0; side < 2; side++) {
        memcpy(to->levels[side], state->levels[side], state->counts[side] * sizeof(Merged));
        memcpy(to->parts[side], state->parts[side], state->part_counts[side] * sizeof(int64_t));
        to->counts[side] = state->counts[side];
        to->part_counts[side] = state->part_counts[side];
    }
}

/* Whether two sides of equal length have equal levels. */
static inline bool state_side_same(
    const State *state, const State *other, int side, bool amounts_only
) {
    const Merged *left = state->levels[side], *right = other->levels[side];
    int32_t count = state->counts[side];
    if (amounts_only) {
        for (int32_t at = 0; at < count; at++)
            if (left[at].key != right[at].key || left[at].amount != right[at].amount) return false;
        return true;
    }
    /* Equal members in all levels: as many parts. */
    return memcmp(left, right, count * sizeof(Merged)) == 0
        && memcmp(state->parts[side], other->parts[side],
                  state->part_counts[side] * sizeof(int64_t)) == 0;
}

/* Whether two states are equal; `amounts_only` if members are not shown. */
static inline bool state_same(const State *state, const State *other, bool amounts_only) {
    if (__builtin_popcountll(state->members) != __builtin_popcountll(other->members)) return false;
    for (int side = 0; side < 2; side++)
        if (state->counts[side] != other->counts[side]
            || !state_side_same(state, other, side, amounts_only))
            return false;
    return true;
}

/* Whether all keys and amounts stay within their limits when multiplied. */
static inline bool state_may_grow(const State *state, int64_t keys, int64_t amounts) {
    int64_t key_max = ((int64_t)power10[KEY_DIGITS] - 1) / keys;
    int64_t amount_max = (((int64_t)1 << AMOUNT_BITS) - 1) / amounts;
    for (int side = 0; side < 2; side++)
        for (int32_t at = 0; at < state->counts[side]; at++) {
            const Merged *level = &state->levels[side][at];
            if (level->key > key_max || level->key < -key_max || level->amount > amount_max)
                return false;
        }
    return true;
}

static inline void state_grow(State *state, int64_t keys, int64_t amounts) {
    for (int side = 0; side < 2; side++) {
        for (int32_t at = 0; at < state->counts[side]; at++) {
            state->levels[side][at].key *= keys;
            state->levels[side][at].amount *= amounts;
        }
        for (int32_t at = 0; at < state->part_counts[side]; at++)
            state->parts[side][at] *= amounts;
    }
}

/* Start at the best level of each non-empty book; false if its key does not fit.
 *
 * A fee multiplies all keys of a side, which keeps their order, so that a merge by net prices only
 * differs in these factors. `price_scale` is that of gross prices.
 */
static inline bool cursors_open(
    Cursors *cursors, const Source *sources, int count, int side, int price_scale, int amount_scale
) {
    cursors->count = 0;
    for (int at = 0; at < count; at++) {
        const Source *source = &sources[at];
        Cursor *cursor = &cursors->cursors[cursors->count];
        int64_t key;
        if (!walk_open_under(
                &cursor->walk, &source->sides[side], source->tops ? &source->tops[side] : NULL
            ))
            continue;
        cursor->keys =
            (int64_t)power10[price_scale - source->price_scale] * source->factors[side];
        cursor->amounts = (int64_t)power10[amount_scale - source->amount_scale];
        cursor->key_max = ((int64_t)power10[KEY_DIGITS] - 1) / cursor->keys;
        cursor->amount_max = (int64_t)power10[KEY_DIGITS - amount_scale + source->amount_scale] - 1;
        cursor->member = (uint64_t)1 << source->member;
        key = cursor->walk.level->key;
        if (key > cursor->key_max || key < -cursor->key_max) return false;
        cursors->heads[cursors->count++] = key * cursor->keys;
    }
    for (int at = 0; at < 4; at++) cursors->heads[cursors->count + at] = NO_KEY;
    return true;
}

/* Add the amount of the best level and advance; false if a number does not fit. */
static inline bool cursor_take(Cursor *cursor, int64_t *head, int64_t *amount) {
    int64_t key;
    if (cursor->walk.level->amount > cursor->amount_max) return false;
    *amount = cursor->walk.level->amount * cursor->amounts;
    if (!walk_next(&cursor->walk)) {
        *head = NO_KEY;
        return true;
    }
    key = cursor->walk.level->key; /* smaller than the last key, so it can only be too small */
    if (key < -cursor->key_max) return false;
    *head = key * cursor->keys;
    return true;
}

static inline int64_t larger_key(int64_t left, int64_t right) {
    return left > right ? left : right;
}

/* The best key; four at a time, because each comparison depends on the previous one. */
static inline int64_t best_of(const int64_t *heads, ptrdiff_t count) {
    int64_t first = heads[0], second = heads[1], third = heads[2], fourth = heads[3];
    for (ptrdiff_t at = 4; at < count; at += 4) {
        first = larger_key(first, heads[at]);
        second = larger_key(second, heads[at + 1]);
        third = larger_key(third, heads[at + 2]);
        fourth = larger_key(fourth, heads[at + 3]);
    }
    return larger_key(larger_key(first, second), larger_key(third, fourth));
}

/* A bit for each head that is at this key or better. */
static inline uint64_t found_from(const int64_t *heads, ptrdiff_t count, int64_t key) {
    uint64_t found = 0;
    for (ptrdiff_t at = 0; at < count; at += 4)
        found |= ((uint64_t)(heads[at] >= key) | (uint64_t)(heads[at + 1] >= key) << 1
                  | (uint64_t)(heads[at + 2] >= key) << 2 | (uint64_t)(heads[at + 3] >= key) << 3)
            << at;
    return found;
}

/* Round a key down to a multiple of the step: down for bids, up for asks. */
static inline int64_t binned(int64_t key, int64_t step) {
    int64_t rest = key % step;
    return rest < 0 ? key - rest - step : key - rest;
}

/* Fill one side of a state with at most `depth` levels; false if a number does not fit.
 *
 * With a step (0 for none) keys are grouped to its multiples; bids below one step are dropped.
 */
static inline bool merge_side(
    Cursors *cursors, State *state, int side, int depth, int64_t step, bool split
) {
    int64_t *heads = cursors->heads;
    Merged *out = state->levels[side], *end = out + depth;
    int64_t *parts = state->parts[side];
    int64_t best, amount, part;
    /* Amounts below 10^18 cannot skip the bits that show an overflow of the sum. */
    uint64_t found, members, too_large = 0, total;
    for (; out < end; out++) {
        best = best_of(heads, cursors->count);
        if (best == NO_KEY) break;
        if (step) {
            best = binned(best, step);
            if (best == 0) break; /* bids below one step: no bid has the price 0 */
            if (best <= -(int64_t)power10[KEY_DIGITS]) return false;
        }
        total = members = 0;
        for (found = found_from(heads, cursors->count, best); found; found &= found - 1) {
            int at = __builtin_ctzll(found);
            Cursor *cursor = &cursors->cursors[at];
            if (!cursor_take(cursor, &heads[at], &part)) return false;
            while (step && heads[at] >= best) {
                if (!cursor_take(cursor, &heads[at], &amount)) return false;
                part += amount;
                if (part >> AMOUNT_BITS) return false;
            }
            total += (uint64_t)part;
            too_large |= total >> AMOUNT_BITS;
            members |= cursor->member;
            if (split) *parts++ = part;
        }
        out->key = best;
        out->amount = (int64_t)total;
        out->members = members;
        state->members |= members;
    }
    state->counts[side] = (int32_t)(out - state->levels[side]);
    state->part_counts[side] = (int32_t)(parts - state->parts[side]);
    return too_large == 0;
}

/* As `merge_side` for a single book without a step: levels are copied without a search. */
static inline bool merge_single(Cursors *cursors, State *state, int side, int depth, bool split) {
    const Cursor cursor = cursors->cursors[0];
    Merged *first = state->levels[side], *out = first, *end = first + depth;
    Walk walk = cursor.walk;
    int64_t worst, largest = 0;
    do { /* once for each block of adjacent levels */
        ptrdiff_t left = walk.level - walk.first, room = end - out - 1;
        const Level *last = walk.level - (left < room ? left : room);
        for (const Level *level = walk.level; level >= last; level--, out++) {
            /* Unsigned: numbers beyond the limits are multiplied before they are rejected. */
            out->key = (int64_t)((uint64_t)level->key * (uint64_t)cursor.keys);
            out->amount = (int64_t)((uint64_t)level->amount * (uint64_t)cursor.amounts);
            out->members = cursor.member;
            largest = larger_key(largest, level->amount);
        }
        worst = last->key; /* keys descend */
        walk.level = last;
    } while (out < end && walk_next(&walk));
    if (worst < -cursor.key_max || largest > cursor.amount_max) return false;
    state->members |= cursor.member;
    state->counts[side] = (int32_t)(out - first);
    state->part_counts[side] = split ? state->counts[side] : 0;
    for (int32_t at = 0; at < state->part_counts[side]; at++)
        state->parts[side][at] = first[at].amount;
    return true;
}

#endif
