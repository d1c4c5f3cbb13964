"""What a connector is: bytes in, values out, no I/O, no clock, no logging.

A connector knows one exchange's protocol on one connection. The feed owns the socket: it hands
frames to `received`, REST bodies to `fetched`, and carries out what comes back. Design:
ARCHITECTURE.md, "The walk of a frame".
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from onebook.model import Instrument

# Shapes of level text that the core can scan.
PAIRS: Final = 0  # [["price","amount",...],...]; what follows the amount is ignored
OBJECTS: Final = 1  # [{"price":...,"qty":...},...]
SIDED: Final = 2  # [["buy"|"sell","price","amount"],...], both sides in one list

# Layouts of book checksums that exchanges send.
DIGITS_10: Final = "digits_10"  # kraken: 10 asks then 10 bids, digits only, unsigned CRC-32
TEXT_25: Final = "text_25"  # okx until 2026: 25 interleaved bid:ask `price:size`, signed CRC-32

NO_LEVELS: Final = b"[]"


class Snapshot(Struct, frozen=True, gc=False):
    """The whole book of an instrument: replaces what was there and makes it live.

    Level text is as it came: bytes, or msgspec's `Raw`, which types as bytes.
    """

    instrument: Instrument
    bids: bytes
    asks: bytes = NO_LEVELS
    shape: int = PAIRS


class Delta(Struct, frozen=True, gc=False):
    """Changed levels with absolute amounts; 0 removes. For `SIDED`, all are in `bids`."""

    instrument: Instrument
    bids: bytes
    asks: bytes = NO_LEVELS
    shape: int = PAIRS


class Verify(Struct, frozen=True, gc=False):
    """The checksum the book must have now, after the values before it."""

    instrument: Instrument
    layout: str
    expected: int


class Gap(Struct, frozen=True, gc=False):
    """This book can no longer be trusted; the feed marks it stale and calls `resync`."""

    instrument: Instrument
    reason: str


class Send(Struct, frozen=True, gc=False):
    """A text frame to send; the feed paces it."""

    frame: bytes


class Fetch(Struct, frozen=True, gc=False):
    """A REST body that is needed: GET `path` below the exchange's REST address.

    `weight` is what it costs of the exchange's request budget. The body comes back by `fetched`.
    """

    instrument: Instrument
    path: str
    weight: int = 1


class Acknowledged(Struct, frozen=True, gc=False):
    """The exchange accepted the subscription; a snapshot is due within `snapshot_s`."""

    instrument: Instrument


class Refused(Struct, frozen=True, gc=False):
    """The exchange will not give this book; its health becomes offline."""

    instrument: Instrument
    reason: str


class Alive(Struct, frozen=True, gc=False):
    """A sign of life for one instrument, without data: its book stays fresh."""

    instrument: Instrument


class Closing(Struct, frozen=True, gc=False):
    """The exchange announced that it ends this connection: open another at once."""

    reason: str


Output = Snapshot | Delta | Verify | Gap | Send | Fetch | Acknowledged | Refused | Alive | Closing
NOTHING: Final[tuple[Output, ...]] = ()


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

    def received(self, frame: bytes) -> Iterable[Output]:
        """Act on one frame (the hot path).

        Raises:
            ProtocolError: The frame is not this exchange's, or its levels cannot be trusted.
        """

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Act on the body of a `Fetch`.

        Raises:
            ProtocolError: The body is not what was asked for.
        """

    def resync(self, instrument: Instrument) -> Iterable[Output]:
        """Start this one instrument again; no other is touched."""

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Subscribe more instruments on the open connection."""

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Unsubscribe; later frames of these instruments are ignored."""


class Heartbeat(Struct, frozen=True):
    """A text frame that the client must send every `every_s` seconds."""

    frame: bytes
    every_s: float


class Exchange(Struct, frozen=True):
    """The facts of one exchange; each connector module states its own as `EXCHANGE`.

    Args:
        name: The CCXT id.
        display: The name people know.
        ws_url: Where feeds connect (no credentials).
        rest_url: Base of every REST path.
        instruments_path: The REST list of instruments.
        parse_instruments: Reads that list; halted ones keep their status.
        connector: Makes the protocol state of one connection.
        depth: Levels a side that the channel gives; 0 where it is unbounded.
        truncate: Whether we must cut the book to `depth` after each change (kraken).
        instruments_per_socket: How many share one connection.
        frames_per_s: The most text frames a client may send each second.
        connects_per_minute: The most connection attempts.
        fetches_per_minute: The REST budget, in the exchange's own weight units.
        heartbeat: What the client must send, None where protocol pings suffice.
        silence_max_s: No frame at all for so long: the connection is dead.
        quiet_max_s: No data and no sign of life for one instrument for so long: it is stale.
        snapshot_s: A subscription must have brought its book after so long.
        lifetime_s: The exchange ends connections of this age.
        former_names: Other names clients may use for it.
    """

    name: str
    display: str
    ws_url: str
    rest_url: str
    instruments_path: str
    parse_instruments: Callable[[bytes], list[Instrument]]
    connector: Callable[[Sequence[Instrument]], Connector]
    depth: int
    instruments_per_socket: int
    frames_per_s: float
    connects_per_minute: float
    fetches_per_minute: float
    truncate: bool = False
    heartbeat: Heartbeat | None = None
    silence_max_s: float = 10.0
    quiet_max_s: float = 600.0
    snapshot_s: float = 10.0
    lifetime_s: float = 86_000.0
    former_names: tuple[str, ...] = ()
