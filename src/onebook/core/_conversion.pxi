# Converts books into another currency through a live conversion book: see `reference.conversion`.

@cython.final
cdef class Conversion:
    """Converts the books of some members into another quote currency."""

    cdef View rates
    cdef MergedBooks members  # only its sources and factors are used
    cdef bint inverse
    cdef tuple books

    def __init__(self, names, through, *, bint inverse=False, fees=None, through_fees=None):
        self.rates = View(through, depth=RATES_DEPTH, fees=through_fees)
        self.members = MergedBooks(names, depth=1, fees=fees)
        self.inverse = inverse
        self.books = tuple([Book() for _ in names])

    def top(self):
        """Return the best bid and ask of the conversion book, after fees, as JSON members."""
        return self.rates.top()

    def convert(self, books, through, *, int depth=_LEVELS_MAX):
        """Convert these books, None for one that is not live: see `reference.conversion`."""
        cdef int side, member, decimals, live = self.members.gather(books)
        cdef Book target, source
        self.rates.merge(through)
        found = [None if book is None else self.books[at] for at, book in enumerate(books)]
        levels = self.rates.levels() if self.rates.is_wide else None
        decimals = self.decimals([book for book in books if book is not None], levels)
        for member, book in enumerate(books):
            if book is not None:
                target = self.books[member]
                source = book
                target.clear()
                target.price_scale = decimals
                target.amount_scale = source.amount_scale
        for side in range(2):
            if self.rates.is_wide or not self.put(side, live, decimals, depth):
                self.put_wide(side, books, decimals, depth)
        return found

    cdef int decimals(self, list books, levels) except -1:
        """Return the decimals of converted prices: those of `reference.converted_decimals`."""
        cdef int side, taken
        sides = []
        for side in range(2):
            taken = 1 - side if self.inverse else side
            if levels is None:
                best = self.rates.best()[taken]
                rows = () if best is None else (best,)
                sides.append(
                    ReferenceRates(
                        rows, self.rates.price_scale, self.rates.amount_scale, self.inverse
                    )
                )
            else:
                sides.append(rates_of(levels, side, self.inverse))
        return converted_decimals(books, sides)

    cdef bint put(self, int side, int live, int decimals, int depth) except -1:
        """Convert a side; False if a number does not fit 128 bits, then nothing was changed."""
        cdef Converted converted[MEMBERS_MAX]
        cdef Rates rates
        cdef Source *source
        cdef Book target
        cdef int at, status, price_scale = 0, amount_scale = 0
        cdef int taken = 1 - side if self.inverse else side
        rates.levels = self.rates.now.levels[taken]
        rates.count = self.rates.now.counts[taken]
        rates.price_scale = self.rates.price_scale
        rates.amount_scale = self.rates.amount_scale
        rates.inverse = self.inverse
        for at in range(live):
            source = &self.members.sources[at]
            price_scale = max(price_scale, source.price_scale)
            amount_scale = max(amount_scale, source.amount_scale)
            target = self.books[source.member]
            converted[source.member].side = &target.sides[side]
            converted[source.member].price_scale = source.price_scale
            converted[source.member].amount = 0
            converted[source.member].cut = False
        status = CONVERSION_MISFIT
        with nogil:
            if cursors_open(
                &self.members.cursors, self.members.sources, live, side, price_scale, amount_scale
            ):
                status = convert_side(
                    &self.members.cursors, converted, &rates, side,
                    price_scale + self.members.fee_scale, amount_scale, decimals, depth,
                )
        if status == CONVERSION_DONE:
            for at in range(live):
                source = &self.members.sources[at]
                target = self.books[source.member]
                target.end(side, converted[source.member].cut or source.bounded[side])
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
        sides = converted_side(
            [book for _, book in live], factors, self.members.fee_scale, rates, side, decimals,
            depth,
        )
        for (at, book), found in zip(live, sides):
            target = self.books[at]
            for price, amount in found.levels:
                if not side_set(&target.sides[side], -price if side else price, amount):
                    raise MemoryError
            target.end(side, found.is_cut or book.horizon()[side] is not None)
        return 0
