# Encodes a view as JSON: the levels of `_merged.pxi` in the form clients get. As protobuf:
# `_packed.pxi`.

cdef enum:
    NAME_COPIED = 32  # bytes that copying any short name moves

cdef struct Name:  # a member's name as JSON text, with a comma
    char text[NAME_COPIED]  # if it is short enough
    const char *whole
    int length


cdef struct Mark:  # the position of a level in a text
    int32_t start  # after the last level: the end of the text
    int32_t members  # from its start to the part that depends only on its members ...
    int32_t value  # ... and to the end of that part


cdef struct Printed:  # a whole view as text, of which unchanged parts are copied
    State state
    char *text
    size_t room
    Mark *marks[2]


@cython.final
cdef class View(MergedBooks):
    """Merges books into one view, encoded as JSON: in full, or as a delta."""

    cdef Name names[MEMBERS_MAX]
    cdef bint gross  # print the price of each exchange before fees; a bin has several
    cdef tuple name_texts  # keeps the texts of `names` alive
    cdef char *text
    cdef size_t text_room
    cdef Mark *marks[2]  # in `text`, as in `printed`
    cdef Printed printed
    cdef size_t level_room  # the most bytes that one level may need

    def __cinit__(
        self, names, *, int depth, group=None, bint split=False, bint arrays=False, within=None,
        fees=None,
    ):
        cdef int at
        self.gross = self.net and not self.step
        self.name_texts = tuple([name.encode() + b"," for name in view_names(names)])
        self.level_room = NUMBER_ROOM * 6
        for at in range(self.member_count):
            name = <bytes>self.name_texts[at]
            self.names[at].whole = PyBytes_AS_STRING(name)
            self.names[at].length = <int>PyBytes_GET_SIZE(name)
            memcpy(
                self.names[at].text, self.names[at].whole, min(self.names[at].length, NAME_COPIED)
            )
            self.level_room += self.names[at].length + (NUMBER_ROOM if split else 0)
            self.level_room += NUMBER_ROOM if self.gross else 0
        if not state_alloc(&self.printed.state, depth, self.member_count if split else 0):
            raise MemoryError
        for at in range(2):
            self.marks[at] = <Mark *>calloc(depth + 1, sizeof(Mark))
            self.printed.marks[at] = <Mark *>calloc(depth + 1, sizeof(Mark))
            if self.marks[at] == NULL or self.printed.marks[at] == NULL:
                raise MemoryError

    def __dealloc__(self):
        cdef int at
        state_free(&self.printed.state)
        for at in range(2):
            free(self.marks[at])
            free(self.printed.marks[at])
        free(self.text)
        free(self.printed.text)

    def full(self, head, tail):
        """Return `head`, the JSON members of the whole view, and `tail`."""
        cdef char *out
        if self.is_wide:
            return self.wide.full(head, tail)
        if self.rescaled:
            self.printed.state.counts[0] = self.printed.state.counts[1] = 0
            self.rescaled = False
        out = self.begin(head)
        out = self.put_all(put(out, b'"bids":['), 0)
        out = self.put_all(put(out, b'],"asks":['), 1)
        whole = self.finish(put(out, b"],"), tail)
        self.keep()
        return whole

    def delta(self, head, tail):
        """Return `head`, the changes of the last merge, and `tail`; None after the first merge."""
        cdef char *out
        if self.is_wide:
            return self.wide.delta(head, tail)
        if not self.delta_ready:
            return None
        out = self.begin(head)
        out = self.put_changes(put(out, b'"bids":['), 0)
        out = self.put_changes(put(out, b'],"asks":['), 1)
        return self.finish(put(out, b"],"), tail)

    def top(self):
        """Return the best level of each side as JSON members, null for an empty side."""
        cdef char *out
        if self.is_wide:
            return self.wide.top()
        out = self.reserve(NULL, STATS_ROOM)
        out = self.put_best(put(out, b'"bid":'), 0)
        out = self.put_best(put(out, b',"ask":'), 1)
        return PyBytes_FromStringAndSize(self.text, out - self.text)

    cdef inline char *put_best(self, char *out, int side) noexcept nogil:
        if not self.now.counts[side]:
            return put(out, b"null")
        out = self.put_price(put(out, b"["), self.now.levels[side][0].key)
        out = self.put_amount(put(out, b","), self.now.levels[side][0].amount)
        return put(out, b"]")

    def checksum(self):
        """Return the CRC-32 of the best levels as `price:amount`, bids before asks."""
        cdef char *out
        cdef int side
        cdef int32_t at
        if self.is_wide:
            return self.wide.checksum()
        out = self.reserve(NULL, CHECKSUM_LEVELS * 4 * NUMBER_ROOM)
        for side in range(2):
            for at in range(min(self.now.counts[side], CHECKSUM_LEVELS)):
                out = self.put_price(out, self.now.levels[side][at].key)
                out = put(out, b":")
                out = self.put_amount(out, self.now.levels[side][at].amount)
                out = put(out, b":")
        if out > self.text:
            out -= 1
        return crc32(PyBytes_FromStringAndSize(self.text, out - self.text))

    cdef char *reserve(self, char *out, size_t room) except NULL:
        """Return `out` with room after it; the text may move. NULL starts a new text."""
        cdef size_t used = out - self.text if out != NULL else 0
        cdef char *larger
        if used + room > self.text_room:
            larger = <char *>realloc(self.text, (used + room) * 2)
            if larger == NULL:
                raise MemoryError
            self.text = larger
            self.text_room = (used + room) * 2
        return self.text + used

    cdef char *begin(self, bytes head) except NULL:
        cdef size_t length = PyBytes_GET_SIZE(head)
        cdef char *out = self.reserve(NULL, length + STATS_ROOM)
        memcpy(out, PyBytes_AS_STRING(head), length)
        return out + length

    cdef bytes finish(self, char *out, bytes tail):
        cdef size_t length = PyBytes_GET_SIZE(tail)
        out = self.put_stats(self.reserve(out, STATS_ROOM))
        out = self.reserve(out, length)
        memcpy(out, PyBytes_AS_STRING(tail), length)
        return PyBytes_FromStringAndSize(self.text, out + length - self.text)

    cdef char *put_all(self, char *out, int side) except NULL:
        """Print every level; unchanged levels, which are most, are copied from the last text.

        If only the amount of a level changed, the part with its members is copied.
        """
        cdef const Merged *level = self.now.levels[side]
        cdef const int64_t *parts = self.now.parts[side]
        cdef const Merged *first = self.printed.state.levels[side]
        cdef const Merged *old = first
        cdef const Merged *old_end = first + self.printed.state.counts[side]
        cdef const int64_t *old_parts = self.printed.state.parts[side]
        cdef const Mark *was
        cdef Mark *mark = self.marks[side]
        cdef int32_t at
        for at in range(self.now.counts[side]):
            out = self.reserve(out, self.level_room)
            mark.start = <int32_t>(out - self.text)
            while old < old_end and old.key > level.key:
                old_parts += self.parts_of(old)
                old += 1
            was = self.printed.marks[side] + (old - first)
            if old == old_end or old.key != level.key:
                out = self.put_level(out, level, parts, NULL, mark)
            elif self.differ(old, level, old_parts, parts):
                out = self.put_level(
                    out, level, parts, was if old.members == level.members else NULL, mark
                )
            else:
                memcpy(out, self.printed.text + was.start, was[1].start - was.start)
                out += was[1].start - was.start
                (out - 1)[0] = c","  # the comma of a last level was overwritten
                mark.members, mark.value = was.members, was.value
            parts += self.parts_of(level)
            level += 1
            mark += 1
        mark.start = <int32_t>(out - self.text)
        return out - 1 if self.now.counts[side] else out

    cdef void keep(self) noexcept:
        """Keep the printed text for the next call, and reuse the previous one as buffer."""
        cdef int side
        self.text, self.printed.text = self.printed.text, self.text
        self.text_room, self.printed.room = self.printed.room, self.text_room
        for side in range(2):
            self.marks[side], self.printed.marks[side] = (
                self.printed.marks[side], self.marks[side]
            )
        state_copy(&self.printed.state, self.now)

    cdef char *put_changes(self, char *out, int side) except NULL:
        """Print the differences of the two states, walking both from the best level."""
        cdef const Merged *old = self.before.levels[side]
        cdef const Merged *new = self.now.levels[side]
        cdef const Merged *old_end = old + self.before.counts[side]
        cdef const Merged *new_end = new + self.now.counts[side]
        cdef const int64_t *old_parts = self.before.parts[side]
        cdef const int64_t *new_parts = self.now.parts[side]
        cdef Merged gone
        cdef Mark mark
        cdef bint any = False
        gone.amount = 0
        gone.members = 0
        while old < old_end or new < new_end:
            if new == new_end or (old < old_end and old.key > new.key):
                gone.key = old.key
                out = self.put_level(self.reserve(out, self.level_room), &gone, NULL, NULL, &mark)
                any = True
                old_parts += self.parts_of(old)
                old += 1
                continue
            if old == old_end or new.key > old.key:
                out = self.put_level(
                    self.reserve(out, self.level_room), new, new_parts, NULL, &mark
                )
                any = True
            else:
                if self.differ(old, new, old_parts, new_parts):
                    out = self.put_level(
                        self.reserve(out, self.level_room), new, new_parts, NULL, &mark
                    )
                    any = True
                old_parts += self.parts_of(old)
                old += 1
            new_parts += self.parts_of(new)
            new += 1
        return out - 1 if any else out

    cdef inline int parts_of(self, const Merged *level) noexcept nogil:
        return __builtin_popcountll(level.members) if self.split else 0

    cdef inline bint differ(
        self, const Merged *old, const Merged *new, const int64_t *old_parts,
        const int64_t *new_parts
    ) noexcept nogil:
        """Return whether the shown parts of a level, except its price, differ."""
        if old.amount != new.amount:
            return True
        if self.split:
            return old.members != new.members or memcmp(
                old_parts, new_parts, self.parts_of(new) * sizeof(int64_t)
            ) != 0
        return not self.arrays and old.members != new.members

    cdef inline char *put_price(self, char *out, int64_t key) noexcept nogil:
        return put_decimal(out, <uint64_t>llabs(key), self.price_scale)

    cdef inline char *put_amount(self, char *out, int64_t amount) noexcept nogil:
        return put_decimal(out, <uint64_t>amount, self.amount_scale)

    cdef inline char *put_name(self, char *out, int member) noexcept nogil:
        """Print a name and a comma."""
        cdef const Name *name = &self.names[member]
        if name.length <= NAME_COPIED:
            memcpy(out, name.text, NAME_COPIED)
        else:
            memcpy(out, name.whole, name.length)
        return out + name.length

    cdef inline char *put_level(
        self, char *out, const Merged *level, const int64_t *parts, const Mark *was, Mark *mark
    ) noexcept nogil:
        """Print a level and a comma; `was` marks its last text, if its members are unchanged."""
        if self.arrays:
            return self.put_array(out, level, parts)
        return self.put_object(out, level, parts, was, mark)

    cdef inline char *put_object(
        self, char *out, const Merged *level, const int64_t *parts, const Mark *was, Mark *mark
    ) noexcept nogil:
        cdef int at, count = __builtin_popcountll(level.members)
        cdef const char *start = out
        out = self.put_price(put(out, b'{"price":'), level.key)
        out = self.put_amount(put(out, b',"amount":'), level.amount)
        mark.members = <int32_t>(out - start)
        if was != NULL:
            memcpy(out, self.printed.text + was.start + was.members, was.value - was.members)
            out += was.value - was.members
        else:
            out = self.put_members(out, level.members, count)
            if self.gross:
                out = self.put_all_gross(put(out, b',"gross":['), level)
        mark.value = <int32_t>(out - start)
        out = self.put_value(put(out, b',"value":'), llabs(level.key), level.amount)
        if self.split:
            out = put(out, b',"amounts":[')
            for at in range(count):
                out = put(self.put_amount(out, parts[at]), b",")
            out = put(out - 1 if count else out, b"]")
        return put(out, b"},")

    cdef inline char *put_members(self, char *out, uint64_t members, int count) noexcept nogil:
        out = put(out, b',"exchanges":[')
        while members:
            out = self.put_name(out, __builtin_ctzll(members))
            members &= members - 1
        out = put(out - 1 if count else out, b'],"exchange_count":')
        return put_count(out, count)

    cdef inline uint64_t gross_of(self, int64_t key, int member) noexcept nogil:
        """Return the price of a member before its fee: the division is exact."""
        return <uint64_t>(llabs(key) // self.factors[member][1 if key < 0 else 0])

    cdef inline char *put_gross(self, char *out, int64_t key, int member) noexcept nogil:
        return put_decimal(out, self.gross_of(key, member), self.price_scale - self.fee_scale)

    cdef char *put_all_gross(self, char *out, const Merged *level) noexcept nogil:
        cdef uint64_t members = level.members
        while members:
            out = put(self.put_gross(out, level.key, __builtin_ctzll(members)), b",")
            members &= members - 1
        return put(out - 1 if level.members else out, b"]")

    cdef inline char *put_array(
        self, char *out, const Merged *level, const int64_t *parts
    ) noexcept nogil:
        cdef uint64_t members = level.members
        out = self.put_price(put(out, b"["), level.key)
        out = self.put_amount(put(out, b","), level.amount)
        if not self.split:
            return put(out, b"],")
        out = put(out, b",[")
        while members:
            out = self.put_name(put(out, b"["), __builtin_ctzll(members))
            out = self.put_amount(out, parts[0])
            if self.gross:
                out = self.put_gross(put(out, b","), level.key, __builtin_ctzll(members))
            out = put(out, b"],")
            members &= members - 1
            parts += 1
        return put(out - 1 if level.members else out, b"]],")

    cdef inline char *put_value(self, char *out, int64_t price, int64_t amount) noexcept nogil:
        """Print price x amount, cut to `VALUE_DECIMALS`."""
        cdef int scale = self.price_scale + self.amount_scale
        cdef int cut = scale - VALUE_DECIMALS
        cdef int64_t product
        cdef wide value
        if not __builtin_mul_overflow(price, amount, &product):
            if cut <= 0:
                return put_decimal(out, <uint64_t>product, scale)
            if cut <= 19:
                return put_decimal(out, <uint64_t>product // power10[cut], VALUE_DECIMALS)
        value = <wide>price * <wide>amount
        if cut > 19:
            value = value // power10[19]
            cut -= 19
            scale -= 19
        if cut > 0:
            value = value // power10[cut]
            scale -= cut
        return put_wide(out, value, scale)

    cdef char *put_stats(self, char *out) noexcept nogil:
        """Print the market_stats member."""
        cdef const State *now = self.now
        cdef bint both = now.counts[0] != 0 and now.counts[1] != 0
        cdef int64_t bid = now.levels[0][0].key if now.counts[0] else 0
        cdef int64_t ask = -now.levels[1][0].key if now.counts[1] else 0
        out = put(out, b'"market_stats":{"best_bid":')
        out = self.put_price(out, bid) if now.counts[0] else put(out, b"null")
        out = put(out, b',"best_ask":')
        out = self.put_price(out, ask) if now.counts[1] else put(out, b"null")
        if both:
            out = self.put_spread(put(out, b',"spread":'), bid, ask)
        else:
            out = put(out, b',"spread":null,"spread_percent":null,"mid_price":null')
        out = self.put_total(put(out, b',"total_bid_volume":'), 0)
        out = self.put_total(put(out, b',"total_ask_volume":'), 1)
        out = put(out, b',"participating_exchanges":')
        out = put_count(out, __builtin_popcountll(now.members))
        out = put(out, b',"crossed":')
        return put(out, b"true}" if both and bid >= ask else b"false}")

    cdef inline char *put_spread(self, char *out, int64_t bid, int64_t ask) noexcept nogil:
        """Print the spread, in percent of the mid, too, and the mid."""
        cdef uint64_t spread = <uint64_t>llabs(ask - bid)
        cdef uint64_t twice_mid = <uint64_t>(bid + ask)
        cdef wide scaled = <wide>spread * (2 * 100 * power10[PERCENT_DECIMALS])
        cdef uint64_t percent = <uint64_t>((scaled * 2 + twice_mid) // (<wide>twice_mid * 2))
        out = put_decimal(put(out, b"-") if ask < bid else out, spread, self.price_scale)
        out = put(out, b',"spread_percent":')
        out = put_decimal(put(out, b"-") if ask < bid and percent else out, percent, PERCENT_DECIMALS)
        out = put(out, b',"mid_price":')
        return put_decimal(out, twice_mid * 5, self.price_scale + 1)

    cdef inline char *put_total(self, char *out, int side) noexcept nogil:
        cdef wide total = 0
        cdef int32_t at
        if not self.now.counts[side]:
            return put(out, b"null")
        for at in range(self.now.counts[side]):
            total += <wide>self.now.levels[side][at].amount
        if total < power10[19]:
            return put_decimal(out, <uint64_t>total, self.amount_scale)
        return put_wide(out, total, self.amount_scale)
