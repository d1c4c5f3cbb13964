# Encodes the levels of a view as protobuf, by `onebook.proto`.

cdef enum:  # fields of `onebook.proto`
    PACKED_PRICES = 1
    PACKED_AMOUNTS = 2
    PACKED_MEMBERS = 3
    PACKED_PARTS = 4
    PACKED_GROSS = 5
    PACKED_LISTS = 5
    PACKED_SCALES = 5  # the first of three scales
    PACKED_BIDS = 8  # the asks are next

cdef struct PackedSide:
    Packed lists[PACKED_LISTS]
    int64_t last  # the price before


@cython.final
cdef class Packer:
    """Encodes the levels of a view as protobuf: in full, or as the changes of the last merge."""

    cdef View view
    cdef PackedSide lists[2]  # of the last encoding

    def __cinit__(self, View view not None):
        self.view = view

    def __dealloc__(self):
        cdef int side, at
        for side in range(2):
            for at in range(PACKED_LISTS):
                free(self.lists[side].lists[at].start)

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
            self.pack_side(&self.lists[side], side, changes)
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
        cdef size_t parts = 0
        cdef Merged gone
        cdef int at
        if self.view.split or self.view.gross:
            parts = room * self.view.member_count
        for at in range(PACKED_LISTS):
            out.lists[at].at = out.lists[at].start
            if not packed_reserve(&out.lists[at], parts if at >= PACKED_PARTS - 1 else room):
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
        cdef uint64_t gross
        packed_put(&out.lists[PACKED_PRICES - 1], <uint64_t>llabs(price - out.last))
        packed_put(&out.lists[PACKED_AMOUNTS - 1], <uint64_t>level.amount)
        out.last = price
        if self.view.arrays and not self.view.split:
            return
        packed_put(&out.lists[PACKED_MEMBERS - 1], members)
        if not self.view.split and not self.view.gross:
            return
        while members:
            if self.view.split:
                packed_put(&out.lists[PACKED_PARTS - 1], <uint64_t>parts[0])
                parts += 1
            if self.view.gross:
                gross = self.view.gross_of(level.key, __builtin_ctzll(members))
                packed_put(&out.lists[PACKED_GROSS - 1], gross)
            members &= members - 1

    cdef bytes join_sides(self, bint changes):
        """Return the fields of both sides, and the scales of a whole book."""
        cdef size_t sizes[2]
        cdef size_t room = 6
        cdef size_t length
        cdef const Packed *filled
        cdef uint8_t *out
        cdef uint8_t *start
        cdef int side, at
        for side in range(2):
            sizes[side] = 0
            for at in range(PACKED_LISTS):
                length = self.lists[side].lists[at].at - self.lists[side].lists[at].start
                if length:
                    sizes[side] += field_size(length)
            room += field_size(sizes[side])
        self.view.reserve(NULL, room)
        start = out = <uint8_t *>self.view.text
        if not changes:
            out = self.put_scale(out, 0, self.view.price_scale)
            out = self.put_scale(out, 1, self.view.amount_scale)
            if self.view.gross:
                out = self.put_scale(out, 2, self.view.price_scale - self.view.fee_scale)
        for side in range(2):
            if not sizes[side]:
                continue
            out = put_field(out, PACKED_BIDS + side, NULL, 0) - 1
            out = put_varint(out, sizes[side])
            for at in range(PACKED_LISTS):
                filled = &self.lists[side].lists[at]
                if filled.at != filled.start:
                    out = put_field(out, at + 1, filled.start, filled.at - filled.start)
        return PyBytes_FromStringAndSize(<char *>start, out - start)

    cdef inline uint8_t *put_scale(self, uint8_t *out, int at, int scale) noexcept nogil:
        if not scale:
            return out  # the default of a number is not sent
        out[0] = <uint8_t>((PACKED_SCALES + at) << 3)
        return put_varint(out + 1, <uint64_t>scale)
