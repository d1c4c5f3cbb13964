"""Declarations of `_conversion.h`: conversion of books into another currency."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from onebook.core._digits cimport wide
from onebook.core._merge cimport Cursors, Merged
from onebook.core._side cimport Side

cdef extern from "_conversion.h" nogil:
    enum: CONVERSION_DONE
    enum: CONVERSION_MISFIT

    ctypedef struct Rates:
        const Merged *levels
        int32_t count
        int price_scale
        int amount_scale
        bint inverse

    ctypedef struct Converted:
        Side *side
        int price_scale
        int64_t factor
        int64_t key
        int64_t amount
        int32_t room
        bint cut
        bint done
        int64_t bound

    int convert_side(
        Cursors *cursors, Converted *members, const Rates *rates, int side, int price_scale,
        int amount_scale, int decimals, int depth, bint ranked, int32_t *used
    )
    bint rate_price(
        const Rates *rates, int32_t at, uint64_t price, int scale, int side, int decimals,
        wide *converted
    )
    uint64_t magnitude(int64_t key)
