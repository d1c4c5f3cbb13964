"""Declarations of `_side.h`: one side of a book."""

from libc.stdint cimport int32_t, int64_t

cdef extern from "_side.h" nogil:
    ctypedef struct Level:
        int64_t key
        int64_t amount

    ctypedef struct Block:
        int32_t count
        Level *levels

    ctypedef struct Side:
        Block **blocks
        int32_t count

    ctypedef struct Walk:
        const Level *level

    bint walk_open(Walk *walk, const Side *side)
    bint walk_open_under(Walk *walk, const Side *side, const Level *top)
    bint walk_next(Walk *walk)
    void side_clear(Side *side)
    void side_free(Side *side)
    size_t side_bytes(const Side *side)
    const Level *side_best(const Side *side)
    bint side_set(Side *side, int64_t key, int64_t amount)
    void side_cut(Side *side, int32_t count_max)
    bint side_holds(const Side *side, int64_t keys_max, int64_t amounts_max)
    void side_scale(Side *side, int64_t keys, int64_t amounts)
