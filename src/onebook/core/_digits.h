/* Formats decimals: mantissa and scale to the shortest exact text, without a branch per digit.
 *
 * Eight digits are made at once in one 64-bit word (least significant byte first), so leading and
 * trailing zeros are counted with one instruction. Copies have a fixed width, so surplus bytes are
 * overwritten by the following text. A caller reserves NUMBER_ROOM bytes for a number.
 */
#ifndef ONEBOOK_DIGITS_H
#define ONEBOOK_DIGITS_H

#include <stdint.h>
#include <string.h>

typedef unsigned __int128 wide;

#define ASCII_ZEROS 0x3030303030303030ull
#define LAST_DIGIT (1ull << 56)
#define EIGHT 100000000u

enum {
    NUMBER_ROOM = 80, /* bytes that printing one number may touch */
    WORD_DIGITS = 16, /* of two words; longer numbers take the slow path */
    WIDE_DIGITS = 48
};

static const uint64_t power10[20] = {
    1ull, 10ull, 100ull, 1000ull, 10000ull, 100000ull, 1000000ull, 10000000ull, 100000000ull,
    1000000000ull, 10000000000ull, 100000000000ull, 1000000000000ull, 10000000000000ull,
    100000000000000ull, 1000000000000000ull, 10000000000000000ull, 100000000000000000ull,
    1000000000000000000ull, 10000000000000000000ull};

/* Eight digits of `value`, each in a byte of its own, the first in the lowest byte. */
static inline uint64_t eight_digits(uint32_t value) {
    uint64_t four = (value / 10000) | ((uint64_t)(value % 10000) << 32);
    uint64_t high = ((four * 10486) >> 20) & 0x0000007F0000007Full;
    uint64_t two = high | ((four - high * 100) << 16);
    high = ((two * 103) >> 10) & 0x000F000F000F000Full;
    return high | ((two - high * 10) << 8);
}

static inline char *put(char *out, const char *text) {
    size_t length = strlen(text);
    memcpy(out, text, length);
    return out + length;
}

static inline void put_word(char *out, uint64_t word) { memcpy(out, &word, 8); }

/* Copy sixteen digits without the first `skipped`, shifted in registers. */
static inline void put_from(char *out, uint64_t first, uint64_t last, int skipped) {
    wide digits = ((wide)last << 64 | first) >> (skipped * 8);
    memcpy(out, &digits, WORD_DIGITS);
}

/* Print a number of at most eight digits, at least one of them before the point. */
static inline char *put_short(char *out, uint64_t mantissa, int scale) {
    uint64_t digits = eight_digits((uint32_t)mantissa);
    int point = 8 - scale;
    /* Zero has no significant digit: the extra bits make its last digit the first. */
    int start = __builtin_ctzll(digits | LAST_DIGIT) >> 3;
    int stop = 8 - (__builtin_clzll(digits | 1) >> 3);
    digits |= ASCII_ZEROS;
    start = start < point ? start : point - 1;
    put_word(out, digits >> (start * 8));
    out += point - start;
    out[0] = '.';
    put_word(out + 1, digits >> ((point & 7) * 8)); /* overwritten at point 8 */
    return stop > point ? out + 1 + stop - point : out;
}

/* Print a number below a hundred. */
static inline char *put_count(char *out, unsigned int count) {
    if (count >= 10) *out++ = (char)('0' + count / 10);
    *out++ = (char)('0' + count % 10);
    return out;
}

/* Print a number of at most sixteen digits, at least one of them before the point. */
static inline char *put_long(char *out, uint64_t mantissa, int scale) {
    uint64_t first = eight_digits((uint32_t)(mantissa / EIGHT));
    uint64_t last = eight_digits((uint32_t)(mantissa % EIGHT));
    int point = WORD_DIGITS - scale;
    int start = first ? __builtin_ctzll(first) >> 3 : 8 + (__builtin_ctzll(last | LAST_DIGIT) >> 3);
    int stop = last ? 16 - (__builtin_clzll(last) >> 3) : 8 - (__builtin_clzll(first | 1) >> 3);
    first |= ASCII_ZEROS;
    last |= ASCII_ZEROS;
    start = start < point ? start : point - 1;
    put_from(out, first, last, start);
    out += point - start;
    out[0] = '.';
    put_from(out + 1, first, last, point & 15); /* overwritten at point 16 */
    return stop > point ? out + 1 + stop - point : out;
}

static inline void put_sixteen(char *out, uint64_t value) {
    put_word(out, eight_digits((uint32_t)(value / EIGHT)) | ASCII_ZEROS);
    put_word(out + 8, eight_digits((uint32_t)(value % EIGHT)) | ASCII_ZEROS);
}

/* Print a number of more than sixteen digits (slow path). */
static inline char *put_wide(char *out, wide mantissa, int scale) {
    char digits[WIDE_DIGITS];
    int point = WIDE_DIGITS - scale, at = WIDE_DIGITS, start = 0, stop = WIDE_DIGITS;
    memset(digits, '0', WIDE_DIGITS);
    while (mantissa) {
        at -= WORD_DIGITS;
        put_sixteen(digits + at, (uint64_t)(mantissa % power10[WORD_DIGITS]));
        mantissa /= power10[WORD_DIGITS];
    }
    while (start < point - 1 && digits[start] == '0') start++;
    while (stop > point && digits[stop - 1] == '0') stop--;
    memcpy(out, digits + start, point - start);
    out += point - start;
    if (stop == point) return out;
    *out++ = '.';
    memcpy(out, digits + point, stop - point);
    return out + stop - point;
}

/* Print mantissa x 10^-scale: no exponent, no trailing zeros. */
static inline char *put_decimal(char *out, uint64_t mantissa, int scale) {
    if (mantissa < EIGHT && scale < 8) return put_short(out, mantissa, scale);
    if (mantissa < power10[WORD_DIGITS] && scale < WORD_DIGITS)
        return put_long(out, mantissa, scale);
    return put_wide(out, mantissa, scale);
}

#endif
