"""Messages of books as columns of integers, recorded, merged and played: see `reference.tape`."""

cdef enum:  # values of `types.TapeKind`
    KEYFRAME = 0
    SNAPSHOT = 1
    DELTA = 2
    TOP = 3
    HEALTH = 4

cdef enum:
    TAPE_ROWS_FIRST = 1_024
    TAPE_ROWS_KEPT = 262_144  # room of a side, above which memory is not used again
    TAPE_SCALE_MAX = 18
    ISO_SECOND = 19  # characters up to the second
    ISO_LONGEST = 30  # with nanoseconds and Z

cdef enum:  # buffers of a `TapePlayer`; those of asks follow those of bids
    KINDS_AT, PRICE_SCALES_AT, AMOUNT_SCALES_AT, ENDS_AT, STARTS_AT = 5, LEVELS_AT = 7,
    BUFFERS = 11

cdef enum:  # columns of `TapeColumns`
    MESSAGE_COLUMNS = 12  # with a number for each message
    STARTS_COLUMN = 12  # those of bids and of asks, then prices and amounts of each side
    LEVEL_COLUMNS = 14
    TAPE_COLUMNS = 18

cdef Py_ssize_t[MESSAGE_COLUMNS] MESSAGE_WIDTHS = [8, 4, 1, 1, 1, 8, 8, 8, 8, 8, 8, 8]

cdef char *BYTES = b"B"  # format of a buffer
cdef int64_t NOWHERE = 0  # where an empty one begins

# Microseconds of a time by its magnitude, as `exchanges.kit.microseconds`.
cdef int64_t MILLISECONDS_END = 10**14
cdef int64_t MICROSECONDS_END = 10**17

cdef struct TapeMessage:
    double now
    int64_t at_us
    int64_t sequence
    int64_t ends[2]
    int64_t best[2]
    Py_ssize_t stops[2]  # of its levels
    int32_t book
    int8_t kind
    int8_t price_scale
    int8_t amount_scale

cdef struct Place:  # of a message among those of a `TapeMerger`
    const Py_buffer *columns
    Py_ssize_t row

cdef TapeMessage NO_MESSAGE
memset(&NO_MESSAGE, 0, sizeof(NO_MESSAGE))


@cython.final
cdef class TapeMemory:
    """Integers of a tape where they are: while they are read, its memory is not used again."""

    cdef BookTape tape
    cdef int64_t *start
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("A tape is read-only.")
        buffer.buf, buffer.len, buffer.obj = self.start, self.size, self
        buffer.itemsize, buffer.ndim, buffer.readonly = 1, 1, True
        buffer.format = BYTES if flags & PyBUF_FORMAT else NULL
        buffer.shape = &self.size if flags & PyBUF_ND else NULL
        buffer.strides, buffer.suboffsets, buffer.internal = NULL, NULL, NULL
        self.tape.readers += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.tape.readers -= 1


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
    cdef Py_ssize_t row_count  # of levels, and of messages without one
    cdef int64_t *prices[2]  # of bids; of asks
    cdef int64_t *amounts[2]
    cdef Py_ssize_t counts[2]
    cdef Py_ssize_t rooms[2]
    cdef Py_ssize_t staged[2]  # levels behind `counts` that no message has yet
    cdef void *staged_by  # the book that put them there
    cdef Py_ssize_t readers  # of its memory

    def __cinit__(self, read_time, Py_ssize_t rows_max):
        self.read_time = read_time
        self.rows_max = rows_max
        self.texts = []

    def __dealloc__(self):
        cdef int side
        free(self.messages)
        for side in range(2):
            free(self.prices[side])
            free(self.amounts[side])

    def swap(self, BookTape read=None):
        """Return a tape with everything that was collected, and start again.

        The memory of a tape that was read is used again, because new memory costs as much time as
        what is written to it.
        """
        cdef BookTape taken = BookTape(self.read_time, self.rows_max)
        cdef int side
        taken.texts, self.texts = self.texts, taken.texts
        taken.full, taken.count, taken.row_count = self.full, self.count, self.row_count
        taken.messages, taken.message_room = self.messages, self.message_room
        self.messages, self.message_room = NULL, 0
        for side in range(2):
            taken.prices[side], taken.amounts[side] = self.prices[side], self.amounts[side]
            taken.counts[side], taken.rooms[side] = self.counts[side], self.rooms[side]
            self.prices[side], self.amounts[side] = NULL, NULL
            self.counts[side] = self.rooms[side] = 0
        if read is not None and read is not self and not read.readers and (
            max(read.rooms[0], read.rooms[1]) <= TAPE_ROWS_KEPT
        ):
            self.take_memory(read)
        self.full = False
        self.count = self.row_count = 0
        self.unstage()
        return taken

    cdef void take_memory(self, BookTape other) noexcept:
        cdef int side
        self.messages, self.message_room = other.messages, other.message_room
        other.messages, other.message_room, other.count = NULL, 0, 0
        for side in range(2):
            self.prices[side], self.amounts[side] = other.prices[side], other.amounts[side]
            self.rooms[side] = other.rooms[side]
            other.prices[side], other.amounts[side] = NULL, NULL
            other.counts[side] = other.rooms[side] = 0

    def columns(self, int64_t first, int64_t offset_us, int64_t last_us, int64_t end_us):
        """Return the messages and their rows as `TapeColumns`: see `reference.tape`.

        Levels are not copied; the tape takes nothing more.
        """
        cdef Py_ssize_t at, count = self.count
        cdef TapeMessage *message
        for at, text in self.texts:
            self.messages[at].at_us = self.read_time(text)
        self.texts = []
        self.full = True
        numbers, books, kinds = empty(count * 8), empty(count * 4), empty(count)
        price_scales, amount_scales = empty(count), empty(count)
        received, times, sequences = empty(count * 8), empty(count * 8), empty(count * 8)
        bid_ends, ask_ends = empty(count * 8), empty(count * 8)
        best_bids, best_asks = empty(count * 8), empty(count * 8)
        bid_starts, ask_starts = empty(count * 4 + 4), empty(count * 4 + 4)
        (<int32_t *>data(bid_starts))[0] = (<int32_t *>data(ask_starts))[0] = 0
        for at in range(count):
            message = &self.messages[at]
            last_us = min(max(last_us, offset_us + llrint(message.now * 1e6)), end_us)
            (<int64_t *>data(numbers))[at] = first + at
            (<int64_t *>data(received))[at] = last_us
            (<int64_t *>data(times))[at] = message.at_us
            (<int64_t *>data(sequences))[at] = message.sequence
            (<int64_t *>data(bid_ends))[at] = message.ends[0]
            (<int64_t *>data(ask_ends))[at] = message.ends[1]
            (<int64_t *>data(best_bids))[at] = message.best[0]
            (<int64_t *>data(best_asks))[at] = message.best[1]
            (<int32_t *>data(books))[at] = message.book
            (<int8_t *>data(kinds))[at] = message.kind
            (<int8_t *>data(price_scales))[at] = message.price_scale
            (<int8_t *>data(amount_scales))[at] = message.amount_scale
            (<int32_t *>data(bid_starts))[at + 1] = <int32_t>message.stops[0]
            (<int32_t *>data(ask_starts))[at + 1] = <int32_t>message.stops[1]
        return TapeColumns(
            numbers, books, kinds, price_scales, amount_scales, received, times, sequences, bid_ends,
            ask_ends, best_bids, best_asks, bid_starts, ask_starts,
            self.memory(self.prices[0], 0), self.memory(self.amounts[0], 0),
            self.memory(self.prices[1], 1), self.memory(self.amounts[1], 1),
        )

    cdef object memory(self, int64_t *start, int side):
        cdef TapeMemory found = TapeMemory.__new__(TapeMemory)
        found.tape, found.start, found.size = self, start, self.counts[side] * 8
        if start == NULL:  # which pyarrow takes for an error
            found.start = &NOWHERE
        return memoryview(found)

    cdef inline void unstage(self) noexcept:
        self.staged[0] = self.staged[1] = 0
        self.staged_by = NULL

    cdef bint reserve(self, Py_ssize_t bids, Py_ssize_t asks) noexcept:
        """Make room for a message with these levels; otherwise the tape is full."""
        cdef Py_ssize_t[2] wanted
        cdef Py_ssize_t room
        cdef int side
        wanted[0], wanted[1] = bids, asks
        if self.full or self.row_count + max(bids + asks, 1) > self.rows_max:
            self.full = True
            return False
        for side in range(2):
            if self.counts[side] + wanted[side] <= self.rooms[side]:
                continue
            room = max(self.rooms[side], TAPE_ROWS_FIRST)
            while room < self.counts[side] + wanted[side]:
                room *= 2
            if not (
                grown(<void **>&self.prices[side], room * sizeof(int64_t))
                and grown(<void **>&self.amounts[side], room * sizeof(int64_t))
            ):
                self.full = True
                return False
            self.rooms[side] = room
        if self.count == self.message_room:
            room = max(2 * self.message_room, TAPE_ROWS_FIRST)
            if not grown(<void **>&self.messages, room * sizeof(TapeMessage)):
                self.full = True
                return False
            self.message_room = room
        return True

    cdef void stage(self, const Scan *scan, void *book) noexcept:
        """Copy levels that were just applied, for `put`; what another book staged is dropped."""
        cdef Py_ssize_t index, count
        cdef int side
        cdef int64_t *prices
        cdef int64_t *amounts
        cdef const Row *rows
        self.unstage()
        if not self.reserve(scan.sides[0].count, scan.sides[1].count):
            return
        for side in range(2):
            count, rows = scan.sides[side].count, scan.sides[side].rows
            prices = self.prices[side] + self.counts[side]
            amounts = self.amounts[side] + self.counts[side]
            for index in range(count):
                prices[index], amounts[index] = rows[index].price, rows[index].amount
            self.staged[side] = count
        self.staged_by = book

    cdef inline void stage_level(self, int side, const Level *level) noexcept:
        """Stage another level; the caller has reserved its place."""
        cdef Py_ssize_t at = self.counts[side] + self.staged[side]
        self.prices[side][at] = llabs(level.key)
        self.amounts[side][at] = level.amount
        self.staged[side] += 1

    cdef bint put(self, TapeMessage *message, object sequence, object at) except -1:
        """Append a message with the levels that are staged."""
        cdef int side, overflow = 0
        cdef int64_t number = PyLong_AsLongLongAndOverflow(sequence, &overflow)
        if not self.reserve(self.staged[0], self.staged[1]):
            return False
        message.sequence = 0 if overflow else number
        message.at_us = self.microseconds_of(at)
        self.row_count += max(self.staged[0] + self.staged[1], 1)
        for side in range(2):
            self.counts[side] += self.staged[side]
            message.stops[side] = self.counts[side]
        self.unstage()
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
cdef class TapeMerger:
    """Messages of several tapes, copied in any order: see `reference.tape`."""

    cdef Py_buffer *buffers  # `TAPE_COLUMNS` of each part
    cdef Py_ssize_t held
    cdef Py_ssize_t *firsts  # number of the first message of each part, and of all messages
    cdef Py_ssize_t parts

    def __cinit__(self, parts):
        cdef Py_ssize_t at, place, count
        cdef Py_buffer *own
        self.parts = len(parts)
        self.buffers = <Py_buffer *>calloc(self.parts * TAPE_COLUMNS + 1, sizeof(Py_buffer))
        self.firsts = <Py_ssize_t *>calloc(self.parts + 1, sizeof(Py_ssize_t))
        if self.buffers == NULL or self.firsts == NULL:
            raise MemoryError
        for at, part in enumerate(parts):
            own = self.buffers + self.held
            for source in part:
                if self.held == (at + 1) * TAPE_COLUMNS:
                    raise ValueError("A part has too many columns.")
                PyObject_GetBuffer(source, self.buffers + self.held, PyBUF_SIMPLE)
                self.held += 1
            if self.held != (at + 1) * TAPE_COLUMNS:
                raise ValueError("A part has too few columns.")
            count = own[0].len // 8
            for place in range(MESSAGE_COLUMNS):
                if own[place].len != count * MESSAGE_WIDTHS[place]:
                    raise ValueError("The columns of a part have different lengths.")
            for place in range(2):
                if own[STARTS_COLUMN + place].len != (count + 1) * 4 or (
                    own[LEVEL_COLUMNS + 2 * place].len != own[LEVEL_COLUMNS + 2 * place + 1].len
                ):
                    raise ValueError("The columns of a part have different lengths.")
            self.firsts[at + 1] = self.firsts[at] + count

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(self.held):
            PyBuffer_Release(self.buffers + at)
        free(self.buffers)
        free(self.firsts)

    def columns(self, order):
        """Return the messages with these numbers as `TapeColumns`."""
        cdef Py_buffer given
        cdef Py_ssize_t count
        cdef Place *places = NULL
        PyObject_GetBuffer(order, &given, PyBUF_SIMPLE)
        try:
            count = given.len // 8
            places = <Place *>malloc((count + 1) * sizeof(Place))
            if places == NULL:
                raise MemoryError
            self.find(<int64_t *>given.buf, count, places)
            found = [self.message_column(at, places, count) for at in range(MESSAGE_COLUMNS)]
            bids, asks = self.side(0, places, count), self.side(1, places, count)
            return TapeColumns(*found, bids[0], asks[0], *bids[1:], *asks[1:])
        finally:
            free(places)
            PyBuffer_Release(&given)

    cdef int find(self, const int64_t *order, Py_ssize_t count, Place *places) except -1:
        """Find the part of each message, and its place there."""
        cdef Py_ssize_t at, part = 0
        cdef int64_t number
        for at in range(count):
            number = order[at]
            if not 0 <= number < self.firsts[self.parts]:
                raise IndexError("The parts have no such message.")
            if number < self.firsts[part]:
                part = 0
            while number >= self.firsts[part + 1]:
                part += 1
            places[at].columns = self.buffers + part * TAPE_COLUMNS
            places[at].row = number - self.firsts[part]
        return 0

    cdef bytes message_column(self, int column, const Place *places, Py_ssize_t count):
        cdef Py_ssize_t at, width = MESSAGE_WIDTHS[column]
        cdef bytes found = empty(count * width)
        cdef char *target = data(found)
        for at in range(count):
            if width == 8:
                (<int64_t *>target)[at] = (<int64_t *>places[at].columns[column].buf)[places[at].row]
            elif width == 4:
                (<int32_t *>target)[at] = (<int32_t *>places[at].columns[column].buf)[places[at].row]
            else:
                target[at] = (<char *>places[at].columns[column].buf)[places[at].row]
        return found

    cdef tuple side(self, int side, const Place *places, Py_ssize_t count):
        """Return where the levels of each message start, their prices and their amounts."""
        cdef Py_ssize_t at, size, total = 0
        cdef int column = LEVEL_COLUMNS + 2 * side
        cdef bytes starts = empty(count * 4 + 4)
        cdef const int32_t *given
        for at in range(count):
            given = <int32_t *>places[at].columns[STARTS_COLUMN + side].buf + places[at].row
            if not 0 <= given[0] <= given[1] <= places[at].columns[column].len // 8:
                raise ValueError("The levels of a message are outside of its part.")
            (<int32_t *>data(starts))[at] = <int32_t>total
            total += given[1] - given[0]
            if total > INT32_MAX:
                raise ValueError("These messages have too many levels.")
        (<int32_t *>data(starts))[count] = <int32_t>total
        cdef bytes prices = empty(total * 8)
        cdef bytes amounts = empty(total * 8)
        total = 0
        for at in range(count):
            given = <int32_t *>places[at].columns[STARTS_COLUMN + side].buf + places[at].row
            size = (given[1] - given[0]) * 8
            memcpy(data(prices) + total, <char *>places[at].columns[column].buf + given[0] * 8, size)
            memcpy(
                data(amounts) + total, <char *>places[at].columns[column + 1].buf + given[0] * 8, size
            )
            total += size
        return starts, prices, amounts


@cython.final
cdef class TapePlayer:
    """Messages of one book as columns of integers, to be played into a `Book`."""

    cdef Py_buffer buffers[BUFFERS]
    cdef int held
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t changed
    cdef const int8_t *kinds
    cdef const int8_t *scales[2]
    cdef const int64_t *ends[2]
    cdef const int32_t *starts[2]
    cdef const int64_t *prices[2]
    cdef const int64_t *amounts[2]

    def __cinit__(
        self, kinds, price_scales, amount_scales, bid_ends, ask_ends, bid_starts, ask_starts,
        bid_prices, bid_amounts, ask_prices, ask_amounts,
    ):
        cdef int at, side
        sources = (
            kinds, price_scales, amount_scales, bid_ends, ask_ends, bid_starts, ask_starts,
            bid_prices, bid_amounts, ask_prices, ask_amounts,
        )
        self.changed = -1
        for source in sources:
            PyObject_GetBuffer(source, &self.buffers[self.held], PyBUF_SIMPLE)
            self.held += 1
        self.count = self.buffers[KINDS_AT].len
        for at in range(KINDS_AT, STARTS_AT):
            if self.buffers[at].len != self.count * (8 if at >= ENDS_AT else 1):
                raise ValueError("The columns of a playback have different lengths.")
        self.kinds = <const int8_t *>self.buffers[KINDS_AT].buf
        for side in range(2):
            self.scales[side] = <const int8_t *>self.buffers[PRICE_SCALES_AT + side].buf
            self.ends[side] = <const int64_t *>self.buffers[ENDS_AT + side].buf
            self.starts[side] = <const int32_t *>self.buffers[STARTS_AT + side].buf
            self.prices[side] = <const int64_t *>self.buffers[LEVELS_AT + 2 * side].buf
            self.amounts[side] = <const int64_t *>self.buffers[LEVELS_AT + 2 * side + 1].buf
            if self.buffers[STARTS_AT + side].len != 4 * (self.count + 1) or not self.has(side):
                raise ValueError("The columns of a playback have different lengths.")

    cdef bint has(self, int side) noexcept:
        """Return whether there are the levels that each message begins and ends with."""
        cdef Py_ssize_t at, count = self.buffers[LEVELS_AT + 2 * side].len // 8
        if self.buffers[LEVELS_AT + 2 * side + 1].len != 8 * count or self.starts[side][0] < 0:
            return False
        for at in range(self.count):
            if self.starts[side][at] > self.starts[side][at + 1]:
                return False
        return self.starts[side][self.count] <= count

    def __dealloc__(self):
        while self.held:
            self.held -= 1
            PyBuffer_Release(&self.buffers[self.held])

    def play(self, Book book not None, Py_ssize_t start, Py_ssize_t stop):
        """Play messages into a book, up to a state; return the one after: see `reference.tape`."""
        cdef Scan scan
        cdef int8_t kind = DELTA
        if not 0 <= start <= stop <= self.count:
            raise IndexError("A playback has no such messages.")
        scan_open(&scan)
        book.touch()
        try:
            while start < stop and kind != KEYFRAME and kind != HEALTH:
                kind = self.kinds[start]
                if kind != HEALTH:
                    self.scan(&scan, start)
                    book.play(&scan, kind, self.scales[0][start], self.scales[1][start],
                              self.ends[0][start], self.ends[1][start])
                if kind == DELTA or kind == SNAPSHOT:
                    self.changed = start
                start += 1
        finally:
            scan_close(&scan)
        return start

    cdef int scan(self, Scan *scan, Py_ssize_t message) except -1:
        """Read the levels of a message."""
        cdef Rows *rows
        cdef int64_t price, amount
        cdef int64_t most = <int64_t>power10[DIGITS_MAX]
        cdef Py_ssize_t at
        cdef int side
        for side in range(2):
            if not 0 <= self.scales[side][message] <= TAPE_SCALE_MAX:
                raise LevelError("A recorded message has an invalid scale.")
        for side in range(2):
            rows = &scan.sides[side]
            rows.count = 0
            for at in range(self.starts[side][message], self.starts[side][message + 1]):
                price, amount = self.prices[side][at], self.amounts[side][at]
                if not 0 < price < most or not 0 <= amount < most:
                    raise LevelError("A recorded level has an invalid price or amount.")
                if not room_for_row(scan, rows):
                    raise MemoryError
                rows.rows[rows.count].price = price
                rows.rows[rows.count].amount = amount
                rows.count += 1
        return 0
