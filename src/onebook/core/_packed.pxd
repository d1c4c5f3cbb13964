"""Declarations of `_packed.h`: lists of numbers as packed protobuf fields."""

from libc.stdint cimport uint8_t, uint64_t

cdef extern from "_packed.h" nogil:
    ctypedef struct Packed:
        uint8_t *start
        uint8_t *at
        uint8_t *end

    bint packed_reserve(Packed *list, size_t count)
    void packed_put(Packed *list, uint64_t value)
    uint8_t *put_varint(uint8_t *out, uint64_t value)
    size_t packed_room(const Packed *list)
    uint8_t *put_packed(uint8_t *out, int number, const Packed *list)
