"""Hostile numbers in frames and bodies of every channel, and the expected book.

A message with levels is taken as the exchange's dialect writes it, and one number of one level is
replaced by text that is none, or that no book can hold; or the level is there twice. Whatever was
sent, the book equals the exchange's or is not live.
"""

import json
import re
import struct
from collections.abc import Collection, Iterator
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf import json_format

from contract.oracle import Sides, decimal
from contract.talk import Step, Talk
from exchanges import sbe_schema
from onebook.books import Books, LiveBook
from onebook.core import LEVELS_MAX, LevelShape
from onebook.feeds.limits import FeedLimits
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.model import Health, Instrument
from onebook.simulator.mexc import Push

SBE: Final = (b"\x11\x27", b"\x13\x27")  # the templates 10001 and 10003
CHANGES: Final = 2  # of each book before the message, so that it has levels that came and went
NEAR: Final = 4  # numbers between a price and its amount
FULLWIDTH: Final = {ord("0") + digit: 0xFF10 + digit for digit in range(10)}
TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?')

PLAIN: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)

# In place of a price or of an amount, as JSON.
NO_NUMBERS: Final = (
    *("NaN", "Infinity", "-Infinity", '"NaN"', '"nan"', '"Infinity"', '"-inf"', '"inf"'),
    *("1e400", '"1e400"', '"-1e400"', '"1e999999999"'),
    *('""', '" "', "null", "true", "false", "[]", "{}", "[[1,2]]", '["1"]', '{"1":"2"}', '"null"'),
    *("9" * 40, f'"{"9" * 40}"', '"' + "9" * 5_000 + '"'),
    *('"1,5"', '"1_0"', '"0x10"', '"--1"', '"."', '"-"', '"e"', '"1e"', '"1.2.3"', '"1 2"'),
    *('"\\u0000"', '"1\\u0000"', '"\\ud800"', '"\\u0661"', '"\\u00bd"', '"\\u221e"', '"\\u2212"'),
)
# The same, but where amounts are cut: it is the least amount there.
TINY: Final = ('"1e-400"', "1e-400", '"1e-999999999"', f'"0.{"1" * 40}"', f"0.{'1' * 40}")
# The same with the number that was there: what is read all the same must be read as this number.
SPELLINGS: Final = (
    *('" {0}"', '"{0} "', '"\\t{0}"', '"{0}\\n"', '"+{0}"', '"00{0}"', '"{0}e0"', '"{0}."'),
    *('"{1}"', '"{0}\\u0000"', '"{0}x"', '["{0}"]', '"{0}e-0"', '"\\u00a0{0}"'),
)


class Level(NamedTuple):
    """The position of one level in a message: the spans of its price and its amount."""

    price: tuple[int, int]
    amount: tuple[int, int]


class Message(NamedTuple):
    """A message with levels, the messages before it, and the resulting book."""

    before: list[Step]
    step: Step
    instrument: Instrument
    truth: Sides

    @property
    def text(self) -> bytes:
        """The message as JSON."""
        return as_text(self.step.payload)

    def levels(self) -> list[Level]:
        """The levels of the message that are in the book afterwards."""
        levels, held = [], self.truth[0] | self.truth[1]
        prices, amounts = self.instrument.scales
        found = [
            (each.span(), value) for each in TOKEN.finditer(self.text) if (value := _value(each))
        ]
        for at, (span, value) in enumerate(found):
            amount = held.get(value.scaleb(-prices))
            for other, size in (*found[at + 1 : at + NEAR], *found[max(0, at - NEAR) : at][::-1]):
                if amount is not None and abs(size).scaleb(-amounts) == amount:
                    levels.append(Level(span, other))
                    break
        return levels


class Case(NamedTuple):
    """A damaged message as JSON; `truth` is the expected book if it can be read."""

    what: str
    payload: bytes
    truth: Sides


def as_text(payload: bytes) -> bytes:
    """Decode a message to JSON: MEXC sends protobuf, Binance also SBE."""
    if payload[:1] in b"{[":
        return payload
    if payload[2:4] in SBE:
        return json.dumps(_in_decimals(sbe_schema.decoded(payload))).encode()
    return json_format.MessageToJson(Push.FromString(payload)).encode()


def as_sent(text: bytes, sent: bytes) -> bytes | None:
    """Encode JSON as the original message was; None if that is impossible."""
    if sent[:1] in b"{[":
        return text
    if sent[2:4] in SBE:
        try:
            return sbe_schema.encoded(_in_mantissas(json.loads(text, parse_float=Decimal)))
        except (ValueError, TypeError, ArithmeticError, struct.error, KeyError):
            return None
    try:
        message: bytes = json_format.Parse(text, Push()).SerializeToString()
    except (json_format.ParseError, UnicodeEncodeError):
        return None
    return message


def _in_decimals(event: dict[str, Any]) -> dict[str, Any]:
    """The levels of a depth event, with mantissas as decimal text."""
    sides = {
        side: [
            {name: f"{Decimal(number).scaleb(-8):f}" for name, number in each.items()}
            for each in event[side]
        ]
        for side in ("bids", "asks")
    }
    return event | sides


def _in_mantissas(event: dict[str, Any]) -> dict[str, Any]:
    sides = {
        side: [{name: _mantissa(n) for name, n in each.items()} for each in event[side]]
        for side in ("bids", "asks")
    }
    return event | sides


def _mantissa(number: object) -> int:
    """A mantissa at the exponent -8.

    Raises:
        ValueError: It is finer, or no plain number.
    """
    if PLAIN.fullmatch(str(number)) is None:
        raise ValueError(f"{number!r} is no plain number")
    scaled = Decimal(str(number)).scaleb(8)
    if scaled != int(scaled):
        raise ValueError(f"{number} has more than 8 decimals")
    return int(scaled)


def messages(talk: Talk) -> Iterator[Message]:
    """The message that starts the first book, and one that changes it."""
    instrument = talk.instruments[0]
    talk.open()
    truth = talk.venue.sides(instrument.native)
    start = next(at for at, step in enumerate(talk.script) if _starts(talk, at, instrument))
    yield Message(talk.script[:start], talk.script[start], instrument, truth)
    for _ in range(CHANGES):
        for each in talk.instruments:
            talk.change(each.native)
    while True:
        before = [*talk.script]
        talk.change(instrument.native)
        truth = talk.venue.sides(instrument.native)
        message = Message(before, talk.script[-1], instrument, truth)
        if message.levels():
            yield message
            return


def _starts(talk: Talk, at: int, instrument: Instrument) -> bool:
    """Whether a step makes the book of an instrument live."""
    told = Told(talk, talk.script[: at + 1])
    return told.book(instrument).health is Health.LIVE


def _value(match: re.Match[bytes]) -> Decimal | None:
    try:
        return Decimal(match[0].strip(b'"').decode())
    except (InvalidOperation, UnicodeDecodeError):
        return None


def damaged(message: Message, level: Level, shapes: Collection[LevelShape]) -> Iterator[Case]:
    """The message with one price or amount replaced, and with a duplicate level."""
    payload = message.text
    # What these shapes read by the exchange's own rules, which is nothing hostile.
    signed = any(shape.signed for shape in shapes)
    skips_zero = any(shape.skip_zero_price for shape in shapes)
    cut = any(shape.amount_decimals is not None for shape in shapes)
    for name, (start, end) in level._asdict().items():
        number = payload[start:end].strip(b'"').decode()
        tokens = [*NO_NUMBERS, *(() if cut and name == "amount" else TINY)]
        wide = number.translate(FULLWIDTH)
        tokens += [each.format(number, wide) for each in SPELLINGS]
        if name == "price":
            tokens += () if skips_zero else ("0", '"0"', '"-0"', '"0.00"', "0e5")
        if name == "price" or not signed:
            tokens += (f'"-{number}"', f"-{number}")
        for token in tokens:
            text = payload[:start] + token.encode() + payload[end:]
            yield Case(f"{name} {token[:60]}", text, message.truth)
    yield _twice(message, level)


def _twice(message: Message, level: Level) -> Case:
    """Repeat a level with another amount: the last one is valid."""
    payload = message.text
    first, last = min(level)[0], max(level)[1]
    start = max(payload.rfind(each, 0, first) for each in (b"[", b"{"))
    end = min(at for each in (b"]", b"}") if (at := payload.find(each, last)) >= 0) + 1
    (a, b) = level.amount
    number = payload[a:b].strip(b'"')
    other = payload[start:a] + payload[a:b].replace(number, number + _more(number)) + payload[b:end]
    price = _decimal(payload, level.price).scaleb(-message.instrument.scales[0])
    amount = abs(Decimal((number + _more(number)).decode())).scaleb(-message.instrument.scales[1])
    bids, asks = ({**side} for side in message.truth)
    (bids if price in bids else asks)[price] = amount
    return Case("twice", payload[:end] + b"," + other + payload[end:], (bids, asks))


def _more(number: bytes) -> bytes:
    return b"1" if b"." in number else b""


def _decimal(payload: bytes, span: tuple[int, int]) -> Decimal:
    return Decimal(payload[slice(*span)].strip(b'"').decode())


# Its two hundred counters take longer to make than a conversation to read.
stats_of = cache(ExchangeStats)


class Told:
    """A session that has read the exchange's messages."""

    def __init__(self, talk: Talk, script: list[Step]) -> None:
        exchange = talk.exchange
        self.books = Books()
        for instrument in talk.instruments:
            levels_max = exchange.depth if exchange.truncate else LEVELS_MAX
            self.books.open(instrument, levels_max=levels_max, window=exchange.depth)
        self.stats = stats_of(exchange.name)
        self._by_native = {instrument.native: instrument for instrument in talk.instruments}
        self._session = FeedSession(
            exchange,
            talk.instruments,
            books=self.books,
            limits=FeedLimits(faults_max=1_000),
            stats=self.stats,
        )
        self._session.opened(1_000.0)
        for step in script:
            self.hear(step)

    def hear(self, step: Step) -> None:
        if step.kind == "body":
            self._session.fetched(self._by_native[step.native], step.payload, 1_000.0)
        else:
            self._session.received(step.payload, 1_000.0)

    def book(self, instrument: Instrument) -> LiveBook:
        book = self.books.get(instrument)
        assert book is not None
        return book

    def sides(self, instrument: Instrument) -> Sides | None:
        """The shown book; None if it is not live."""
        book = self.book(instrument)
        if book.health is not Health.LIVE:
            return None
        bids, asks = book.core.top(LEVELS_MAX)
        return (
            {decimal(price): decimal(amount) for price, amount in bids},
            {decimal(price): decimal(amount) for price, amount in asks},
        )
