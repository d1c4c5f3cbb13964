"""Compiled level shapes and checksum layouts, cached by object identity."""

cdef enum:  # values of `types.ChecksumOrder` and `types.ChecksumNumber`
    ASKS_BIDS = 0
    IN_TURN = 2
    DIGITS = 0
    JAVASCRIPT = 2

cdef enum:
    SMALL_POWER = 6  # below 10^-6 JavaScript prints an exponent
    FACTS_MAX = 128  # compiled shapes and layouts in the cache; a power of two

cdef struct Layout:  # a `types.ChecksumLayout`
    Py_ssize_t levels
    int order
    int number
    int decimals  # -1: as in the exchange's text
    bint negative_asks
    char separator
    int separator_bytes  # 0 where there is none

cdef struct Fact:
    PyObject *stated  # kept alive
    bint is_shape
    Shape sides[2]  # how bids and how asks are read
    Layout layout

SIDED_PAIRS = LevelShape.rows(side=0, price=1, amount=2)
LED_PAIRS = LevelShape.rows(price=1, amount=2)

cdef Fact facts[FACTS_MAX]
cdef int fact_count = 0
memset(facts, 0, sizeof(facts))


cdef const Shape *shape_of(object shape) except NULL:
    """Return the compiled shape of bids; that of asks follows it in memory."""
    cdef Fact *fact = fact_of(shape)
    if not fact.is_shape:
        raise TypeError(f"A shape is a LevelShape, not {shape!r}.")
    return fact.sides


cdef const Layout *layout_of(object layout) except NULL:
    cdef Fact *fact = fact_of(layout)
    if fact.is_shape:
        raise TypeError(f"A layout is a ChecksumLayout, not {layout!r}.")
    return &fact.layout


cdef Fact *fact_of(object stated) except NULL:
    cdef size_t at = <size_t><void *>stated >> 4 & FACTS_MAX - 1
    while facts[at].stated != <PyObject *>stated:
        if facts[at].stated == NULL:
            return fact_made(stated)
        at = at + 1 & FACTS_MAX - 1
    return &facts[at]


cdef Fact *fact_made(object stated) except NULL:
    """Compile a shape or layout; a half-full cache is cleared first."""
    global fact_count
    cdef size_t at
    cdef Fact fact
    memset(&fact, 0, sizeof(Fact))
    if isinstance(stated, LevelShape):
        fact.is_shape = True
        shape_fill(&fact.sides[0], stated)
        shape_fill(&fact.sides[1], stated if stated.asks is None else stated.asks)
    elif isinstance(stated, ChecksumLayout):
        layout_fill(&fact.layout, stated)
    else:
        raise TypeError(f"There is no shape and no layout {stated!r}.")
    if fact_count == FACTS_MAX // 2:
        facts_forget()
    fact_count += 1
    at = <size_t><void *>stated >> 4 & FACTS_MAX - 1
    while facts[at].stated != NULL:
        at = at + 1 & FACTS_MAX - 1
    Py_INCREF(stated)
    fact.stated = <PyObject *>stated
    facts[at] = fact
    return &facts[at]


cdef int facts_forget() except -1:
    global fact_count
    cdef size_t at
    cdef PyObject *stated
    fact_count = 0
    for at in range(FACTS_MAX):
        stated = facts[at].stated
        facts[at].stated = NULL
        Py_XDECREF(stated)
    return 0


cdef int shape_fill(Shape *shape, object stated) except -1:
    cells = stated.price, stated.amount, stated.count, stated.side
    shape.form = stated.form
    shape.is_signed = stated.signed
    shape.single = stated.single
    shape.skip_zero_price = stated.skip_zero_price
    shape.one_text = stated.one_text
    shape.lossy = stated.skip_zero_price or stated.count is not None
    shape.amount_cut = UNCUT if stated.amount_decimals is None else stated.amount_decimals
    shape.moved[PRICE], shape.moved[AMOUNT] = stated.price_scale, stated.amount_scale
    for role, what in enumerate(cells):
        if what is None:
            continue
        shape.wanted |= 1 << <int>role
        if shape.form == ROW:
            shape.columns = max(shape.columns, <int>what + 1)
        elif shape.form == OBJECT:
            name_fill(&shape.names[shape.members], what, role)
            shape.members += 1
        else:
            shape.fields[<int>role] = what
    if shape.form == ROW:
        memset(shape.roles, IGNORED, COLUMNS_MAX)
        for role, what in enumerate(cells):
            if what is not None:
                shape.roles[<int>what] = role
    shape.sides[0], shape.sides[1] = stated.bids_field, stated.asks_field
    places = replace(stated, amount_decimals=None, price_scale=0, amount_scale=0)
    if places == PAIRS:
        shape.form = PAIR
    elif places == SIDED_PAIRS:
        shape.form = SIDED_PAIR
    elif places == LED_PAIRS:
        shape.form = LED_PAIR
    return 0


cdef int name_fill(Member *name, str text, int role) except -1:
    cdef bytes quoted = f'"{text}"'.encode("ascii")
    name.role = role
    name.length = <int>len(quoted)
    memcpy(name.text, <const char *>quoted, name.length)
    memcpy(&name.head, name.text, min(name.length, HEAD_BYTES))
    memset(&name.head_mask, 255, min(name.length, HEAD_BYTES))
    return 0


cdef int layout_fill(Layout *layout, object stated) except -1:
    layout.levels = stated.levels
    layout.order = stated.order
    layout.number = stated.number
    layout.decimals = -1 if stated.decimals is None else stated.decimals
    layout.negative_asks = stated.negative_asks
    layout.separator = ord(stated.separator) if stated.separator else 0
    layout.separator_bytes = len(stated.separator)
    return 0


cdef inline char *put_number(
    char *out, const Layout *layout, int64_t mantissa, int scale, int decimals
) noexcept nogil:
    """Print a number in the layout, followed by the separator."""
    if layout.number == DIGITS:
        out = put_moved(out, mantissa, (decimals if layout.decimals < 0 else layout.decimals) - scale)
    elif layout.number == JAVASCRIPT:
        out = put_javascript(out, <uint64_t>mantissa, scale)
    else:
        out = put_decimal(out, <uint64_t>mantissa, scale)
    out[0] = layout.separator
    return out + layout.separator_bytes


cdef inline char *put_moved(char *out, int64_t mantissa, int decimals) noexcept nogil:
    """Print digits with the point moved; decimals beyond it are cut."""
    if decimals < 0:
        return put_decimal(out, <uint64_t>mantissa // power10[-decimals], 0)
    out = put_decimal(out, <uint64_t>mantissa, 0)
    memset(out, c"0", decimals)
    return out + decimals


cdef char *put_javascript(char *out, uint64_t mantissa, int scale) noexcept nogil:
    cdef int digits = 1
    if scale <= SMALL_POWER or mantissa >= power10[scale - SMALL_POWER]:
        return put_decimal(out, mantissa, scale)
    while mantissa >= power10[digits]:
        digits += 1
    out = put(put_decimal(out, mantissa, digits - 1), b"e-")
    return put_count(out, scale - digits + 1)
