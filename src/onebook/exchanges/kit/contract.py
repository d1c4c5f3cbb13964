"""The interface of connectors: bytes in, values out; no I/O, no clock, no logging.

A connector implements one exchange's protocol on one connection. The feed owns the socket: it
passes frames to `received` and REST bodies to `fetched`, and executes the outputs that they return.
An `Exchange` states the facts of an exchange. Design: ARCHITECTURE.md, "Data path".
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Final, Protocol, final, runtime_checkable

from msgspec import Struct

from onebook.clock import us_of_iso
from onebook.core.types import PAIRS, ChecksumLayout, LevelShape
from onebook.exchanges.kit.limits import ExchangeLimits
from onebook.model import Instrument

NO_LEVELS: Final = b"[]"

# A timestamp as the exchange sends it: Unix time in ms, us or ns, as a number or its digits, or ISO
# 8601 text. Connectors do not parse it, because few are used; see `milliseconds`.
Moment = int | str
UNTIMED: Final = 0
TIME_CHARACTERS_MAX: Final = 40  # a longer text is not a time
# Larger numbers are in the next smaller unit: as ms they would be years after 5138, and the same
# digits as us or ns are years before 1973.
MILLISECONDS_MAX: Final = 10**14
MICROSECONDS_MAX: Final = 10**17
NANOSECONDS_MAX: Final = 10**20


def milliseconds(at: Moment) -> int:
    """Convert an exchange's timestamp to Unix milliseconds, rounded down; 0 if it is invalid.

    Text without a time zone is UTC.
    """
    return microseconds(at) // 1_000


def microseconds(at: Moment) -> int:
    """Convert an exchange's timestamp to Unix microseconds, rounded down; 0 if it is invalid.

    Text without a time zone is UTC.
    """
    if isinstance(at, int):
        number = at
    elif len(at) > TIME_CHARACTERS_MAX:
        return UNTIMED
    elif at.isdecimal():
        number = int(at)
    else:
        try:
            return max(us_of_iso(at), UNTIMED)
        except ValueError:
            return UNTIMED
    if number < MILLISECONDS_MAX:
        return max(number, UNTIMED) * 1_000
    if number < MICROSECONDS_MAX:
        return number
    return number // 1_000 if number < NANOSECONDS_MAX else UNTIMED


class Snapshot(Struct, frozen=True, gc=False):
    """The whole book of an instrument: replaces the previous book and makes it live.

    Args:
        instrument: The instrument.
        bids, asks: Raw text of the levels: bytes, or msgspec's `Raw`, which is typed as bytes.
        shape: How a level is written.
        levels_asked: The limit of the request: a side with this many levels may continue beyond the
            last one (coverage horizon). 0 if there was no limit, or if the exchange keeps a window
            in sync by sending the levels that enter and leave it.
        at: The exchange's time of the message as it was sent; `UNTIMED` if absent.
        sequence: The exchange's number of this state of the market; 0 if absent.
    """

    instrument: Instrument
    bids: bytes
    asks: bytes = NO_LEVELS
    shape: LevelShape = PAIRS
    levels_asked: int = 0
    at: Moment = UNTIMED
    sequence: int = 0

    @property
    def at_ms(self) -> int:
        """The exchange's time of the message in Unix milliseconds; 0 if absent."""
        return milliseconds(self.at)


@final
class Delta(Struct, frozen=True, gc=False):
    """Changed levels with absolute amounts; 0 removes a level.

    The fields are those of a `Snapshot`. `LevelShape` states whether `bids` holds the levels of
    both sides.
    """

    instrument: Instrument
    bids: bytes
    asks: bytes = NO_LEVELS
    shape: LevelShape = PAIRS
    at: Moment = UNTIMED
    sequence: int = 0

    @property
    def at_ms(self) -> int:
        """The exchange's time of the message in Unix milliseconds; 0 if absent."""
        return milliseconds(self.at)


@final
class TopOfBook(Struct, frozen=True, gc=False):
    """The best bid and ask from a faster channel than the depth: at most one level a side.

    A side without a level, or with an amount of zero, is empty. `sequence` numbers the states of
    the market as in a `Delta` or `Snapshot`: both channels must share one counter
    (`onebook.fusing`).
    """

    instrument: Instrument
    sequence: int
    bids: bytes
    asks: bytes
    shape: LevelShape = PAIRS
    at: Moment = UNTIMED


class Verify(Struct, frozen=True, gc=False):
    """Checksum of the book after the preceding outputs."""

    instrument: Instrument
    layout: ChecksumLayout
    expected: int


class Gap(Struct, frozen=True, gc=False):
    """This book can no longer be trusted; the feed marks it stale and calls `resync`."""

    instrument: Instrument
    reason: str


class Send(Struct, frozen=True, gc=False):
    """A text frame to send; the feed paces it.

    Args:
        frame: The frame; empty if `dated` writes it.
        urgent: It is sent ahead of all queued frames, such as the answer to the exchange's ping.
        dated: Writes a frame that contains its sending time, from Unix milliseconds at the moment
            it is sent, which may be long after it was queued.
        asks: The instruments whose books it requests; none for an unsubscription.
    """

    frame: bytes
    urgent: bool = False
    dated: Callable[[int], bytes] | None = None
    asks: tuple[Instrument, ...] = ()

    def at(self, now_ms: int) -> bytes:
        """Return the frame to send at this time."""
        return self.frame if self.dated is None else self.dated(now_ms)


class Fetch(Struct, frozen=True, gc=False):
    """A REST request: GET `path` below the exchange's REST address; the body goes to `fetched`.

    Args:
        instrument: The instrument whose book it requests.
        path: Path and query.
        weight: Its cost in the exchange's request budget.
        spare: It refreshes a live book: it yields to all other requests, and if it fails the book
            is unchanged.
    """

    instrument: Instrument
    path: str
    weight: int = 1
    spare: bool = False


class Acknowledged(Struct, frozen=True, gc=False):
    """The exchange accepted a subscription; its snapshot is due within `snapshot_s`."""

    instrument: Instrument


class Renewed(Struct, frozen=True, gc=False):
    """A subscription was repeated in a request for others; another acknowledgement is expected.

    The exchange may drop it without an error, and the old book would remain.
    """

    instrument: Instrument


class BookRefused(Struct, frozen=True, gc=False):
    """The exchange refused this book; its health becomes offline."""

    instrument: Instrument
    reason: str


class BookHalted(Struct, frozen=True, gc=False):
    """The exchange has halted this instrument: offline, and subscribed again later."""

    instrument: Instrument
    reason: str


class SnapshotFailed(Struct, frozen=True, gc=False):
    """The exchange refused a requested snapshot; the subscription continues."""

    instrument: Instrument
    reason: str


class Unnamed(Struct, frozen=True, gc=False):
    """An error without an instrument: it concerns unacknowledged requests, not live books."""

    reason: str


class SlowDown(Struct, frozen=True, gc=False):
    """The exchange serves no requests for now: nothing is refused, requests are retried later.

    Args:
        reason: The exchange's message.
        unavailable: The exchange is unavailable; otherwise it received too many requests.
        instruments: If unavailable, the instruments that the error or its request names. Without
            any the error may concern just one unknown instrument.
    """

    reason: str
    unavailable: bool = False
    instruments: tuple[Instrument, ...] = ()


class Trading(Struct, frozen=True, gc=False):
    """Whether the exchange matches orders; if it does not, books are not shown."""

    open: bool
    reason: str = ""


class Ignored(Struct, frozen=True, gc=False):
    """A message that requires no action.

    Args:
        known: False if the message is not part of this protocol.
        refused: The message of an error about a request without current books, such as an
            unsubscription.
    """

    known: bool
    refused: str = ""


class Alive(Struct, frozen=True, gc=False):
    """A heartbeat of the exchange for one instrument, or for the whole connection if None.

    Only for messages that the exchange sends unasked: an answer to our ping proves only the socket.
    """

    instrument: Instrument | None = None


class Closing(Struct, frozen=True, gc=False):
    """The exchange announced that it will end this connection: open another one now."""

    reason: str


Output = (
    Snapshot
    | Delta
    | TopOfBook
    | Verify
    | Gap
    | Send
    | Fetch
    | Acknowledged
    | Renewed
    | BookRefused
    | BookHalted
    | SnapshotFailed
    | Unnamed
    | SlowDown
    | Trading
    | Ignored
    | Alive
    | Closing
)
# Outputs of one frame. Nearly all frames have a single delta, which is not wrapped in a tuple.
Outputs = tuple[Output, ...] | Delta | TopOfBook
NOTHING: Final[tuple[Output, ...]] = ()
HEARTBEAT: Final[tuple[Output, ...]] = (Alive(),)
EXPECTED: Final[tuple[Output, ...]] = (Ignored(known=True),)
UNKNOWN: Final[tuple[Output, ...]] = (Ignored(known=False),)
ROWS_MAX: Final = 50_000  # rows of an instrument list; the longest known one has about 5,000


def each_of(outputs: Outputs, *then: Output) -> tuple[Output, ...]:
    """Return the outputs of a frame as a tuple, followed by others."""
    if type(outputs) is Delta or type(outputs) is TopOfBook:
        return (outputs, *then)
    return (*outputs, *then)


class Instruments(list[Instrument]):
    """A parsed instrument list; `refused` counts rows with unsafe names."""

    refused: int = 0


class ProtocolError(Exception):
    """An invalid frame or body of an exchange: the only exception that a connector raises.

    `instrument` is the one that the frame may have changed; None if it may be any instrument of the
    connection.
    """

    def __init__(self, reason: str, instrument: Instrument | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.instrument = instrument


class Connector(Protocol):
    """The protocol state of one connection; each connection gets a new one."""

    def __init__(self, instruments: Sequence[Instrument]) -> None: ...

    def opened(self) -> Iterable[Output]:
        """Return what to send on the open connection: the subscriptions."""

    def reader(self) -> Callable[[bytes], Iterable[Output] | Delta | TopOfBook | None]:
        """Return the function that processes frames of books (the hot path).

        It returns a single delta or top without a tuple. For any other frame it returns None or
        raises one of `codec.UNREADABLE`, and has changed nothing: such a frame is passed to
        `received`.
        """

    def received(self, frame: bytes) -> Iterable[Output]:
        """Process one frame of any kind.

        Raises:
            ProtocolError: The frame is invalid, or its levels are.
        """

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Process the body of a `Fetch`.

        Raises:
            ProtocolError: The body is not a book.
        """

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Request new snapshots of these instruments with as few requests as possible."""

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Subscribe to more instruments on the open connection."""

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Unsubscribe from instruments; their later frames are ignored."""


class StreamPosition(Enum):
    """State of a stream compared with the REST body that seeded its book."""

    UNPROVEN = auto()  # nothing delivered since the subscription, nothing known to be missing
    BEHIND = auto()  # the body is newer: the changes up to it are still due
    CURRENT = auto()


@runtime_checkable
class Seeded(Protocol):
    """The part of a connector whose books are seeded by REST bodies; see also `Connector`."""

    @property
    def comparable(self) -> bool:
        """Whether bodies come by REST and have the numbers of the stream.

        What `fetched` returns for a live book must then equal the book.
        """

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Process the body of a `Fetch`, as every connector does."""

    def reseed(self, instrument: Instrument) -> Iterable[Output]:
        """Request another body; the book stays live and continues to apply its stream."""

    def abandon(self, instrument: Instrument) -> None:
        """Stop waiting for the body of the last `reseed`."""

    def position(self, instrument: Instrument) -> StreamPosition:
        """Compare the stream with the body."""

    def invalidate(self, instrument: Instrument) -> Iterable[Output]:
        """Unsubscribe from a dead stream; the next `resync` subscribes to it again."""


class ParseInstruments(Protocol):
    """Parses an instrument list; skips rows that are not spot or have unsafe names."""

    def __call__(self, body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
        """Parse a body.

        Raises:
            ProtocolError: The body is not such a list, or has more rows than `rows_max`.
        """


NextPage = Callable[[Sequence[bytes]], str | None]


class LossDetection(Enum):
    """How the loss of a frame of a book is detected."""

    NUMBERS = auto()  # immediately: each frame names the previous state
    COUNT = auto()  # immediately, for all books: the exchange counts the frames of a connection
    CHECKSUM = auto()  # once the levels of the checksum differ
    ORDER = auto()  # not at all: only TCP keeps the frames of a socket in order
    WHOLE = auto()  # not needed: each frame has the whole book


class FrameForm(Enum):
    """Encoding of the exchange's messages, in text or binary frames."""

    PLAIN = auto()  # as the connector decodes them
    COMPRESSED = auto()  # in gzip or zlib; each inflated up to a limit
    DEFLATED = auto()  # plain, or by RFC 7692: permessage-deflate is offered in the handshake


class Heartbeat(Struct, frozen=True):
    """A text frame that the client must send every `every_s` seconds.

    `dated` writes a frame that contains its sending time, as in a `Send`.
    """

    frame: bytes
    every_s: float
    dated: Callable[[int], bytes] | None = None

    def message(self) -> Send:
        """Return the heartbeat as an urgent frame."""
        return Send(self.frame, urgent=True, dated=self.dated)


class Address(Struct, frozen=True):
    """The address of one connection, and its heartbeat if the exchange's answer has one."""

    url: str
    heartbeat: Heartbeat | None = None


class Connect(Struct, frozen=True):
    """A REST request before each connection, for a token or an address.

    Args:
        method: GET or POST; its body is empty.
        path: Below the exchange's REST address.
        address: Parses the answer; raises `ProtocolError` if it contains no address.
        weight: Its cost in the exchange's request budget (`ExchangeLimits.fetches`).
    """

    method: str
    path: str
    address: Callable[[bytes, Sequence[Instrument]], Address]
    weight: int = 1


class ServerTime(Struct, frozen=True):
    """A REST request for the exchange's time (GET), which bounds the offset of its clock.

    Args:
        path: Below the exchange's REST address.
        member: The member of the answer with the time, as `data.0.ts`; "" if the answer is the
            time.
        weight: Its cost in the exchange's request budget (`ExchangeLimits.fetches`).
    """

    path: str
    member: str = ""
    weight: int = 1


class Exchange(Struct, frozen=True):
    """The facts of one exchange; each connector module defines them as `EXCHANGE`.

    Args:
        name: The CCXT id.
        display: Its usual name.
        ws_url: WebSocket address of the feeds (without credentials).
        rest_url: Base address of every REST path.
        instruments_path: REST path of the instrument list.
        instruments_body: JSON body to request the list by POST; None for GET.
        parse_instruments: Parses the list; halted instruments keep their status.
        next_page: Returns the path of the next page from the bodies so far; None after the last.
        connector: Makes the protocol state of one connection.
        connect: Request before each connection; None if `ws_url` suffices.
        depth: Levels a side of the channel; 0 if unbounded.
        interval_ms: Interval of the channel's updates; 0 in real time, None if undocumented.
        frames: Encoding of the exchange's messages; ours are always text.
        frame_bytes: Longest message of the exchange, if over 4 MiB (`FeedLimits.frame_bytes_max`);
            0 otherwise.
        guard: How a lost frame is detected.
        timed: Whether each delta (each snapshot if there are no deltas) contains its time.
        time: Request for the exchange's time; None if it has none, or only in whole seconds.
        lists_fees: Whether the instrument list states the taker fee of each pair, or its class.
        tops: Whether the channel sends a `TopOfBook` numbered like its levels.
        truncate: Whether the book must be cut to `depth` after each change (kraken).
        limits: Rate limits and connection limits.
        holds: HTTP statuses of an address ban, each with the seconds without requests if the
            response does not state them. 418, 429 and 503 need no row.
        heartbeat: Heartbeat that the client must send; None if protocol pings suffice.
        silence_max_s: Seconds without any frame, pongs included, before the socket is dead.
        heartbeat_max_s: Seconds without data and heartbeats before the connection is dead; None if
            the exchange promises neither.
        quiet_max_s: Seconds without data and heartbeats of one instrument before it is stale.
        snapshot_s: Seconds within which a subscription must deliver its book.
        lifetime_s: Age at which the exchange ends connections, in seconds.
        former_names: Other names that clients may use.
        channels: Other book channels of this exchange by name, each with its own facts; operators
            choose one with `feeds.overrides.<exchange>.channel`.
        key_header: Header of the handshake with the operator's API key
            (`feeds.overrides.<exchange>.api_key`); "" if the channel needs no key.
        instead: The channel that is used instead where the handshake is refused for the key; None
            if there is no other.
        via: The library that owns the sockets (`through_ccxt`); "" for our own feeds.
    """

    name: str
    display: str
    ws_url: str
    rest_url: str
    instruments_path: str
    parse_instruments: ParseInstruments
    connector: Callable[[Sequence[Instrument]], Connector]
    depth: int
    limits: ExchangeLimits
    interval_ms: int | None = None
    holds: dict[int, float] = {}
    frames: FrameForm = FrameForm.PLAIN
    frame_bytes: int = 0
    guard: LossDetection = LossDetection.NUMBERS
    timed: bool = True
    next_page: NextPage | None = None
    instruments_body: bytes | None = None
    connect: Connect | None = None
    time: ServerTime | None = None
    lists_fees: bool = False
    tops: bool = False
    truncate: bool = False
    heartbeat: Heartbeat | None = None
    heartbeat_max_s: float | None = None
    silence_max_s: float = 10.0
    quiet_max_s: float = 600.0
    snapshot_s: float = 10.0
    lifetime_s: float = 86_000.0
    former_names: tuple[str, ...] = ()
    channels: "dict[str, Exchange]" = {}
    key_header: str = ""
    instead: "Exchange | None" = None
    via: str = ""
