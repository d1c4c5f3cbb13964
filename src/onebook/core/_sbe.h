/* Simple Binary Encoding: the levels of a repeating group, by a `types.LevelShape`.
 *
 * https://www.fixtrading.org/standards/sbe/. A group is a header with the bytes of an entry and
 * the number of entries, followed by the entries. Numbers are little endian. Other bytes of an
 * entry are skipped, because later versions of a schema append fields.
 */
#ifndef ONEBOOK_SBE_H
#define ONEBOOK_SBE_H

#include "_levels.h"

enum {
    GROUP_HEADER_BYTES = 4, /* two uint16 */
    MANTISSA_BYTES = 8
};

static inline ptrdiff_t little_16(const uint8_t *at) { return at[0] | at[1] << 8; }

static inline int64_t little_64(const uint8_t *at) {
    uint64_t value = 0;
    for (int index = 0; index < MANTISSA_BYTES; index++) value |= (uint64_t)at[index] << 8 * index;
    return (int64_t)value;
}

/* Scale any mantissa (slow path): measure it, or find that it does not fit. */
static inline bool mantissa_rare(Scan *scan, Column *column, uint64_t value, int64_t *mantissa) {
    int count = 0, exponent = -column->moved;
    *mantissa = value != 0; /* zero or not, until it fits */
    if (value == 0) return true;
    for (; value % 10 == 0; value /= 10) exponent++;
    for (uint64_t rest = value; rest; rest /= 10) count++;
    if (count + larger_of(exponent, 0) > DIGITS_MAX || -exponent > SCALE_MAX)
        return fail(scan, TOO_LONG) != NULL;
    if (column->scale == MEASURE) {
        column->need = larger_of(column->need, -exponent);
        column->whole = larger_of(column->whole, count + exponent);
    } else if (-exponent > column->scale || count + exponent + column->scale > DIGITS_MAX) {
        column->misfit = true;
    } else {
        *mantissa = (int64_t)(value * power10[exponent + column->scale]);
    }
    return true;
}

/* Read a mantissa and scale it to its column. */
static inline bool mantissa_at(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) {
    int64_t number = little_64(at);
    uint64_t value = (uint64_t)number, kept;
    int left = column->plain_scale; /* the column's scale less that of the mantissa */
    if (RARE(number < 0)) return fail(scan, BAD_NUMBER) != NULL;
    if (RARE(column->scale == MEASURE)) return mantissa_rare(scan, column, value, mantissa);
    if (left >= 0) {
        if (RARE(value >= power10[DIGITS_MAX - left]))
            return mantissa_rare(scan, column, value, mantissa);
        kept = value * power10[left];
    } else {
        kept = value / power10[-left];
        if (RARE(kept * power10[-left] != value || kept >= power10[DIGITS_MAX]))
            return mantissa_rare(scan, column, value, mantissa);
    }
    *mantissa = (int64_t)kept;
    return true;
}

/* Read all levels of a group, which must fill its text; an empty text has no levels. */
static inline bool group_rows(
    Scan *scan, const Shape *shape, const uint8_t *text, ptrdiff_t length, int side
) {
    const uint8_t *at = text + GROUP_HEADER_BYTES, *end = text + length;
    ptrdiff_t price = shape->fields[PRICE], amount = shape->fields[AMOUNT], width, count;
    Scanned level;
    level.side = side;
    if (length == 0) return true;
    if (length < GROUP_HEADER_BYTES) return fail(scan, BAD_GROUP) != NULL;
    width = little_16(text);
    count = little_16(text + 2);
    if (length != GROUP_HEADER_BYTES + width * count) return fail(scan, BAD_GROUP) != NULL;
    if (count && width < (price > amount ? price : amount) + MANTISSA_BYTES)
        return fail(scan, BAD_GROUP) != NULL;
    for (; at < end; at += width) {
        if (!mantissa_at(scan, &scan->columns[PRICE], at + price, &level.numbers[PRICE]))
            return false;
        if (!mantissa_at(scan, &scan->columns[AMOUNT], at + amount, &level.numbers[AMOUNT]))
            return false;
        if (level.numbers[PRICE] == 0) return fail(scan, ZERO_PRICE) != NULL;
        if (!keep(scan, &level)) return false;
    }
    return true;
}

#endif
