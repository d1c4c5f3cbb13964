"""The compiled core: exact books and views; produces the same bytes as `reference`.

Code without Python objects is in C headers, each declared in a `.pxd`: `_levels.h`,
`_protobuf.h` and `_sbe.h` parse level text with `_scan.h`, `_side.h` keeps one side sorted,
`_merge.h` merges the tops of many books, `_bins.h` groups one side by a price step, `_digits.h`
prints numbers, `_packed.h` packs them, `_exact.h` subtracts them. This file has `Book`;
`_facts.pxi` compiles level shapes, `_read.pxi` parses the levels of a frame, `_tape.pxi` records
and plays what books apply, `_merged.pxi` merges books, `_view.pxi` encodes a merged view as JSON
and `_packed.pxi` as protobuf, which `_unpacked.pxi` decodes for clients, `_conversion.pxi` converts
books into another currency (`_conversion.h`), and `_canonical.pxi` formats the numbers of account
records. The interface is documented in `_core.pyi` and `types`.
"""

from binascii import crc32
from decimal import Decimal

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.math cimport llrint
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, INT64_MIN, UINT64_MAX, int8_t, int32_t, int64_t, uint8_t, uint32_t,
    uint64_t,
)
from libc.stdlib cimport calloc, free, llabs, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from onebook.core._bins cimport Bin, Bins, bins_next, bins_open, high_word, low_word, wide_of
from onebook.core._digits cimport (
    NUMBER_ROOM, __builtin_ctzll, __builtin_mul_overflow, __builtin_popcountll, power10, put, put_count, put_decimal, put_wide, wide,
)
from onebook.core._exact cimport Exact, exact_scan, put_difference
from onebook.core._merge cimport (
    MEMBERS_MAX, Cursors, Merged, Source, State, cursors_open, merge_side, merge_single,
    state_alloc, state_copy, state_free, state_grow, state_may_grow, state_same,
)
from onebook.core._conversion cimport (
    CONVERSION_DONE, CONVERSION_MISFIT, Converted, Rates, convert_side, magnitude, rate_price,
)
from onebook.core._levels cimport (
    COLUMNS_MAX, GROUP, HEAD_BYTES, LED_PAIR, MESSAGE, OBJECT, PAIR, ROW, SIDED_PAIR, Member, Shape, text_rows,
)
from onebook.core._packed cimport (
    PACKED_FIELDS_ROOM, Packed, packed_put, packed_reserve, packed_room, put_fixed32, put_packed,
    put_sint, put_uint,
)
from onebook.core._protobuf cimport message_levels
from onebook.core._scan cimport (
    AMOUNT, COUNT, DIGITS_MAX, FINE, IGNORED, MEASURE, NO_MEMORY, PRICE, TOO_LONG, UNCUT, Column,
    Row, Rows, Scan, room_for_row, scan_close, scan_open,
)
from onebook.core._sbe cimport group_rows
from onebook.core._side cimport (
    Level, Side, Walk, side_best, side_bytes, side_clear, side_cut, side_free, side_holds, side_scale,
    side_set, walk_next, walk_open, walk_open_under,
)

from msgspec.structs import replace

from onebook.core.reference.conversion import converted_decimals, converted_side, rates_of
from onebook.core.reference.text import decimal_text
from onebook.core.reference.unpacked import CUT_OFF, NEGATIVE, TOO_HIGH, TWICE, UNEVEN, UNKNOWN
from onebook.core.reference.view import MergedLevel as ReferenceLevel
from onebook.core.reference.view import MergedState as ReferenceState
from onebook.core.reference.view import View as ReferenceView
from onebook.core.reference.view import view_depth, view_fees, view_names, view_step, view_within
from onebook.core.types import (
    ABSURD, CROSSED, NAMES_KEPT_MAX, PAIRS, UNPACKED_SCALE_MAX, ChecksumLayout, LevelError, Levels,
    LevelShape, TapeColumns,
)
from onebook.core.types import ABSURD_FACTOR as _ABSURD_FACTOR
from onebook.core.types import LEVELS_MAX as _LEVELS_MAX
from onebook.orderbook import BookLevel, NetLevel

cdef enum:
    CHECKSUM_LEVELS = 25
    VALUE_DECIMALS = 10
    PERCENT_DECIMALS = 4
    RATES_DEPTH = 500  # levels of a conversion book that are used
    CONVERTED_PLACES = 12  # `CONVERTED_DIGITS`
    CONVERTED_DECIMALS = 12  # `CONVERTED_DECIMALS_MAX`
    REFERENCE_SCALE = 18  # of a view of the reference implementation
    DIGITS_ROOM = 200  # bytes for one number at the wire's decimals, see NUMBER_BYTES_MAX
    STATS_ROOM = 1_024  # bytes for market_stats and the names of the members around it

cdef uint64_t last_version = 0  # of any book
cdef double ABSURD_TIMES = _ABSURD_FACTOR
cdef int LEVELS_LIMIT = _LEVELS_MAX
cdef object tuple_new = tuple.__new__

include "_facts.pxi"
include "_read.pxi"
include "_tape.pxi"


@cython.final
cdef class Book:
    """The levels of one instrument, as exact integers at the book's two scales."""

    cdef Side sides[2]  # bids; asks, by negated price
    cdef readonly int price_scale
    cdef readonly int amount_scale
    cdef readonly bint overlaid
    cdef Level tops[2]  # overlaid on the levels; an amount of 0 for an empty side
    cdef int price_decimals  # the most seen in the exchange's text since the last snapshot
    cdef int amount_decimals
    cdef int levels_max
    cdef int64_t bounds[2]  # the outermost known key of each side; INT64_MIN if all are known
    cdef uint64_t version  # of the levels: no two books, or states of a book, have the same
    cdef double mid  # of the last accepted top, or 0
    cdef tuple ends  # the last result of `horizon` ...
    cdef int64_t end_keys[2]  # ... and the keys it was computed from
    cdef int end_scale
    cdef BookTape tape  # that records this book, or None
    cdef int32_t tape_number
    cdef bint tape_covered  # by the tape, a top is overlaid

    def __cinit__(self, int levels_max=_LEVELS_MAX):
        if not 1 <= levels_max <= _LEVELS_MAX:
            raise ValueError(f"levels_max is {levels_max}, not 1 to {_LEVELS_MAX}.")
        self.levels_max = levels_max
        self.bounds[0] = self.bounds[1] = INT64_MIN
        self.touch()

    def __dealloc__(self):
        side_free(&self.sides[0])
        side_free(&self.sides[1])

    cdef inline void touch(self) noexcept:
        """Give the levels a new version, because they may change."""
        global last_version
        last_version += 1
        self.version = last_version

    def clear(self):
        """Drop every level and both scales, but keep the mid that jumps are measured against."""
        self.touch()
        side_clear(&self.sides[0])
        side_clear(&self.sides[1])
        self.price_scale = self.amount_scale = 0
        self.price_decimals = self.amount_decimals = 0
        self.bounds[0] = self.bounds[1] = INT64_MIN
        self.overlaid = False

    def replace(self, bids, asks, shape=PAIRS, Py_ssize_t levels_asked=0):
        """Replace the book, skipping levels without an amount; return what `apply` returns.

        A side with as many levels as were requested (0: without a limit) ends at its horizon.
        """
        cdef Scan scan
        cdef int price_scale = self.price_scale, amount_scale = self.amount_scale
        self.touch()
        scan_open(&scan)
        try:
            self.read(&scan, bids, asks, shape_of(shape), True)
            if price_scale != self.price_scale or amount_scale != self.amount_scale:
                self.overlaid = False
            self.begin(&scan, levels_asked)
            self.put(&scan, True)
            return self.checked(&scan)
        finally:
            scan_close(&scan)

    def apply(self, bids, asks, shape=PAIRS):
        """Set the amounts of these levels, in order; an amount of zero removes its level.

        Returns the reason why the book must not be shown, CROSSED or ABSURD, or None.
        """
        cdef Scan scan
        self.touch()
        scan_open(&scan)
        try:
            self.read(&scan, bids, asks, shape_of(shape), False)
            self.price_decimals = max(self.price_decimals, scan.columns[PRICE].decimals)
            self.amount_decimals = max(self.amount_decimals, scan.columns[AMOUNT].decimals)
            self.put(&scan, False)
            return self.checked(&scan)
        finally:
            scan_close(&scan)

    def overlay(self, bids, asks, shape=PAIRS):
        """Show this best bid and ask over the levels in merged views: see `reference`."""
        cdef Scan scan
        cdef const Shape *form = shape_of(shape)
        self.touch()
        scan_open(&scan)
        try:
            read_sides(&scan, bids, asks, form, self.price_scale, self.amount_scale)
            if scan.sides[0].count > 1 or scan.sides[1].count > 1:
                raise LevelError("A top has more than one level a side.")
            if scan.columns[PRICE].misfit or scan.columns[AMOUNT].misfit:
                self.rescale(&scan, bids, asks, form, False)
            return self.cover(&scan)
        finally:
            scan_close(&scan)

    def uncover(self):
        """Drop the overlaid best bid and ask."""
        self.touch()
        self.overlaid = False

    def overlay_agrees(self):
        """Whether the overlaid best bid and ask are those of the levels."""
        cdef int side
        cdef const Level *best
        for side in range(2):
            if self.tops[side].amount and self.tops[side].key < self.bounds[side]:
                continue  # beyond the horizon nothing is known
            if self.sides[side].count == 0:
                if self.tops[side].amount:
                    return False
                continue
            best = side_best(&self.sides[side])
            if best.amount != self.tops[side].amount or best.key != self.tops[side].key:
                return False
        return self.overlaid

    @property
    def bid_count(self):
        """Number of bids."""
        return self.sides[0].count

    @property
    def ask_count(self):
        """Number of asks."""
        return self.sides[1].count

    @property
    def crossed(self):
        """Whether the best bid is above the best ask."""
        if self.sides[0].count == 0 or self.sides[1].count == 0:
            return False
        return side_best(&self.sides[0]).key > -side_best(&self.sides[1]).key

    @property
    def nbytes(self):
        """Approximate memory used by the levels, in bytes."""
        return sizeof(Side) * 2 + side_bytes(&self.sides[0]) + side_bytes(&self.sides[1])

    def horizon(self, Py_ssize_t window=0):
        """Return the outermost known bid and ask price as text; None for a side known in full.

        `window` is how many levels the exchange keeps updated: a full window ends at its worst.
        """
        cdef int side
        cdef int64_t keys[2]
        for side in range(2):
            keys[side] = self.bounds[side]
            if keys[side] == INT64_MIN and 0 < window <= self.sides[side].count:
                keys[side] = self.sides[side].blocks[0].levels[0].key
        # Cached, because it rarely changes and each update of the library reads it.
        if self.ends is None or self.end_scale != self.price_scale or (
            keys[0] != self.end_keys[0] or keys[1] != self.end_keys[1]
        ):
            self.ends = (
                None if keys[0] == INT64_MIN else text_of(llabs(keys[0]), self.price_scale),
                None if keys[1] == INT64_MIN else text_of(llabs(keys[1]), self.price_scale),
            )
            self.end_keys[0], self.end_keys[1] = keys[0], keys[1]
            self.end_scale = self.price_scale
        return self.ends

    def reach(self, int side):
        """Return the number of levels within a side's horizon, and its distance from the best."""
        cdef Side *levels = &self.sides[1 if side else 0]
        cdef int64_t bound = self.bounds[1 if side else 0]
        if bound == INT64_MIN:
            return None
        if levels.count == 0:
            return 0, 0.0
        return levels.count, <double>(side_best(levels).key - bound) / <double>power10[self.price_scale]

    def best(self):
        """Return the best bid and ask price as text."""
        cdef Py_ssize_t side
        texts = [None, None]
        for side in range(2):
            if self.sides[side].count:
                texts[side] = text_of(llabs(side_best(&self.sides[side]).key), self.price_scale)
        return texts[0], texts[1]

    def top(self, Py_ssize_t count):
        """Return up to `count` levels a side as (price, amount) text, best first."""
        bids, asks = [
            [
                (text_of(price, self.price_scale), text_of(amount, self.amount_scale))
                for price, amount in self.levels(side, count)
            ]
            for side in range(2)
        ]
        return bids, asks

    def best_pairs(self):
        """Return the best bid and ask as level text in the shape `PAIRS`."""
        return self.best_pair(0), self.best_pair(1)

    cdef bytes best_pair(self, int side):
        cdef char text[NUMBER_ROOM * 3]
        cdef char *out
        cdef const Level *best
        if self.sides[side].count == 0:
            return b"[]"
        best = side_best(&self.sides[side])
        out = put_decimal(put(text, b'[["'), <uint64_t>llabs(best.key), self.price_scale)
        out = put_decimal(put(out, b'","'), <uint64_t>best.amount, self.amount_scale)
        out = put(out, b'"]]')
        return PyBytes_FromStringAndSize(text, out - text)

    def ladder(self, int side):
        """Return the (price, amount) mantissas of bids (0) or asks (1), best first."""
        if side != 0 and side != 1:
            raise IndexError("A book has the sides 0 and 1.")
        return self.levels(side, self.sides[side].count)

    def bins(self, int side, step, Py_ssize_t count):
        """Return up to `count` bids (0) or asks (1) grouped by a price step."""
        cdef Bins bins
        cdef Bin found
        if side != 0 and side != 1:
            raise IndexError("A book has the sides 0 and 1.")
        bins_open(
            &bins, &self.sides[side], &self.tops[side] if self.overlaid else NULL, side,
            REFERENCE_SCALE - self.price_scale,
            wide_of(step >> 64, step & 0xFFFFFFFFFFFFFFFF),
        )
        binned = []
        while count > 0 and bins_next(&bins, &found):
            binned.append((integer_of(found.price), integer_of(found.amount)))
            count -= 1
        return binned

    def crc(self, layout):
        """Return the unsigned CRC-32 of the best levels, written in a `ChecksumLayout`."""
        cdef const Layout *form = layout_of(layout)
        cdef char *text = <char *>malloc(self.crc_room(form.levels))
        if text == NULL:
            raise MemoryError
        return crc_of(text, self.put_layout(text, form))

    cdef size_t crc_room(self, Py_ssize_t count) noexcept nogil:
        cdef Py_ssize_t levels = max(self.sides[0].count, self.sides[1].count)
        return (min(max(count, 0), levels) * 2 + 1) * 2 * DIGITS_ROOM

    cdef char *put_layout(self, char *out, const Layout *layout) noexcept nogil:
        """Print levels in the layout's order; the longer of alternating sides continues alone."""
        cdef Py_ssize_t left = layout.levels, at_once = 1 if layout.order == IN_TURN else left, count
        cdef char *start = out
        cdef Walk walks[2]
        cdef bint more[2]
        cdef int side, turn
        for side in range(2):
            more[side] = walk_open(&walks[side], &self.sides[side])
        while left > 0 and (more[0] or more[1]):
            for turn in range(2):
                side = turn ^ (layout.order == ASKS_BIDS)
                count = at_once
                while more[side] and count > 0:
                    out = self.put_level(out, layout, side, &walks[side])
                    more[side] = walk_next(&walks[side])
                    count -= 1
            left -= at_once
        return out - layout.separator_bytes if out > start else out

    cdef inline char *put_level(
        self, char *out, const Layout *layout, int side, const Walk *walk
    ) noexcept nogil:
        """Print a price and an amount, each followed by the separator."""
        out = put_number(
            out, layout, llabs(walk.level.key), self.price_scale, self.price_decimals
        )
        if side and layout.negative_asks:
            out = put(out, b"-")
        return put_number(
            out, layout, walk.level.amount, self.amount_scale, self.amount_decimals
        )

    def record(self, BookTape tape, int32_t number=0):
        """Stage what is applied from now on for `commit`, under this number; None ends it."""
        self.tape = tape
        self.tape_number = number
        self.tape_covered = False

    def commit(self, int8_t kind, double now, sequence=0, at=0):
        """Append the message that was applied last to the tape; return whether there was one."""
        cdef TapeMessage message = NO_MESSAGE
        cdef BookTape tape = self.tape
        if tape is None:
            return False
        message.kind, message.now, message.book = kind, now, self.tape_number
        if kind == HEALTH:
            return self.commit_health(&message)
        if kind == TOP:
            return self.commit_top(&message, sequence, at)
        if tape.staged_by != <void *>self:
            return False
        self.describe(&message)
        if not tape.put(&message, sequence, at):
            return False
        if kind == SNAPSHOT and self.overlaid:
            return self.commit_top(&message, 0, at)
        return not self.tape_covered or self.overlaid or self.commit_top(&message, 0, 0)

    def keyframe(self, double now, at=0):
        """Append all levels to the tape, and the overlaid top; return False if it is full."""
        cdef TapeMessage message = NO_MESSAGE
        cdef BookTape tape = self.tape
        cdef Walk walk
        cdef int side
        cdef bint more
        tape.unstage()
        if not tape.reserve(self.sides[0].count, self.sides[1].count):
            return False
        for side in range(2):
            more = walk_open(&walk, &self.sides[side])
            while more:
                tape.stage_level(side, walk.level)
                more = walk_next(&walk)
        message.kind, message.now, message.book = KEYFRAME, now, self.tape_number
        self.describe(&message)
        self.tape_covered = False
        return tape.put(&message, 0, at) and (
            not self.overlaid or self.commit_top(&message, 0, at)
        )

    cdef void describe(self, TapeMessage *message) noexcept:
        """Note the scales, the best prices and, of a whole book, its horizon."""
        cdef int side
        message.price_scale, message.amount_scale = self.price_scale, self.amount_scale
        for side in range(2):
            message.best[side] = message.ends[side] = 0
            if self.sides[side].count:
                message.best[side] = llabs(side_best(&self.sides[side]).key)
            if message.kind != DELTA and self.bounds[side] != INT64_MIN:
                message.ends[side] = llabs(self.bounds[side])

    cdef bint commit_health(self, TapeMessage *message) except -1:
        """Append a message without levels; what is staged stays so."""
        cdef BookTape tape = self.tape
        cdef Py_ssize_t bids = tape.staged[0], asks = tape.staged[1]
        cdef void *staged_by = tape.staged_by
        tape.staged[0] = tape.staged[1] = 0
        if not tape.put(message, 0, 0):
            return False
        tape.staged[0], tape.staged[1], tape.staged_by = bids, asks, staged_by
        return True

    cdef bint commit_top(self, TapeMessage *message, object sequence, object at) except -1:
        """Append the overlaid top, an amount of 0 for no level at all, or that there is none."""
        cdef BookTape tape = self.tape
        cdef int side
        cdef Level none
        tape.unstage()
        if not tape.reserve(1, 1):
            return False
        message.kind = TOP
        message.ends[0] = message.ends[1] = message.best[0] = message.best[1] = 0
        message.price_scale = message.amount_scale = 0
        self.tape_covered = self.overlaid
        if self.overlaid:
            message.price_scale, message.amount_scale = self.price_scale, self.amount_scale
            for side in range(2):
                if self.tops[side].amount:
                    tape.stage_level(side, &self.tops[side])
            if not tape.staged[0] + tape.staged[1]:
                none.key, none.amount = 1, 0
                tape.stage_level(0, &none)
        return tape.put(message, sequence, at)

    cdef int play(
        self, const Scan *scan, int8_t kind, int price_scale, int amount_scale, int64_t bid_end,
        int64_t ask_end,
    ) except -1:
        """Apply a recorded message as it was applied."""
        cdef int side
        if kind == TOP and scan.sides[0].count + scan.sides[1].count == 0:
            self.overlaid = False
            return 0
        if kind == TOP or kind == DELTA:
            if price_scale < self.price_scale or amount_scale < self.amount_scale:
                raise LevelError("A recorded message has a smaller scale than its book.")
            if price_scale > self.price_scale or amount_scale > self.amount_scale:
                self.grow(price_scale - self.price_scale, amount_scale - self.amount_scale)
        else:
            side_clear(&self.sides[0])
            side_clear(&self.sides[1])
            self.price_decimals = self.amount_decimals = 0
            self.bounds[0] = bid_end if bid_end else INT64_MIN
            self.bounds[1] = -ask_end if ask_end else INT64_MIN
            self.overlaid = False
        self.price_scale, self.amount_scale = price_scale, amount_scale
        if kind != TOP:
            return self.put(scan, kind != DELTA)
        for side in range(2):
            self.tops[side].key = self.tops[side].amount = 0
            if scan.sides[side].count:
                self.tops[side].key = scan.sides[side].rows[0].price * (-1 if side else 1)
                self.tops[side].amount = scan.sides[side].rows[0].amount
        self.overlaid = True
        return 0

    cdef str checked(self, const Scan *scan):
        """Check the top; stage what was applied if the book is recorded and may be shown."""
        cdef str reason = self.check_top()
        if self.tape is not None:
            self.tape.staged_by = NULL
            if reason is None:
                self.tape.stage(scan, <void *>self)
        return reason

    cdef str check_top(self):
        """Check the top; reject a jump by `ABSURD_FACTOR` once, accept it if it repeats."""
        cdef double unit = <double>power10[self.price_scale]
        cdef double before = self.mid * unit
        cdef bint bids = self.sides[0].count != 0, asks = self.sides[1].count != 0
        cdef int64_t bid = side_best(&self.sides[0]).key if bids else 0
        cdef int64_t ask = -side_best(&self.sides[1]).key if asks else 0
        if bids and asks and bid > ask:
            return CROSSED
        if before > 0 and (
            (bids and <double>bid > before * ABSURD_TIMES)
            or (asks and <double>ask * ABSURD_TIMES < before)
        ):
            self.mid = 0
            return ABSURD
        if bids and asks:
            self.mid = (<double>bid + <double>ask) / 2 / unit
        return None

    cdef str cover(self, const Scan *scan):
        """Take a top that was read, unless it is crossed or an absurd jump."""
        cdef int side
        cdef double mid = self.mid * <double>power10[self.price_scale]
        self.overlaid = False
        for side in range(2):
            self.tops[side].key = self.tops[side].amount = 0
            if scan.sides[side].count:
                self.tops[side].key = scan.sides[side].rows[0].price * (-1 if side else 1)
                self.tops[side].amount = scan.sides[side].rows[0].amount
        cdef int64_t bid = self.tops[0].key if self.tops[0].amount else 0
        cdef int64_t ask = -self.tops[1].key if self.tops[1].amount else INT64_MAX
        if bid >= ask:
            return CROSSED
        if mid > 0 and (
            <double>bid > mid * ABSURD_TIMES or <double>ask * ABSURD_TIMES < mid
        ):
            return ABSURD
        self.overlaid = True
        return None

    cdef list levels(self, int side, Py_ssize_t count):
        cdef Walk walk
        cdef bint more = walk_open(&walk, &self.sides[side])
        found = []
        while more and count > 0:
            found.append((llabs(walk.level.key), walk.level.amount))
            more = walk_next(&walk)
            count -= 1
        return found

    cdef int read(
        self, Scan *scan, object bids, object asks, const Shape *shape, bint fresh
    ) except -1:
        """Read a frame and set the scales that hold it, or change nothing."""
        read_sides(scan, bids, asks, shape, self.price_scale, self.amount_scale)
        if scan.columns[PRICE].misfit or scan.columns[AMOUNT].misfit:
            self.rescale(scan, bids, asks, shape, fresh)
        return 0

    cdef int rescale(
        self, Scan *scan, object bids, object asks, const Shape *shape, bint fresh
    ) except -1:
        cdef int price_scale, amount_scale
        read_sides(scan, bids, asks, shape, MEASURE, MEASURE)
        price_scale = fitting_scale(&scan.columns[PRICE], self.price_scale, fresh)
        amount_scale = fitting_scale(&scan.columns[AMOUNT], self.amount_scale, fresh)
        if not fresh:
            if price_scale > self.price_scale or amount_scale > self.amount_scale:
                self.grow(price_scale - self.price_scale, amount_scale - self.amount_scale)
        self.price_scale = price_scale
        self.amount_scale = amount_scale
        return read_sides(scan, bids, asks, shape, price_scale, amount_scale)

    cdef int grow(self, int price_decimals, int amount_decimals) except -1:
        """Give every level that we hold more decimals."""
        cdef int64_t prices = <int64_t>power10[price_decimals]
        cdef int64_t amounts = <int64_t>power10[amount_decimals]
        cdef int64_t prices_max = (<int64_t>power10[DIGITS_MAX] - 1) // prices
        cdef int64_t amounts_max = (<int64_t>power10[DIGITS_MAX] - 1) // amounts
        cdef int side
        for side in range(2):
            if not side_holds(&self.sides[side], prices_max, amounts_max) or (
                self.bounds[side] != INT64_MIN and llabs(self.bounds[side]) > prices_max
            ):
                raise LevelError(ERRORS[TOO_LONG])
        for side in range(2):
            side_scale(&self.sides[side], prices, amounts)
            if self.bounds[side] != INT64_MIN:
                self.bounds[side] *= prices
            if llabs(self.tops[side].key) > prices_max or self.tops[side].amount > amounts_max:
                self.overlaid = False
            if self.overlaid:
                self.tops[side].key *= prices
                self.tops[side].amount *= amounts
        return 0

    cdef void begin(self, const Scan *scan, Py_ssize_t levels_asked) noexcept:
        """Become empty, with the decimals and the horizon of the whole book that was read."""
        cdef int side
        side_clear(&self.sides[0])
        side_clear(&self.sides[1])
        self.price_decimals = scan.columns[PRICE].decimals
        self.amount_decimals = scan.columns[AMOUNT].decimals
        for side in range(2):
            self.bounds[side] = INT64_MIN
            if 0 < levels_asked <= scan.sides[side].count:
                self.bounds[side] = outermost(&scan.sides[side], side)

    cdef int put(self, const Scan *scan, bint fresh) except -1:
        cdef int side
        cdef Py_ssize_t at, count
        cdef const Row *row
        cdef int64_t key, bound
        cdef bint done = True, backwards
        for side in range(2):
            bound = self.bounds[side]
            count = scan.sides[side].count
            # A whole book is put worst level first: each is then appended, which is fastest.
            backwards = fresh and best_first(&scan.sides[side], side)
            for at in range(count):
                row = &scan.sides[side].rows[count - 1 - at if backwards else at]
                key = -row.price if side else row.price
                # Beyond the horizon a level says nothing about its neighbours.
                if key < bound or (fresh and row.amount == 0):
                    continue
                done &= side_set(&self.sides[side], key, row.amount)
            if self.sides[side].count > self.levels_max:
                self.cut(side)
        if not done:
            raise MemoryError
        return 0

    cdef void end(self, int side, bint bounded, int64_t bound) noexcept nogil:
        """Set the horizon of a converted side: this, else its worst level; none if it is whole."""
        self.bounds[side] = bound
        if bound == INT64_MIN and bounded and self.sides[side].count:
            self.bounds[side] = self.sides[side].blocks[0].levels[0].key

    cdef void cut(self, int side) noexcept nogil:
        """Drop the worst levels; those that an exchange will not send again become unknown."""
        side_cut(&self.sides[side], self.levels_max)
        if self.levels_max == LEVELS_LIMIT:
            self.bounds[side] = self.sides[side].blocks[0].levels[0].key


cdef bint best_first(const Rows *rows, int side) noexcept nogil:
    """Return whether every row is worse than the one before."""
    cdef int64_t worse = 1 if side else -1
    cdef Py_ssize_t at
    for at in range(1, rows.count):
        if (rows.rows[at].price - rows.rows[at - 1].price) * worse <= 0:
            return False
    return True


cdef int64_t outermost(const Rows *rows, int side) noexcept nogil:
    """Return the worst key of the rows that were read."""
    cdef int64_t worst = INT64_MAX
    cdef Py_ssize_t at
    for at in range(rows.count):
        worst = min(worst, -rows.rows[at].price if side else rows.rows[at].price)
    return worst


cdef object integer_of(wide value):
    cdef uint64_t high = high_word(value), low = low_word(value)
    return <object>high << 64 | low if high else low


cdef str text_of(int64_t mantissa, int scale):
    cdef char text[NUMBER_ROOM]
    cdef char *end = put_decimal(text, <uint64_t>mantissa, scale)
    return text[: end - text].decode("ascii")


cdef object crc_of(char *text, char *end):
    """Return the CRC-32 of a text, and free it."""
    try:
        return crc32(PyBytes_FromStringAndSize(text, end - text))
    finally:
        free(text)


include "_canonical.pxi"
include "_merged.pxi"
include "_view.pxi"
include "_packed.pxi"
include "_unpacked.pxi"
include "_conversion.pxi"
