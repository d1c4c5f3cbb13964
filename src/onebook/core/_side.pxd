"""One side of a book: sorted blocks of levels, best last, so that its cost is flat with depth.

The key is the price of a bid and the negated price of an ask: both sides ascend to their best, and
one code path serves both. A full block splits in halves, except where a level is put at an end of
the side (as snapshots do): there a new block begins and the full one stays full.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    BLOCK_LEVELS = 128
    BLOCK_SPARSE = 32  # a block with fewer levels joins a neighbour ...
    BLOCK_JOINED = 96  # ... when both have no more than this

cdef struct Level:
    int64_t key
    int64_t amount

cdef struct Block:
    int32_t count
    Level levels[BLOCK_LEVELS]

cdef struct Side:
    Block **blocks
    int64_t *lows  # the smallest key of each block
    int32_t block_count
    int32_t block_room
    int32_t count


cdef struct Walk:  # from the best level of a side to its worst
    const Level *level
    const Level *first  # of the block that `level` is in
    Block **block
    Block **block_first


cdef inline bint walk_open(Walk *walk, const Side *side) noexcept nogil:
    """Stand on the best level; False where there is none."""
    if side.block_count == 0:
        return False
    walk.block_first = side.blocks
    walk.block = side.blocks + (side.block_count - 1)
    walk.first = walk.block[0].levels
    walk.level = walk.first + (walk.block[0].count - 1)
    return True


cdef inline bint walk_next(Walk *walk) noexcept nogil:
    """Go to the next worse level; False where there is none."""
    if walk.level > walk.first:
        walk.level -= 1
        return True
    if walk.block == walk.block_first:
        return False
    walk.block -= 1
    walk.first = walk.block[0].levels
    walk.level = walk.first + (walk.block[0].count - 1)
    return True


cdef inline void side_clear(Side *side) noexcept nogil:
    cdef int32_t at
    for at in range(side.block_count):
        free(side.blocks[at])
    side.block_count = 0
    side.count = 0


cdef inline void side_free(Side *side) noexcept nogil:
    side_clear(side)
    free(side.blocks)
    free(side.lows)
    side.blocks = NULL
    side.lows = NULL
    side.block_room = 0


cdef inline size_t side_bytes(const Side *side) noexcept nogil:
    return (
        side.block_count * sizeof(Block) + side.block_room * (sizeof(Block *) + sizeof(int64_t))
    )


cdef inline const Level *side_best(const Side *side) noexcept nogil:
    """Return the best level; the side must not be empty."""
    cdef const Block *block = side.blocks[side.block_count - 1]
    return &block.levels[block.count - 1]


cdef inline bint side_room(Side *side) noexcept nogil:
    cdef int32_t room
    cdef void *larger
    if side.block_count < side.block_room:
        return True
    room = side.block_room * 2 if side.block_room else 2
    larger = realloc(side.blocks, room * sizeof(Block *))
    if larger == NULL:
        return False
    side.blocks = <Block **>larger
    larger = realloc(side.lows, room * sizeof(int64_t))
    if larger == NULL:
        return False
    side.lows = <int64_t *>larger
    side.block_room = room
    return True


cdef inline Block *block_new(Side *side, int32_t at) noexcept nogil:
    """Put an empty block at position `at`; NULL without memory."""
    cdef Block *block
    if not side_room(side):
        return NULL
    block = <Block *>malloc(sizeof(Block))
    if block == NULL:
        return NULL
    block.count = 0
    block_pad(block)
    memmove(side.blocks + at + 1, side.blocks + at, (side.block_count - at) * sizeof(Block *))
    memmove(side.lows + at + 1, side.lows + at, (side.block_count - at) * sizeof(int64_t))
    side.blocks[at] = block
    side.block_count += 1
    return block


cdef inline void block_drop(Side *side, int32_t at) noexcept nogil:
    free(side.blocks[at])
    side.block_count -= 1
    memmove(side.blocks + at, side.blocks + at + 1, (side.block_count - at) * sizeof(Block *))
    memmove(side.lows + at, side.lows + at + 1, (side.block_count - at) * sizeof(int64_t))


cdef inline int32_t block_of(const Side *side, int64_t key) noexcept nogil:
    """Return the block that holds the key, or would: the last whose smallest key is not above."""
    cdef int32_t low = 0, length = side.block_count - 1, half
    if side.lows[length] <= key:
        return length
    while length > 0:
        half = length >> 1
        if side.lows[low + half] <= key:
            low += half + 1
            length -= half + 1
        else:
            length = half
    return low - 1 if low else 0


cdef inline int32_t block_find(const Block *block, int64_t key) noexcept nogil:
    """Return the position of the first level whose key is not below.

    Three rounds of comparisons at once, 16, 2 and 1 level apart: what lies behind the last level
    is padded with the largest key, so that neither a branch nor a count depends on the data.
    """
    cdef const Level *base = &block.levels[0]
    cdef Py_ssize_t below
    below = base[15].key < key
    below += base[31].key < key
    below += base[47].key < key
    below += base[63].key < key
    below += base[79].key < key
    below += base[95].key < key
    below += base[111].key < key
    base += below * 16
    below = base[1].key < key
    below += base[3].key < key
    below += base[5].key < key
    below += base[7].key < key
    below += base[9].key < key
    below += base[11].key < key
    below += base[13].key < key
    base += below * 2
    below = base[0].key < key
    below += base[1].key < key
    return <int32_t>(base - &block.levels[0] + below)


cdef inline void block_pad(Block *block) noexcept nogil:
    """Let every place behind the last level be above every key."""
    cdef int32_t at
    for at in range(block.count, BLOCK_LEVELS):
        block.levels[at].key = INT64_MAX


cdef inline void block_join(Side *side, int32_t at) noexcept nogil:
    """Join block `at` with the one before it."""
    cdef Block *block = side.blocks[at]
    cdef Block *before = side.blocks[at - 1]
    memcpy(&before.levels[before.count], block.levels, block.count * sizeof(Level))
    before.count += block.count
    block_drop(side, at)


cdef inline void level_drop(Side *side, int32_t at, int32_t position) noexcept nogil:
    cdef Block *block = side.blocks[at]
    cdef Level *level = &block.levels[position]
    block.count -= 1
    side.count -= 1
    if block.count == 0:
        block_drop(side, at)
        return
    memmove(level, level + 1, (block.count - position) * sizeof(Level))
    block.levels[block.count].key = INT64_MAX
    if position == 0:
        side.lows[at] = block.levels[0].key
    if block.count < BLOCK_SPARSE:
        if at > 0 and side.blocks[at - 1].count + block.count <= BLOCK_JOINED:
            block_join(side, at)
        elif (
            at + 1 < side.block_count
            and side.blocks[at + 1].count + block.count <= BLOCK_JOINED
        ):
            block_join(side, at + 1)


cdef inline bint level_add(
    Side *side, int32_t at, int32_t position, int64_t key, int64_t amount
) noexcept nogil:
    """Put a level where it belongs; False without memory."""
    cdef Block *block = side.blocks[at]
    cdef Block *upper
    cdef Level *level
    if block.count == BLOCK_LEVELS:
        if position == BLOCK_LEVELS and at == side.block_count - 1:
            at += 1
            block = block_new(side, at)
            position = 0
        elif position == 0 and at == 0:
            block = block_new(side, 0)
        else:
            upper = block_new(side, at + 1)
            if upper == NULL:
                return False
            block.count = upper.count = BLOCK_LEVELS // 2
            memcpy(upper.levels, &block.levels[BLOCK_LEVELS // 2], BLOCK_LEVELS // 2 * sizeof(Level))
            side.lows[at + 1] = upper.levels[0].key
            block_pad(block)
            if position > BLOCK_LEVELS // 2:
                at += 1
                block = upper
                position -= BLOCK_LEVELS // 2
        if block == NULL:
            return False
    level = &block.levels[position]
    memmove(level + 1, level, (block.count - position) * sizeof(Level))
    level.key = key
    level.amount = amount
    block.count += 1
    side.count += 1
    if position == 0:
        side.lows[at] = key
    return True


cdef inline bint side_set(Side *side, int64_t key, int64_t amount) noexcept nogil:
    """Set the amount of a level, 0 removes it; False without memory."""
    cdef int32_t at, position
    cdef Block *block
    if side.block_count == 0:
        return True if amount == 0 else (
            block_new(side, 0) != NULL and level_add(side, 0, 0, key, amount)
        )
    at = block_of(side, key)
    block = side.blocks[at]
    position = block_find(block, key)
    if position < block.count and block.levels[position].key == key:
        if amount:
            block.levels[position].amount = amount
        else:
            level_drop(side, at, position)
        return True
    return True if amount == 0 else level_add(side, at, position, key, amount)


cdef inline void side_cut(Side *side, int32_t count_max) noexcept nogil:
    """Drop the worst levels beyond `count_max`."""
    cdef int32_t over = side.count - count_max
    cdef Block *block
    while over > 0:
        block = side.blocks[0]
        if block.count <= over:
            over -= block.count
            side.count -= block.count
            block_drop(side, 0)
            continue
        block.count -= over
        side.count -= over
        memmove(block.levels, &block.levels[over], block.count * sizeof(Level))
        block_pad(block)
        side.lows[0] = block.levels[0].key
        return


cdef inline bint side_holds(const Side *side, int64_t keys_max, int64_t amounts_max) noexcept nogil:
    """Tell whether every key and amount is within its limit, whatever its sign."""
    cdef int32_t at, position
    cdef const Level *level
    for at in range(side.block_count):
        for position in range(side.blocks[at].count):
            level = &side.blocks[at].levels[position]
            if level.key > keys_max or level.key < -keys_max or level.amount > amounts_max:
                return False
    return True


cdef inline void side_scale(Side *side, int64_t keys, int64_t amounts) noexcept nogil:
    """Multiply every key and every amount."""
    cdef int32_t at, position
    cdef Level *level
    for at in range(side.block_count):
        side.lows[at] *= keys
        for position in range(side.blocks[at].count):
            level = &side.blocks[at].levels[position]
            level.key *= keys
            level.amount *= amounts
