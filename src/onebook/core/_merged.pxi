# Merges books into one view of integer levels, which `_view.pxi` encodes.

cdef class MergedBooks:
    """Merges books: keeps the levels of the last merge and of the one before."""

    cdef State states[3]
    cdef State *now
    cdef State *before
    cdef State *spare
    cdef Source sources[MEMBERS_MAX]
    cdef Cursors cursors
    cdef int member_count
    cdef int depth
    cdef bint split
    cdef bint arrays
    cdef bint merged
    cdef bint delta_ready  # `before` is a state, too
    cdef bint rescaled  # since it was last reset: the printed text is at another scale
    cdef int price_scale
    cdef int amount_scale
    cdef int64_t step  # at `step_scale`
    cdef int step_scale
    cdef int64_t within  # basis points of the mid at `within_scale`; -1 for no limit
    cdef int within_scale
    cdef int fee_scale  # decimals that fees add to prices
    cdef bint net  # whether levels are in the order of net prices
    cdef int64_t factors[MEMBERS_MAX][2]  # of net prices: see `Fees`
    cdef dict options  # for `ReferenceView`
    cdef tuple best_rows  # of the last `levels`, returned again if unchanged
    cdef Merged best_levels[2]  # the levels of `best_rows` ...
    cdef int best_scales  # ... and their scales
    cdef object wide  # a `ReferenceView` while numbers exceed 64 bits, else None
    cdef bint is_wide

    def __cinit__(
        self, names, *, int depth, group=None, bint split=False, bint arrays=False, within=None,
        fees=None,
    ):
        cdef int at
        step = view_step(group)
        limit = view_within(within)
        self.within = -1 if limit is None else limit.mantissa
        self.within_scale = 0 if limit is None else limit.scale
        self.member_count = <int>len(view_names(names))
        charged = view_fees(fees, names)
        self.net = fees is not None
        self.fee_scale = charged.scale
        for at in range(self.member_count):
            self.factors[at][0], self.factors[at][1] = charged.factors[at]
        self.depth = view_depth(depth)
        self.options = {
            "names": tuple(names), "depth": depth, "group": group, "split": split, "arrays": arrays,
            "within": within, "fees": fees,
        }
        self.step = step.mantissa
        self.step_scale = self.price_scale = step.scale
        self.split = split
        self.arrays = arrays
        for at in range(3):
            if not state_alloc(&self.states[at], depth, self.member_count if split else 0):
                raise MemoryError
        self.now = &self.states[0]
        self.before = &self.states[1]
        self.spare = &self.states[2]
        self.now.fits = self.before.fits = True

    def __dealloc__(self):
        cdef int at
        for at in range(3):
            state_free(&self.states[at])

    def merge(self, books):
        """Merge these books, None for one that is not live; return whether the view changed."""
        cdef int live = self.gather(books)
        cdef bint fits = self.rescale(live) and self.fill(live)
        if self.is_wide or not fits:
            return self.merge_wide(books, fits)
        if self.merged and state_same(self.now, self.spare, self.arrays and not self.split):
            # `before` equals `now`: a delta of this merge has no levels.
            self.before, self.spare = self.spare, self.before
            self.before.fits = self.delta_ready = True
            return False
        self.turn(fits)
        return True

    def levels(self):
        """Return the merged levels as integers: see `Levels`."""
        if self.is_wide:
            return self.wide.levels()
        cdef tuple best = self.best()
        return Levels(
            self.price_scale, self.amount_scale, self.packed(0), self.packed(1),
            self.packed_parts(0), self.packed_parts(1), best[0], best[1],
        )

    cdef tuple best(self):
        """Return the best level of each side; the same object while the level is unchanged.

        With `split` it always is another: the parts may differ.
        """
        cdef int side, scales = self.price_scale << 8 | self.amount_scale
        cdef bint same[2]
        cdef const Merged *row
        for side in range(2):
            row = self.now.levels[side]
            same[side] = (
                not self.split and self.best_rows is not None and scales == self.best_scales
                and self.now.counts[side] != 0
                and memcmp(row, &self.best_levels[side], sizeof(Merged)) == 0
            )
            if self.now.counts[side]:
                self.best_levels[side] = row[0]
            else:
                self.best_levels[side].members = 0  # no level is without members
        if not (same[0] and same[1]):
            self.best_rows = (
                self.best_rows[0] if same[0] else self.best_row(0),
                self.best_rows[1] if same[1] else self.best_row(1),
            )
            self.best_scales = scales
        return self.best_rows

    cdef object best_row(self, int side):
        if not self.now.counts[side]:
            return None
        cdef const Merged *row = self.now.levels[side]
        return (-row.key if side else row.key), row.amount, row.members

    cdef bytes packed(self, int side):
        """Copy the levels of a side; the key of an ask is its price negated."""
        cdef Py_ssize_t size = self.now.counts[side] * sizeof(Merged)
        cdef bytes rows = PyBytes_FromStringAndSize(<char *>self.now.levels[side], size)
        cdef Merged *row = <Merged *>PyBytes_AS_STRING(rows)
        cdef int32_t at
        if side:
            for at in range(self.now.counts[side]):
                row[at].key = -row[at].key
        return rows

    cdef bytes packed_parts(self, int side):
        cdef Py_ssize_t count = self.now.part_counts[side] if self.split else 0
        return PyBytes_FromStringAndSize(<char *>self.now.parts[side], count * sizeof(int64_t))

    cdef int gather(self, books) except -1:
        """Collect the live books; return their number."""
        cdef int member = 0, live = 0
        cdef Book book
        cdef Source *source
        if len(books) != self.member_count:
            raise ValueError(f"The view merges {self.member_count} books, not {len(books)}.")
        for candidate in books:
            if candidate is not None and live < self.member_count:
                book = candidate
                source = &self.sources[live]
                source.sides = book.sides
                source.tops = book.tops if book.overlaid else NULL
                source.price_scale = book.price_scale
                source.amount_scale = book.amount_scale
                source.member = member
                source.bounded[0] = book.bounds[0] != INT64_MIN
                source.bounded[1] = book.bounds[1] != INT64_MIN
                source.factors[0] = self.factors[member][0]
                source.factors[1] = self.factors[member][1]
                live += 1
            member += 1
        return live

    cdef bint rescale(self, int live) noexcept nogil:
        """Widen the common scales to those of the books; False if our levels do not fit them."""
        cdef int price_scale = self.step_scale if self.is_wide else self.price_scale
        cdef int amount_scale = 0 if self.is_wide else self.amount_scale
        cdef int64_t prices, amounts
        cdef int at
        for at in range(live):
            price_scale = max(price_scale, self.sources[at].price_scale + self.fee_scale)
            amount_scale = max(amount_scale, self.sources[at].amount_scale)
        if price_scale == self.price_scale and amount_scale == self.amount_scale:
            return True
        if price_scale > DIGITS_MAX:
            return False  # of net prices: those of books have at most as many decimals
        self.rescaled = True
        if self.is_wide:
            # `wide` keeps the states; ours would be at another scale.
            self.now.fits = self.before.fits = False
        else:
            prices = <int64_t>power10[price_scale - self.price_scale]
            amounts = <int64_t>power10[amount_scale - self.amount_scale]
            if not (
                state_may_grow(self.now, prices, amounts)
                and state_may_grow(self.before, prices, amounts)
            ):
                return False
            state_grow(self.now, prices, amounts)
            state_grow(self.before, prices, amounts)
        self.price_scale = price_scale
        self.amount_scale = amount_scale
        return True

    cdef bint fill(self, int live) noexcept nogil:
        """Merge into the spare state; False if a number does not fit."""
        cdef int64_t step = 0
        cdef int side
        if self.step:
            if self.step >= <int64_t>power10[DIGITS_MAX - self.price_scale + self.step_scale]:
                return False
            step = self.step * <int64_t>power10[self.price_scale - self.step_scale]
        self.spare.members = 0
        for side in range(2):
            if not cursors_open(
                &self.cursors, self.sources, live, side, self.price_scale - self.fee_scale,
                self.amount_scale,
            ) or not self.fill_side(side, step):
                return False
        if self.within >= 0:
            self.trim(self.spare)
        return True

    cdef void trim(self, State *state) noexcept nogil:
        """Drop the levels that are further from the mid than `within`.

        While a side is empty, the best price of the other is the reference.
        """
        cdef int64_t bid = state.levels[0][0].key if state.counts[0] else 0
        cdef int64_t ask = -state.levels[1][0].key if state.counts[1] else 0
        cdef int64_t twice_mid = bid + ask if bid and ask else 2 * (bid + ask)
        cdef wide reach = <wide>self.within * <wide>twice_mid
        cdef wide unit = <wide>10_000 * <wide>power10[self.within_scale]
        cdef int64_t distance
        cdef int32_t at, count
        cdef int side
        state.members = 0
        for side in range(2):
            count = state.counts[side]
            while count:
                distance = twice_mid - 2 * state.levels[side][count - 1].key
                if side:
                    distance = -twice_mid - 2 * state.levels[side][count - 1].key
                if distance <= 0 or <wide>distance * unit <= reach:
                    break
                count -= 1
            state.counts[side] = count
            state.part_counts[side] = 0
            for at in range(count):
                state.members |= state.levels[side][at].members
                if self.split:
                    state.part_counts[side] += __builtin_popcountll(
                        state.levels[side][at].members
                    )

    cdef inline bint fill_side(self, int side, int64_t step) noexcept nogil:
        # The C compiler makes one function for each of these, without the tests inside.
        if step:
            return merge_side(&self.cursors, self.spare, side, self.depth, step, self.split)
        if self.cursors.count == 1:
            return merge_single(&self.cursors, self.spare, side, self.depth, self.split)
        if self.split:
            return merge_side(&self.cursors, self.spare, side, self.depth, 0, True)
        return merge_side(&self.cursors, self.spare, side, self.depth, 0, False)

    cdef void turn(self, bint fits) noexcept:
        """Make the spare state the present one."""
        cdef State *oldest = self.before
        self.delta_ready = self.merged
        self.merged = True
        self.before = self.now
        self.now = self.spare
        self.now.fits = fits
        self.spare = oldest

    cdef bint merge_wide(self, books, bint fits) except -1:
        """Merge with Python's integers, until two states in a row fit ours again."""
        cdef bint changed
        if not self.is_wide:
            self.widen()
        changed = self.wide.merge(books)
        if changed:
            self.turn(fits)
            if self.now.fits and self.before.fits:
                self.wide = None
                self.is_wide = False
        return changed

    cdef int widen(self) except -1:
        """Hand the states to a `ReferenceView`."""
        self.wide = ReferenceView(**self.options)
        if self.merged:
            self.wide.restore(
                self.reference_state(self.before) if self.delta_ready else None,
                self.reference_state(self.now),
            )
        self.is_wide = True
        self.now.fits = self.before.fits = False
        return 0

    cdef object reference_state(self, const State *state):
        sides = []
        cdef int side
        cdef int32_t at
        cdef uint64_t members
        cdef int64_t *parts
        cdef Merged *level
        # Python's integers: exact.
        cdef object prices = 10 ** <object>(REFERENCE_SCALE + self.fee_scale - self.price_scale)
        cdef object amounts = power10[REFERENCE_SCALE - self.amount_scale]
        for side in range(2):
            parts = state.parts[side]
            levels = []
            for at in range(state.counts[side]):
                level = &state.levels[side][at]
                members = level.members
                shares = []
                while members:
                    amount = 0
                    if self.split:
                        amount = parts[0] * amounts
                        parts += 1
                    shares.append((__builtin_ctzll(members), amount))
                    members &= members - 1
                price = (-level.key if side else level.key) * prices
                levels.append(ReferenceLevel(price, level.amount * amounts, tuple(shares)))
            sides.append(levels)
        return ReferenceState(*sides)
