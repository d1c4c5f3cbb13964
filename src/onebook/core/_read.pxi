"""Parses the level text of a frame into a `Scan` at given scales, and finds the scales that fit."""

# A message for each error of `_scan`, in its order.
cdef tuple ERRORS = (
    "",
    "Level text is not an array in plain JSON.",
    "A row of the level text has an unexpected form.",
    "A price or amount is not a JSON number of at least zero.",
    "A price or amount has too many digits for its book.",
    "A price is zero.",
    "A row of the level text is nested too deep.",
    "Level text has too many rows.",
    "A level message is not plain protobuf.",
    "A group of levels does not have its stated length, or its entries are too short.",
)


cdef bint read_text(Scan *scan, const uint8_t *text, Py_ssize_t length, const Shape *shape, int side):
    cdef Column *amounts = &scan.columns[AMOUNT]
    column_move(&scan.columns[PRICE], shape.moved[PRICE])
    column_move(amounts, shape.moved[AMOUNT])
    amounts.cut = shape.amount_cut
    if amounts.scale > amounts.cut:
        amounts.plain_scale = MEASURE
    if shape.form == MESSAGE:
        return message_levels(scan, shape, text, length)
    if shape.form == GROUP:
        return group_rows(scan, shape, text, length, side)
    return text_rows(scan, shape, text, length, side)


cdef int read_rows(Scan *scan, object source, const Shape *shape, int side) except -1:
    """Append the rows of one text; return whether it is valid."""
    cdef Py_buffer text
    cdef bint read
    if type(source) is bytes:
        return read_text(
            scan, <const uint8_t *>PyBytes_AS_STRING(source), PyBytes_GET_SIZE(source), shape, side
        )
    PyObject_GetBuffer(source, &text, PyBUF_SIMPLE)
    read = read_text(scan, <const uint8_t *>text.buf, text.len, shape, side)
    PyBuffer_Release(&text)
    return read


cdef int read_sides(
    Scan *scan, object bids, object asks, const Shape *shapes, int price_scale, int amount_scale
) except -1:
    """Parse both sides, each by its shape, at these scales."""
    scan.sides[0].count = scan.sides[1].count = 0
    scan.error = FINE
    column_begin(&scan.columns[PRICE], price_scale)
    column_begin(&scan.columns[AMOUNT], amount_scale)
    column_begin(&scan.columns[COUNT], MEASURE)
    if read_rows(scan, bids, shapes, 0) and (
        shapes.one_text or read_rows(scan, asks, shapes + 1, 1)
    ):
        return 0
    if scan.error == NO_MEMORY:
        raise MemoryError
    raise LevelError(ERRORS[scan.error])


cdef void column_begin(Column *column, int scale) noexcept:
    column.scale = column.plain_scale = scale
    column.decimals = column.need = 0
    column.whole = -DIGITS_MAX
    column.misfit = False
    column.cut = UNCUT
    column.moved = 0


cdef inline void column_move(Column *column, int moved) noexcept nogil:
    """Read scaled integers; by the slow path if the book's scale is smaller than their shift."""
    column.moved = moved
    column.plain_scale = column.scale - moved


cdef int fitting_scale(const Column *column, int scale, bint fresh) except -1:
    """Return a scale for a measured column: usually the present one, or a larger one."""
    cdef int grown = max(scale, column.need)
    if column.whole + grown <= DIGITS_MAX:
        return grown
    if fresh and column.whole + column.need <= DIGITS_MAX:
        return column.need
    raise LevelError(ERRORS[TOO_LONG])
