"""Declarations of `_exact.h`: exact differences."""

from libc.stdint cimport uint8_t

cdef extern from "_exact.h" nogil:
    ctypedef struct Exact:
        pass

    bint exact_scan(Exact *number, const uint8_t *text, long length)
    char *put_difference(char *out, Exact *left, Exact *right)
