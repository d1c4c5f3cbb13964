/* Protobuf encoder: numbers, and lists of them as packed fields. The schema is `onebook.proto`.
 *
 * Numbers of fields are below 16, so that a tag is one byte.
 */
#ifndef ONEBOOK_PACKED_H
#define ONEBOOK_PACKED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    VARINT_ROOM = 10,
    PACKED_FIELDS_ROOM = 8 * (1 + VARINT_ROOM) /* what the fields of an update need beside lists */
};

typedef struct { /* the numbers of one list */
    uint8_t *start;
    uint8_t *at;
    uint8_t *end;
} Packed;

static inline uint8_t *put_varint(uint8_t *out, uint64_t value) {
    while (value > 127) {
        *out++ = (uint8_t)(value | 128);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

/* Write a `uint32` or `uint64`, unless it is 0: the default is not sent. */
static inline uint8_t *put_uint(uint8_t *out, int number, uint64_t value) {
    if (!value) return out;
    *out++ = (uint8_t)(number << 3);
    return put_varint(out, value);
}

/* Write an optional `sint64`. */
static inline uint8_t *put_sint(uint8_t *out, int number, int64_t value) {
    *out++ = (uint8_t)(number << 3);
    return put_varint(out, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* Write an optional `fixed32`. */
static inline uint8_t *put_fixed32(uint8_t *out, int number, uint32_t value) {
    *out++ = (uint8_t)(number << 3 | 5);
    for (int shift = 0; shift < 32; shift += 8) *out++ = (uint8_t)(value >> shift);
    return out;
}

/* Make room for `count` more numbers; false without memory. */
static inline bool packed_reserve(Packed *list, size_t count) {
    size_t used = list->at - list->start, room = used + count * VARINT_ROOM;
    if (list->start != NULL && (size_t)(list->end - list->start) >= room) return true;
    uint8_t *larger = realloc(list->start, room * 2);
    if (larger == NULL) return false;
    list->start = larger;
    list->at = larger + used;
    list->end = larger + room * 2;
    return true;
}

static inline void packed_put(Packed *list, uint64_t value) {
    list->at = put_varint(list->at, value);
}

/* The most bytes of a list as a field. */
static inline size_t packed_room(const Packed *list) {
    return 2 * VARINT_ROOM + (list->at - list->start);
}

/* Write a list as a field, unless it is empty. */
static inline uint8_t *put_packed(uint8_t *out, int number, const Packed *list) {
    size_t length = list->at - list->start;
    if (!length) return out;
    *out++ = (uint8_t)(number << 3 | 2);
    out = put_varint(out, length);
    memcpy(out, list->start, length);
    return out + length;
}

#endif
