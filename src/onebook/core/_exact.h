/* Exact differences of canonical numbers in 128 bits. */
#ifndef ONEBOOK_EXACT_H
#define ONEBOOK_EXACT_H

#include "_digits.h"

enum { EXACT_DIGITS_MAX = 38 }; /* of aligned numbers: their sum is below 2^128 */

typedef struct {
    wide mantissa;
    int digits;
    int scale;
    int negative;
} Exact;

/* Read a canonical number; returns 0 if it has too many digits. */
static inline int exact_scan(Exact *number, const uint8_t *text, long length) {
    long at = text[0] == '-', point = length;
    number->negative = (int)at;
    number->mantissa = 0;
    if (length - at > EXACT_DIGITS_MAX + 1) return 0;
    number->digits = (int)(length - at);
    for (; at < length; at++) {
        if (text[at] == '.') {
            point = at;
            continue;
        }
        number->mantissa = number->mantissa * 10 + (text[at] - '0');
    }
    number->digits -= point < length;
    number->scale = point < length ? (int)(length - point - 1) : 0;
    return number->digits <= EXACT_DIGITS_MAX;
}

/* Add decimal places; returns 0 if the number would have too many digits. */
static inline int exact_rescale(Exact *number, int scale) {
    int places = scale - number->scale;
    if (number->digits + places > EXACT_DIGITS_MAX) return 0;
    for (; places > 18; places -= 18) number->mantissa *= power10[18];
    number->mantissa *= power10[places];
    number->scale = scale;
    return 1;
}

/* Print left - right and return its end; NULL if a number has too many digits. */
static inline char *put_difference(char *out, Exact *left, Exact *right) {
    int scale = left->scale > right->scale ? left->scale : right->scale;
    int negative = left->negative;
    wide mantissa;
    if (!exact_rescale(left, scale) || !exact_rescale(right, scale)) return NULL;
    if (left->negative != right->negative) {
        mantissa = left->mantissa + right->mantissa;
    } else if (left->mantissa >= right->mantissa) {
        mantissa = left->mantissa - right->mantissa;
    } else {
        mantissa = right->mantissa - left->mantissa;
        negative = !negative;
    }
    if (negative && mantissa) *out++ = '-';
    if (mantissa >> 64) return put_wide(out, mantissa, scale);
    return put_decimal(out, (uint64_t)mantissa, scale);
}

#endif
