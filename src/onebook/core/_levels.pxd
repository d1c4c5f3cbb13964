"""Declarations of `_levels.h`: parsing level text."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from onebook.core._scan cimport Scan

cdef extern from "_levels.h" nogil:
    enum: ROW, OBJECT, MESSAGE, GROUP, PAIR, SIDED_PAIR, LED_PAIR
    enum: HEAD_BYTES, COLUMNS_MAX

    ctypedef struct Member:
        uint8_t *text
        int length
        uint64_t head
        uint64_t head_mask
        int role

    ctypedef struct Shape:
        int form
        bint is_signed
        bint single
        bint skip_zero_price
        bint one_text
        bint lossy
        int amount_cut
        int *moved
        int wanted
        int columns
        uint8_t *roles
        int members
        Member *names
        uint32_t *fields
        uint32_t *sides

    bint text_rows(Scan *scan, const Shape *shape, const uint8_t *text, Py_ssize_t length, int side)
