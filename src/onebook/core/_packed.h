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

/* Bytes of a length-delimited field, with its tag. */
static inline size_t field_size(size_t length) {
    uint8_t text[VARINT_ROOM];
    return 1 + (put_varint(text, length) - text) + length;
}

/* Write a length-delimited field with a number below 16. */
static inline uint8_t *put_field(uint8_t *out, int number, const uint8_t *text, size_t length) {
    *out++ = (uint8_t)(number << 3 | 2);
    out = put_varint(out, length);
    if (length) memcpy(out, text, length);
    return out + length;
}

#endif
