/* One side of a book: sorted blocks of levels, best last; changes cost the same at any depth.
 *
 * The key is the price of a bid and the negated price of an ask: both sides ascend to their best,
 * and one code path serves both. A new level at an end of the side (as in snapshots) starts a block
 * when the last one is full. Elsewhere a full block shares its levels with its neighbours, and only
 * when those are full too, they become one more; when their levels fit one block less, they do. So
 * blocks stay about six sevenths full, whatever changes.
 */
#ifndef ONEBOOK_SIDE_H
#define ONEBOOK_SIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_LEVELS = 128,
    NEIGHBOURS = 5,     /* adjacent blocks that share their levels */
    SHARED_LEVELS = 120, /* of each of them at most, on average, or they become one more */
    JOINED_LEVELS = 112, /* of each of one block less */
    DROPS_UNCHECKED = 16 /* levels that a block may lose before its neighbours are looked at */
};

typedef struct {
    int64_t key;
    int64_t amount;
} Level;

typedef struct {
    int32_t count;
    Level levels[BLOCK_LEVELS];
} Block;

typedef struct {
    Block **blocks;
    int64_t *lows; /* the smallest key of each block */
    int32_t block_count;
    int32_t block_room;
    int32_t count;
} Side;

typedef struct { /* from the best level of a side to its worst */
    const Level *level;
    const Level *first; /* of the block that `level` is in */
    const Level *under; /* where to go on in `block` after an overlaid top; NULL behind it */
    Block **block;
    Block **block_first;
} Walk;

static inline void walk_enter(Walk *walk) {
    walk->first = walk->block[0]->levels;
    walk->level = walk->first + (walk->block[0]->count - 1);
}

/* Start at the best level; false on an empty side. */
static inline bool walk_open(Walk *walk, const Side *side) {
    if (side->block_count == 0) return false;
    walk->block_first = side->blocks;
    walk->block = side->blocks + (side->block_count - 1);
    walk->under = NULL;
    walk_enter(walk);
    return true;
}

/* Advance to the next worse level; false at the end. */
static inline bool walk_next(Walk *walk) {
    if (walk->level > walk->first) {
        walk->level--;
        return true;
    }
    if (walk->under != NULL) {
        walk->level = walk->under;
        walk->first = walk->block[0]->levels;
        walk->under = NULL;
        return true;
    }
    if (walk->block == walk->block_first) return false;
    walk->block--;
    walk_enter(walk);
    return true;
}

static inline void side_clear(Side *side) {
    for (int32_t at = 0; at < side->block_count; at++) free(side->blocks[at]);
    side->block_count = 0;
    side->count = 0;
}

static inline void side_free(Side *side) {
    side_clear(side);
    free(side->blocks);
    free(side->lows);
    side->blocks = NULL;
    side->lows = NULL;
    side->block_room = 0;
}

static inline size_t side_bytes(const Side *side) {
    return side->block_count * sizeof(Block)
        + side->block_room * (sizeof(Block *) + sizeof(int64_t));
}

/* The best level; the side must not be empty. */
static inline const Level *side_best(const Side *side) {
    const Block *block = side->blocks[side->block_count - 1];
    return &block->levels[block->count - 1];
}

static inline bool side_room(Side *side) {
    int32_t room = side->block_room ? side->block_room * 2 : 2;
    void *larger;
    if (side->block_count < side->block_room) return true;
    larger = realloc(side->blocks, room * sizeof(Block *));
    if (larger == NULL) return false;
    side->blocks = larger;
    larger = realloc(side->lows, room * sizeof(int64_t));
    if (larger == NULL) return false;
    side->lows = larger;
    side->block_room = room;
    return true;
}

/* Pad the free places with a key above every key. */
static inline void block_pad(Block *block) {
    for (int32_t at = block->count; at < BLOCK_LEVELS; at++) block->levels[at].key = INT64_MAX;
}

/* Insert an empty block at position `at`, whose places are not padded; NULL if out of memory. */
static inline Block *block_add(Side *side, int32_t at) {
    Block *block;
    if (!side_room(side)) return NULL;
    block = malloc(sizeof(Block));
    if (block == NULL) return NULL;
    block->count = 0;
    memmove(side->blocks + at + 1, side->blocks + at, (side->block_count - at) * sizeof(Block *));
    memmove(side->lows + at + 1, side->lows + at, (side->block_count - at) * sizeof(int64_t));
    side->blocks[at] = block;
    side->block_count++;
    return block;
}

/* Insert an empty block at position `at`; NULL if out of memory. */
static inline Block *block_new(Side *side, int32_t at) {
    Block *block = block_add(side, at);
    if (block != NULL) block_pad(block);
    return block;
}

static inline void block_drop(Side *side, int32_t at) {
    free(side->blocks[at]);
    side->block_count--;
    memmove(side->blocks + at, side->blocks + at + 1, (side->block_count - at) * sizeof(Block *));
    memmove(side->lows + at, side->lows + at + 1, (side->block_count - at) * sizeof(int64_t));
}

/* The block for a key: the last whose smallest key is not above it, or the first.
 *
 * Nearly all changes are in the last block. The search is branch-free: its number of steps depends
 * only on the count of blocks, and compilers turn each comparison into a conditional move.
 */
static inline int32_t block_of(const Side *side, int64_t key) {
    const int64_t *low = side->lows;
    int32_t length = side->block_count, half;
    if (low[length - 1] <= key) return length - 1;
    while (length > 1) {
        half = length >> 1;
        low += low[half] <= key ? half : 0;
        length -= half;
    }
    return (int32_t)(low - side->lows);
}

/* The position of the first level whose key is not below.
 *
 * Three rounds of independent comparisons, 16, 2 and 1 level apart. Free places are padded with the
 * largest key, so neither a branch nor a count depends on the data.
 */
static inline int32_t block_find(const Block *block, int64_t key) {
    const Level *base = &block->levels[0];
    ptrdiff_t below;
    below = base[15].key < key;
    below += base[31].key < key;
    below += base[47].key < key;
    below += base[63].key < key;
    below += base[79].key < key;
    below += base[95].key < key;
    below += base[111].key < key;
    base += below * 16;
    below = base[1].key < key;
    below += base[3].key < key;
    below += base[5].key < key;
    below += base[7].key < key;
    below += base[9].key < key;
    below += base[11].key < key;
    below += base[13].key < key;
    base += below * 2;
    below = base[0].key < key;
    below += base[1].key < key;
    return (int32_t)(base - &block->levels[0] + below);
}

/* Stand on a top that lies over the side: the levels below are the strictly worse ones.
 *
 * Without a top (NULL) it is `walk_open`; a top without an amount says that the side is empty.
 */
static inline bool walk_open_under(Walk *walk, const Side *side, const Level *top) {
    int32_t at, position;
    if (top == NULL) return walk_open(walk, side);
    if (top->amount == 0) return false;
    walk->level = walk->first = top; /* like a block of one level */
    walk->under = NULL;
    walk->block = walk->block_first = side->blocks;
    if (side->block_count == 0) return true;
    at = block_of(side, top->key);
    position = block_find(side->blocks[at], top->key);
    if (position == 0 && at-- > 0) position = side->blocks[at]->count;
    if (position == 0) return true;
    walk->block = side->blocks + at;
    walk->under = &side->blocks[at]->levels[position - 1];
    return true;
}

/* Share the levels of `had` adjacent blocks evenly among `wanted`; false if out of memory. */
static inline bool blocks_share(Side *side, int32_t first, int32_t had, int32_t wanted) {
    Level levels[NEIGHBOURS * BLOCK_LEVELS];
    int32_t left = 0;
    const Level *from = levels;
    for (int32_t at = first; at < first + had; at++) {
        const Block *block = side->blocks[at];
        memcpy(&levels[left], block->levels, block->count * sizeof(Level));
        left += block->count;
    }
    if (wanted > had && block_new(side, first + had) == NULL) return false;
    if (wanted < had) block_drop(side, first + wanted);
    for (int32_t at = first; wanted > 0; at++, wanted--) {
        Block *block = side->blocks[at];
        block->count = left / wanted;
        memcpy(block->levels, from, block->count * sizeof(Level));
        block_pad(block);
        side->lows[at] = block->levels[0].key;
        from += block->count;
        left -= block->count;
    }
    return true;
}

/* The block and its neighbours: how many they are, the first of them, and their levels. */
static inline int32_t blocks_near(const Side *side, int32_t at, int32_t *first, int32_t *levels) {
    int32_t last = side->block_count - NEIGHBOURS;
    int32_t near = last > 0 ? NEIGHBOURS : side->block_count;
    *first = at - NEIGHBOURS / 2;
    if (*first > last) *first = last;
    if (*first < 0) *first = 0;
    *levels = 0;
    for (int32_t each = *first; each < *first + near; each++) *levels += side->blocks[each]->count;
    return near;
}

static inline void level_drop(Side *side, int32_t at, int32_t position) {
    Block *block = side->blocks[at];
    Level *level = &block->levels[position];
    int32_t near, first, levels;
    block->count--;
    side->count--;
    if (block->count == 0) {
        block_drop(side, at);
        return;
    }
    memmove(level, level + 1, (block->count - position) * sizeof(Level));
    block->levels[block->count].key = INT64_MAX;
    if (position == 0) side->lows[at] = block->levels[0].key;
    if (block->count % DROPS_UNCHECKED) return;
    near = blocks_near(side, at, &first, &levels);
    if (levels <= (near - 1) * JOINED_LEVELS) blocks_share(side, first, near, near - 1);
}

/* Insert a level; false if out of memory. */
static inline bool level_add(
    Side *side, int32_t at, int32_t position, int64_t key, int64_t amount
) {
    Block *block = side->blocks[at];
    Level *level;
    if (block->count == BLOCK_LEVELS) {
        if (position == BLOCK_LEVELS && at == side->block_count - 1) {
            block = block_new(side, ++at);
            position = 0;
        } else if (position == 0 && at == 0) {
            block = block_new(side, 0);
        } else {
            int32_t first, levels, near = blocks_near(side, at, &first, &levels);
            if (!blocks_share(side, first, near, near + (levels > near * SHARED_LEVELS)))
                return false;
            at = block_of(side, key);
            block = side->blocks[at];
            position = block_find(block, key);
        }
        if (block == NULL) return false;
    }
    level = &block->levels[position];
    memmove(level + 1, level, (block->count - position) * sizeof(Level));
    level->key = key;
    level->amount = amount;
    block->count++;
    side->count++;
    if (position == 0) side->lows[at] = key;
    return true;
}

/* Set the amount of a level (0 removes it); false if out of memory. */
static inline bool side_set(Side *side, int64_t key, int64_t amount) {
    int32_t at, position;
    Block *block;
    if (side->block_count == 0)
        return amount == 0 || (block_new(side, 0) != NULL && level_add(side, 0, 0, key, amount));
    at = block_of(side, key);
    block = side->blocks[at];
    position = block_find(block, key);
    if (position < block->count && block->levels[position].key == key) {
        if (amount)
            block->levels[position].amount = amount;
        else
            level_drop(side, at, position);
        return true;
    }
    return amount == 0 || level_add(side, at, position, key, amount);
}

/* Drop the worst levels beyond `count_max`. */
static inline void side_cut(Side *side, int32_t count_max) {
    int32_t over = side->count - count_max;
    while (over > 0) {
        Block *block = side->blocks[0];
        if (block->count <= over) {
            over -= block->count;
            side->count -= block->count;
            block_drop(side, 0);
            continue;
        }
        block->count -= over;
        side->count -= over;
        memmove(block->levels, &block->levels[over], block->count * sizeof(Level));
        block_pad(block);
        side->lows[0] = block->levels[0].key;
        return;
    }
}

/* Whether the magnitude of every key and amount is within its limit. */
static inline bool side_holds(const Side *side, int64_t keys_max, int64_t amounts_max) {
    for (int32_t at = 0; at < side->block_count; at++) {
        const Block *block = side->blocks[at];
        for (int32_t position = 0; position < block->count; position++) {
            const Level *level = &block->levels[position];
            if (level->key > keys_max || level->key < -keys_max || level->amount > amounts_max)
                return false;
        }
    }
    return true;
}

/* Multiply every key and every amount. */
static inline void side_scale(Side *side, int64_t keys, int64_t amounts) {
    for (int32_t at = 0; at < side->block_count; at++) {
        Block *block = side->blocks[at];
        side->lows[at] *= keys;
        for (int32_t position = 0; position < block->count; position++) {
            block->levels[position].key *= keys;
            block->levels[position].amount *= amounts;
        }
    }
}

#endif
