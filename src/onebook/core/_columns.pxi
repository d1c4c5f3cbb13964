"""Levels of many messages as columns of integers: see `reference.columns`."""

cdef enum:
    COLUMN_ROWS_FIRST = 1_024
    NO_SIDE = 2


@cython.final
cdef class LevelColumns:
    """Collects the levels of messages as columns of integers."""

    cdef int64_t *prices
    cdef int64_t *amounts
    cdef int32_t *messages
    cdef uint8_t *sides
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef int32_t message

    def __dealloc__(self):
        free(self.prices)
        free(self.amounts)
        free(self.messages)
        free(self.sides)

    def add(self, bids, asks, shape, int price_scale, int amount_scale):
        """Append a message's levels at these scales, or one empty row if it has none."""
        cdef Scan scan
        scan_open(&scan)
        try:
            read_sides(&scan, bids, asks, shape_of(shape), price_scale, amount_scale)
            if scan.columns[PRICE].misfit or scan.columns[AMOUNT].misfit:
                raise LevelError(ERRORS[TOO_LONG])
            self.reserve(scan.sides[0].count + scan.sides[1].count)
            self.put(&scan)
        finally:
            scan_close(&scan)

    def skip(self):
        """Append a message without levels."""
        self.reserve(1)
        self.put_empty()

    def take(self):
        """Return the columns as bytes and start again: messages, sides, prices, amounts."""
        taken = (
            PyBytes_FromStringAndSize(<char *>self.messages, self.count * sizeof(int32_t)),
            PyBytes_FromStringAndSize(<char *>self.sides, self.count),
            PyBytes_FromStringAndSize(<char *>self.prices, self.count * sizeof(int64_t)),
            PyBytes_FromStringAndSize(<char *>self.amounts, self.count * sizeof(int64_t)),
        )
        self.count = 0
        self.message = 0
        return taken

    cdef int reserve(self, Py_ssize_t rows) except -1:
        cdef Py_ssize_t room = max(self.room, COLUMN_ROWS_FIRST)
        while room < self.count + rows + 1:
            room *= 2
        if room == self.room:
            return 0
        self.prices = <int64_t *>grown(self.prices, room * sizeof(int64_t))
        self.amounts = <int64_t *>grown(self.amounts, room * sizeof(int64_t))
        self.messages = <int32_t *>grown(self.messages, room * sizeof(int32_t))
        self.sides = <uint8_t *>grown(self.sides, room)
        self.room = room
        return 0

    cdef void put(self, const Scan *scan) noexcept:
        cdef Py_ssize_t index, at = self.count
        cdef int side
        if scan.sides[0].count + scan.sides[1].count == 0:
            self.put_empty()
            return
        for side in range(2):
            for index in range(scan.sides[side].count):
                self.prices[at] = scan.sides[side].rows[index].price
                self.amounts[at] = scan.sides[side].rows[index].amount
                self.messages[at] = self.message
                self.sides[at] = side
                at += 1
        self.count = at
        self.message += 1

    cdef void put_empty(self) noexcept:
        self.prices[self.count] = self.amounts[self.count] = 0
        self.messages[self.count] = self.message
        self.sides[self.count] = NO_SIDE
        self.count += 1
        self.message += 1


cdef void *grown(void *old, size_t size) except NULL:
    cdef void *found = realloc(old, size)
    if found == NULL:
        raise MemoryError
    return found
