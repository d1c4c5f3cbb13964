"""The exchanges of a swarm: open, fill, change and lose the subscribed books."""

import json
from decimal import Decimal
from random import Random

from msgspec import Raw

from onebook.books import Books
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Delta, Snapshot
from onebook.model import Health, Instrument, Reason
from onebook.signals import Signal
from swarm.truth import Rows, TrueBook, Truth

REASONS = (Reason.GAP, Reason.CHECKSUM, Reason.SILENT, Reason.DISCONNECTED)
TICKS = ("0.1", "0.01", "0.05", "0.00001237")
LEVELS_MAX = 30
FILL_MAX_S = 1.5  # a wanted book comes at the latest, if it comes
NEVER_SHARE = 0.1  # of the books that are wanted come only later, by hand


class Market:
    """Catalogue and supervisor, which also record each change in the truth."""

    def __init__(self, books: Books, listed: dict, *, truth: Truth, clock, seed: int) -> None:
        self.truth = truth
        self.wanted: dict[Instrument, int] = {}
        self._books = books
        self._clock = clock
        self._rng = Random(f"{seed}/market")
        self.on_read = Signal()
        self._instruments: dict[str, dict[str, Instrument]] = {
            name: {each: Instrument(name, each, each) for each in symbols}
            for name, symbols in listed.items()
        }
        self._known = {name: dict(each) for name, each in self._instruments.items()}

    # Catalogue

    def instrument(self, exchange, symbol):
        return self._instruments.get(exchange, {}).get(symbol)

    def exchanges(self, symbol):
        return [name for name, listed in self._instruments.items() if symbol in listed]

    def pairs(self, exchange):
        return sorted(self._instruments.get(exchange, ()))

    def unread(self):
        return set()

    def suggest(self, symbol, n=3):
        return []

    def trade(self, exchange, symbol):
        """The exchange lists the symbol, again or for the first time."""
        new = Instrument(exchange, symbol, symbol)
        self._instruments[exchange][symbol] = self._known[exchange].setdefault(symbol, new)

    def delist(self, exchange, symbol):
        """The exchange delists the symbol."""
        instrument = self._instruments[exchange].pop(symbol, None)
        if instrument is not None and self._books.get(instrument) is not None:
            self._move(instrument, Health.OFFLINE, Reason.NOT_LISTED)

    # Supervisor

    def in_use(self):
        return EXCHANGES

    def state(self, exchange):
        return "active"

    def acquire(self, instrument):
        self.wanted[instrument] = self.wanted.get(instrument, 0) + 1
        if self.wanted[instrument] > 1:
            return
        self._books.open(instrument)
        if self._rng.random() >= NEVER_SHARE:
            soon = self._clock.now_s + self._rng.uniform(0, FILL_MAX_S)
            self._clock.call_at(soon, lambda: self.fill(instrument))

    def release(self, instrument):
        self.wanted[instrument] -= 1
        if not self.wanted[instrument]:
            del self.wanted[instrument]
            if self._rng.random() < 0.5:  # else it stays open for a while, as real ones do
                self._books.close(instrument)
                self._note(instrument, None)

    # What happens to books

    def open(self, *, live: bool) -> list[Instrument]:
        """The open books that are live, or that may be filled."""
        return [
            each.instrument
            for each in self._books
            if (each.health is Health.LIVE) == live and each.health is not Health.OFFLINE
        ]

    def fill(self, instrument):
        book = self._books.get(instrument)
        if book is None or book.health is Health.OFFLINE:
            return
        rng = self._rng
        bids, asks = (self._rows(instrument, side) for side in (0, 1))
        asked = rng.choice((0, 0, len(bids), len(asks), 1_000))
        self._note(instrument, TrueBook(bids, asks, asked))
        whole = Snapshot(instrument, _raw(bids), _raw(asks), levels_asked=asked)
        assert self._books.fill(whole, self._clock.now_s) is None

    def change(self, instrument):
        """A delta: some levels change, some disappear, some are new."""
        true = self.truth.book(instrument.symbol, instrument.exchange)
        bids, asks = (self._changes(instrument, side, true.sides[side]) for side in (0, 1))
        self._note(instrument, true.changed(bids, asks))
        delta = Delta(instrument, _raw(bids), _raw(asks))
        assert self._books.change(delta, self._clock.now_s) is None

    def lose(self, instrument):
        self._move(instrument, Health.STALE, self._rng.choice(REASONS))

    def relist_all(self):
        """A symbol that is delisted and listed again starts anew, as in the real supervisor."""
        for book in list(self._books):
            each = book.instrument
            if book.health is Health.OFFLINE and self.instrument(each.exchange, each.symbol):
                self._move(each, Health.SYNCING, Reason.SUBSCRIBING)

    def _move(self, instrument, health, reason):
        self._note(instrument, None)
        self._books.set_health(instrument, health, reason, self._clock.now_s)

    def _note(self, instrument, book):
        now_us = self._clock.wall_us()
        self.truth.set(instrument.symbol, instrument.exchange, book, now_us)

    def _rows(self, instrument, side) -> Rows:
        count = self._rng.choice((0, 1, 5, LEVELS_MAX, LEVELS_MAX))
        prices = {self._price(instrument, side) for _ in range(count)}
        return [(price, self._amount()) for price in sorted(prices, key=Decimal, reverse=not side)]

    def _changes(self, instrument, side, levels) -> Rows:
        rng, held = self._rng, sorted(levels)
        rows = {}
        for _ in range(rng.choice((0, 1, 1, 3, 8))):
            if held and rng.random() < 0.6:
                price = f"{rng.choice(held):f}"
                rows[price] = rng.choice(("0", "0.000", self._amount(), self._amount()))
            else:
                rows[self._price(instrument, side)] = self._amount()
        return list(rows.items())

    def _price(self, instrument, side) -> str:
        """A price of the exchange: exchanges differ by a little, so that merged books may cross."""
        place = Random(f"{instrument.exchange}/{instrument.symbol}")
        middle = Decimal(100) + Decimal(place.randint(-30, 30)) / 100
        tick = Decimal(place.choice(TICKS))
        steps = tick * self._rng.randint(1, 40)
        return f"{middle + steps if side else middle - steps:f}"

    def _amount(self) -> str:
        decimals = self._rng.choice((0, 1, 3, 8, 10))
        return f"{Decimal(self._rng.randint(1, 10 ** self._rng.randint(1, 7))).scaleb(-decimals):f}"


def _raw(rows: Rows) -> Raw:
    return Raw(json.dumps(rows).encode())
