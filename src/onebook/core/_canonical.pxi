"""Canonical text of numbers and times, with a fast path for input that is canonical already.

Nearly every number from an exchange is, or is but for zeros at its end. All other input goes to the
reference implementation, so the two can only differ in `canonical_length`, and in differences of
numbers of up to 38 digits.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.unicode cimport (
    PyUnicode_1BYTE_DATA, PyUnicode_1BYTE_KIND, PyUnicode_GET_LENGTH, PyUnicode_KIND,
    PyUnicode_Substring,
)

from onebook.core.reference.canonical import canonical as reference_canonical
from onebook.core.reference.canonical import difference as reference_difference
from onebook.core.reference.canonical import iso as reference_iso

cdef enum:
    CHARS_MAX = 200
    ZEROS_CHARS_MAX = 60  # of a number with zeros at its end
    ISO_CHARS = 24
    DAY_MS = 86_400_000
    ERA_DAYS = 146_097  # of 400 years
    EPOCH_DAYS = 719_468  # from 0000-03-01, where years and eras begin, to 1970-01-01
    FIRST_DAY = 306  # 0001-01-01, counted from there
    LAST_DAY = 3_652_364  # 9999-12-31


cdef inline bint is_digit(uint8_t char) noexcept nogil:
    return <uint8_t>(char - c"0") < 10


cdef Py_ssize_t canonical_length(const uint8_t *text, Py_ssize_t length) noexcept nogil:
    """Length of the canonical number at the start of a text that has only zeros behind it; else 0.

    Canonical is `0`, or -?(0 | [1-9][0-9]*)(.[0-9]*[1-9])? and not zero.
    """
    cdef Py_ssize_t at = text[0] == c"-"
    cdef Py_ssize_t point
    cdef bint below_one
    if at == length or not is_digit(text[at]):
        return 0
    below_one = text[at] == c"0"
    at += 1
    while not below_one and at < length and is_digit(text[at]):
        at += 1
    if at < length:
        point = at
        if text[point] != c"." or point == length - 1:
            return 0
        for at in range(point + 1, length):
            if not is_digit(text[at]):
                return 0
        if text[length - 1] != c"0":
            return length
        if length > ZEROS_CHARS_MAX:  # the reference refuses some of these
            return 0
        while text[length - 1] == c"0":
            length -= 1
        if length - 1 > point:
            return length
        length = point
    return length if not below_one or length == 1 else 0


cdef inline object canonical_of(object value):
    cdef Py_ssize_t length, canonical_chars
    if value is None:
        return None
    if type(value) is str:
        length = PyUnicode_GET_LENGTH(value)
        if not length:
            return None
        if length <= CHARS_MAX and PyUnicode_KIND(value) == PyUnicode_1BYTE_KIND:
            canonical_chars = canonical_length(PyUnicode_1BYTE_DATA(value), length)
            if canonical_chars == length:
                return value
            if canonical_chars:
                return PyUnicode_Substring(value, 0, canonical_chars)
    return reference_canonical(value)


def canonical(value):
    """Return the canonical text of an exchange's number; None for an absent one."""
    return canonical_of(value)


def canonicals(*values):
    """Return the canonical texts of several numbers."""
    return [canonical_of(value) for value in values]


cdef inline bint scan_exact(object text, Exact *number):
    """Read a canonical number; return False if it is none, or has too many digits."""
    cdef const uint8_t *chars
    cdef Py_ssize_t length
    if type(text) is not str or PyUnicode_KIND(text) != PyUnicode_1BYTE_KIND:
        return False
    length = PyUnicode_GET_LENGTH(text)
    if not 0 < length <= CHARS_MAX:
        return False
    chars = PyUnicode_1BYTE_DATA(text)
    return canonical_length(chars, length) == length and exact_scan(number, chars, length)


def difference(left, right):
    """Return the exact difference of two canonical numbers, in canonical text."""
    cdef Exact first, second
    cdef char out[NUMBER_ROOM + 1]
    cdef char *end = NULL
    if scan_exact(left, &first) and scan_exact(right, &second):
        end = put_difference(out, &first, &second)
    return reference_difference(left, right) if end is NULL else out[:end - out].decode("ascii")


def texts(dict row not None, *names):
    """Return the texts of a row by name; None for each that is absent or empty."""
    return [text_in(row, name) for name in names]


cdef inline object text_in(dict row, object name):
    cdef PyObject *found = PyDict_GetItemWithError(row, name)
    if found is NULL:
        return None
    value = <object>found
    if type(value) is str:
        return value if PyUnicode_GET_LENGTH(value) else None
    return None if value is None or value == "" else str(value)


cdef inline void put_digits(char *out, unsigned int value, int count) noexcept nogil:
    while count:
        count -= 1
        out[count] = <char>(c"0" + value % 10)
        value //= 10


def iso(at_ms):
    """Print Unix milliseconds as ISO 8601 UTC with milliseconds and `Z`."""
    cdef char text[ISO_CHARS + 1]
    cdef int overflow = 0
    cdef long long at = PyLong_AsLongLongAndOverflow(at_ms, &overflow)
    cdef long long days = at // DAY_MS - (at % DAY_MS < 0) + EPOCH_DAYS
    cdef unsigned int day_of_era, year_of_era, day, month, ms
    if overflow or not FIRST_DAY <= days <= LAST_DAY:
        return reference_iso(at_ms)  # which raises
    ms = <unsigned int>(at - (days - EPOCH_DAYS) * DAY_MS)
    # Years from March to March: a leap day is the last one, and months follow a straight line.
    # https://howardhinnant.github.io/date_algorithms.html#civil_from_days
    day_of_era = <unsigned int>(days % ERA_DAYS)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day + 2) // 153
    memcpy(text, "0000-00-00T00:00:00.000Z", ISO_CHARS)
    put_digits(text, <unsigned int>(days // ERA_DAYS) * 400 + year_of_era + (month >= 10), 4)
    put_digits(text + 5, month + 3 if month < 10 else month - 9, 2)
    put_digits(text + 8, day - (153 * month + 2) // 5 + 1, 2)
    put_digits(text + 11, ms // 3_600_000, 2)
    put_digits(text + 14, ms // 60_000 % 60, 2)
    put_digits(text + 17, ms // 1_000 % 60, 2)
    put_digits(text + 20, ms % 1_000, 3)
    return text[:ISO_CHARS].decode("ascii")
