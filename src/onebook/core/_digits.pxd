"""Decimal text out: a mantissa and its scale to the shortest exact text, without a branch a digit.

Eight digits are made at once in one 64-bit word (least significant byte first), so leading and
trailing zeros are counted with one instruction, and pieces are copied with a fixed width: what is
too much is overwritten by whatever comes next. A caller leaves `NUMBER_ROOM` bytes for a number.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strlen

cdef extern from *:
    """
    #include <stdint.h>
    typedef unsigned __int128 wide;
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

cdef enum:
    NUMBER_ROOM = 80  # bytes that printing one number may touch
    EIGHT = 100_000_000
    ZEROS_AT = 16  # where the zeros before a short number begin, in its digits
    DIGITS_AT = 32  # where sixteen digits begin
    DIGITS_END = 48
    DIGITS_ROOM = 80


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


cdef inline char *put_placed(
    char *out, const char *digits, int start, int stop, int scale
) noexcept nogil:
    """Copy digits[start:stop] with a point `scale` digits before their end."""
    cdef int point = DIGITS_END - scale
    start = start if start < point else point - 1
    memcpy(out, digits + start, 24)
    out += point - start
    if stop <= point:
        return out
    out[0] = c"."
    memcpy(out + 1, digits + point, 24)
    return out + 1 + stop - point


cdef inline char *put_decimal(char *out, uint64_t mantissa, int scale) noexcept nogil:
    """Print mantissa x 10^-scale: no exponent, no trailing zeros."""
    cdef char digits[DIGITS_ROOM]
    cdef uint64_t low, high
    cdef int start, stop
    if mantissa >= power10[16]:
        return put_wide(out, mantissa, scale)
    if mantissa == 0:
        out[0] = c"0"
        return out + 1
    low = eight_digits(<uint32_t>(mantissa % EIGHT))
    high = eight_digits(<uint32_t>(mantissa // EIGHT))
    if high:
        start = DIGITS_AT + (__builtin_ctzll(high) >> 3)
    else:
        start = DIGITS_AT + 8 + (__builtin_ctzll(low) >> 3)
    if low:
        stop = DIGITS_END - (__builtin_clzll(low) >> 3)
    else:
        stop = DIGITS_AT + 8 - (__builtin_clzll(high) >> 3)
    low |= <uint64_t>0x3030303030303030
    high |= <uint64_t>0x3030303030303030
    memset(digits + ZEROS_AT, 48, 16)
    memcpy(digits + DIGITS_AT, &high, 8)
    memcpy(digits + DIGITS_AT + 8, &low, 8)
    return put_placed(out, digits, start, stop, scale)


cdef inline char *put_wide(char *out, wide mantissa, int scale) noexcept nogil:
    """Print what needs more than sixteen digits; the same text, at leisure."""
    cdef char digits[DIGITS_END]
    cdef int at, start = DIGITS_END, stop = DIGITS_END
    for at in range(DIGITS_END - 1, -1, -1):
        digits[at] = c"0" + <char>(<uint64_t>(mantissa % 10))
        mantissa //= 10
    start = 0
    while start < DIGITS_END - 1 - scale and digits[start] == c"0":
        start += 1
    while stop > DIGITS_END - scale and digits[stop - 1] == c"0":
        stop -= 1
    memcpy(out, digits + start, DIGITS_END - scale - start)
    out += DIGITS_END - scale - start
    if stop > DIGITS_END - scale:
        out[0] = c"."
        memcpy(out + 1, digits + DIGITS_END - scale, stop - (DIGITS_END - scale))
        out += 1 + stop - (DIGITS_END - scale)
    return out
