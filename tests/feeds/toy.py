"""The smallest exchange: one word a line says what its connector answers.

A whole implementation of the connector contract, so that a conversation with a session is readable
as text: `snap A [["1","1"]] [["2","1"]]`, `gap A`, `closing soon`.
"""

from collections.abc import Iterable, Sequence

from msgspec import Raw
from msgspec.structs import replace

from onebook.exchanges.contract import (
    DIGITS_10,
    Acknowledged,
    Alive,
    Closing,
    Delta,
    Exchange,
    Fetch,
    Gap,
    Heartbeat,
    Output,
    ProtocolError,
    Refused,
    Send,
    Snapshot,
    Verify,
)
from onebook.model import Instrument

SNAP = b'snap %b [["100","1"]] [["101","1"]]'
DELTA = b'delta %b [["99","1"]] []'


def snap(native: str = "A") -> bytes:
    return SNAP % native.encode()


def delta(native: str = "A") -> bytes:
    return DELTA % native.encode()


class ToyConnector:
    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self.natives = {each.native: each for each in instruments}

    def opened(self) -> Iterable[Output]:
        if self.natives:
            yield Send(b"subscribe " + " ".join(self.natives).encode())

    def received(self, frame: bytes) -> Iterable[Output]:
        for line in frame.split(b"\n"):
            word, *rest = line.split(b" ")
            if word == b"":
                continue
            if word in (b"closing", b"send", b"garbage", b"bug"):
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
        return Send(text) if word == b"send" else Closing(text.decode())

    def _one(self, word: bytes, instrument: Instrument, rest: list[bytes]) -> Output:
        text = b" ".join(rest)
        match word:
            case b"snap":
                return Snapshot(instrument, Raw(rest[0]), Raw(rest[1]))
            case b"delta":
                return Delta(instrument, Raw(rest[0]), Raw(rest[1]))
            case b"verify":
                return Verify(instrument, DIGITS_10, int(text))
            case b"gap":
                return Gap(instrument, text.decode() or "a hole")
            case b"fetch":
                return Fetch(instrument, f"/book/{instrument.native}")
            case b"ack":
                return Acknowledged(instrument)
            case b"refused":
                return Refused(instrument, text.decode())
            case b"alive":
                return Alive(instrument)
            case _:
                raise ProtocolError("an unknown word", instrument)

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        return self.received(body)

    def resync(self, instrument: Instrument) -> Iterable[Output]:
        yield Send(b"again " + instrument.native.encode())

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        for each in instruments:
            self.natives[each.native] = each
            yield Send(b"subscribe " + each.native.encode())

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        for each in instruments:
            del self.natives[each.native]
            yield Send(b"unsubscribe " + each.native.encode())


def parse_instruments(body: bytes) -> list[Instrument]:
    if body == b"nonsense":
        raise ProtocolError("not a list")
    return [Instrument("toy", f"{native}/USD", native) for native in body.decode().split()]


TOY = Exchange(
    name="toy",
    display="Toy",
    ws_url="ws://127.0.0.1:1/ws",
    rest_url="http://127.0.0.1:1",
    instruments_path="/instruments",
    parse_instruments=parse_instruments,
    connector=ToyConnector,
    depth=0,
    instruments_per_socket=3,
    frames_per_s=1_000.0,
    connects_per_minute=6_000.0,
    fetches_per_minute=60_000.0,
    silence_max_s=10.0,
    quiet_max_s=40.0,
    snapshot_s=5.0,
    lifetime_s=86_400.0,
)
BEATING = replace(TOY, heartbeat=Heartbeat(b"beat", 3.0))
A, B, C, D = (Instrument("toy", f"{native}/USD", native) for native in "ABCD")
