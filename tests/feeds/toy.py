"""The smallest exchange: each line has one word that names the connector's output.

A whole implementation of the connector contract, so that a conversation with a session is readable
as text: `snap A [["1","1"]] [["2","1"]]`, `gap A`, `closing soon`. Data may end with its time.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from onebook.core import ChecksumLayout, ChecksumNumber, ChecksumOrder
from onebook.exchanges.kit import (
    ROWS_MAX,
    Acknowledged,
    Alive,
    BookRefused,
    Closing,
    Delta,
    Exchange,
    ExchangeLimits,
    Fetch,
    Gap,
    Heartbeat,
    Ignored,
    Instruments,
    Limit,
    Output,
    ProtocolError,
    Renewed,
    Scope,
    Send,
    SlowDown,
    Snapshot,
    Trading,
    Unnamed,
    Verify,
)
from onebook.model import Instrument

CHECKSUM = ChecksumLayout(10, ChecksumOrder.ASKS_BIDS, ChecksumNumber.DIGITS)
CONNECTION_WIDE = frozenset(
    b"closing send garbage bug beat unnamed slower unavailable trading known unknown urgent".split()
)
SNAP = b'snap %b [["100","1"]] [["101","1"]]'
DELTA = b'delta %b [["99","1"]] []'


def snap(native: str = "A") -> bytes:
    return SNAP % native.encode()


def delta(native: str = "A") -> bytes:
    return DELTA % native.encode()


def time_of(rest: Sequence[bytes]) -> str:
    return rest[2].decode() if len(rest) > 2 else ""


class ToyConnector:
    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self.natives = {each.native: each for each in instruments}

    def opened(self) -> Iterable[Output]:
        if self.natives:
            names = " ".join(self.natives).encode()
            yield Send(b"subscribe " + names, asks=tuple(self.natives.values()))

    def reader(self) -> Callable[[bytes], Iterable[Output] | None]:
        return self.received

    def received(self, frame: bytes) -> Iterable[Output]:
        for line in frame.split(b"\n"):
            word, *rest = line.split(b" ")
            if word == b"":
                continue
            if word in CONNECTION_WIDE:
                yield self._connection_wide(word, rest)
                continue
            instrument = self.natives.get(rest[0].decode())
            if instrument is not None:
                yield self._one(word, instrument, rest[1:])

    def _connection_wide(self, word: bytes, rest: list[bytes]) -> Output:
        text = b" ".join(rest)
        if word == b"garbage":
            raise ProtocolError("nonsense")
        if word == b"bug":
            raise ZeroDivisionError(text.decode())
        match word:
            case b"send":
                return Send(text)
            case b"urgent":
                return Send(text, urgent=True)
            case b"beat":
                return Alive()
            case b"unnamed":
                return Unnamed(text.decode())
            case b"slower":
                return SlowDown(text.decode())
            case b"unavailable":
                return SlowDown(text.decode(), unavailable=True)
            case b"trading":
                return Trading(open=text == b"online", reason=text.decode())
            case b"known" | b"unknown":
                return Ignored(known=word == b"known")
        return Closing(text.decode())

    def _one(self, word: bytes, instrument: Instrument, rest: list[bytes]) -> Output:
        text = b" ".join(rest)
        match word:
            case b"snap":
                return Snapshot(instrument, Raw(rest[0]), Raw(rest[1]), at=time_of(rest))
            case b"delta":
                return Delta(instrument, Raw(rest[0]), Raw(rest[1]), at=time_of(rest))
            case b"verify":
                return Verify(instrument, CHECKSUM, int(text))
            case b"gap":
                return Gap(instrument, text.decode() or "a gap")
            case b"fetch":
                return Fetch(instrument, f"/book/{instrument.native}")
            case b"ack":
                return Acknowledged(instrument)
            case b"renewed":
                return Renewed(instrument)
            case b"refused":
                return BookRefused(instrument, text.decode())
            case b"failed":
                return SlowDown(text.decode(), unavailable=True, instruments=(instrument,))
            case b"alive":
                return Alive(instrument)
            case _:
                raise ProtocolError("an unknown word", instrument)

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        return self.received(body)

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        names = " ".join(each.native for each in instruments).encode()
        yield Send(b"again " + names, asks=tuple(instruments))

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        for each in instruments:
            self.natives[each.native] = each
            yield Send(b"subscribe " + each.native.encode(), asks=(each,))

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        for each in instruments:
            del self.natives[each.native]
            yield Send(b"unsubscribe " + each.native.encode())


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    if body == b"nonsense":
        raise ProtocolError("not a list")
    natives = body.decode().split()
    if len(natives) > rows_max:
        raise ProtocolError(f"the list has {len(natives)} rows, more than {rows_max}")
    found = Instruments(Instrument("toy", f"{each}/USD", each) for each in natives if each != "!")
    found.refused = natives.count("!")
    return found


TOY = Exchange(
    name="toy",
    display="Toy",
    ws_url="ws://127.0.0.1:1/ws",
    rest_url="http://127.0.0.1:1",
    instruments_path="/instruments",
    parse_instruments=parse_instruments,
    connector=ToyConnector,
    depth=0,
    limits=ExchangeLimits(
        topics=3,
        messages=(Limit(1_000, 1.0),),
        connects=(Limit(6_000, 60.0, Scope.ADDRESS),),
        fetches=(Limit(60_000, 60.0, Scope.ADDRESS),),
    ),
    silence_max_s=10.0,
    quiet_max_s=40.0,
    snapshot_s=5.0,
    lifetime_s=86_400.0,
)
BEATING = replace(TOY, heartbeat=Heartbeat(b"beat", 3.0))


def limited(exchange: Exchange, **kinds: Any) -> Exchange:
    """The facts of an exchange with other limits, such as `messages=(Limit(5, 1.0),)`."""
    return replace(exchange, limits=replace(exchange.limits, **kinds))


def paced(exchange: Exchange) -> Exchange:
    """The facts of a simulated exchange after `admit_all`: no request waits.

    Binance's limit of messages stays, as its simulator enforces that one always.
    """
    own = exchange.limits.messages
    return limited(
        exchange,
        messages=own if exchange.name == "binance" else (Limit(50, 1.0),),
        requests=(),
        connects=(Limit(6_000, 60.0, Scope.ADDRESS),),
        fetches=(Limit(10_000, 1.0, Scope.ADDRESS),),
    )


A, B, C, D = (Instrument("toy", f"{native}/USD", native) for native in "ABCD")
