"""Level text in: the rows of a JSON text, of any shape that a `types.LevelShape` describes.

A text is trimmed and must end with its `]`, the sentinel of `_scan`. Rows stay in their order; a
row that is ignored or removes its level says nothing about the decimals of amounts.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from onebook.core._scan cimport (
    AMOUNT, BAD_JSON, BAD_NUMBER, BAD_ROW, COUNT, FRAME_LEVELS_MAX, IGNORED, NESTING_MAX,
    NUMBERS, PRICE, SIDE, TOO_MANY, ZERO_PRICE, Column, Row, Rows, Scan, blanks, closed, digit_of,
    fail, ignored, is_blank, number, number_bare, room_for_row, string,
)

cdef enum:  # values of `types.LevelForm`
    ROW = 0
    OBJECT = 1
    MESSAGE = 2
    PAIR = 3  # a row of price and amount, and what is ignored: nearly all are, so it is faster
    SIDED_PAIR = 4  # the same behind the name of the side

cdef enum:
    COLUMNS_MAX = 16
    NAME_BYTES_MAX = 32
    MEMBERS = 4  # of an object that a shape can name
    HEAD_BYTES = 8  # of a name, compared at once

cdef struct Member:  # of a member, in its quotes
    uint8_t text[NAME_BYTES_MAX + 2]
    int length
    uint64_t head  # its first bytes, and which of them it has
    uint64_t head_mask
    int role

cdef struct Shape:  # a `types.LevelShape`
    int form
    bint signed
    bint single
    bint skip_zero_price
    bint one_text
    bint lossy  # some rows are ignored or remove their level whatever its amount
    int amount_cut  # decimals of an amount; UNCUT for all
    int moved[2]  # decimals that the points of price and amount are moved to the left
    int wanted  # a bit for each role that a level must have
    int columns  # of a row, up to the last that is wanted
    uint8_t roles[COLUMNS_MAX]
    int members
    Member names[MEMBERS]
    uint32_t fields[2]  # of price and amount
    uint32_t sides[2]  # of bids and asks

cdef struct Level:
    int64_t numbers[NUMBERS]
    int side


cdef inline const uint8_t *ignored_rest(Scan *scan, const uint8_t *at) noexcept nogil:
    """Step over what follows the amount, up to the bracket that closes the row."""
    while at[0] == c",":
        at = ignored(scan, blanks(at + 1), NESTING_MAX)
        if at == NULL:
            return NULL
        at = blanks(at)
    return at if at[0] == c"]" else fail(scan, BAD_ROW)


cdef inline int side_named(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Return the side that the string of `length` bytes names, quotes included, or -1."""
    if length == 5:
        if memcmp(at, b'"buy"', 5) == 0 or memcmp(at, b'"bid"', 5) == 0:
            return 0
        return 1 if memcmp(at, b'"ask"', 5) == 0 else -1
    if length == 6:
        return 1 if memcmp(at, b'"sell"', 6) == 0 else -1
    return 1 if length == 7 and memcmp(at, b'"offer"', 7) == 0 else -1


cdef inline const uint8_t *side_name(Scan *scan, const uint8_t *at, int *side) noexcept nogil:
    cdef const uint8_t *start = at
    at = string(scan, at)
    if at == NULL:
        return NULL
    side[0] = side_named(start, at - start)
    return at if side[0] >= 0 else fail(scan, BAD_ROW)


cdef inline const uint8_t *signed_number(
    Scan *scan, const uint8_t *at, Level *level
) noexcept nogil:
    """Read an amount whose sign tells the side; zero has none."""
    cdef bint quoted = at[0] == c'"'
    at += quoted
    level.side = at[0] == c"-"
    at = number_bare(scan, &scan.columns[AMOUNT], at + level.side, &level.numbers[AMOUNT])
    if at == NULL:
        return NULL
    if quoted and at[0] != c'"':
        return fail(scan, BAD_NUMBER)
    return at + quoted if level.numbers[AMOUNT] else fail(scan, BAD_ROW)


cdef inline const uint8_t *cell(
    Scan *scan, const Shape *shape, int role, const uint8_t *at, Level *level
) noexcept nogil:
    """Read what a column or a member holds."""
    if role < NUMBERS:
        if shape.signed and role == AMOUNT:
            return signed_number(scan, at, level)
        return number(scan, &scan.columns[role], at, &level.numbers[role])
    if role == SIDE:
        return side_name(scan, at, &level.side)
    return ignored(scan, at, NESTING_MAX)


cdef inline const uint8_t *next_cell(Scan *scan, const uint8_t *at) noexcept nogil:
    """Go on behind a comma."""
    at = blanks(at)
    return blanks(at + 1) if at[0] == c"," else fail(scan, BAD_ROW)


cdef inline const uint8_t *pair(
    Scan *scan, const uint8_t *at, Level *level, bint sided
) noexcept nogil:
    """Do what `array_row` does for a `PAIR` or a `SIDED_PAIR`."""
    if at[0] != c"[":
        return fail(scan, BAD_ROW)
    at = blanks(at + 1)
    if sided:
        at = side_name(scan, at, &level.side)
        if at == NULL:
            return NULL
        at = next_cell(scan, at)
        if at == NULL:
            return NULL
    at = number(scan, &scan.columns[PRICE], at, &level.numbers[PRICE])
    if at == NULL:
        return NULL
    at = next_cell(scan, at)
    if at == NULL:
        return NULL
    at = number(scan, &scan.columns[AMOUNT], at, &level.numbers[AMOUNT])
    return at if at == NULL else ignored_rest(scan, blanks(at))


cdef inline const uint8_t *array_row(
    Scan *scan, const Shape *shape, const uint8_t *at, Level *level
) noexcept nogil:
    """Read an array, up to the bracket that closes it."""
    cdef int column = 0
    if at[0] != c"[":
        return fail(scan, BAD_ROW)
    at = blanks(at + 1)
    while True:
        at = cell(scan, shape, shape.roles[column], at, level)
        if at == NULL:
            return NULL
        column += 1
        if column == shape.columns:
            return ignored_rest(scan, blanks(at))
        at = next_cell(scan, at)
        if at == NULL:
            return NULL


cdef inline int role_of(const Shape *shape, const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Return what the member of this name, quotes included, is for."""
    cdef int at
    for at in range(shape.members):
        if length == shape.names[at].length and memcmp(name, shape.names[at].text, length) == 0:
            return shape.names[at].role
    return IGNORED


cdef inline const uint8_t *member(
    Scan *scan, const Shape *shape, const uint8_t *at, int *role
) noexcept nogil:
    """Step over the name of a member and find what it is for."""
    cdef const uint8_t *start = at
    cdef const Member *name
    cdef uint64_t head
    cdef int index
    if scan.end - at >= HEAD_BYTES:
        memcpy(&head, at, HEAD_BYTES)
        for index in range(shape.members):
            name = &shape.names[index]
            if (head ^ name.head) & name.head_mask == 0 and name.length <= HEAD_BYTES:
                role[0] = name.role
                return at + name.length
    at = string(scan, at)
    if at != NULL:
        role[0] = role_of(shape, start, at - start)
    return at


cdef inline const uint8_t *object_row(
    Scan *scan, const Shape *shape, const uint8_t *at, Level *level
) noexcept nogil:
    """Read an object that has each member we want exactly once."""
    cdef int role, missing = shape.wanted
    if at[0] != c"{":
        return fail(scan, BAD_ROW)
    while True:
        at = member(scan, shape, blanks(at + 1), &role)
        if at == NULL:
            return NULL
        at = blanks(at)
        if at[0] != c":":
            return fail(scan, BAD_JSON)
        if role != IGNORED:
            if not missing >> role & 1:
                return fail(scan, BAD_ROW)
            missing ^= 1 << role
        at = cell(scan, shape, role, blanks(at + 1), level)
        if at == NULL:
            return NULL
        at = blanks(at)
        if at[0] == c"}":
            return blanks(at + 1) if missing == 0 else fail(scan, BAD_ROW)
        if at[0] != c",":
            return fail(scan, BAD_JSON)


cdef inline bint keep(Scan *scan, const Level *level) noexcept nogil:
    """Append a level to its side."""
    cdef Rows *into = &scan.sides[level.side]
    cdef Row *row
    if not room_for_row(scan, into):
        return False
    row = &into.rows[into.count]
    row.price = level.numbers[PRICE]
    row.amount = level.numbers[AMOUNT]
    into.count += 1
    return True


cdef inline bint keep_lossy(
    Scan *scan, const Shape *shape, Level *level, const Column *amounts
) noexcept nogil:
    """Do what `keep` does where rows may be ignored or remove; `amounts` is as before the row."""
    cdef bint removed = shape.wanted >> COUNT & 1 and level.numbers[COUNT] == 0
    cdef bint priced = level.numbers[PRICE] != 0
    if not priced and not shape.skip_zero_price:
        return fail(scan, ZERO_PRICE) != NULL
    if removed or not priced:
        scan.columns[AMOUNT] = amounts[0]
        level.numbers[AMOUNT] = 0
    return keep(scan, level) if priced else True


cdef inline const uint8_t *row(
    Scan *scan, const Shape *shape, const uint8_t *at, Level *level, int form
) noexcept nogil:
    """Read and keep a row, up to the bracket that closes an array or to what follows an object."""
    cdef Column amounts
    cdef bint plain = form == PAIR or form == SIDED_PAIR
    if not plain and shape.lossy:
        amounts = scan.columns[AMOUNT]
    if plain:
        at = pair(scan, at, level, form == SIDED_PAIR)
    elif form == ROW:
        at = array_row(scan, shape, at, level)
    else:
        at = object_row(scan, shape, at, level)
    if at == NULL:
        return NULL
    if not plain and shape.lossy:
        return at if keep_lossy(scan, shape, level, &amounts) else NULL
    if level.numbers[PRICE] == 0:
        return fail(scan, ZERO_PRICE)
    return at if keep(scan, level) else NULL


cdef inline bint rows(
    Scan *scan, const Shape *shape, const uint8_t *at, int side, int form
) noexcept nogil:
    """Read all rows of a text, from its `[` to its end; `form` is a constant to the C compiler."""
    cdef const uint8_t *start = at
    cdef Py_ssize_t left = FRAME_LEVELS_MAX
    cdef Level level
    level.side = side
    at = blanks(at + 1)
    if at[0] == c"]":
        return at + 1 == scan.end or fail(scan, BAD_JSON) != NULL
    if form == ROW and shape.single and at[0] != c"[":
        at = row(scan, shape, start, &level, form)
        return at != NULL and (at + 1 == scan.end or fail(scan, BAD_JSON) != NULL)
    while True:
        at = row(scan, shape, at, &level, form)
        if at == NULL:
            return False
        if form != OBJECT:
            at = closed(scan, at + 1)
            if at == NULL:
                return False
        if left == 0:
            return fail(scan, TOO_MANY) != NULL
        left -= 1
        if at[0] == c"]":
            return at + 1 == scan.end or fail(scan, BAD_JSON) != NULL
        if at[0] != c",":
            return fail(scan, BAD_JSON) != NULL
        at = blanks(at + 1)


cdef inline bint text_rows(
    Scan *scan, const Shape *shape, const uint8_t *text, Py_ssize_t length, int side
) noexcept nogil:
    """Read one JSON text; nothing, `[]` and `null` have no rows."""
    cdef const uint8_t *end = text + length
    while text < end and is_blank(text[0]):
        text += 1
    while text < end and is_blank((end - 1)[0]):
        end -= 1
    if text == end or (end - text == 4 and memcmp(text, b"null", 4) == 0):
        return True
    scan.end = end
    if end - text < 2 or text[0] != c"[" or (end - 1)[0] != c"]":
        scan.error = BAD_JSON
        return False
    if shape.form == PAIR:
        return rows(scan, shape, text, side, PAIR)
    if shape.form == SIDED_PAIR:
        return rows(scan, shape, text, side, SIDED_PAIR)
    if shape.form == ROW:
        return rows(scan, shape, text, side, ROW)
    return rows(scan, shape, text, side, OBJECT)
