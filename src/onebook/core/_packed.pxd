"""Declarations of `_packed.h`: numbers, and lists of them as packed protobuf fields."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "_packed.h" nogil:
    ctypedef struct Packed:
        uint8_t *start
        uint8_t *at
        uint8_t *end

    enum:
        PACKED_FIELDS_ROOM

    uint8_t *put_uint(uint8_t *out, int number, uint64_t value)
    uint8_t *put_sint(uint8_t *out, int number, int64_t value)
    uint8_t *put_fixed32(uint8_t *out, int number, uint32_t value)
    bint packed_reserve(Packed *list, size_t count)
    void packed_put(Packed *list, uint64_t value)
    size_t packed_room(const Packed *list)
    uint8_t *put_packed(uint8_t *out, int number, const Packed *list)
