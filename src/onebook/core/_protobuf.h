/* Protobuf decoder: the levels of a message, by a `types.LevelShape`.
 *
 * https://protobuf.dev/programming-guides/encoding/. Other fields are skipped by their
 * wire type; groups, unknown wire types and truncated fields are rejected.
 */
#ifndef ONEBOOK_PROTOBUF_H
#define ONEBOOK_PROTOBUF_H

#include "_levels.h"

#define FIELD_NUMBER_MAX 536870911u

enum { /* wire types */
    VARINT = 0,
    EIGHT_BYTES = 1,
    DELIMITED = 2,
    FOUR_BYTES = 5
};

typedef struct {
    uint64_t number;
    const uint8_t *text; /* NULL unless it is length-delimited */
    uint64_t length;
} Field;

/* Read a varint of at most ten bytes and 64 bits. */
static inline const uint8_t *varint(
    Scan *scan, const uint8_t *at, const uint8_t *end, uint64_t *value
) {
    *value = 0;
    for (int shift = 0; at < end && shift < 64; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1) break;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return at;
    }
    return fail(scan, BAD_MESSAGE);
}

/* Skip a field; `field` receives its number and text. */
static inline const uint8_t *field_end(
    Scan *scan, const uint8_t *at, const uint8_t *end, Field *field
) {
    uint64_t tag;
    at = varint(scan, at, end, &tag);
    if (at == NULL) return NULL;
    field->number = tag >> 3;
    field->text = NULL;
    if (field->number < 1 || field->number > FIELD_NUMBER_MAX) return fail(scan, BAD_MESSAGE);
    switch (tag & 7) {
    case VARINT: return varint(scan, at, end, &field->length);
    case DELIMITED:
        at = varint(scan, at, end, &field->length);
        if (at == NULL) return NULL;
        field->text = at;
        break;
    case EIGHT_BYTES: field->length = 8; break;
    case FOUR_BYTES: field->length = 4; break;
    default: return fail(scan, BAD_MESSAGE);
    }
    return field->length <= (uint64_t)(end - at) ? at + field->length : fail(scan, BAD_MESSAGE);
}

/* Read a text field that contains one number. */
static inline bool text_number(Scan *scan, const Field *field, int role, Scanned *level) {
    const uint8_t *at;
    if (field->length > NUMBER_BYTES_MAX) return fail(scan, BAD_NUMBER) != NULL;
    memcpy(scan->text, field->text, field->length);
    scan->text[field->length] = ']';
    scan->end = scan->text + sizeof(scan->text);
    at = number_bare(scan, &scan->columns[role], scan->text, &level->numbers[role]);
    if (at == NULL) return false;
    return at == scan->text + field->length || fail(scan, BAD_NUMBER) != NULL;
}

/* Read and keep the level of a nested message. */
static inline bool message_level(
    Scan *scan, const Shape *shape, const Field *message, Scanned *level
) {
    const uint8_t *at = message->text, *end = at + message->length;
    int missing = shape->wanted;
    Field field;
    while (at < end) {
        at = field_end(scan, at, end, &field);
        if (at == NULL) return false;
        for (int role = PRICE; role <= AMOUNT; role++) {
            if (field.number != shape->fields[role]) continue;
            if (field.text == NULL || !(missing >> role & 1)) return fail(scan, BAD_ROW) != NULL;
            missing ^= 1 << role;
            if (!text_number(scan, &field, role, level)) return false;
        }
    }
    if (missing) return fail(scan, BAD_ROW) != NULL;
    if (level->numbers[PRICE] == 0) return fail(scan, ZERO_PRICE) != NULL;
    return keep(scan, level);
}

/* Read all levels of a message, both sides in their order. */
static inline bool message_levels(
    Scan *scan, const Shape *shape, const uint8_t *at, ptrdiff_t length
) {
    const uint8_t *end = at + length;
    ptrdiff_t left = FRAME_LEVELS_MAX;
    Field field;
    Scanned level;
    while (at < end) {
        at = field_end(scan, at, end, &field);
        if (at == NULL) return false;
        for (level.side = 0; level.side < 2; level.side++) {
            if (field.number != shape->sides[level.side]) continue;
            if (field.text == NULL) return fail(scan, BAD_ROW) != NULL;
            if (left-- == 0) return fail(scan, TOO_MANY) != NULL;
            if (!message_level(scan, shape, &field, &level)) return false;
        }
    }
    return true;
}

#endif
