/* Protobuf encoder: lists of numbers as packed fields. The schema is `onebook.proto`. */
#ifndef ONEBOOK_PACKED_H
#define ONEBOOK_PACKED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { VARINT_ROOM = 10 };

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

/* Write a list as a field with a number below 16, unless it is empty. */
static inline uint8_t *put_packed(uint8_t *out, int number, const Packed *list) {
    size_t length = list->at - list->start;
    if (!length) return out;
    *out++ = (uint8_t)(number << 3 | 2);
    out = put_varint(out, length);
    memcpy(out, list->start, length);
    return out + length;
}

#endif
