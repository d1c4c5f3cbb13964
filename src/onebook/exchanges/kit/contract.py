"""What a connector is: bytes in, values out, no I/O, no clock, no logging.

A connector knows one exchange's protocol on one connection. The feed owns the socket: it hands
frames to `received`, REST bodies to `fetched`, and executes what comes back. Design:
ARCHITECTURE.md, "Data path".
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Final, Protocol, final, runtime_checkable

from msgspec import Struct

from onebook.core.types import PAIRS, ChecksumLayout, LevelShape
from onebook.exchanges.kit.limits import ExchangeLimits
from onebook.exchanges.kit.moments import UNTIMED, Moment, milliseconds
from onebook.model import Instrument

NO_LEVELS: Final = b"[]"


class Snapshot(Struct, frozen=True, gc=False):
    """The whole book of an instrument: replaces what was there and makes it live.

    Level text is as it came, in a shape that the connector states once: bytes, or msgspec's `Raw`,
    which types as bytes. `levels_asked` is
    the limit of the request: a side with so many levels goes on beyond its last one, unknown to
    us (coverage horizon); 0 where there was none, or where the exchange keeps a window in sync by
    sending what enters and leaves it. `at` is the exchange's own time of the message as it came,
    `UNTIMED` where it names none; `at_ms` converts it.
    """

    instrument: Instrument
    bids: bytes
    asks: bytes = NO_LEVELS
    shape: LevelShape = PAIRS
    levels_asked: int = 0
    at: Moment = UNTIMED

    @property
    def at_ms(self) -> int:
        """The exchange's time of the message in Unix milliseconds; 0 where it names none."""
        return milliseconds(self.at)


@final
class Delta(Struct, frozen=True, gc=False):
    """Changed levels with absolute amounts; 0 removes. `LevelShape` states when all are in `bids`.

    `at` and `at_ms` are those of a `Snapshot`.
    """

    instrument: Instrument
    bids: bytes
    asks: bytes = NO_LEVELS
    shape: LevelShape = PAIRS
    at: Moment = UNTIMED

    @property
    def at_ms(self) -> int:
        """The exchange's time of the message in Unix milliseconds; 0 where it names none."""
        return milliseconds(self.at)


class Verify(Struct, frozen=True, gc=False):
    """The checksum the book must have now, after the values before it."""

    instrument: Instrument
    layout: ChecksumLayout
    expected: int


class Gap(Struct, frozen=True, gc=False):
    """This book can no longer be trusted; the feed marks it stale and calls `resync`."""

    instrument: Instrument
    reason: str


class Send(Struct, frozen=True, gc=False):
    """A text frame to send; the feed paces it.

    An `urgent` one goes ahead of everything that is queued: the answer to a ping of the exchange.
    One that names the time at which it is sent has no `frame`: `dated` writes it of Unix
    milliseconds when it leaves, which may be long after it was queued. `asks` are the books that it
    requests; an unsubscription requests none.
    """

    frame: bytes
    urgent: bool = False
    dated: Callable[[int], bytes] | None = None
    asks: tuple[Instrument, ...] = ()

    def at(self, now_ms: int) -> bytes:
        """Return the frame that leaves at this time."""
        return self.frame if self.dated is None else self.dated(now_ms)


class Fetch(Struct, frozen=True, gc=False):
    """A REST body that is needed: GET `path` below the exchange's REST address.

    `weight` is what it costs of the exchange's request budget. The body comes back by `fetched`.
    A `spare` one is for a book that is live: it yields to every other request, and where it
    brings nothing the book is unchanged.
    """

    instrument: Instrument
    path: str
    weight: int = 1
    spare: bool = False


class Acknowledged(Struct, frozen=True, gc=False):
    """The exchange accepted the subscription; a snapshot is due within `snapshot_s`."""

    instrument: Instrument


class Renewed(Struct, frozen=True, gc=False):
    """A subscription was written again in a request for others, and is acknowledged as at first.

    An exchange may leave it out without an error, and the old book would remain.
    """

    instrument: Instrument


class BookRefused(Struct, frozen=True, gc=False):
    """The exchange will not give this book; its health becomes offline."""

    instrument: Instrument
    reason: str


class BookHalted(Struct, frozen=True, gc=False):
    """The exchange does not trade this instrument now: offline, and subscribed again later."""

    instrument: Instrument
    reason: str


class SnapshotFailed(Struct, frozen=True, gc=False):
    """The exchange did not give the whole book that was asked for; its stream goes on."""

    instrument: Instrument
    reason: str


class Unnamed(Struct, frozen=True, gc=False):
    """An error that names no instrument: about requests that are not acknowledged, no live book."""

    reason: str


class SlowDown(Struct, frozen=True, gc=False):
    """The exchange serves no requests for now: nothing is refused, ask again after a pause.

    It got too many, or is `unavailable`. The latter is about these `instruments` alone where the
    error names them or their request, and may be about one where it names none.
    """

    reason: str
    unavailable: bool = False
    instruments: tuple[Instrument, ...] = ()


class Trading(Struct, frozen=True, gc=False):
    """Whether the exchange matches orders; while it does not, no book may be shown."""

    open: bool
    reason: str = ""


class Ignored(Struct, frozen=True, gc=False):
    """A message without consequences: `known` is False where it is none of this protocol.

    `refused` are the words of an error about a request that subscribes to no book of the connection
    any more, such as an unsubscription.
    """

    known: bool
    refused: str = ""


class Alive(Struct, frozen=True, gc=False):
    """A heartbeat of the exchange: of one instrument, or of the whole connection where None.

    Only what the exchange sends of its own accord; an answer to our ping proves a socket.
    """

    instrument: Instrument | None = None


class Closing(Struct, frozen=True, gc=False):
    """The exchange announced that it ends this connection: open another at once."""

    reason: str


Output = (
    Snapshot
    | Delta
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
# What a frame becomes. A delta that is all of it stands alone: nearly all frames are such.
Outputs = tuple[Output, ...] | Delta
NOTHING: Final[tuple[Output, ...]] = ()
HEARTBEAT: Final[tuple[Output, ...]] = (Alive(),)
EXPECTED: Final[tuple[Output, ...]] = (Ignored(known=True),)
UNKNOWN: Final[tuple[Output, ...]] = (Ignored(known=False),)
ROWS_MAX: Final = 50_000  # rows of an instrument list; the longest known has about 5,000


def each_of(outputs: Outputs, *then: Output) -> tuple[Output, ...]:
    """Return the outputs of a frame as a tuple, whatever their number, and others behind them."""
    return (outputs, *then) if type(outputs) is Delta else (*outputs, *then)


class Instruments(list[Instrument]):
    """An instrument list as it was read; `refused` counts rows whose names are not sound."""

    refused: int = 0


class ProtocolError(Exception):
    """A frame or body that is not what this exchange sends: the one error a connector raises.

    `instrument` is the one that the frame may have touched, None where that cannot be known and
    every instrument of the connection may be touched.
    """

    def __init__(self, reason: str, instrument: Instrument | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.instrument = instrument


class Connector(Protocol):
    """One connection's protocol state. Made anew for every connection."""

    def __init__(self, instruments: Sequence[Instrument]) -> None: ...

    def opened(self) -> Iterable[Output]:
        """The connection is open: what to send first (the subscriptions)."""

    def reader(self) -> Callable[[bytes], Iterable[Output] | Delta | None]:
        """Return what reads frames of books (the hot path); one delta comes without a tuple.

        Of any other frame it returns None or raises one of `frames.UNREADABLE`, and has changed
        nothing: that frame is for `received`.
        """

    def received(self, frame: bytes) -> Iterable[Output]:
        """Act on one frame of any kind.

        Raises:
            ProtocolError: The frame is not this exchange's, or its levels cannot be trusted.
        """

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Act on the body of a `Fetch`.

        Raises:
            ProtocolError: The body is not what was asked for.
        """

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Start these instruments again with as few requests as possible; no other is touched."""

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Subscribe more instruments on the open connection."""

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Unsubscribe; later frames of these instruments are ignored."""


class StreamPosition(Enum):
    """How far a stream has delivered, compared with the REST body its book was seeded with."""

    UNPROVEN = auto()  # nothing delivered since it was subscribed, and nothing known to be missing
    BEHIND = auto()  # the body is newer: the stream must still deliver what lies between
    CURRENT = auto()


@runtime_checkable
class Seeded(Protocol):
    """What a connector has beside `Connector` where REST bodies seed its books."""

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Act on the body of a `Fetch`, as every connector does."""

    def reseed(self, instrument: Instrument) -> Iterable[Output]:
        """Ask for another body while the book stays live and goes on following its stream."""

    def abandon(self, instrument: Instrument) -> None:
        """Expect no body any more from the last `reseed`."""

    def position(self, instrument: Instrument) -> StreamPosition:
        """Compare the stream with the body."""

    def invalidate(self, instrument: Instrument) -> Iterable[Output]:
        """Leave a stream that delivers nothing: the next `resync` subscribes to it anew."""


class ParseInstruments(Protocol):
    """Reads one body of an instrument list; what is not spot or not soundly named is left out."""

    def __call__(self, body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
        """Read a body.

        Raises:
            ProtocolError: It is no such list, or has more rows than `rows_max`.
        """


NextPage = Callable[[Sequence[bytes]], str | None]


class LossDetection(Enum):
    """What shows that a frame of a book was lost."""

    NUMBERS = auto()  # at once: each frame names the state before it
    COUNT = auto()  # at once: frames of the connection are counted, so a loss may be of any book
    CHECKSUM = auto()  # as soon as the levels of the checksum differ
    ORDER = auto()  # nothing: only TCP keeps the frames of a socket together
    WHOLE = auto()  # nothing, and nothing must: each frame has the whole book


class FrameForm(Enum):
    """What a message of the exchange is, in a text or a binary frame."""

    PLAIN = auto()  # what the connector reads
    COMPRESSED = auto()  # the same in gzip or zlib; inflated up to `feeds.frame_bytes_max`
    DEFLATED = auto()  # plain, or by RFC 7692: permessage-deflate is offered in the handshake


class Heartbeat(Struct, frozen=True):
    """A text frame that the client must send every `every_s` seconds.

    One that names the time at which it is sent has no `frame`, as in a `Send`.
    """

    frame: bytes
    every_s: float
    dated: Callable[[int], bytes] | None = None

    def message(self) -> Send:
        """Return it as a frame that goes ahead of all others."""
        return Send(self.frame, urgent=True, dated=self.dated)


class Address(Struct, frozen=True):
    """Where one connection goes, and the heartbeat it must send where the answer names one."""

    url: str
    heartbeat: Heartbeat | None = None


class Connect(Struct, frozen=True):
    """A REST request that comes before each connection: a token, an address.

    Args:
        method: GET or POST; its body is empty.
        path: Below the exchange's REST address.
        address: Reads the answer; raises `ProtocolError` where it holds no address.
        weight: What it costs of the exchange's request budget (`ExchangeLimits.fetches`).
    """

    method: str
    path: str
    address: Callable[[bytes, Sequence[Instrument]], Address]
    weight: int = 1


class Exchange(Struct, frozen=True):
    """The facts of one exchange; each connector module states its own as `EXCHANGE`.

    Args:
        name: The CCXT id.
        display: The name people know.
        ws_url: Where feeds connect (no credentials).
        rest_url: Base of every REST path.
        instruments_path: The REST list of instruments.
        instruments_body: The JSON that is sent to ask for it by POST; None where it is a GET.
        parse_instruments: Reads that list; halted ones keep their status.
        next_page: From the bodies so far, the path of the next one; None after the last.
        connector: Makes the protocol state of one connection.
        connect: What is asked for before each connection, None where `ws_url` suffices.
        depth: Levels a side that the channel gives; 0 where it is unbounded.
        interval_ms: How often the channel sends what changed; 0 in real time, None where the
            exchange does not document it.
        frames: What its messages are; ours are text always.
        frame_bytes: The longest message that it may send, where that is more than
            `feeds.frame_bytes_max` allows by default; 0 elsewhere.
        guard: What shows a lost frame.
        timed: Whether each delta, or each snapshot where there are no deltas, names its time.
        truncate: Whether we must cut the book to `depth` after each change (kraken).
        limits: How much it takes from its clients.
        holds: The HTTP statuses by which it shuts this address out, and for how many seconds
            nothing is sent where its answer does not state it. 418, 429 and 503 need no row.
        heartbeat: What the client must send, None where protocol pings suffice.
        silence_max_s: No frame at all for so long, not even a pong: the socket is dead.
        heartbeat_max_s: No data and no heartbeat of the exchange for so long: the connection
            delivers nothing. None where the exchange promises neither.
        quiet_max_s: No data and no heartbeat for one instrument for so long: it is stale.
        snapshot_s: A subscription must have brought its book after so long.
        lifetime_s: The exchange ends connections of this age.
        former_names: Other names clients may use for it.
        channels: Other book channels of the same exchange, by the name that an operator chooses
            one by (`feeds.overrides.<exchange>.channel`); each has the facts of its own.
        via: The library that owns its sockets (`through_ccxt`), "" where feeds of ours do.
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
    truncate: bool = False
    heartbeat: Heartbeat | None = None
    heartbeat_max_s: float | None = None
    silence_max_s: float = 10.0
    quiet_max_s: float = 600.0
    snapshot_s: float = 10.0
    lifetime_s: float = 86_000.0
    former_names: tuple[str, ...] = ()
    channels: "dict[str, Exchange]" = {}
    via: str = ""
