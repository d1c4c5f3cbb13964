"""Decimal text out: a mantissa and its scale to the shortest exact text, without a branch a digit.

Eight digits are made at once in one 64-bit word (least significant byte first), so leading and
trailing zeros are counted with one instruction, and what is too much of a fixed-width copy is
overwritten by whatever comes next. A caller leaves `NUMBER_ROOM` bytes for a number.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strlen

cdef extern from *:
    """
    #include <stdint.h>
    typedef unsigned __int128 wide;
    #define ASCII_ZEROS 0x3030303030303030ull
    #define LAST_DIGIT (1ull << 56)
    #define LOW_BITS 0x0101010101010101ull
    #define HIGH_BITS 0x8080808080808080ull
    static const uint64_t power10[20] = {
        1ull, 10ull, 100ull, 1000ull, 10000ull, 100000ull, 1000000ull, 10000000ull,
        100000000ull, 1000000000ull, 10000000000ull, 100000000000ull, 1000000000000ull,
        10000000000000ull, 100000000000000ull, 1000000000000000ull, 10000000000000000ull,
        100000000000000000ull, 1000000000000000000ull, 10000000000000000000ull};
    """
    # Cython takes it for 64 bits and only passes it through; the C compiler knows its width.
    ctypedef unsigned long long wide
    const uint64_t power10[20]
    int __builtin_ctzll(unsigned long long value) nogil
    int __builtin_clzll(unsigned long long value) nogil
    int __builtin_popcountll(unsigned long long value) nogil
    bint __builtin_mul_overflow(int64_t left, int64_t right, int64_t *result) nogil

    const uint64_t ASCII_ZEROS
    const uint64_t LAST_DIGIT
    const uint64_t LOW_BITS
    const uint64_t HIGH_BITS

cdef enum:
    NUMBER_ROOM = 80  # bytes that printing one number may touch
    EIGHT = 100_000_000
    DIGITS = 16  # that two words hold; longer numbers are printed at leisure
    WIDE_DIGITS = 48


cdef inline uint64_t eight_digits(uint32_t value) noexcept nogil:
    """Return eight digits of `value`, each in a byte of its own, the first in the lowest byte."""
    cdef uint64_t four = (value // 10_000) | (<uint64_t>(value % 10_000) << 32)
    cdef uint64_t high = ((four * 10_486) >> 20) & <uint64_t>0x0000007F0000007F
    cdef uint64_t two = high | ((four - high * 100) << 16)
    high = ((two * 103) >> 10) & <uint64_t>0x000F000F000F000F
    return high | ((two - high * 10) << 8)


cdef inline char *put(char *out, const char *text) noexcept nogil:
    cdef size_t length = strlen(text)
    memcpy(out, text, length)
    return out + length


cdef inline void put_word(char *out, uint64_t word) noexcept nogil:
    memcpy(out, &word, 8)


cdef inline void put_from(char *out, uint64_t first, uint64_t last, int skipped) noexcept nogil:
    """Copy sixteen digits without the first ones; shifted in registers, not through memory."""
    cdef wide digits = (<wide>last << 64 | first) >> (skipped * 8)
    memcpy(out, &digits, DIGITS)


cdef inline char *put_short(char *out, uint64_t mantissa, int scale) noexcept nogil:
    """Print what has at most eight digits and at least one of them before the point."""
    cdef uint64_t digits = eight_digits(<uint32_t>mantissa)
    cdef int start, stop, point = 8 - scale
    # Zero has no digit to find: the extra bits make its last one the first, and its end early.
    start = __builtin_ctzll(digits | LAST_DIGIT) >> 3
    stop = 8 - (__builtin_clzll(digits | 1) >> 3)
    digits |= ASCII_ZEROS
    start = start if start < point else point - 1
    put_word(out, digits >> (start * 8))
    out += point - start
    out[0] = c"."
    put_word(out + 1, digits >> ((point & 7) * 8))  # nothing is kept of it at point 8
    return out + 1 + stop - point if stop > point else out


cdef inline char *put_count(char *out, unsigned int count) noexcept nogil:
    """Print a number below a hundred."""
    if count >= 10:
        out[0] = <char>(c"0" + count // 10)
        out += 1
    out[0] = <char>(c"0" + count % 10)
    return out + 1


cdef inline char *put_decimal(char *out, uint64_t mantissa, int scale) noexcept nogil:
    """Print mantissa x 10^-scale: no exponent, no trailing zeros."""
    if mantissa < EIGHT and scale < 8:
        return put_short(out, mantissa, scale)
    if mantissa < power10[DIGITS] and scale < DIGITS:
        return put_long(out, mantissa, scale)
    return put_wide(out, mantissa, scale)


cdef inline char *put_long(char *out, uint64_t mantissa, int scale) noexcept nogil:
    """Print what has at most sixteen digits and at least one of them before the point."""
    cdef uint64_t first = eight_digits(<uint32_t>(mantissa // EIGHT))
    cdef uint64_t last = eight_digits(<uint32_t>(mantissa % EIGHT))
    cdef int start, stop, point = DIGITS - scale
    start = __builtin_ctzll(first) >> 3 if first else 8 + (__builtin_ctzll(last | LAST_DIGIT) >> 3)
    stop = 16 - (__builtin_clzll(last) >> 3) if last else 8 - (__builtin_clzll(first | 1) >> 3)
    first |= ASCII_ZEROS
    last |= ASCII_ZEROS
    start = start if start < point else point - 1
    put_from(out, first, last, start)
    out += point - start
    out[0] = c"."
    put_from(out + 1, first, last, point & 15)  # nothing is kept of it at point 16
    return out + 1 + stop - point if stop > point else out


cdef inline void put_sixteen(char *out, uint64_t value) noexcept nogil:
    put_word(out, eight_digits(<uint32_t>(value // EIGHT)) | ASCII_ZEROS)
    put_word(out + 8, eight_digits(<uint32_t>(value % EIGHT)) | ASCII_ZEROS)


cdef inline char *put_wide(char *out, wide mantissa, int scale) noexcept nogil:
    """Print what needs more than sixteen digits; the same text, at leisure."""
    cdef char digits[WIDE_DIGITS]
    cdef int point = WIDE_DIGITS - scale
    cdef int at = WIDE_DIGITS, start = 0, stop = WIDE_DIGITS
    memset(digits, 48, WIDE_DIGITS)
    while mantissa:
        at -= DIGITS
        put_sixteen(digits + at, <uint64_t>(mantissa % power10[DIGITS]))
        mantissa //= power10[DIGITS]
    while start < point - 1 and digits[start] == c"0":
        start += 1
    while stop > point and digits[stop - 1] == c"0":
        stop -= 1
    memcpy(out, digits + start, point - start)
    out += point - start
    if stop == point:
        return out
    out[0] = c"."
    memcpy(out + 1, digits + point, stop - point)
    return out + 1 + stop - point
