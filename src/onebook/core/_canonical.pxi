"""Canonical text of numbers and times, with a fast path for input that is canonical already.

Nearly every number from an exchange is. All other input goes to the reference implementation, so
the two can only differ in `is_canonical`.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.unicode cimport (
    PyUnicode_1BYTE_DATA, PyUnicode_1BYTE_KIND, PyUnicode_GET_LENGTH, PyUnicode_KIND,
)

from onebook.core.reference.canonical import canonical as reference_canonical
from onebook.core.reference.canonical import iso as reference_iso

cdef enum:
    CHARS_MAX = 200
    ISO_CHARS = 24
    DAY_MS = 86_400_000
    ERA_DAYS = 146_097  # of 400 years
    EPOCH_DAYS = 719_468  # from 0000-03-01, where years and eras begin, to 1970-01-01
    FIRST_DAY = 306  # 0001-01-01, counted from there
    LAST_DAY = 3_652_364  # 9999-12-31


cdef inline bint is_digit(uint8_t char) noexcept nogil:
    return <uint8_t>(char - c"0") < 10


cdef bint is_canonical(const uint8_t *text, Py_ssize_t length) noexcept nogil:
    """Whether the text is `0`, or -?(0 | [1-9][0-9]*)(.[0-9]*[1-9])? and not zero."""
    cdef Py_ssize_t at = text[0] == c"-"
    cdef bint below_one
    if at == length or not is_digit(text[at]):
        return False
    below_one = text[at] == c"0"
    at += 1
    while not below_one and at < length and is_digit(text[at]):
        at += 1
    if at == length:
        return not below_one or length == 1
    if text[at] != c"." or text[length - 1] == c"0" or at == length - 1:
        return False
    for at in range(at + 1, length):
        if not is_digit(text[at]):
            return False
    return True


cdef inline object canonical_of(object value):
    cdef Py_ssize_t length
    if value is None:
        return None
    if type(value) is str:
        length = PyUnicode_GET_LENGTH(value)
        if not length:
            return None
        if (
            length <= CHARS_MAX
            and PyUnicode_KIND(value) == PyUnicode_1BYTE_KIND
            and is_canonical(PyUnicode_1BYTE_DATA(value), length)
        ):
            return value
    return reference_canonical(value)


def canonical(value):
    """Return the canonical text of an exchange's number; None for an absent one."""
    return canonical_of(value)


def canonicals(*values):
    """Return the canonical texts of several numbers."""
    return [canonical_of(value) for value in values]


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
