"""Declarations of `_scan.h`: the JSON scanner."""

from libc.stdint cimport int64_t

cdef extern from "_scan.h" nogil:
    enum: DIGITS_MAX, MEASURE, UNCUT
    enum: FINE, TOO_LONG, NO_MEMORY
    enum: PRICE, AMOUNT, COUNT, IGNORED

    ctypedef struct Row:
        int64_t price
        int64_t amount

    ctypedef struct Rows:
        Row *rows
        Py_ssize_t count

    ctypedef struct Column:
        int scale
        int plain_scale
        int decimals
        int need
        int whole
        bint misfit
        int cut
        int moved

    ctypedef struct Scan:
        Column *columns
        Rows *sides
        int error

    bint room_for_row(Scan *scan, Rows *rows)
    void scan_open(Scan *scan)
    void scan_close(Scan *scan)
