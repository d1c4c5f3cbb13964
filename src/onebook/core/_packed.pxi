# Encodes the levels of a view as protobuf, by `onebook.proto`.

cdef enum:  # fields of `onebook.proto`: of the bids; those of the asks are next
    PACKED_LEVELS = 5
    PACKED_PARTS = 8
    PACKED_GROSS = 10
    PACKED_SCALES = 13  # the first of three

cdef struct PackedSide:
    Packed levels  # price, amount and members of each
    Packed parts
    Packed gross
    int64_t last  # the price before


@cython.final
cdef class Packer:
    """Encodes the levels of a view as protobuf: in full, or as the changes of the last merge."""

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

    def pack(self, bint changes):
        """Return the levels, with their scales unless only changes; None if a number is too large.

        Changes are also None after the first merge. They are at the present scales.
        """
        cdef int side
        if self.view.is_wide or (changes and not self.view.delta_ready):
            return None
        for side in range(2):
            self.pack_side(&self.sides[side], side, changes)
        return self.join_sides(changes)

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

    cdef bytes join_sides(self, bint changes):
        """Return the fields of both sides, and the scales of a whole book."""
        cdef size_t room = 6
        cdef const PackedSide *found
        cdef uint8_t *out
        cdef uint8_t *start
        cdef int side
        for side in range(2):
            found = &self.sides[side]
            room += packed_room(&found.levels) + packed_room(&found.parts)
            room += packed_room(&found.gross)
        self.view.reserve(NULL, room)
        start = out = <uint8_t *>self.view.text
        if not changes:
            out = self.put_scale(out, 0, self.view.price_scale)
            out = self.put_scale(out, 1, self.view.amount_scale)
            if self.view.gross:
                out = self.put_scale(out, 2, self.view.price_scale - self.view.fee_scale)
        for side in range(2):
            found = &self.sides[side]
            out = put_packed(out, PACKED_LEVELS + side, &found.levels)
            out = put_packed(out, PACKED_PARTS + side, &found.parts)
            out = put_packed(out, PACKED_GROSS + side, &found.gross)
        return PyBytes_FromStringAndSize(<char *>start, out - start)

    cdef inline uint8_t *put_scale(self, uint8_t *out, int at, int scale) noexcept nogil:
        if not scale:
            return out  # the default of a number is not sent
        out[0] = <uint8_t>((PACKED_SCALES + at) << 3)
        return put_varint(out + 1, <uint64_t>scale)
