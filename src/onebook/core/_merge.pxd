"""Declarations of `_merge.h`: the merge of many books."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from onebook.core._side cimport Level, Side

cdef extern from "_merge.h" nogil:
    enum: MEMBERS_MAX

    ctypedef struct Merged:
        int64_t key
        int64_t amount
        uint64_t members

    ctypedef struct State:
        Merged **levels
        int64_t **parts
        int32_t *counts
        int32_t *part_counts
        uint64_t members
        bint fits

    ctypedef struct Source:
        const Side *sides
        const Level *tops
        int price_scale
        int amount_scale
        int member
        bint *bounded
        int64_t *factors

    ctypedef struct Cursors:
        ptrdiff_t count

    bint state_alloc(State *state, int depth, int members)
    void state_free(State *state)
    void state_copy(State *to, const State *state)
    bint state_same(const State *state, const State *other, bint amounts_only)
    bint state_may_grow(const State *state, int64_t keys, int64_t amounts)
    void state_grow(State *state, int64_t keys, int64_t amounts)
    bint cursors_open(
        Cursors *cursors, const Source *sources, int count, int side, int price_scale,
        int amount_scale,
    )
    bint merge_side(
        Cursors *cursors, State *state, int side, int depth, int64_t step, bint split
    )
    bint merge_single(Cursors *cursors, State *state, int side, int depth, bint split)
