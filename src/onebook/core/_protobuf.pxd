"""Protobuf in: the levels of a message that a `types.LevelShape` describes.

https://protobuf.dev/programming-guides/encoding/. Fields that are not wanted are skipped by their
wire type; groups, unknown wire types and whatever goes beyond the end are refused.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from onebook.core._levels cimport Level, Shape, keep
from onebook.core._scan cimport (
    AMOUNT, BAD_MESSAGE, BAD_NUMBER, BAD_ROW, FRAME_LEVELS_MAX, NUMBER_BYTES_MAX, PRICE, TOO_MANY,
    ZERO_PRICE, Scan, fail, number_bare,
)

cdef enum:
    FIELD_NUMBER_MAX = 536_870_911

cdef enum:  # wire types
    VARINT = 0
    EIGHT_BYTES = 1
    DELIMITED = 2
    FOUR_BYTES = 5

cdef struct Field:
    uint64_t number
    const uint8_t *text  # NULL where it is not length-delimited
    uint64_t length


cdef inline const uint8_t *varint(
    Scan *scan, const uint8_t *at, const uint8_t *end, uint64_t *value
) noexcept nogil:
    """Read at most ten bytes that make at most 64 bits."""
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while at < end and shift < 64:
        byte = at[0]
        at += 1
        if shift == 63 and byte > 1:
            break
        value[0] |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            return at
        shift += 7
    return fail(scan, BAD_MESSAGE)


cdef inline const uint8_t *field_end(
    Scan *scan, const uint8_t *at, const uint8_t *end, Field *field
) noexcept nogil:
    """Step over a field; `field` says which it is and where its text lies."""
    cdef uint64_t tag
    at = varint(scan, at, end, &tag)
    if at == NULL:
        return NULL
    field.number = tag >> 3
    field.text = NULL
    if not 1 <= field.number <= FIELD_NUMBER_MAX:
        return fail(scan, BAD_MESSAGE)
    tag &= 7
    if tag == VARINT:
        return varint(scan, at, end, &field.length)
    if tag == DELIMITED:
        at = varint(scan, at, end, &field.length)
        if at == NULL:
            return NULL
        field.text = at
    elif tag == EIGHT_BYTES:
        field.length = 8
    elif tag == FOUR_BYTES:
        field.length = 4
    else:
        return fail(scan, BAD_MESSAGE)
    return at + field.length if field.length <= <uint64_t>(end - at) else fail(scan, BAD_MESSAGE)


cdef inline bint text_number(
    Scan *scan, const Field *field, int role, Level *level
) noexcept nogil:
    """Read a number that is all of a text field."""
    cdef const uint8_t *at
    if field.length > NUMBER_BYTES_MAX:
        return fail(scan, BAD_NUMBER) != NULL
    memcpy(scan.text, field.text, field.length)
    scan.text[field.length] = c"]"
    scan.end = scan.text + sizeof(scan.text)
    at = number_bare(scan, &scan.columns[role], scan.text, &level.numbers[role])
    if at == NULL:
        return False
    return at == scan.text + field.length or fail(scan, BAD_NUMBER) != NULL


cdef inline bint message_level(
    Scan *scan, const Shape *shape, const Field *message, Level *level
) noexcept nogil:
    """Read and keep the level that a message is."""
    cdef const uint8_t *at = message.text
    cdef const uint8_t *end = at + message.length
    cdef Field field
    cdef int role, missing = shape.wanted
    while at < end:
        at = field_end(scan, at, end, &field)
        if at == NULL:
            return False
        for role in range(PRICE, AMOUNT + 1):
            if field.number != shape.fields[role]:
                continue
            if field.text == NULL or not missing >> role & 1:
                return fail(scan, BAD_ROW) != NULL
            missing ^= 1 << role
            if not text_number(scan, &field, role, level):
                return False
    if missing:
        return fail(scan, BAD_ROW) != NULL
    if level.numbers[PRICE] == 0:
        return fail(scan, ZERO_PRICE) != NULL
    return keep(scan, level)


cdef inline bint message_levels(
    Scan *scan, const Shape *shape, const uint8_t *at, Py_ssize_t length
) noexcept nogil:
    """Read all levels of a message, both sides in their order."""
    cdef const uint8_t *end = at + length
    cdef Py_ssize_t left = FRAME_LEVELS_MAX
    cdef Field field
    cdef Level level
    while at < end:
        at = field_end(scan, at, end, &field)
        if at == NULL:
            return False
        for level.side in range(2):
            if field.number != shape.sides[level.side]:
                continue
            if field.text == NULL:
                return fail(scan, BAD_ROW) != NULL
            if left == 0:
                return fail(scan, TOO_MANY) != NULL
            left -= 1
            if not message_level(scan, shape, &field, &level):
                return False
    return True
