"""Messages of books as columns of integers, recorded and played: see `reference.tape`."""

cdef enum:  # values of `types.TapeKind`
    KEYFRAME = 0
    SNAPSHOT = 1
    DELTA = 2
    TOP = 3
    HEALTH = 4

cdef enum:
    TAPE_ROWS_FIRST = 1_024
    NO_SIDE = 2
    TAPE_SCALE_MAX = 18
    ISO_SECOND = 19  # characters up to the second
    ISO_LONGEST = 30  # with nanoseconds and Z

cdef enum:  # buffers of a `TapePlayer`
    NUMBERS_AT, KINDS_AT, SIDES_AT, PRICES_AT, AMOUNTS_AT, PRICE_SCALES_AT, AMOUNT_SCALES_AT,
    BID_ENDS_AT, ASK_ENDS_AT, BUFFERS

# Microseconds of a time by its magnitude, as `exchanges.kit.microseconds`.
cdef int64_t MILLISECONDS_END = 10**14
cdef int64_t MICROSECONDS_END = 10**17

cdef struct TapeMessage:
    double now
    int64_t at_us
    int64_t sequence
    int64_t ends[2]
    Py_ssize_t end  # of its rows
    int32_t book
    int8_t kind
    int8_t price_scale
    int8_t amount_scale

cdef TapeMessage NO_MESSAGE
memset(&NO_MESSAGE, 0, sizeof(NO_MESSAGE))


@cython.final
cdef class BookTape:
    """Collects what recorded books apply, in order, as columns of integers."""

    cdef object read_time
    cdef list texts  # (message, time) where the time is a text
    cdef readonly Py_ssize_t rows_max
    cdef readonly bint full
    cdef readonly Py_ssize_t count
    cdef TapeMessage *messages
    cdef Py_ssize_t message_room
    cdef int64_t *prices
    cdef int64_t *amounts
    cdef uint8_t *sides
    cdef Py_ssize_t row_count
    cdef Py_ssize_t row_room
    cdef Py_ssize_t staged  # rows behind `row_count` that no message has yet
    cdef void *staged_by  # the book that put them there

    def __cinit__(self, read_time, Py_ssize_t rows_max):
        self.read_time = read_time
        self.rows_max = rows_max
        self.texts = []

    def __dealloc__(self):
        free(self.messages)
        free(self.prices)
        free(self.amounts)
        free(self.sides)

    def swap(self):
        """Return a tape with everything that was collected, and start again."""
        cdef BookTape taken = BookTape(self.read_time, self.rows_max)
        taken.texts, self.texts = self.texts, taken.texts
        taken.full, taken.count, taken.row_count = self.full, self.count, self.row_count
        taken.message_room, taken.row_room = self.message_room, self.row_room
        taken.messages, taken.sides = self.messages, self.sides
        taken.prices, taken.amounts = self.prices, self.amounts
        self.messages, self.sides, self.prices, self.amounts = NULL, NULL, NULL, NULL
        self.full = False
        self.count = self.row_count = self.message_room = self.row_room = self.staged = 0
        self.staged_by = NULL
        return taken

    def columns(self, int64_t offset_us, int64_t last_us, int64_t end_us):
        """Return the messages and their rows as `TapeColumns`: see `reference.tape`."""
        cdef Py_ssize_t at, count = self.count
        cdef TapeMessage *message
        for at, text in self.texts:
            self.messages[at].at_us = self.read_time(text)
        self.texts = []
        books, kinds = empty(count * 4), empty(count)
        price_scales, amount_scales = empty(count), empty(count)
        received, times, sequences = empty(count * 8), empty(count * 8), empty(count * 8)
        bid_ends, ask_ends, starts = empty(count * 8), empty(count * 8), empty(count * 4 + 4)
        (<int32_t *>data(starts))[0] = 0
        for at in range(count):
            message = &self.messages[at]
            last_us = min(max(last_us, offset_us + llrint(message.now * 1e6)), end_us)
            (<int64_t *>data(received))[at] = last_us
            (<int64_t *>data(times))[at] = message.at_us
            (<int64_t *>data(sequences))[at] = message.sequence
            (<int64_t *>data(bid_ends))[at] = message.ends[0]
            (<int64_t *>data(ask_ends))[at] = message.ends[1]
            (<int32_t *>data(books))[at] = message.book
            (<int8_t *>data(kinds))[at] = message.kind
            (<int8_t *>data(price_scales))[at] = message.price_scale
            (<int8_t *>data(amount_scales))[at] = message.amount_scale
            (<int32_t *>data(starts))[at + 1] = <int32_t>message.end
        return TapeColumns(
            books, kinds, price_scales, amount_scales, received, times, sequences, bid_ends,
            ask_ends, starts, PyBytes_FromStringAndSize(<char *>self.sides, self.row_count),
            PyBytes_FromStringAndSize(<char *>self.prices, self.row_count * 8),
            PyBytes_FromStringAndSize(<char *>self.amounts, self.row_count * 8),
        )

    cdef bint reserve(self, Py_ssize_t rows) noexcept:
        """Make room for rows and a message; otherwise the tape is full."""
        cdef Py_ssize_t room = max(self.row_room, TAPE_ROWS_FIRST)
        if self.full or self.row_count + rows > self.rows_max:
            self.full = True
            return False
        while room < self.row_count + rows:
            room *= 2
        if room > self.row_room:
            if not (
                grown(<void **>&self.prices, room * sizeof(int64_t))
                and grown(<void **>&self.amounts, room * sizeof(int64_t))
                and grown(<void **>&self.sides, room)
            ):
                self.full = True
                return False
            self.row_room = room
        if self.count == self.message_room:
            room = max(2 * self.message_room, TAPE_ROWS_FIRST)
            if not grown(<void **>&self.messages, room * sizeof(TapeMessage)):
                self.full = True
                return False
            self.message_room = room
        return True

    cdef void stage(self, const Scan *scan, void *book) noexcept:
        """Copy levels that were just applied, for `put`; what another book staged is dropped."""
        cdef Py_ssize_t index, at = self.row_count
        cdef int side
        if not self.reserve(scan.sides[0].count + scan.sides[1].count):
            return
        for side in range(2):
            for index in range(scan.sides[side].count):
                self.prices[at] = scan.sides[side].rows[index].price
                self.amounts[at] = scan.sides[side].rows[index].amount
                self.sides[at] = side
                at += 1
        self.staged = at - self.row_count
        self.staged_by = book

    cdef inline void stage_level(self, int side, const Level *level) noexcept:
        """Stage another level; the caller has reserved its row."""
        cdef Py_ssize_t at = self.row_count + self.staged
        self.prices[at] = llabs(level.key)
        self.amounts[at] = level.amount
        self.sides[at] = side
        self.staged += 1

    cdef bint put(self, TapeMessage *message, object sequence, object at) except -1:
        """Append a message with the rows that are staged, at least one."""
        cdef Py_ssize_t row
        cdef int overflow = 0
        cdef int64_t number = PyLong_AsLongLongAndOverflow(sequence, &overflow)
        if not self.reserve(max(self.staged, 1)):
            return False
        message.sequence = 0 if overflow else number
        message.at_us = self.microseconds_of(at)
        if self.staged == 0:
            row = self.row_count
            self.prices[row] = self.amounts[row] = 0
            self.sides[row] = NO_SIDE
            self.staged = 1
        self.row_count += self.staged
        self.staged = 0
        self.staged_by = NULL
        message.end = self.row_count
        self.messages[self.count] = message[0]
        self.count += 1
        return True

    cdef int64_t microseconds_of(self, object at) except? -1:
        """Return a time in microseconds, or 0; a text of another form is read by `columns`."""
        cdef int overflow = 0
        cdef int64_t number = -1
        if type(at) is int:
            number = PyLong_AsLongLongAndOverflow(at, &overflow)
            return self.read_time(at) if overflow else microseconds(number)
        if PyUnicode_KIND(at) == PyUnicode_1BYTE_KIND:
            number = time_of_text(<const uint8_t *>PyUnicode_1BYTE_DATA(at), PyUnicode_GET_LENGTH(at))
        if number < 0:
            self.texts.append((self.count, at))
            return 0
        return number


cdef inline int64_t microseconds(int64_t number) noexcept nogil:
    """Return Unix microseconds of a time in ms, us or ns, as its magnitude says."""
    if number < MILLISECONDS_END:
        return max(number, 0) * 1_000
    return number if number < MICROSECONDS_END else number // 1_000


cdef int64_t time_of_text(const uint8_t *text, Py_ssize_t length) noexcept nogil:
    """Return Unix microseconds of plain digits, or of 2026-11-27T14:03:00.5Z; -1 for others."""
    cdef int64_t year, month, day, hour, minute, second, days, fraction = 0
    cdef Py_ssize_t at
    if 0 < length <= DIGITS_MAX:
        days = digits_of(text, length)
        if days >= 0:
            return microseconds(days)
    if length < ISO_SECOND + 1 or length > ISO_LONGEST or text[length - 1] != c"Z":
        return -1
    year, month, day = digits_of(text, 4), digits_of(text + 5, 2), digits_of(text + 8, 2)
    hour, minute, second = digits_of(text + 11, 2), digits_of(text + 14, 2), digits_of(text + 17, 2)
    if text[4] != c"-" or text[7] != c"-" or text[10] != c"T" or text[13] != c":" or (
        text[16] != c":" or (length > ISO_SECOND + 1 and text[ISO_SECOND] != c".")
        or length == ISO_SECOND + 2
    ):
        return -1
    if year < 1970 or not 1 <= month <= 12 or not 1 <= day <= days_in(year, month) or (
        not 0 <= hour < 24 or not 0 <= minute < 60 or not 0 <= second < 60
    ):
        return -1
    for at in range(ISO_SECOND + 1, ISO_SECOND + 7):
        fraction *= 10
        if at < length - 1:
            if not is_digit(text[at]):
                return -1
            fraction += text[at] - c"0"
    if length > ISO_SECOND + 8 and digits_of(text + ISO_SECOND + 7, length - ISO_SECOND - 8) < 0:
        return -1
    # Days since 1970-01-01, of years that begin in March.
    if month < 3:
        year -= 1
        month += 12
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5
    days += day - 1 - EPOCH_DAYS
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + fraction


cdef int64_t days_in(int64_t year, int64_t month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef int64_t digits_of(const uint8_t *text, Py_ssize_t length) noexcept nogil:
    """Return the number of plain digits; -1 if another character is among them."""
    cdef int64_t number = 0
    cdef Py_ssize_t at
    for at in range(length):
        if not is_digit(text[at]):
            return -1
        number = number * 10 + (text[at] - c"0")
    return number


cdef bytes empty(Py_ssize_t size):
    return PyBytes_FromStringAndSize(NULL, size)


cdef inline char *data(bytes buffer) noexcept:
    return PyBytes_AS_STRING(buffer)


cdef bint grown(void **memory, size_t size) noexcept:
    cdef void *found = realloc(memory[0], size)
    if found == NULL:
        return False
    memory[0] = found
    return True


@cython.final
cdef class TapePlayer:
    """Messages of one book as columns of integers, to be played into a `Book`."""

    cdef Py_buffer buffers[BUFFERS]
    cdef int held
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t changed
    cdef const int64_t *numbers
    cdef const int8_t *kinds
    cdef const uint8_t *sides
    cdef const int64_t *prices
    cdef const int64_t *amounts
    cdef const int8_t *scales[2]
    cdef const int64_t *ends[2]

    def __cinit__(
        self, numbers, kinds, sides, prices, amounts, price_scales, amount_scales, bid_ends,
        ask_ends,
    ):
        sources = (
            numbers, kinds, sides, prices, amounts, price_scales, amount_scales, bid_ends, ask_ends,
        )
        self.changed = -1
        for source in sources:
            PyObject_GetBuffer(source, &self.buffers[self.held], PyBUF_SIMPLE)
            self.held += 1
        self.count = self.buffers[KINDS_AT].len
        for at in range(BUFFERS):
            size = 1 if at in (KINDS_AT, SIDES_AT, PRICE_SCALES_AT, AMOUNT_SCALES_AT) else 8
            if self.buffers[at].len != self.count * size:
                raise ValueError("The columns of a playback have different lengths.")
        self.numbers = <const int64_t *>self.buffers[NUMBERS_AT].buf
        self.kinds = <const int8_t *>self.buffers[KINDS_AT].buf
        self.sides = <const uint8_t *>self.buffers[SIDES_AT].buf
        self.prices = <const int64_t *>self.buffers[PRICES_AT].buf
        self.amounts = <const int64_t *>self.buffers[AMOUNTS_AT].buf
        self.scales[0] = <const int8_t *>self.buffers[PRICE_SCALES_AT].buf
        self.scales[1] = <const int8_t *>self.buffers[AMOUNT_SCALES_AT].buf
        self.ends[0] = <const int64_t *>self.buffers[BID_ENDS_AT].buf
        self.ends[1] = <const int64_t *>self.buffers[ASK_ENDS_AT].buf

    def __dealloc__(self):
        while self.held:
            self.held -= 1
            PyBuffer_Release(&self.buffers[self.held])

    def play(self, Book book not None, Py_ssize_t start, Py_ssize_t stop):
        """Play messages into a book, up to a state; return the row after: see `reference.tape`."""
        cdef Scan scan
        cdef Py_ssize_t end
        cdef int64_t number
        cdef int8_t kind = DELTA
        if not 0 <= start <= stop <= self.count:
            raise IndexError("A playback has no such rows.")
        scan_open(&scan)
        book.touch()
        try:
            while start < stop and kind != KEYFRAME and kind != HEALTH:
                number, kind, end = self.numbers[start], self.kinds[start], start + 1
                while end < stop and self.numbers[end] == number:
                    end += 1
                if kind != HEALTH:
                    self.scan(&scan, start, end)
                    book.play(&scan, kind, self.scales[0][start], self.scales[1][start],
                              self.ends[0][start], self.ends[1][start])
                if kind == DELTA or kind == SNAPSHOT:
                    self.changed = start
                start = end
        finally:
            scan_close(&scan)
        return start

    cdef int scan(self, Scan *scan, Py_ssize_t start, Py_ssize_t end) except -1:
        """Read the levels of a message."""
        cdef Rows *rows
        cdef int64_t most = <int64_t>power10[DIGITS_MAX]
        scan.sides[0].count = scan.sides[1].count = 0
        for at in range(2):
            if not 0 <= self.scales[at][start] <= TAPE_SCALE_MAX:
                raise LevelError("A recorded message has an invalid scale.")
        for start in range(start, end):
            if self.sides[start] > 1:
                continue
            if not 0 < self.prices[start] < most or not 0 <= self.amounts[start] < most:
                raise LevelError("A recorded level has an invalid price or amount.")
            rows = &scan.sides[self.sides[start]]
            if not room_for_row(scan, rows):
                raise MemoryError
            rows.rows[rows.count].price = self.prices[start]
            rows.rows[rows.count].amount = self.amounts[start]
            rows.count += 1
        return 0
