# Converts books into another currency through a live conversion book: see `reference.conversion`.

cdef enum:
    # Rates that are merged at least, and how many times those of the last conversion: few of the
    # rates of deep books are used. If they do not suffice, all are merged.
    RATES_LEAST = 32
    RATES_AHEAD = 2

@cython.final
cdef class Conversion:
    """Converts the books of some members into another quote currency."""

    cdef View rates
    cdef MergedBooks members  # only its sources and factors are used
    cdef bint inverse
    cdef bint ranked[2]  # by side
    cdef tuple books
    cdef list found  # of the last conversion; None before
    # What the last conversion depends on: versions of books (0: not live), depth, and how many
    # rates of each side.
    cdef uint64_t book_versions[MEMBERS_MAX]
    cdef uint64_t rate_versions[MEMBERS_MAX]
    cdef int depth
    cdef int32_t used[2]

    def __init__(
        self, names, through, *, bint inverse=False, fees=None, through_fees=None, bint net=False
    ):
        cdef int side, at
        self.rates = View(through, depth=RATES_DEPTH, fees=through_fees)
        self.members = MergedBooks(names, depth=1, fees=fees)
        self.inverse = inverse
        self.books = tuple([Book() for _ in names])
        for side in range(2):
            self.ranked[side] = True
            for at in range(self.members.member_count):
                if self.members.factors[at][side] != self.members.factors[0][side]:
                    self.ranked[side] = net

    def top(self):
        """Return the best bid and ask of the conversion book, after fees, as JSON members."""
        return self.rates.top()

    def convert(self, books, through, *, int depth=_LEVELS_MAX):
        """Convert these books, None for one that is not live: see `reference.conversion`."""
        cdef int live = self.members.gather(books)
        cdef bint same, rates_same
        if len(through) != self.rates.member_count:
            self.rates.gather(through)  # raises
        same = renewed(books, self.book_versions) == 0
        rates_same = renewed(through, self.rate_versions) == 0
        same = same and self.found is not None and depth == self.depth
        if not (self.found is not None and rates_same):
            self.rates.depth = min(RATES_DEPTH, max(
                RATES_LEAST, RATES_AHEAD * self.used[0], RATES_AHEAD * self.used[1]
            ))
            self.rates.merge(through)
            rates_same = False
        if same and (rates_same or self.same_rates()):
            return list(self.found)
        self.depth = depth
        self.found = None  # until it is whole
        found = self.convert_all(books, live, depth)
        if self.ran_out():
            self.rates.depth = RATES_DEPTH
            self.rates.merge(through)
            found = self.convert_all(books, live, depth)
        self.found = found
        return list(found)

    cdef bint ran_out(self) noexcept:
        """Whether the last conversion used up the rates, of which more were not merged."""
        cdef int side, taken
        if self.rates.is_wide or self.rates.depth == RATES_DEPTH:
            return False
        for side in range(2):
            taken = 1 - side if self.inverse else side
            if self.used[side] > self.rates.now.counts[taken] == self.rates.depth:
                return True
        return False

    cdef list convert_all(self, books, int live, int depth):
        """Convert both sides of all books with the merged rates."""
        cdef int side, member
        cdef Book target, source
        levels = self.rates.levels() if self.rates.is_wide else None
        cdef int decimals = self.decimals(books, live, levels)
        found = []
        for member, book in enumerate(books):
            if book is None:
                found.append(None)
                continue
            target = self.books[member]
            source = book
            target.clear()
            target.price_scale = decimals
            target.amount_scale = source.amount_scale
            found.append(target)
        for side in range(2):
            if self.rates.is_wide or not self.put(side, live, decimals, depth):
                self.put_wide(side, books, decimals, depth)
        return found

    cdef bint same_rates(self) noexcept:
        """Whether the last merge changed no rate that the last conversion depends on."""
        cdef int side, taken
        cdef int32_t count
        if self.rates.is_wide or not self.rates.delta_ready:
            return False
        for side in range(2):
            taken = 1 - side if self.inverse else side
            count = self.rates.before.counts[taken]
            if self.used[side] > count:
                if self.rates.now.counts[taken] != count:
                    return False
            else:
                count = self.used[side]
                if self.rates.now.counts[taken] < count:
                    return False
            if memcmp(
                self.rates.now.levels[taken], self.rates.before.levels[taken],
                count * sizeof(Merged),
            ):
                return False
        return True

    cdef int decimals(self, books, int live, levels) except -1:
        """Return the decimals of converted prices: those of `reference.converted_decimals`."""
        cdef Rates rates
        cdef Walk walk
        cdef wide price
        cdef uint64_t whole = 0
        cdef int side, at, digits = 0
        cdef bint fits = levels is None
        cdef const Source *source
        for side in range(2):
            if not fits:
                break
            self.take_rates(&rates, side)
            for at in range(live):
                source = &self.members.sources[at]
                if not rates.count or not walk_open_under(
                    &walk, &source.sides[side], &source.tops[side] if source.tops else NULL
                ):
                    continue
                fits = fits and rate_price(
                    &rates, 0, magnitude(walk.level.key), source.price_scale, 0, 0, &price
                ) and not high_word(price)
                if fits:
                    whole = max(whole, low_word(price))
        if not fits:
            shown = [book for book in books if book is not None]
            ladders = self.rates.levels()
            return converted_decimals(
                shown, [rates_of(ladders, side, self.inverse) for side in range(2)]
            )
        while whole:
            whole //= 10
            digits += 1
        return min(CONVERTED_DECIMALS, max(0, CONVERTED_PLACES - digits))

    cdef void take_rates(self, Rates *rates, int side) noexcept:
        """Fill in the side of the conversion book that a side of the members takes."""
        cdef int taken = 1 - side if self.inverse else side
        rates.levels = self.rates.now.levels[taken]
        rates.count = self.rates.now.counts[taken]
        rates.price_scale = self.rates.price_scale
        rates.amount_scale = self.rates.amount_scale
        rates.inverse = self.inverse

    cdef bint put(self, int side, int live, int decimals, int depth) except -1:
        """Convert a side; False if a number does not fit 128 bits, then nothing was changed."""
        cdef Converted converted[MEMBERS_MAX]
        cdef Rates rates
        cdef Source *source
        cdef Book target
        cdef int at, status, price_scale = 0, amount_scale = 0
        self.take_rates(&rates, side)
        for at in range(live):
            source = &self.members.sources[at]
            price_scale = max(price_scale, source.price_scale)
            amount_scale = max(amount_scale, source.amount_scale)
            target = self.books[source.member]
            converted[source.member].side = &target.sides[side]
            converted[source.member].price_scale = source.price_scale
            converted[source.member].factor = source.factors[side]
            converted[source.member].amount = 0
            converted[source.member].room = 0
            converted[source.member].cut = False
            converted[source.member].done = False
            converted[source.member].bound = INT64_MIN
        status = CONVERSION_MISFIT
        with nogil:
            if cursors_open(
                &self.members.cursors, self.members.sources, live, side, price_scale, amount_scale
            ):
                status = convert_side(
                    &self.members.cursors, converted, &rates, side,
                    price_scale + self.members.fee_scale, amount_scale, decimals, depth,
                    self.ranked[side], &self.used[side],
                )
        if status == CONVERSION_DONE:
            for at in range(live):
                source = &self.members.sources[at]
                target = self.books[source.member]
                target.end(
                    side, converted[source.member].cut or source.bounded[side],
                    converted[source.member].bound,
                )
            return True
        for at in range(live):
            side_clear(converted[self.members.sources[at].member].side)
        if status != CONVERSION_MISFIT:
            raise MemoryError
        return False

    cdef int put_wide(self, int side, books, int decimals, int depth) except -1:
        """Convert a side with Python's integers."""
        cdef int member
        cdef Book target
        live = [(at, book) for at, book in enumerate(books) if book is not None]
        factors = [
            self.members.factors[<int>at][side] for at, _ in live
        ]
        rates = rates_of(self.rates.levels(), side, self.inverse)
        self.used[side] = <int32_t>len(rates.rows) + 1
        sides = converted_side(
            [book for _, book in live], factors, self.members.fee_scale, rates, side, decimals,
            depth, self.ranked[side],
        )
        for (at, book), found in zip(live, sides):
            target = self.books[at]
            for price, amount in found.levels:
                if not side_set(&target.sides[side], -price if side else price, amount):
                    raise MemoryError
            bound = INT64_MIN
            if found.bound is not None:
                bound = -found.bound if side else found.bound
            target.end(side, found.is_cut or book.horizon()[side] is not None, bound)
        return 0


cdef int renewed(books, uint64_t *versions) except -1:
    """Remember the versions of books, None for one that is not live; return how many changed."""
    cdef int at, changed = 0
    cdef uint64_t version
    for at in range(min(len(books), MEMBERS_MAX)):
        book = books[at]
        version = 0 if book is None else (<Book?>book).version
        changed += version != versions[at]
        versions[at] = version
    return changed
