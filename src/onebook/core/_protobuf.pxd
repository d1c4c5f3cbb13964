"""Declarations of `_protobuf.h`: the protobuf decoder."""

from libc.stdint cimport uint8_t

from onebook.core._levels cimport Shape
from onebook.core._scan cimport Scan

cdef extern from "_protobuf.h" nogil:
    bint message_levels(Scan *scan, const Shape *shape, const uint8_t *at, Py_ssize_t length)
