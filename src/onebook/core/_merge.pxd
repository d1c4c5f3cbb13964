"""The k-way merge of the tops of many books, at common scales, and the states it fills.

A linear search for the best of at most 64 heads needs no heap: the heads are neighbours in memory.
Keys stay below 10^18 and amounts below 2^62; where a common scale would push a number beyond, the
merge says that it does not fit and the view goes on with Python's integers.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from onebook.core._digits cimport __builtin_ctzll, __builtin_popcountll, power10
from onebook.core._side cimport Level, Side, Walk, walk_next, walk_open

cdef enum:
    MEMBERS_MAX = 64
    AMOUNT_BITS = 62

cdef extern from *:
    """
    #define NO_KEY INT64_MIN
    """
    const int64_t NO_KEY  # below every key

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

cdef struct Cursor:  # stands on the best level that is left of a book
    Walk walk
    int64_t keys  # factors to the common scales, and the most that they may meet
    int64_t amounts
    int64_t key_max
    int64_t amount_max
    uint64_t member  # its bit

cdef struct Cursors:
    int64_t heads[MEMBERS_MAX + 4]  # keys at the common scale, padded with NO_KEY
    Cursor cursors[MEMBERS_MAX]
    Py_ssize_t count


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


cdef inline void state_copy(State *to, const State *state) noexcept nogil:
    """Make `to`, which has as much room, show the same."""
    cdef int side
    for side in range(2):
        memcpy(to.levels[side], state.levels[side], state.counts[side] * sizeof(Merged))
        memcpy(to.parts[side], state.parts[side], state.part_counts[side] * sizeof(int64_t))
        to.counts[side] = state.counts[side]
        to.part_counts[side] = state.part_counts[side]


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


cdef inline bint cursors_open(
    Cursors *cursors, const Source *sources, int count, int side, int price_scale, int amount_scale
) noexcept nogil:
    """Stand on the best level of each book that has one; False where its key does not fit."""
    cdef Cursor *cursor
    cdef const Source *source
    cdef int64_t key
    cdef int at
    cursors.count = 0
    for at in range(count):
        source = &sources[at]
        cursor = &cursors.cursors[cursors.count]
        if not walk_open(&cursor.walk, &source.sides[side]):
            continue
        cursor.keys = <int64_t>power10[price_scale - source.price_scale]
        cursor.amounts = <int64_t>power10[amount_scale - source.amount_scale]
        cursor.key_max = <int64_t>power10[18 - price_scale + source.price_scale] - 1
        cursor.amount_max = <int64_t>power10[18 - amount_scale + source.amount_scale] - 1
        cursor.member = <uint64_t>1 << source.member
        key = cursor.walk.level.key
        if key > cursor.key_max or key < -cursor.key_max:
            return False
        cursors.heads[cursors.count] = key * cursor.keys
        cursors.count += 1
    for at in range(4):
        cursors.heads[cursors.count + at] = NO_KEY
    return True


cdef inline bint cursor_take(Cursor *cursor, int64_t *head, int64_t *amount) noexcept nogil:
    """Take the amount of the best level and go on to the next; False where one does not fit."""
    cdef int64_t key
    amount[0] = cursor.walk.level.amount * cursor.amounts
    if cursor.walk.level.amount > cursor.amount_max:
        return False
    if not walk_next(&cursor.walk):
        head[0] = NO_KEY
        return True
    key = cursor.walk.level.key  # smaller than the last one: it can only be too small
    if key < -cursor.key_max:
        return False
    head[0] = key * cursor.keys
    return True


cdef inline int64_t larger(int64_t left, int64_t right) noexcept nogil:
    return left if left > right else right


cdef inline int64_t best_of(const int64_t *heads, Py_ssize_t count) noexcept nogil:
    """Return the best key; four at a time, because each choice waits for the one before it."""
    cdef int64_t first = heads[0], second = heads[1], third = heads[2], fourth = heads[3]
    cdef Py_ssize_t at
    for at in range(4, count, 4):
        first = larger(first, heads[at])
        second = larger(second, heads[at + 1])
        third = larger(third, heads[at + 2])
        fourth = larger(fourth, heads[at + 3])
    return larger(larger(first, second), larger(third, fourth))


cdef inline uint64_t found_from(const int64_t *heads, Py_ssize_t count, int64_t key) noexcept nogil:
    """Return a bit for each head that is at this key or better."""
    cdef uint64_t found = 0
    cdef Py_ssize_t at
    for at in range(0, count, 4):
        found |= (
            <uint64_t>(heads[at] >= key)
            | <uint64_t>(heads[at + 1] >= key) << 1
            | <uint64_t>(heads[at + 2] >= key) << 2
            | <uint64_t>(heads[at + 3] >= key) << 3
        ) << at
    return found


cdef inline int64_t binned(int64_t key, int64_t step) noexcept nogil:
    """Round a key down to a multiple of the step: down for bids, up for asks."""
    cdef int64_t rest = key % step
    return key - rest - step if rest < 0 else key - rest


cdef inline bint merge_side(
    Cursors *cursors, State *state, int side, int depth, int64_t step, bint split
) noexcept nogil:
    """Fill one side of a state, at most `depth` levels; False where something does not fit.

    With a step (0 for none) keys are binned to its multiples.
    """
    cdef int64_t *heads = cursors.heads
    cdef Merged *out = state.levels[side]
    cdef Merged *end = out + depth
    cdef int64_t *parts = state.parts[side]
    cdef int64_t best, amount, part
    # Amounts below 10^18 cannot jump over the bits that say a sum became too large.
    cdef uint64_t found, members, too_large = 0, total
    cdef Cursor *cursor
    cdef Py_ssize_t at
    while out < end:
        best = best_of(heads, cursors.count)
        if best == NO_KEY:
            break
        if step:
            best = binned(best, step)
            if best <= -<int64_t>power10[18]:
                return False
        found = found_from(heads, cursors.count, best)
        total = 0
        members = 0
        while found:
            at = __builtin_ctzll(found)
            found &= found - 1
            cursor = &cursors.cursors[at]
            if not cursor_take(cursor, &heads[at], &part):
                return False
            while step and heads[at] >= best:
                if not cursor_take(cursor, &heads[at], &amount):
                    return False
                part += amount
                if part >> AMOUNT_BITS:
                    return False
            total += <uint64_t>part
            too_large |= total >> AMOUNT_BITS
            members |= cursor.member
            if split:
                parts[0] = part
                parts += 1
        out.key = best
        out.amount = <int64_t>total
        out.members = members
        state.members |= members
        out += 1
    state.counts[side] = <int32_t>(out - state.levels[side])
    state.part_counts[side] = <int32_t>(parts - state.parts[side])
    return too_large == 0
