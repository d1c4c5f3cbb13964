"""Declarations of `_digits.h`: formatting decimals."""

from libc.stdint cimport int64_t, uint64_t

cdef extern from "_digits.h" nogil:
    # Cython takes it for 64 bits and only passes it through; the C compiler knows its width.
    ctypedef unsigned long long wide
    const uint64_t power10[20]
    enum: NUMBER_ROOM

    char *put(char *out, const char *text)
    char *put_count(char *out, unsigned int count)
    char *put_decimal(char *out, uint64_t mantissa, int scale)
    char *put_wide(char *out, wide mantissa, int scale)

cdef extern from * nogil:
    int __builtin_ctzll(unsigned long long value)
    int __builtin_popcountll(unsigned long long value)
    bint __builtin_mul_overflow(int64_t left, int64_t right, int64_t *result)
