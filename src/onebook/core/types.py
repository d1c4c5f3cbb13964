"""Shared by the compiled core and its reference: level shapes, checksum layouts, limits, errors.

A shape defines where price and amount are in an exchange's level text; a layout defines the input
of the exchange's checksum. Both are data: a connector creates its own once, at import, and passes
them by reference. JSON level text is ASCII without escapes. A number is a JSON number, bare or as a
string. Prices are above zero, amounts at least zero; an amount of zero, however spelled, removes
the level. Nothing here parses or counts.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Raw, Struct

Bytes = bytes | bytearray | memoryview | Raw

DIGITS_MAX: Final = 18  # decimal digits of a price or amount, at the book's scale
SCALE_MAX: Final = 18  # decimals of a price or amount
NUMBER_BYTES_MAX: Final = 64  # text of one price or amount
NESTING_MAX: Final = 8  # depth of arrays and objects in ignored values of a row
FRAME_LEVELS_MAX: Final = 200_000  # rows of one level text
COLUMNS_MAX: Final = 16  # columns of a row that a shape can select from
NAME_BYTES_MAX: Final = 32  # of a member name in a shape
FIELD_NUMBER_MAX: Final = 2**29 - 1  # of a protobuf field
MANTISSA_BYTES: Final = 8  # of a number in an entry of a group
ENTRY_BYTES_MAX: Final = 2**16 - 1  # of an entry of a group
MEMBERS_MAX: Final = 64  # books that one view merges
DEPTH_MAX: Final = 500  # levels a side that one view shows
# Levels a side that one book keeps, twice those of the deepest known book (Coinbase's 45,500);
# the worst are dropped. A smaller limit is the window of an exchange that sends re-entering levels
# again. Levels dropped at this limit are unknown from then on.
LEVELS_MAX: Final = 100_000
WITHIN_MAX: Final = 10_000  # basis points from the mid that a view can be limited to,
WITHIN_DECIMALS_MAX: Final = 6  # and their decimals
CONVERTED_DIGITS: Final = 12  # of the best price of books converted into another currency,
CONVERTED_DECIMALS_MAX: Final = 12  # with at most these decimals; further ones are rounded away
VALUE_DECIMALS: Final = 10  # decimals of price x amount; further ones are cut
PERCENT_DECIMALS: Final = 4  # decimals of a view's spread in percent
CHECKSUM_LEVELS: Final = 25  # levels a side under a view's checksum
UNPACKED_SCALE_MAX: Final = 40  # decimals; a service sends at most 18, and those of a fee
NAMES_KEPT_MAX: Final = 10_000  # combinations of exchanges of one view
CHARS_MAX: Final = 200  # of an exchange's number; the longest seen: 40 (18 decimals)
EXPONENT_MAX: Final = 60  # of a number: "1E9999" would otherwise be ten thousand characters
ABSURD_FACTOR: Final = 10  # a best price this many times beyond the previous mid is rejected once

# Why a book that has just changed must not be shown: values of `model.Reason`.
CROSSED: Final = "crossed"
ABSURD: Final = "absurd_price"


class LevelError(ValueError):
    """Level text that is invalid or cannot be represented exactly; the book is unchanged."""


class NumberError(ValueError):
    """Text that is not a number; the message quotes at most `CHARS_MAX` characters."""


class LevelForm(IntEnum):
    """Form of one level in the text of its exchange."""

    ROW = 0  # a JSON array, by column
    OBJECT = 1  # a JSON object, by member
    MESSAGE = 2  # a protobuf message, by field number
    GROUP = 3  # an entry of a repeating group in Simple Binary Encoding, by offset


# Bounds of decoded shapes; `LevelShape.__post_init__` checks those of each form.
FieldNumber = Annotated[int, Meta(ge=0, le=FIELD_NUMBER_MAX)]
CellName = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
Decimals = Annotated[int, Meta(ge=0, le=SCALE_MAX)]


class LevelShape(Struct, frozen=True, gc=False):
    """Positions of price and amount in a level; created by a class method.

    `amount_decimals` is for exchanges that print binary doubles: amounts are cut toward zero to
    this number of decimals. A positive amount that would become zero becomes one unit of the last
    decimal, so that it is never read as a removal. By default (None) every amount is exact.

    `price_scale` and `amount_scale` are for exchanges that send scaled integers: 12345 at a scale
    of 2 is 123.45. They differ by instrument or frame, so such an exchange has several shapes.
    """

    form: LevelForm
    price: FieldNumber | CellName
    amount: FieldNumber | CellName
    side: FieldNumber | CellName | None = None
    count: FieldNumber | None = None
    signed: bool = False
    single: bool = False
    skip_zero_price: bool = False
    bids_field: FieldNumber = 0
    asks_field: FieldNumber = 0
    asks: "LevelShape | None" = None
    amount_decimals: Decimals | None = None
    price_scale: Decimals = 0
    amount_scale: Decimals = 0

    @classmethod
    def rows(
        cls,
        price: int = 0,
        amount: int = 1,
        side: int | None = None,
        count: int | None = None,
        *,
        signed: bool = False,
        single: bool = False,
        skip_zero_price: bool = False,
        amount_decimals: int | None = None,
        price_scale: int = 0,
        amount_scale: int = 0,
    ) -> "LevelShape":
        """Describe a JSON array of arrays by column index; other columns are ignored.

        Args:
            price: The column of the price.
            amount: The column of the amount.
            side: The column that names the side: buy, bid, sell, ask or offer. All rows are then
                in `bids`, and `asks` is ignored.
            count: A column where zero removes the level, whatever its amount.
            signed: The sign of the amount is the side: negative amounts are asks. All rows are
                then in `bids`. An amount of zero does not say which and is rejected.
            single: The text may also be a single row that is not in a list.
            skip_zero_price: Ignore rows with a price of zero, instead of rejecting them.
            amount_decimals: Decimals to which amounts are cut.
            price_scale: Number of decimals by which the point of prices is moved to the left.
            amount_scale: The same for amounts, which are then not cut.
        """
        return cls(
            form=LevelForm.ROW,
            price=price,
            amount=amount,
            side=side,
            count=count,
            signed=signed,
            single=single,
            skip_zero_price=skip_zero_price,
            amount_decimals=amount_decimals,
            price_scale=price_scale,
            amount_scale=amount_scale,
        )

    @classmethod
    def objects(
        cls,
        price: str = "price",
        amount: str = "qty",
        side: str | None = None,
        *,
        skip_zero_price: bool = False,
        asks: "LevelShape | None" = None,
        amount_decimals: int | None = None,
    ) -> "LevelShape":
        """Describe a JSON array of objects by member name; other members are ignored.

        Args:
            price: The member that is the price.
            amount: The member that is the amount.
            side: The member that names the side, as in `rows`.
            skip_zero_price: Ignore objects with a price of zero, instead of rejecting them.
            asks: The shape of the asks, if it differs. If one object has both sides, the same text
                is passed as `bids` and as `asks`.
            amount_decimals: Decimals to which amounts are cut; `asks` has a separate value.
        """
        return cls(
            form=LevelForm.OBJECT,
            price=price,
            amount=amount,
            side=side,
            skip_zero_price=skip_zero_price,
            asks=asks,
            amount_decimals=amount_decimals,
        )

    @classmethod
    def protobuf(
        cls,
        price: int = 1,
        amount: int = 2,
        bids: int = 2,
        asks: int = 1,
        *,
        amount_decimals: int | None = None,
    ) -> "LevelShape":
        """Describe a protobuf message by field numbers; other fields are skipped by wire type.

        `bids` of a `Snapshot` or `Delta` is the whole message, and `asks` is ignored. The message
        has repeated fields `bids` and `asks` of messages, each with the text fields `price` and
        `amount` exactly once.
        """
        return cls(
            form=LevelForm.MESSAGE,
            price=price,
            amount=amount,
            bids_field=bids,
            asks_field=asks,
            amount_decimals=amount_decimals,
        )

    @classmethod
    def group(
        cls, price: int = 0, amount: int = 8, *, price_scale: int = 0, amount_scale: int = 0
    ) -> "LevelShape":
        """Describe a repeating group in Simple Binary Encoding; other bytes are skipped.

        Each side is a group as it was sent, or empty: the bytes of an entry and the number of
        entries (uint16 each), then the entries. Numbers are int64 at these byte offsets of an
        entry, little endian. A mantissa with the exponent -2 has a scale of 2.
        """
        return cls(
            form=LevelForm.GROUP,
            price=price,
            amount=amount,
            price_scale=price_scale,
            amount_scale=amount_scale,
        )

    @property
    def one_text(self) -> bool:
        """Whether both sides are in `bids`."""
        return self.side is not None or self.signed or self.form is LevelForm.MESSAGE

    def __post_init__(self) -> None:
        cells = [self.price, self.amount]
        cells += [cell for cell in (self.side, self.count) if cell is not None]
        if self.form is LevelForm.OBJECT:
            _check(cells, all(isinstance(cell, str) and _is_name(cell) for cell in cells))
        elif self.form is LevelForm.ROW:
            _check(cells, _within(cells, 0, COLUMNS_MAX - 1))
            if self.side is not None and self.signed:
                raise ValueError(
                    "A shape may have either a column for the side or a sign, not both."
                )
        elif self.form is LevelForm.GROUP:
            apart = abs(int(self.price) - int(self.amount)) >= MANTISSA_BYTES
            _check(cells, _within(cells, 0, ENTRY_BYTES_MAX - MANTISSA_BYTES) and apart)
        else:
            fields = [self.bids_field, self.asks_field]
            _check(cells, _within(cells, 1, FIELD_NUMBER_MAX))
            _check(fields, _within(fields, 1, FIELD_NUMBER_MAX))
        if self.asks is not None and (self.one_text or self.asks.one_text):
            raise ValueError("Asks cannot have their own shape if both sides are in one text.")
        if self.amount_decimals is not None and not 0 <= self.amount_decimals <= SCALE_MAX:
            raise ValueError(f"Amounts are cut to 0 to {SCALE_MAX} decimals, not {self!r}.")
        if not _within([self.price_scale, self.amount_scale], 0, SCALE_MAX):
            raise ValueError(f"Scales must be 0 to {SCALE_MAX} decimals, not {self!r}.")
        if self.amount_decimals is not None and (self.amount_scale or self.form is LevelForm.GROUP):
            raise ValueError("Amounts may be either scaled or cut, not both.")


def _check(cells: Sequence[int | str], right: bool) -> None:
    if not right or len(set(cells)) != len(cells):
        raise ValueError(f"Not a level shape: {[*cells]}.")


def _within(cells: Sequence[int | str], least: int, most: int) -> bool:
    return all(isinstance(cell, int) and least <= cell <= most for cell in cells)


def _is_name(name: str) -> bool:
    plain = name.isascii() and name.isprintable() and not set(name) & {'"', "\\"}
    return plain and 1 <= len(name) <= NAME_BYTES_MAX


PAIRS: Final = LevelShape.rows()  # [["price","amount",...],...], as most exchanges send


class ChecksumOrder(IntEnum):
    """Order of the levels in a checksum, each side from its best."""

    ASKS_BIDS = 0
    BIDS_ASKS = 1
    IN_TURN = 2  # bid, ask, bid, ask ...


class ChecksumNumber(IntEnum):
    """Format of the numbers in a checksum."""

    DIGITS = 0  # at a fixed number of decimals, without the point and without leading zeros
    TEXT = 1  # shortest decimal text, never with an exponent
    JAVASCRIPT = 2  # like TEXT, but with an exponent below 0.000001: 1.5e-7


class ChecksumLayout(Struct, frozen=True, gc=False):
    """Input of a book's CRC-32; exchanges print the same 32 bits signed or unsigned.

    A shorter side contributes the levels it has; when sides alternate, the longer one continues
    alone. Books store values, not their text: "1.10" and "1.1" are the same amount. Therefore
    `DIGITS` writes `decimals` or, if None, the most decimals that the exchange has sent since the
    last snapshot (none for scaled integers), and the other formats suit only exchanges that do not
    pad numbers.

    Args:
        levels: Maximum levels a side.
        order: Order of the levels.
        number: Format of prices and amounts.
        separator: Between all numbers: empty, or one ASCII character.
        decimals: The decimals of `DIGITS`.
        negative_asks: Whether the amounts of asks have a minus sign.
    """

    levels: int
    order: ChecksumOrder
    number: ChecksumNumber
    separator: str = ""
    decimals: int | None = None
    negative_asks: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.levels <= LEVELS_MAX:
            raise ValueError(f"A checksum covers 0 to {LEVELS_MAX} levels, not {self.levels}.")
        if len(self.separator) > 1 or not self.separator.isascii():
            raise ValueError(f"A separator is one ASCII character, not {self.separator!r}.")
        if self.decimals is not None and (
            self.number is not ChecksumNumber.DIGITS or not 0 <= self.decimals <= SCALE_MAX
        ):
            raise ValueError(
                f"decimals must be 0 to {SCALE_MAX}, and only in a checksum of digits: {self}."
            )


LEVEL_FORM: Final = "=qqQ"  # a packed level: price, amount, and a bit for each contributing member
PART_FORM: Final = "=q"  # a packed amount of one member


LevelRow = tuple[int, int, int]  # price, amount, members


class Levels(Struct, frozen=True, gc=False):
    """The levels of a view as integers, best first: price x 10^-price_scale and so on.

    `bids` and `asks` are packed as `LEVEL_FORM`. `bid_parts` and `ask_parts` are the amounts of the
    members of each level, in the order of the members, packed as `PART_FORM`; empty without
    `split`. If a number exceeds 64 bits, all four are lists of the same values: tuples
    (price, amount, members), and integers.

    `best_bid` and `best_ask` are the first level of each side as such a tuple, None for an empty
    side. A view returns the same object while the level is unchanged, so derived values can be
    cached.
    """

    price_scale: int
    amount_scale: int
    bids: bytes | list[LevelRow]
    asks: bytes | list[LevelRow]
    bid_parts: bytes | list[int]
    ask_parts: bytes | list[int]
    best_bid: LevelRow | None
    best_ask: LevelRow | None


class TapeKind(IntEnum):
    """Kind of a message on a tape."""

    KEYFRAME = 0  # the whole state of a book
    SNAPSHOT = 1  # an exchange's whole book
    DELTA = 2
    TOP = 3  # an overlaid best bid and ask; without levels: there is none
    HEALTH = 4


class TapeColumns(NamedTuple):
    """Messages and their levels as columns of integers of this machine."""

    numbers: bytes  # of each message: 64 bits
    books: bytes  # 32 bits
    kinds: bytes  # 8 bits
    price_scales: bytes  # 8 bits
    amount_scales: bytes  # 8 bits
    received: bytes  # Unix microseconds, never before the one above; 64 bits
    times: bytes  # the exchange's, Unix microseconds; 0 if unknown; 64 bits
    sequences: bytes  # 64 bits
    bid_ends: bytes  # the horizon of a whole book; 0 if all of the side is known; 64 bits
    ask_ends: bytes  # 64 bits
    best_bids: bytes  # of the levels after the message; 0 on an empty side, and of others than
    best_asks: bytes  # keyframes, snapshots and deltas; 64 bits
    bid_starts: bytes  # the first bid of each message, and the number of bids; 32 bits
    ask_starts: bytes  # 32 bits
    bid_prices: Bytes  # of each bid; 64 bits
    bid_amounts: Bytes  # 64 bits
    ask_prices: Bytes  # 64 bits
    ask_amounts: Bytes  # 64 bits
