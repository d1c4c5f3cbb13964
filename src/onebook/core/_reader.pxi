"""Frames in: the Structs that msgspec would decode, in a third of its time where a frame is plain.

The envelope is walked once and strictly. Level text (`Raw`) is stepped over from bracket to bracket
and copied; what is inside is judged when a book reads it. In doubt - an escape, a name told twice,
a value that is not what the Struct says, an array that nests deeper than rows do - msgspec reads
the frame and has the last word. So whatever comes back is what msgspec gives, or holds level text
that no book takes: a wrong cut is inside of a string, and leaves its quote unpaired.
"""

from types import UnionType
from typing import get_args

import msgspec
from msgspec import NODEFAULT, inspect

cdef extern from "Python.h":
    object PyObject_Vectorcall(object, PyObject **, size_t, PyObject *)
    object PyUnicode_New(Py_ssize_t, Py_UCS4)
    void *PyUnicode_DATA(object)

cdef enum:
    FIELDS_MAX = 16  # fields of one Struct, its tag included
    INTEGER_DIGITS_MAX = 18  # longer ones are for msgspec
    RECORDS_MAX = 64  # objects in one list; longer ones are for msgspec, too


cdef enum:  # what a field holds
    TEXT
    INTEGER
    LEVELS
    RECORD
    RECORDS
    TAG

cdef struct Field:
    const char *name  # in its quotes
    Py_ssize_t name_length
    uint64_t head  # its first bytes, and which of them it has
    uint64_t head_mask
    int form
    int64_t least
    int64_t most
    PyObject *more  # the Record inside, or the text of the tag in its quotes
    PyObject *absent  # what stands for a missing one, NULL where none may be missing

# Only its end and its error are used, and only within one call.
cdef Scan envelope
memset(&envelope, 0, sizeof(Scan))


@cython.final
cdef class Record:
    """How to read one Struct type."""

    cdef object kind
    cdef list kept  # what the fields point to
    cdef Field fields[FIELDS_MAX]
    cdef int count
    cdef int arguments  # fields without the tag

    def __cinit__(self, described):
        self.kind = described.cls
        self.kept = []
        if len(described.fields) >= FIELDS_MAX:
            raise TypeError(f"{self.kind.__name__} has too many fields.")
        for field in described.fields:
            self.add(field.encode_name, field.type)
            if field.default is not NODEFAULT:
                self.kept.append(field.default)
                self.fields[self.count - 1].absent = <PyObject *>field.default
        self.arguments = self.count
        if described.tag_field is not None:
            self.add(described.tag_field, None)
            self.point(msgspec.json.encode(described.tag), TAG)

    cdef int add(self, str name, described) except -1:
        cdef Field *field = &self.fields[self.count]
        quoted = msgspec.json.encode(name)
        self.kept.append(quoted)
        field.name = PyBytes_AS_STRING(quoted)
        field.name_length = len(quoted)
        memcpy(&field.head, field.name, min(field.name_length, HEAD_BYTES))
        memset(&field.head_mask, 0xFF, min(field.name_length, HEAD_BYTES))
        self.count += 1
        match described:
            case inspect.StrType():
                field.form = TEXT
            case inspect.RawType():
                field.form = LEVELS
            case inspect.IntType():
                field.form = INTEGER
                field.least = INT64_MIN if described.ge is None else described.ge
                field.most = INT64_MAX if described.le is None else described.le
            case inspect.StructType():
                self.point(Record(described), RECORD)
            case inspect.VarTupleType(item_type=inspect.StructType() as item):
                self.point(Record(item), RECORDS)
            case None:
                pass
            case _:
                raise TypeError(f"A frame's {name} cannot be read as {described}.")
        return 0

    cdef int point(self, object more, int form) except -1:
        cdef Field *field = &self.fields[self.count - 1]
        self.kept.append(more)
        field.form = form
        field.more = <PyObject *>more
        return 0

    cdef object read(self, const uint8_t **cursor):
        """Return the object at the cursor, which moves behind it; None in doubt."""
        cdef PyObject *values[FIELDS_MAX]
        cdef int at
        memset(values, 0, sizeof(values))
        try:
            cursor[0] = self.fill(cursor[0], values)
            if cursor[0] == NULL:
                return None
            for at in range(self.count):
                if values[at] == NULL:
                    if self.fields[at].absent == NULL:
                        return None
                    values[at] = self.fields[at].absent
                    Py_INCREF(<object>values[at])
            return PyObject_Vectorcall(self.kind, values, self.arguments, NULL)
        finally:
            for at in range(self.count):
                Py_XDECREF(values[at])

    cdef const uint8_t *fill(self, const uint8_t *at, PyObject **values) except? NULL:
        """Read an object's members into their places; NULL in doubt."""
        cdef int place = -1
        if at[0] != c"{":
            return NULL
        at = blanks(at + 1)
        while True:
            at = self.named(at, &place)
            if at == NULL:
                return NULL
            at = blanks(at)
            if at[0] != c":":
                return NULL
            at = blanks(at + 1)
            if place == self.count:
                at = ignored(&envelope, at, NESTING_MAX)
            elif values[place] != NULL:
                return NULL
            else:
                at = value_of(&self.fields[place], at, &values[place])
            if at == NULL:
                return NULL
            at = blanks(at)
            if at[0] == c"}":
                return at + 1
            if at[0] != c",":
                return NULL
            at = blanks(at + 1)

    cdef const uint8_t *named(self, const uint8_t *at, int *place) noexcept:
        """Step over a name and find its field: `count` where it has none, the next one first."""
        cdef int tried
        for tried in range(self.count):
            place[0] = place[0] + 1 if place[0] + 1 < self.count else 0
            if begins(&self.fields[place[0]], at):
                return at + self.fields[place[0]].name_length
        place[0] = self.count
        return string(&envelope, at)


cdef inline bint begins(const Field *field, const uint8_t *at) noexcept:
    """Tell whether the text goes on with the field's name."""
    cdef Py_ssize_t left = envelope.end - at, length = field.name_length
    cdef uint64_t head
    if left < HEAD_BYTES or left < length:
        return left >= length and memcmp(at, field.name, length) == 0
    memcpy(&head, at, HEAD_BYTES)
    if (head ^ field.head) & field.head_mask:
        return False
    return length <= HEAD_BYTES or (
        memcmp(at + HEAD_BYTES, field.name + HEAD_BYTES, length - HEAD_BYTES) == 0
    )


cdef const uint8_t *value_of(Field *field, const uint8_t *at, PyObject **value) except? NULL:
    """Read one value into its place; NULL in doubt."""
    cdef const uint8_t *start = at
    cdef int64_t number
    found = None
    if field.form == TEXT:
        at = string(&envelope, at)
        if at != NULL:
            found = text_between(start + 1, at - 1)
    elif field.form == INTEGER:
        at = integer(at, &number)
        if at != NULL and field.least <= number <= field.most:
            found = number
    elif field.form == LEVELS:
        at = levels_end(at, envelope.end)
        if at != NULL:
            found = PyBytes_FromStringAndSize(<const char *>start, at - start)
    elif field.form == RECORD:
        found = (<Record>field.more).read(&at)
    elif field.form == RECORDS:
        found = records((<Record>field.more), &at)
    else:
        tag = <bytes>field.more
        if envelope.end - at > len(tag) and memcmp(at, <const char *>tag, len(tag)) == 0:
            at += len(tag)
            found = True
    if found is None:
        return NULL
    Py_INCREF(found)
    value[0] = <PyObject *>found
    return at


cdef object text_between(const uint8_t *start, const uint8_t *end):
    text = PyUnicode_New(end - start, 127)
    memcpy(PyUnicode_DATA(text), start, end - start)
    return text


cdef const uint8_t *integer(const uint8_t *at, int64_t *number) noexcept:
    cdef bint negative = at[0] == c"-"
    cdef const uint8_t *start = at + negative
    cdef uint64_t value = 0
    at = start
    while digit_of(at) <= 9:
        value = value * 10 + digit_of(at)
        at += 1
    if at == start or at - start > INTEGER_DIGITS_MAX or at[0] == c"." or (at[0] | 32) == c"e":
        return NULL
    if start[0] == c"0" and (negative or at - start > 1):
        return NULL
    number[0] = -<int64_t>value if negative else <int64_t>value
    return at


cdef const uint8_t *levels_end(const uint8_t *start, const uint8_t *end) noexcept:
    """Return the end of the array of rows that starts here; NULL in doubt.

    Rows that are arrays have neither a name nor an object in them, so what is searched is the
    next of these, and the array ended before it.
    """
    cdef const uint8_t *at
    cdef bint objects = start[1] == c"{"
    if start[0] != c"[":
        return NULL
    if start[1] == c"]":
        return start + 2
    if objects:
        at = <const uint8_t *>memchr(start, c"]", end - start)
        if at == NULL or (at - 1)[0] != c"}":
            return NULL
        at += 1
    else:
        at = before_next(start, end)
        if start[1] != c"[" or at - start < 4 or (at - 2)[0] != c"]":
            return NULL
    return at


cdef const uint8_t *before_next(const uint8_t *start, const uint8_t *end) noexcept:
    """Return the place behind the last `]` before the next member, or the end of this object."""
    cdef const uint8_t *colon = <const uint8_t *>memchr(start, c":", end - start)
    cdef const uint8_t *stop = end if colon == NULL else colon
    cdef const uint8_t *brace = <const uint8_t *>memchr(start, c"}", stop - start)
    if brace != NULL:
        stop = brace
    while stop > start and (stop - 1)[0] != c"]":
        stop -= 1
    return stop


cdef object records(Record record, const uint8_t **cursor):
    """Return the tuple of objects at the cursor, which moves behind it; None in doubt."""
    if cursor[0][0] != c"[":
        return None
    cursor[0] = blanks(cursor[0] + 1)
    cdef tuple found = ()
    while cursor[0][0] == c"{" and len(found) < RECORDS_MAX:
        item = record.read(cursor)
        if item is None:
            return None
        found = found + (item,) if found else (item,)  # nearly always there is one
        cursor[0] = blanks(cursor[0])
        if cursor[0][0] == c"]":
            cursor[0] += 1
            return found
        if cursor[0][0] != c",":
            return None
        cursor[0] = blanks(cursor[0] + 1)
    return None


@cython.final
cdef class Reader:
    """Reads frames as `msgspec.json.Decoder` does; the first type of a union is the fast one."""

    cdef object decode
    cdef Record record

    def __cinit__(self, kind):
        self.decode = msgspec.json.Decoder(kind).decode
        first = get_args(kind)[0] if isinstance(kind, UnionType) else kind
        self.record = Record(inspect.type_info(first))

    def read(self, frame):
        """Return the Struct that the frame holds.

        Raises:
            ValueError, RecursionError: What msgspec raises.
        """
        cdef const uint8_t *at
        if type(frame) is bytes:
            at = <const uint8_t *>PyBytes_AS_STRING(frame)
            envelope.end = at + PyBytes_GET_SIZE(frame)
            if PyBytes_GET_SIZE(frame) and (envelope.end - 1)[0] == c"}":
                found = self.record.read(&at)
                if found is not None and at == envelope.end:
                    return found
        return self.decode(frame)
