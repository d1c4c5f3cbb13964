# Decodes the levels of a view from protobuf, by `onebook.proto`.

cdef uint64_t WORST = UINT64_MAX  # the highest order


@cython.final
@cython.no_gc  # it refers to numbers and texts only
cdef class PackedRow:
    """One level as integers, and the level for clients once it is read."""

    cdef uint64_t order  # rises from the best level: the price of an ask, the complement of a bid's
    cdef uint64_t amount
    cdef uint64_t members
    cdef list parts  # None without
    cdef list gross
    cdef object level


@cython.final
cdef class PackedLevels:
    """The levels of a view at one moment, made by its binary updates."""

    cdef readonly int price_scale
    cdef readonly int amount_scale
    cdef int gross_scale  # of prices before fees
    cdef uint64_t unknown  # bits of no exchange
    cdef tuple table
    cdef dict names  # by bits; of all levels of one whole book
    cdef list bids  # rows, best first; never changed, because later levels may share them
    cdef list asks

    def __init__(self, names, uint32_t price_scale, uint32_t amount_scale, uint32_t gross_scale):
        cdef uint32_t most = max(price_scale, amount_scale, gross_scale)
        if most > UNPACKED_SCALE_MAX:
            raise LevelError(f"has numbers of {most} decimals")
        self.price_scale, self.amount_scale = <int>price_scale, <int>amount_scale
        self.gross_scale = <int>gross_scale
        self.table = tuple(names)
        self.unknown = 0 if len(self.table) >= 64 else UINT64_MAX << len(self.table)
        self.names = {}
        self.bids, self.asks = [], []

    def apply(
        self,
        list bids not None,
        list asks not None,
        list bid_parts not None,
        list ask_parts not None,
        list bid_gross not None,
        list ask_gross not None,
    ):
        """Return the levels after these changes, lists of an update."""
        cdef PackedLevels after = PackedLevels.__new__(PackedLevels)
        after.price_scale, after.amount_scale = self.price_scale, self.amount_scale
        after.gross_scale = self.gross_scale
        after.unknown = self.unknown
        after.table = self.table
        after.names = self.names
        after.bids = self.changed(self.bids, WORST, bids, bid_parts, bid_gross)
        after.asks = self.changed(self.asks, 0, asks, ask_parts, ask_gross)
        return after

    def checksum(self):
        """Return the CRC-32 of the best levels' `price:amount`, bids then asks."""
        cdef char text[2 * CHECKSUM_LEVELS * 2 * NUMBER_ROOM]
        cdef char *end = text
        end = self.put_best(end, self.bids, WORST)
        end = self.put_best(end, self.asks, 0)
        return crc32(PyBytes_FromStringAndSize(text, max(end - text - 1, 0)))

    def levels(self, int side):
        """Return the bids (0) or asks (1), each level made once."""
        cdef PackedRow row
        return [self.level(row, side) for row in (self.asks if side else self.bids)]

    def best(self, int side):
        """Return the first level of a side."""
        cdef list rows = self.asks if side else self.bids
        return self.level(<PackedRow>rows[0], side) if rows else None

    def summary(self):
        """Return best bid and ask, the amounts of both sides, and the number of exchanges."""
        cdef PackedRow row
        cdef uint64_t members = 0
        bid = (<PackedRow>self.bids[0]).order ^ WORST if self.bids else None
        ask = (<PackedRow>self.asks[0]).order if self.asks else None
        bid_amount = ask_amount = <object>0
        for row in self.bids:
            bid_amount += row.amount
            members |= row.members
        for row in self.asks:
            ask_amount += row.amount
            members |= row.members
        return bid, ask, bid_amount, ask_amount, __builtin_popcountll(members)

    cdef list changed(self, list old, uint64_t worst, list numbers, list parts, list gross):
        """Return a side after changes of two or three numbers each."""
        cdef Py_ssize_t count = len(numbers), at = 0, place = 0, used = 0, stop
        cdef uint64_t order = 0, step, amount
        cdef bint found
        cdef list rows
        cdef PackedRow row
        if not count:
            return old
        rows = list(old)
        while at < count:
            step = numbers[at]
            if at == 0:
                order = step ^ worst
            elif not step:
                raise LevelError(TWICE)
            elif step > WORST - order:
                raise LevelError(NEGATIVE if worst else TOO_HIGH)
            else:
                order += step
            place = place_of(rows, order, place)
            found = place < len(rows) and (<PackedRow>rows[place]).order == order
            if at + 1 == count:
                raise LevelError(CUT_OFF)
            amount = numbers[at + 1]
            at += 2
            if not amount:
                if found:
                    del rows[place]
                continue
            if at == count:
                raise LevelError(CUT_OFF)
            row = PackedRow.__new__(PackedRow)
            row.order, row.amount, row.members = order, amount, numbers[at]
            at += 1
            if row.members & self.unknown:
                raise LevelError(UNKNOWN)
            stop = used + __builtin_popcountll(row.members)
            if parts:
                row.parts = parts[used:stop]
            if gross:
                row.gross = gross[used:stop]
            used = stop
            if found:
                rows[place] = row
            else:
                rows.insert(place, row)
        if (parts and len(parts) != used) or (gross and len(gross) != used):
            raise LevelError(UNEVEN)
        return rows

    cdef char *put_best(self, char *end, list rows, uint64_t worst):
        """Print the best levels of a side, each with a colon after its numbers."""
        cdef PackedRow row
        for row in rows[:CHECKSUM_LEVELS]:
            end = put_decimal(end, row.order ^ worst, self.price_scale)
            end[0] = b":"
            end = put_decimal(end + 1, row.amount, self.amount_scale)
            end[0] = b":"
            end += 1
        return end

    cdef object level(self, PackedRow row, int side):
        """Return the level of a row, made once."""
        if row.level is None:
            price = row.order if side else row.order ^ WORST
            parts = decimals_of(row.parts, self.amount_scale) if row.parts else ()
            row.level = tuple_new(
                NetLevel if row.gross else BookLevel,
                (
                    decimal_of(price, self.price_scale),
                    decimal_of(row.amount, self.amount_scale),
                    self.names_of(row.members),
                    parts,
                ),
            )
            if row.gross:
                row.level.gross = decimals_of(row.gross, self.gross_scale)
        return row.level

    cdef tuple names_of(self, uint64_t members):
        cdef tuple names = self.names.get(members)
        if names is None:
            names = tuple([name for at, name in enumerate(self.table) if members >> at & 1])
            if len(self.names) < NAMES_KEPT_MAX:
                self.names[members] = names
        return names


cdef Py_ssize_t place_of(list rows, uint64_t order, Py_ssize_t low):
    """Return the index of the first row that is not better, from an index on."""
    cdef Py_ssize_t high = len(rows), middle
    while low < high:
        middle = (low + high) >> 1
        if (<PackedRow>rows[middle]).order < order:
            low = middle + 1
        else:
            high = middle
    return low


cdef object decimal_of(uint64_t mantissa, int scale):
    return Decimal(text_of(<int64_t>mantissa, scale))


cdef tuple decimals_of(list mantissas, int scale):
    return tuple([decimal_of(each, scale) for each in mantissas])
