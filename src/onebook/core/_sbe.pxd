"""Declarations of `_sbe.h`: the levels of a group in Simple Binary Encoding."""

from libc.stdint cimport uint8_t

from onebook.core._levels cimport Shape
from onebook.core._scan cimport Scan

cdef extern from "_sbe.h" nogil:
    bint group_rows(Scan *scan, const Shape *shape, const uint8_t *text, Py_ssize_t length, int side)
