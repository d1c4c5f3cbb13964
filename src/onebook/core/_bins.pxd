"""Declarations of `_bins.h`: one side of a book grouped by a price step."""

from libc.stdint cimport uint64_t

from onebook.core._digits cimport wide
from onebook.core._side cimport Level, Side

cdef extern from "_bins.h" nogil:
    ctypedef struct Bin:
        wide price
        wide amount

    ctypedef struct Bins:
        pass

    wide wide_of(uint64_t high, uint64_t low)
    uint64_t high_word(wide value)
    uint64_t low_word(wide value)
    void bins_open(
        Bins *bins, const Side *levels, const Level *top, int side, int moved, wide step
    )
    bint bins_next(Bins *bins, Bin *bin)
