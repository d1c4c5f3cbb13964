/* JSON scanner: reads numbers as fixed-point mantissas, skips the rest; no objects, no copies.
 *
 * A text is trimmed and must end with its `]`, the sentinel of every loop below: only code that
 * steps over a `]`, or over the bytes of a string, has to check for the end of the text.
 *
 * Functions return the position after the value, or NULL after setting `error`. A valid number that
 * does not fit its column's scale sets `misfit`. The caller then scans the text with the scale
 * MEASURE, which only finds the required scale, and scans it again at that scale.
 */
#ifndef ONEBOOK_SCAN_H
#define ONEBOOK_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_digits.h"

#define RARE(condition) __builtin_expect(!!(condition), 0)
#define LOW_BITS 0x0101010101010101ull
#define HIGH_BITS 0x8080808080808080ull

enum {
    DIGITS_MAX = 18,
    SCALE_MAX = 18,
    NUMBER_BYTES_MAX = 64,
    DIGITS_ENOUGH = 65, /* longer numbers are rejected; up to here no count can overflow */
    NESTING_MAX = 8,
    FRAME_LEVELS_MAX = 200000,
    MEASURE = -1,      /* in place of a scale */
    SHORT_ROOM = 17,   /* bytes that reading a short number may access */
    POWER_MAX = 9999,  /* larger exponents are treated as this one: too large */
    UNCUT = 99999,     /* decimals that no number has */
    ROWS_FIRST = 64    /* of a side, before memory is allocated; nearly all frames have fewer */
};

enum {
    FINE = 0,
    BAD_JSON = 1,
    BAD_ROW = 2,
    BAD_NUMBER = 3,
    TOO_LONG = 4,
    ZERO_PRICE = 5,
    TOO_DEEP = 6,
    TOO_MANY = 7,
    BAD_MESSAGE = 8,
    BAD_GROUP = 9,
    NO_MEMORY = 10
};

enum { /* contents of a cell of a level; the first three are numbers */
    PRICE = 0,
    AMOUNT = 1,
    COUNT = 2,
    NUMBERS = 3,
    SIDE = 3,
    IGNORED = 4
};

typedef struct {
    int64_t price;
    int64_t amount;
} Row;

typedef struct {
    Row *rows; /* `first`, or on the heap if that is too small */
    ptrdiff_t count;
    ptrdiff_t room;
    Row first[ROWS_FIRST];
} Rows;

typedef struct {     /* the prices, the amounts or the counts of one frame */
    int scale;       /* scale of the mantissas */
    int plain_scale; /* scale - moved if nothing can be cut; rarely below zero */
    int decimals;    /* the most in the text */
    int need;        /* the smallest scale that loses nothing (found by MEASURE) */
    int whole;       /* the most digits before the point (found by MEASURE) */
    bool misfit;
    int cut;   /* decimals that are kept; the rest is cut toward zero, but never to zero */
    int moved; /* decimals that the point is moved to the left */
} Column;

typedef struct {
    const uint8_t *end;
    Column columns[NUMBERS];
    Rows sides[2];
    int error;
    uint8_t text[NUMBER_BYTES_MAX + SHORT_ROOM]; /* a number without a sentinel after it */
} Scan;

/* Start without rows; the caller must call scan_close. */
static inline void scan_open(Scan *scan) {
    for (int side = 0; side < 2; side++) {
        scan->sides[side].rows = scan->sides[side].first;
        scan->sides[side].room = ROWS_FIRST;
        scan->sides[side].count = 0;
    }
}

static inline void scan_close(Scan *scan) {
    for (int side = 0; side < 2; side++)
        if (scan->sides[side].rows != scan->sides[side].first) free(scan->sides[side].rows);
}

static inline bool room_for_row(Scan *scan, Rows *rows) {
    ptrdiff_t room = rows->room * 2;
    bool on_stack = rows->rows == rows->first;
    Row *larger;
    if (rows->count < rows->room) return true;
    larger = realloc(on_stack ? NULL : rows->rows, room * sizeof(Row));
    if (larger == NULL) {
        scan->error = NO_MEMORY;
        return false;
    }
    if (on_stack) memcpy(larger, rows->first, sizeof(rows->first));
    rows->rows = larger;
    rows->room = room;
    return true;
}

static inline const uint8_t *fail(Scan *scan, int error) {
    scan->error = error;
    return NULL;
}

/* The digit here; above 9 for other bytes. */
static inline unsigned int digit_of(const uint8_t *at) { return (unsigned int)at[0] - '0'; }

static inline bool is_blank(uint8_t byte) {
    return byte <= 32 && (byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t');
}

static inline const uint8_t *blanks(const uint8_t *at) {
    while (is_blank(at[0])) at++;
    return at;
}

/* Continue after a bracket that is not the last byte of the text. */
static inline const uint8_t *closed(Scan *scan, const uint8_t *at) {
    return at >= scan->end ? fail(scan, BAD_JSON) : blanks(at);
}

static inline int larger_of(int left, int right) { return left > right ? left : right; }

/* Read at most `most` significant digits and skip the others.
 *
 * Trailing zeros are not part of `value`.
 */
static inline const uint8_t *significant(
    const uint8_t *at, uint64_t *value, int *count, int *zeros, int most
) {
    for (unsigned int digit; (digit = digit_of(at)) <= 9; at++) {
        if ((digit == 0 && *count == 0) || *count == most) continue;
        ++*count;
        if (digit == 0) {
            ++*zeros;
            continue;
        }
        for (; *zeros; --*zeros) *value *= 10;
        *value = *value * 10 + digit;
    }
    return at;
}

/* Read an exponent after its `e`. */
static inline const uint8_t *exponent_of(Scan *scan, const uint8_t *at, int *power) {
    bool negative = at[0] == '-';
    if (negative || at[0] == '+') at++;
    if (digit_of(at) > 9) return fail(scan, BAD_NUMBER);
    for (; digit_of(at) <= 9; at++) {
        *power = *power * 10 + (int)digit_of(at);
        if (*power > POWER_MAX) *power = POWER_MAX;
    }
    if (negative) *power = -*power;
    return at;
}

/* Read any number (slow path): exponents, many digits, more decimals than scale or cut. */
static inline const uint8_t *number_rare(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) {
    const uint8_t *start = at, *point;
    uint64_t value = 0;
    int count = 0, zeros = 0, fraction = 0, power = 0, exponent, left;
    if (digit_of(at) > 9 || (at[0] == '0' && digit_of(at + 1) <= 9))
        return fail(scan, BAD_NUMBER);
    at = significant(at, &value, &count, &zeros, DIGITS_ENOUGH);
    if (at[0] == '.') {
        point = ++at;
        at = significant(at, &value, &count, &zeros, DIGITS_ENOUGH);
        if (at == point) return fail(scan, BAD_NUMBER);
        fraction = at - point < DIGITS_ENOUGH ? (int)(at - point) : DIGITS_ENOUGH;
    }
    if ((at[0] | 32) == 'e') {
        at = exponent_of(scan, at + 1, &power);
        if (at == NULL) return NULL;
    }
    if (at - start > NUMBER_BYTES_MAX) return fail(scan, BAD_NUMBER);
    *mantissa = count != 0; /* zero or not, until it fits */
    if (count == 0) return at;
    exponent = power - fraction + zeros - column->moved;
    if (-exponent > column->cut) {
        fraction = column->cut;
        power = 0;
        /* The remaining significant digits. */
        left = count - zeros + exponent + column->cut;
        value = count = 1;
        zeros = 0;
        if (left > 0) {
            value = count = 0;
            point = significant(start, &value, &count, &zeros, left);
            significant(point + 1, &value, &count, &zeros, left);
        }
        exponent = zeros - column->cut;
    }
    count -= zeros;
    if (count + larger_of(exponent, 0) > DIGITS_MAX || -exponent > SCALE_MAX)
        return fail(scan, TOO_LONG);
    column->decimals = larger_of(column->decimals, fraction - power);
    if (column->scale == MEASURE) {
        column->need = larger_of(column->need, -exponent);
        column->whole = larger_of(column->whole, count + exponent);
    } else if (-exponent > column->scale || count + exponent + column->scale > DIGITS_MAX) {
        column->misfit = true;
    } else {
        *mantissa = (int64_t)(value * power10[exponent + column->scale]);
    }
    return at;
}

/* Read a number at the column's scale (fast path, nearly all numbers). */
static inline const uint8_t *number_plain(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) {
    const uint8_t *start = at, *point;
    unsigned int digit = digit_of(at);
    int left = column->plain_scale, decimals = 0;
    uint64_t value;
    if (digit > 9) return fail(scan, BAD_NUMBER);
    value = digit;
    at++;
    if (digit)
        for (; (digit = digit_of(at)) <= 9; at++) value = value * 10 + digit;
    if (left < 0 || at - start + left > DIGITS_MAX)
        return number_rare(scan, column, start, mantissa);
    if (at[0] == '.') {
        point = ++at;
        for (; (digit = digit_of(at)) <= 9 && left; at++, left--) value = value * 10 + digit;
        while (at[0] == '0') at++;
        decimals = (int)(at - point);
        if (decimals == 0 && digit_of(at) > 9) return fail(scan, BAD_NUMBER);
    }
    if (digit_of(at) <= 9 || (at[0] | 32) == 'e' || at - start > NUMBER_BYTES_MAX)
        return number_rare(scan, column, start, mantissa);
    if (value && decimals > column->decimals) column->decimals = decimals;
    *mantissa = (int64_t)(value * power10[left]);
    return at;
}

/* The value of eight digits, one per byte, the first in the lowest byte. */
static inline uint64_t eight_value(uint64_t values) {
    values = ((values * 2561) >> 8) & 0x00FF00FF00FF00FFull;
    values = ((values * 6553601) >> 16) & 0x0000FFFF0000FFFFull;
    return (values * 42949672960001ull) >> 32;
}

/* The next eight bytes minus "0", and the number of leading digits. */
static inline uint64_t digit_values(const uint8_t *at, int *count) {
    uint64_t values, others;
    memcpy(&values, at, 8);
    values ^= ASCII_ZEROS;
    /* A value above 9 sets the high bit; carries only affect bytes after the first of them. */
    others = ((values + 0x7676767676767676ull) | values) & HIGH_BITS;
    *count = others ? __builtin_ctzll(others) >> 3 : 8;
    return values;
}

/* Read up to 7 digits before and 8 after the point, eight bytes at a time; else NULL. */
static inline const uint8_t *number_short(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) {
    int scale = column->plain_scale, whole, fraction;
    uint64_t values, value;
    if (scan->end - at < SHORT_ROOM || scale > 8 || scale < 0) return NULL;
    values = digit_values(at, &whole);
    if (whole == 0 || whole == 8 || (at[0] == '0' && whole > 1)) return NULL;
    value = eight_value(values << (64 - 8 * whole)) * power10[scale];
    at += whole;
    if (at[0] == '.') {
        values = digit_values(at + 1, &fraction);
        at += 1 + fraction;
        if (fraction == 0) return NULL;
        values <<= 64 - 8 * fraction;
        if (fraction <= scale)
            value += eight_value(values) * power10[scale - fraction];
        else if (values >> (64 - 8 * (fraction - scale)))
            return NULL; /* digits beyond the scale must be zeros */
        else
            value += eight_value(values << (8 * (fraction - scale) - 8) << 8);
        if (fraction > column->decimals && value) column->decimals = fraction;
    }
    if (digit_of(at) <= 9 || (at[0] | 32) == 'e') return NULL;
    *mantissa = (int64_t)value;
    return at;
}

/* Read a number without quotes. */
static inline const uint8_t *number_bare(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) {
    const uint8_t *end = number_short(scan, column, at, mantissa);
    /* The hint keeps the slow path out of line and this inlined. */
    return RARE(end == NULL) ? number_plain(scan, column, at, mantissa) : end;
}

/* Read a number, bare or as a string. */
static inline const uint8_t *number(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) {
    bool quoted = at[0] == '"';
    const uint8_t *end = number_bare(scan, column, at + quoted, mantissa);
    if (RARE(end == NULL)) return NULL;
    if (RARE(quoted && end[0] != '"')) return fail(scan, BAD_NUMBER);
    return end + quoted;
}

/* Mark the first of the next eight bytes that is not a plain character of a string.
 *
 * That is a quote, a backslash, a control character or a non-ASCII byte; marks after the first may
 * be wrong.
 */
static inline uint64_t not_plain(const uint8_t *at) {
    uint64_t bytes, quotes, escapes;
    memcpy(&bytes, at, 8);
    quotes = bytes ^ 0x2222222222222222ull;
    escapes = bytes ^ 0x5C5C5C5C5C5C5C5Cull;
    quotes = (quotes - LOW_BITS) & ~quotes;
    escapes = (escapes - LOW_BITS) & ~escapes;
    return (quotes | escapes | (bytes - LOW_BITS * 32) | bytes) & HIGH_BITS;
}

/* Skip a string; escapes and bytes that are not printable ASCII are rejected. */
static inline const uint8_t *string(Scan *scan, const uint8_t *at) {
    uint64_t stops;
    if (at[0] != '"') return fail(scan, BAD_JSON);
    for (at++; scan->end - at >= 8; at += 8) {
        stops = not_plain(at);
        if (stops) {
            at += __builtin_ctzll(stops) >> 3;
            return at[0] == '"' ? at + 1 : fail(scan, BAD_JSON);
        }
    }
    for (; at < scan->end && at[0] != '"'; at++)
        if (at[0] < ' ' || at[0] > 127 || at[0] == '\\') return fail(scan, BAD_JSON);
    /* The last byte of the text is its `]`, so a byte follows every closing quote. */
    return at < scan->end ? at + 1 : fail(scan, BAD_JSON);
}

static inline const uint8_t *word(Scan *scan, const uint8_t *at, const char *expected) {
    for (; *expected; at++, expected++)
        if (at[0] != (uint8_t)*expected) return fail(scan, BAD_JSON);
    return at;
}

static inline const uint8_t *digits(Scan *scan, const uint8_t *at) {
    if (digit_of(at) > 9) return fail(scan, BAD_JSON);
    while (digit_of(at) <= 9) at++;
    return at;
}

static inline const uint8_t *ignored_number(Scan *scan, const uint8_t *at) {
    if (at[0] == '-') at++;
    at = at[0] == '0' ? at + 1 : digits(scan, at);
    if (at != NULL && at[0] == '.') at = digits(scan, at + 1);
    if (at != NULL && (at[0] | 32) == 'e') {
        at++;
        if (at[0] == '-' || at[0] == '+') at++;
        at = digits(scan, at);
    }
    return at;
}

/* Skip a member's name and its colon. */
static inline const uint8_t *name_end(Scan *scan, const uint8_t *at) {
    at = string(scan, at);
    if (at == NULL) return NULL;
    at = blanks(at);
    return at[0] == ':' ? blanks(at + 1) : fail(scan, BAD_JSON);
}

static inline const uint8_t *ignored_inside(Scan *scan, const uint8_t *at, int left);

/* Skip any value nested at most `left` deep. */
static inline const uint8_t *ignored(Scan *scan, const uint8_t *at, int left) {
    switch (at[0]) {
    case '"': return string(scan, at);
    case '[':
    case '{': return left ? ignored_inside(scan, at, left - 1) : fail(scan, TOO_DEEP);
    case 't': return word(scan, at, "true");
    case 'f': return word(scan, at, "false");
    case 'n': return word(scan, at, "null");
    default: return ignored_number(scan, at);
    }
}

static inline const uint8_t *ignored_inside(Scan *scan, const uint8_t *at, int left) {
    uint8_t close = at[0] + 2; /* `[` to `]`, `{` to `}` */
    at = blanks(at + 1);
    if (at[0] != close)
        for (;; at = blanks(at + 1)) {
            if (close == '}' && (at = name_end(scan, at)) == NULL) return NULL;
            at = ignored(scan, at, left);
            if (at == NULL) return NULL;
            at = blanks(at);
            if (at[0] == close) break;
            if (at[0] != ',') return fail(scan, BAD_JSON);
        }
    return at + 1 < scan->end ? at + 1 : fail(scan, BAD_JSON);
}

#endif
