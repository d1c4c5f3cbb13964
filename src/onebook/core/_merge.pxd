"""The k-way merge of the tops of many books, at common scales, and the states it fills.

A linear search for the best of at most 64 heads needs no heap: the heads are neighbours in memory.
Keys stay below 10^18 and amounts below 2^62; where a common scale would push a number beyond, the
merge says that it does not fit and the view goes on with Python's integers.
"""

from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from onebook.core._digits cimport __builtin_popcountll, power10
from onebook.core._side cimport Side, Walk, walk_next, walk_open

cdef enum:
    MEMBERS_MAX = 64
    AMOUNT_BITS = 62

cdef struct Merged:
    int64_t key
    int64_t amount
    uint64_t members  # one bit for each book that has a part

cdef struct State:
    Merged *levels[2]  # best first
    int64_t *parts[2]  # the members' amounts of each level, one level after the other
    int32_t counts[2]
    int32_t part_counts[2]
    uint64_t members  # that any level has
    bint fits

cdef struct Source:  # one live book
    const Side *sides
    int price_scale
    int amount_scale
    int member

cdef struct Cursor:
    Walk walk
    int64_t keys  # factors to the common scales, and the most that they may meet
    int64_t amounts
    int64_t key_max
    int64_t amount_max
    int member


cdef inline bint state_alloc(State *state, int depth, int members) noexcept nogil:
    """Make room for both sides; `members` is 0 where parts are not kept."""
    cdef int side
    for side in range(2):
        state.levels[side] = <Merged *>calloc(depth, sizeof(Merged))
        state.parts[side] = <int64_t *>calloc(depth * members + 1, sizeof(int64_t))
        if state.levels[side] == NULL or state.parts[side] == NULL:
            return False
    return True


cdef inline void state_free(State *state) noexcept nogil:
    cdef int side
    for side in range(2):
        free(state.levels[side])
        free(state.parts[side])


cdef inline bint state_same(
    const State *state, const State *other, bint amounts_only
) noexcept nogil:
    """Tell whether two states show the same; `amounts_only` where members are not shown."""
    cdef int side
    cdef int32_t at
    cdef const Merged *left
    cdef const Merged *right
    if __builtin_popcountll(state.members) != __builtin_popcountll(other.members):
        return False
    for side in range(2):
        if state.counts[side] != other.counts[side]:
            return False
        left = state.levels[side]
        right = other.levels[side]
        if not amounts_only:
            if memcmp(left, right, state.counts[side] * sizeof(Merged)):
                return False
            # Equal members in all levels: as many parts.
            if memcmp(
                state.parts[side], other.parts[side], state.part_counts[side] * sizeof(int64_t)
            ):
                return False
            continue
        for at in range(state.counts[side]):
            if left[at].key != right[at].key or left[at].amount != right[at].amount:
                return False
    return True


cdef inline bint state_may_grow(const State *state, int64_t keys, int64_t amounts) noexcept nogil:
    """Tell whether all keys and amounts stay within their limits when multiplied."""
    cdef int64_t key_max = (<int64_t>power10[18] - 1) // keys
    cdef int64_t amount_max = ((<int64_t>1 << AMOUNT_BITS) - 1) // amounts
    cdef int side
    cdef int32_t at
    cdef const Merged *level
    for side in range(2):
        for at in range(state.counts[side]):
            level = &state.levels[side][at]
            if level.key > key_max or level.key < -key_max or level.amount > amount_max:
                return False
    return True


cdef inline void state_grow(State *state, int64_t keys, int64_t amounts) noexcept nogil:
    cdef int side
    cdef int32_t at
    for side in range(2):
        for at in range(state.counts[side]):
            state.levels[side][at].key *= keys
            state.levels[side][at].amount *= amounts
        for at in range(state.part_counts[side]):
            state.parts[side][at] *= amounts


cdef inline int cursors_open(
    Cursor *cursors, const Source *sources, int count, int side, int price_scale, int amount_scale
) noexcept nogil:
    """Stand on the best level of each book that has one; return how many have."""
    cdef Cursor *cursor = cursors
    cdef const Source *source
    cdef int at
    for at in range(count):
        source = &sources[at]
        if walk_open(&cursor.walk, &source.sides[side]):
            cursor.keys = <int64_t>power10[price_scale - source.price_scale]
            cursor.amounts = <int64_t>power10[amount_scale - source.amount_scale]
            cursor.key_max = <int64_t>power10[18 - price_scale + source.price_scale] - 1
            cursor.amount_max = <int64_t>power10[18 - amount_scale + source.amount_scale] - 1
            cursor.member = source.member
            cursor += 1
    return <int>(cursor - cursors)


cdef inline bint cursor_head(Cursor *cursor, int64_t *head) noexcept nogil:
    """Take the key of the level that the cursor stands on; False where it does not fit."""
    cdef int64_t key = cursor.walk.level.key
    head[0] = key * cursor.keys if -cursor.key_max <= key <= cursor.key_max else 0
    return (
        -cursor.key_max <= key <= cursor.key_max
        and cursor.walk.level.amount <= cursor.amount_max
    )


cdef inline bint merge_side(
    Cursor *cursors, int count, State *state, int side, int depth, int64_t step, bint split
) noexcept nogil:
    """Fill one side of a state, at most `depth` levels; False where something does not fit.

    With a step (0 for none) keys are binned down to multiples of it, which is down for bids and,
    as their keys are negated, up for asks.
    """
    cdef int64_t heads[MEMBERS_MAX]
    cdef Merged *out = state.levels[side]
    cdef int64_t *parts = state.parts[side]
    cdef int64_t best, rest, part, total
    cdef uint64_t members
    cdef Cursor *cursor
    cdef int at
    state.counts[side] = state.part_counts[side] = 0
    for at in range(count):
        if not cursor_head(&cursors[at], &heads[at]):
            return False
    while state.counts[side] < depth:
        best = INT64_MIN
        for at in range(count):
            best = heads[at] if heads[at] > best else best
        if best == INT64_MIN:
            return True
        if step:
            rest = best % step
            best -= rest + step if rest < 0 else rest
            if best <= -<int64_t>power10[18]:
                return False
        total = 0
        members = 0
        for at in range(count):
            if heads[at] < best:
                continue
            cursor = &cursors[at]
            part = 0
            while heads[at] >= best:
                part += cursor.walk.level.amount * cursor.amounts
                if part >> AMOUNT_BITS:
                    return False
                if not walk_next(&cursor.walk):
                    heads[at] = INT64_MIN
                elif not cursor_head(cursor, &heads[at]):
                    return False
            total += part
            if total >> AMOUNT_BITS:
                return False
            members |= <uint64_t>1 << cursor.member
            if split:
                parts[0] = part
                parts += 1
        out.key = best
        out.amount = total
        out.members = members
        out += 1
        state.members |= members
        state.counts[side] += 1
        state.part_counts[side] = <int32_t>(parts - state.parts[side])
    return True
