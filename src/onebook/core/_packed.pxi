# Encodes updates of a view as protobuf, by `onebook.proto`.

cdef enum:  # fields of `onebook.proto`
    PACKED_NUMBER = 2
    PACKED_ELAPSED = 3
    PACKED_CHECKSUM = 4
    PACKED_LEVELS = 5  # of the bids; here and in the next two, those of the asks follow
    PACKED_PARTS = 8
    PACKED_GROSS = 10
    PACKED_TIME = 12
    PACKED_SCALES = 13  # the first of three

cdef struct PackedSide:
    Packed levels  # price, amount and members of each
    Packed parts
    Packed gross
    int64_t last  # the price before


@cython.final
cdef class Packer:
    """Encodes updates of a view as protobuf: its whole book, or the changes of the last merge.

    Their other fields are an argument, `rest`, which is encoded already.
    """

    cdef View view
    cdef PackedSide sides[2]  # of the last encoding

    def __cinit__(self, View view not None):
        self.view = view

    def __dealloc__(self):
        cdef int side
        for side in range(2):
            free(self.sides[side].levels.start)
            free(self.sides[side].parts.start)
            free(self.sides[side].gross.start)

    @property
    def scales(self):
        """Decimals of prices and of amounts; None while the view has numbers beyond 64 bits."""
        if self.view.is_wide:
            return None
        return self.view.price_scale, self.view.amount_scale

    def changes(self, uint64_t number, int64_t elapsed_us, bytes rest not None):
        """Return an update with the changed levels, at the present scales, and their checksum.

        None after the first merge, or if a number is too large.
        """
        cdef uint32_t checksum
        cdef uint8_t *out
        if self.view.is_wide or not self.view.delta_ready:
            return None
        checksum = self.view.checksum()
        out = self.begin(rest, True)
        out = put_uint(out, PACKED_NUMBER, number)
        out = put_sint(out, PACKED_ELAPSED, elapsed_us)
        out = put_fixed32(out, PACKED_CHECKSUM, checksum)
        return self.finish(out, rest)

    def whole(self, uint64_t number, uint64_t time_us, bytes rest not None, *, bint checked):
        """Return an update with every level and the scales; None if a number is too large.

        `checked`: with the checksum.
        """
        cdef uint32_t checksum = 0
        cdef uint8_t *out
        if self.view.is_wide:
            return None
        if checked:
            checksum = self.view.checksum()
        out = self.begin(rest, False)
        out = put_uint(out, PACKED_NUMBER, number)
        if checked:
            out = put_fixed32(out, PACKED_CHECKSUM, checksum)
        out = put_uint(out, PACKED_TIME, time_us)
        out = put_uint(out, PACKED_SCALES, self.view.price_scale)
        out = put_uint(out, PACKED_SCALES + 1, self.view.amount_scale)
        if self.view.gross:
            out = put_uint(out, PACKED_SCALES + 2, self.view.price_scale - self.view.fee_scale)
        return self.finish(out, rest)

    cdef uint8_t *begin(self, bytes rest, bint changes) except NULL:
        """Fill the lists of both sides; return the start of a text with room for the update."""
        cdef size_t room = PACKED_FIELDS_ROOM + PyBytes_GET_SIZE(rest)
        cdef PackedSide *found
        cdef int side
        for side in range(2):
            found = &self.sides[side]
            self.pack_side(found, side, changes)
            room += packed_room(&found.levels) + packed_room(&found.parts)
            room += packed_room(&found.gross)
        return <uint8_t *>self.view.reserve(NULL, room)

    cdef bytes finish(self, uint8_t *out, bytes rest):
        """Write the lists of both sides and `rest`, and return the text."""
        cdef size_t length = PyBytes_GET_SIZE(rest)
        cdef const PackedSide *found
        cdef int side
        for side in range(2):
            found = &self.sides[side]
            out = put_packed(out, PACKED_LEVELS + side, &found.levels)
            out = put_packed(out, PACKED_PARTS + side, &found.parts)
            out = put_packed(out, PACKED_GROSS + side, &found.gross)
        memcpy(out, PyBytes_AS_STRING(rest), length)
        return PyBytes_FromStringAndSize(self.view.text, <char *>out + length - self.view.text)

    cdef int pack_side(self, PackedSide *out, int side, bint changes) except -1:
        """Fill the lists of a side: all levels, or those that changed since the merge before."""
        cdef const Merged *old = self.view.before.levels[side]
        cdef const Merged *new = self.view.now.levels[side]
        cdef const Merged *old_end = old + (self.view.before.counts[side] if changes else 0)
        cdef const Merged *new_end = new + self.view.now.counts[side]
        cdef const int64_t *old_parts = self.view.before.parts[side]
        cdef const int64_t *new_parts = self.view.now.parts[side]
        cdef size_t room = (old_end - old) + (new_end - new)
        cdef size_t parts = room * self.view.member_count
        cdef Merged gone
        out.levels.at = out.levels.start
        out.parts.at = out.parts.start
        out.gross.at = out.gross.start
        if not packed_reserve(&out.levels, room * 3):
            raise MemoryError
        if self.view.split and not packed_reserve(&out.parts, parts):
            raise MemoryError
        if self.view.gross and not packed_reserve(&out.gross, parts):
            raise MemoryError
        out.last = 0
        gone.amount = 0
        gone.members = 0
        while old < old_end or new < new_end:
            if new == new_end or (old < old_end and old.key > new.key):
                gone.key = old.key
                self.pack_level(out, &gone, NULL)
                old_parts += self.view.parts_of(old)
                old += 1
                continue
            if old == old_end or new.key > old.key:
                self.pack_level(out, new, new_parts)
            else:
                if self.view.differ(old, new, old_parts, new_parts):
                    self.pack_level(out, new, new_parts)
                old_parts += self.view.parts_of(old)
                old += 1
            new_parts += self.view.parts_of(new)
            new += 1
        return 0

    cdef inline void pack_level(
        self, PackedSide *out, const Merged *level, const int64_t *parts
    ) noexcept nogil:
        cdef int64_t price = llabs(level.key)
        cdef uint64_t members = level.members
        packed_put(&out.levels, <uint64_t>llabs(price - out.last))
        packed_put(&out.levels, <uint64_t>level.amount)
        if level.amount:
            packed_put(&out.levels, members)
        out.last = price
        if not self.view.split and not self.view.gross:
            return
        while members:
            if self.view.split:
                packed_put(&out.parts, <uint64_t>parts[0])
                parts += 1
            if self.view.gross:
                packed_put(&out.gross, self.view.gross_of(level.key, __builtin_ctzll(members)))
            members &= members - 1
