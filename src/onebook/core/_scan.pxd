"""JSON in: numbers to fixed-point mantissas, everything else stepped over; no object and no copy.

A text is trimmed and must end with its `]`. That byte is the sentinel of every loop below: only
what steps over a `]`, or over the bytes of a string, has to look where the text ends.

Functions return where they stopped, or NULL after setting `scan.error`. A number that is right but
does not fit at its column's scale sets `misfit`; the caller then reads the text again with the
scale `MEASURE`, which only finds out what scale is needed, decides, and reads it a last time.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from onebook.core._digits cimport ASCII_ZEROS, HIGH_BITS, LOW_BITS, __builtin_ctzll, power10

cdef extern from *:
    bint unlikely(bint condition) noexcept nogil

cdef enum:
    DIGITS_MAX = 18
    SCALE_MAX = 18
    NUMBER_BYTES_MAX = 64
    DIGITS_ENOUGH = 65  # a number of more is refused; until then no count may overflow
    NESTING_MAX = 8
    FRAME_LEVELS_MAX = 200_000
    MEASURE = -1  # in place of a scale
    SHORT_ROOM = 17  # bytes that reading a short number may touch
    POWER_MAX = 9_999  # an exponent above it is as good as this one: too large
    UNCUT = 99_999  # decimals that no number has
    ROWS_FIRST = 64  # of a side, before memory is allocated; nearly all frames have fewer

cdef enum:
    FINE = 0
    BAD_JSON = 1
    BAD_ROW = 2
    BAD_NUMBER = 3
    TOO_LONG = 4
    ZERO_PRICE = 5
    TOO_DEEP = 6
    TOO_MANY = 7
    BAD_MESSAGE = 8
    NO_MEMORY = 9

cdef enum:  # what is in a cell of a level; the first three are numbers
    PRICE = 0
    AMOUNT = 1
    COUNT = 2
    NUMBERS = 3
    SIDE = 3
    IGNORED = 4

cdef struct Row:
    int64_t price
    int64_t amount

cdef struct Rows:
    Row *rows  # `first` or, where that is too small, on the heap
    Py_ssize_t count
    Py_ssize_t room
    Row first[ROWS_FIRST]

cdef struct Column:  # the prices, the amounts or the counts of one frame
    int scale  # what to read at
    int plain_scale  # the same less `moved` where nothing can have to be cut; rare below zero
    int decimals  # the most that the text spelled out
    int need  # the smallest scale that loses nothing (found by MEASURE)
    int whole  # the most digits before the point (found by MEASURE)
    bint misfit
    int cut  # decimals beyond it are cut toward zero, but not to zero
    int moved  # decimals that the point is moved to the left

cdef struct Scan:
    const uint8_t *end
    Column columns[NUMBERS]
    Rows sides[2]
    int error
    uint8_t text[NUMBER_BYTES_MAX + SHORT_ROOM]  # a number that has no sentinel behind it


cdef inline void scan_open(Scan *scan) noexcept nogil:
    """Begin without rows; whoever opens a scan closes it."""
    cdef int side
    for side in range(2):
        scan.sides[side].rows = scan.sides[side].first
        scan.sides[side].room = ROWS_FIRST
        scan.sides[side].count = 0


cdef inline void scan_close(Scan *scan) noexcept nogil:
    cdef int side
    for side in range(2):
        if scan.sides[side].rows != scan.sides[side].first:
            free(scan.sides[side].rows)


cdef inline bint room_for_row(Scan *scan, Rows *rows) noexcept nogil:
    cdef Py_ssize_t room = rows.room * 2
    cdef Row *larger
    if rows.count < rows.room:
        return True
    larger = <Row *>realloc(NULL if rows.rows == rows.first else rows.rows, room * sizeof(Row))
    if larger == NULL:
        scan.error = NO_MEMORY
        return False
    if rows.rows == rows.first:
        memcpy(larger, rows.first, sizeof(rows.first))
    rows.rows = larger
    rows.room = room
    return True


cdef inline const uint8_t *fail(Scan *scan, int error) noexcept nogil:
    scan.error = error
    return NULL


cdef inline unsigned int digit_of(const uint8_t *at) noexcept nogil:
    """Return the digit here; more than 9 where there is none."""
    return <unsigned int>at[0] - 48


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    return byte <= 32 and (byte == 32 or byte == 10 or byte == 13 or byte == 9)


cdef inline const uint8_t *blanks(const uint8_t *at) noexcept nogil:
    while is_blank(at[0]):
        at += 1
    return at


cdef inline const uint8_t *closed(Scan *scan, const uint8_t *at) noexcept nogil:
    """Go on behind a bracket that was not the last byte of the text."""
    if at >= scan.end:
        return fail(scan, BAD_JSON)
    return blanks(at)


cdef inline const uint8_t *number_rare(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) noexcept nogil:
    """Read any number: with exponent, too many digits, or more decimals than scale or cut."""
    cdef const uint8_t *start = at
    cdef const uint8_t *point
    cdef uint64_t value = 0
    cdef int count = 0, zeros = 0, fraction = 0, power = 0, exponent, left
    cdef bint negative
    if digit_of(at) > 9 or (at[0] == c"0" and digit_of(at + 1) <= 9):
        return fail(scan, BAD_NUMBER)
    at = significant(at, &value, &count, &zeros, DIGITS_ENOUGH)
    if at[0] == c".":
        at += 1
        point = at
        at = significant(at, &value, &count, &zeros, DIGITS_ENOUGH)
        if at == point:
            return fail(scan, BAD_NUMBER)
        fraction = <int>min(at - point, DIGITS_ENOUGH)
    if (at[0] | 32) == c"e":
        at += 1
        negative = at[0] == c"-"
        if negative or at[0] == c"+":
            at += 1
        if digit_of(at) > 9:
            return fail(scan, BAD_NUMBER)
        while digit_of(at) <= 9:
            power = min(power * 10 + <int>digit_of(at), POWER_MAX)
            at += 1
        if negative:
            power = -power
    if at - start > NUMBER_BYTES_MAX:
        return fail(scan, BAD_NUMBER)
    mantissa[0] = count != 0  # above zero or not is all that counts until it fits
    if count == 0:
        return at
    exponent = power - fraction + zeros - column.moved
    if -exponent > column.cut:
        fraction = column.cut
        power = 0
        # Of the digits up to the last that is not zero, so many are left.
        left = count - zeros + exponent + column.cut
        value = count = 1
        zeros = 0
        if left > 0:
            value = count = 0
            point = significant(start, &value, &count, &zeros, left)
            significant(point + 1, &value, &count, &zeros, left)
        exponent = zeros - column.cut
    count -= zeros
    if count + max(exponent, 0) > DIGITS_MAX or -exponent > SCALE_MAX:
        return fail(scan, TOO_LONG)
    column.decimals = max(column.decimals, fraction - power)
    if column.scale == MEASURE:
        column.need = max(column.need, -exponent)
        column.whole = max(column.whole, count + exponent)
    elif -exponent > column.scale or count + exponent + column.scale > DIGITS_MAX:
        column.misfit = True
    else:
        mantissa[0] = <int64_t>(value * power10[exponent + column.scale])
    return at


cdef inline const uint8_t *significant(
    const uint8_t *at, uint64_t *value, int *count, int *zeros, int most
) noexcept nogil:
    """Take at most so many digits up from the first that is not zero, and step over the others.

    Zeros at the end stay outside of `value`.
    """
    cdef unsigned int digit
    while True:
        digit = digit_of(at)
        if digit > 9:
            return at
        at += 1
        if digit == 0 and count[0] == 0:
            continue
        if count[0] == most:
            continue
        count[0] += 1
        if digit == 0:
            zeros[0] += 1
            continue
        while zeros[0]:
            value[0] *= 10
            zeros[0] -= 1
        value[0] = value[0] * 10 + digit


cdef inline const uint8_t *number_plain(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) noexcept nogil:
    """Read a number straight at the column's scale, as nearly all are."""
    cdef const uint8_t *start = at
    cdef const uint8_t *point
    cdef unsigned int digit = digit_of(at)
    cdef int left = column.plain_scale
    cdef int decimals = 0
    cdef uint64_t value
    if digit > 9:
        return fail(scan, BAD_NUMBER)
    value = digit
    at += 1
    if digit:
        digit = digit_of(at)
        while digit <= 9:
            value = value * 10 + digit
            at += 1
            digit = digit_of(at)
    if left < 0 or at - start + left > DIGITS_MAX:
        return number_rare(scan, column, start, mantissa)
    if at[0] == c".":
        at += 1
        point = at
        digit = digit_of(at)
        while digit <= 9 and left:
            value = value * 10 + digit
            left -= 1
            at += 1
            digit = digit_of(at)
        while at[0] == c"0":
            at += 1
        decimals = <int>(at - point)
        if decimals == 0 and digit_of(at) > 9:
            return fail(scan, BAD_NUMBER)
    if digit_of(at) <= 9 or (at[0] | 32) == c"e" or at - start > NUMBER_BYTES_MAX:
        return number_rare(scan, column, start, mantissa)
    if value and decimals > column.decimals:
        column.decimals = decimals
    mantissa[0] = <int64_t>(value * power10[left])
    return at


cdef inline uint64_t eight_value(uint64_t values) noexcept nogil:
    """Return the number of eight digits, one a byte, the first in the lowest byte."""
    values = ((values * 2_561) >> 8) & <uint64_t>0x00FF00FF00FF00FF
    values = ((values * 6_553_601) >> 16) & <uint64_t>0x0000FFFF0000FFFF
    return (values * <uint64_t>42_949_672_960_001) >> 32


cdef inline uint64_t digit_values(const uint8_t *at, int *count) noexcept nogil:
    """Return the next eight bytes less "0", and how many digits they begin with."""
    cdef uint64_t values, others
    memcpy(&values, at, 8)
    values ^= ASCII_ZEROS
    # A value above 9 reaches the high bit; a carry only comes from behind the first of them.
    others = ((values + <uint64_t>0x7676767676767676) | values) & <uint64_t>0x8080808080808080
    count[0] = __builtin_ctzll(others) >> 3 if others else 8
    return values


cdef inline const uint8_t *number_short(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) noexcept nogil:
    """Read up to 7 and 8 digits, eight bytes at a time; NULL where the number is another."""
    cdef int scale = column.plain_scale, whole, fraction
    cdef uint64_t values, value
    if scan.end - at < SHORT_ROOM or scale > 8 or scale < 0:
        return NULL
    values = digit_values(at, &whole)
    if whole == 0 or whole == 8 or (at[0] == c"0" and whole > 1):
        return NULL
    value = eight_value(values << (64 - 8 * whole)) * power10[scale]
    at += whole
    if at[0] == c".":
        values = digit_values(at + 1, &fraction)
        at += 1 + fraction
        if fraction == 0:
            return NULL
        values <<= 64 - 8 * fraction
        if fraction <= scale:
            value += eight_value(values) * power10[scale - fraction]
        elif values >> (64 - 8 * (fraction - scale)):
            return NULL  # what the scale has no room for must be zeros
        else:
            value += eight_value(values << (8 * (fraction - scale) - 8) << 8)
        if fraction > column.decimals and value:
            column.decimals = fraction
    if digit_of(at) <= 9 or (at[0] | 32) == c"e":
        return NULL
    mantissa[0] = <int64_t>value
    return at


cdef inline const uint8_t *number_bare(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) noexcept nogil:
    cdef const uint8_t *end = number_short(scan, column, at, mantissa)
    # So said, the compiler keeps what is long out of line, and this in line.
    return number_plain(scan, column, at, mantissa) if unlikely(end == NULL) else end


cdef inline const uint8_t *number(
    Scan *scan, Column *column, const uint8_t *at, int64_t *mantissa
) noexcept nogil:
    """Read a number, bare or as a string."""
    cdef bint quoted = at[0] == c'"'
    cdef const uint8_t *end
    at += quoted
    end = number_short(scan, column, at, mantissa)
    if unlikely(end == NULL):
        end = number_plain(scan, column, at, mantissa)
        if end == NULL:
            return NULL
    if unlikely(quoted and end[0] != c'"'):
        return fail(scan, BAD_NUMBER)
    return end + quoted


cdef inline uint64_t not_plain(const uint8_t *at) noexcept nogil:
    """Mark, of the next eight bytes, the first that a string cannot simply go on with.

    That is a quote, a backslash, a control character or none of ASCII; behind the first, marks
    may be wrong.
    """
    cdef uint64_t bytes, quotes, escapes
    memcpy(&bytes, at, 8)
    quotes = bytes ^ <uint64_t>0x2222222222222222
    escapes = bytes ^ <uint64_t>0x5C5C5C5C5C5C5C5C
    quotes = (quotes - LOW_BITS) & ~quotes
    escapes = (escapes - LOW_BITS) & ~escapes
    return (quotes | escapes | (bytes - LOW_BITS * 32) | bytes) & HIGH_BITS


cdef inline const uint8_t *string(Scan *scan, const uint8_t *at) noexcept nogil:
    """Step over a string; escapes and what is not printable ASCII are refused."""
    cdef uint64_t stops
    if at[0] != c'"':
        return fail(scan, BAD_JSON)
    at += 1
    while scan.end - at >= 8:
        stops = not_plain(at)
        if stops:
            at += __builtin_ctzll(stops) >> 3
            break
        at += 8
    while at < scan.end and at[0] != c'"':
        if at[0] < c" " or at[0] > 127 or at[0] == c"\\":
            return fail(scan, BAD_JSON)
        at += 1
    # The last byte of the text is its `]`, so there is something behind a closing quote.
    return at + 1 if at < scan.end else fail(scan, BAD_JSON)


cdef inline const uint8_t *word(Scan *scan, const uint8_t *at, const char *expected) noexcept nogil:
    while expected[0]:
        if at[0] != <uint8_t>expected[0]:
            return fail(scan, BAD_JSON)
        at += 1
        expected += 1
    return at


cdef inline const uint8_t *digits(Scan *scan, const uint8_t *at) noexcept nogil:
    if digit_of(at) > 9:
        return fail(scan, BAD_JSON)
    while digit_of(at) <= 9:
        at += 1
    return at


cdef inline const uint8_t *ignored_number(Scan *scan, const uint8_t *at) noexcept nogil:
    if at[0] == c"-":
        at += 1
    at = at + 1 if at[0] == c"0" else digits(scan, at)
    if at != NULL and at[0] == c".":
        at = digits(scan, at + 1)
    if at != NULL and (at[0] | 32) == c"e":
        at += 1
        if at[0] == c"-" or at[0] == c"+":
            at += 1
        at = digits(scan, at)
    return at


cdef inline const uint8_t *ignored(Scan *scan, const uint8_t *at, int left) noexcept nogil:
    """Step over any value that nests at most `left` deep."""
    cdef uint8_t first = at[0]
    if first == c'"':
        return string(scan, at)
    if first == c"[" or first == c"{":
        if left == 0:
            return fail(scan, TOO_DEEP)
        return ignored_inside(scan, at, left - 1)
    if first == c"t":
        return word(scan, at, "true")
    if first == c"f":
        return word(scan, at, "false")
    if first == c"n":
        return word(scan, at, "null")
    return ignored_number(scan, at)


cdef inline const uint8_t *ignored_inside(Scan *scan, const uint8_t *at, int left) noexcept nogil:
    cdef uint8_t close = at[0] + 2  # `[` to `]`, `{` to `}`
    at = blanks(at + 1)
    if at[0] == close:
        return at + 1 if at + 1 < scan.end else fail(scan, BAD_JSON)
    while True:
        if close == c"}":
            at = name_end(scan, at)
            if at == NULL:
                return NULL
        at = ignored(scan, at, left)
        if at == NULL:
            return NULL
        at = blanks(at)
        if at[0] == close:
            return at + 1 if at + 1 < scan.end else fail(scan, BAD_JSON)
        if at[0] != c",":
            return fail(scan, BAD_JSON)
        at = blanks(at + 1)


cdef inline const uint8_t *name_end(Scan *scan, const uint8_t *at) noexcept nogil:
    """Step over a member's name and its colon."""
    at = string(scan, at)
    if at == NULL:
        return NULL
    at = blanks(at)
    if at[0] != c":":
        return fail(scan, BAD_JSON)
    return blanks(at + 1)
