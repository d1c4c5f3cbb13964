"""Feed hostile bytes to every connector, with a CPU and memory limit for each call.

A program of its own, as the bounds are the process's. A call that raises anything but
`ProtocolError`, names an instrument that is not on the connection, gives a reason without end, or
takes more than `MEMORY_BYTES` more memory ends in a line that says which bytes did it. One that
takes more than `CPU_S` ends the program by SIGPROF; the file PLACE says what was read.

    python tests/contract/fuzz.py PLACE SEED INPUTS SWOLLEN HUGE [SAMPLES]
"""

import json
import mmap
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from contract.recorded import bodies, frames
from contract.talk import Talk, reopened
from contract.test_connectors import SPLINTERS, UNKNOWN_FRAMES
from contract.venue import CHANNELS
from onebook.exchanges.kit import Output, ProtocolError
from onebook.feeds.limits import LIMITS

MEMORY_BYTES: Final = 50 << 20
CPU_S: Final = 5.0  # the largest list takes about a second on a slow machine
REASON_CHARACTERS: Final = 1_000
SAME_CONNECTOR: Final = 10  # inputs that one connector reads, before a new one does
PLACE_BYTES: Final = 512
HARD: Final = resource.getrlimit(resource.RLIMIT_DATA)[1]
RECORDED: Final = 12  # frames of each recording
FRAME_BYTES: Final = LIMITS.frame_bytes_max
# Of a list whose rows are all empty, which costs 30 times its length. `feeds.list_bytes_max` is
# more: Binance's list needs it, with rows of kilobytes.
LIST_BYTES: Final = 3 << 19

VALUES: Final = (
    *(None, True, False, 0, -1, 1.5, 2**63, 2**64, -(2**63), 10**400, 1e308, float("nan")),
    *("", "0", "-1", "NaN", "1e400", "9" * 400, "a" * 5_000, "\0", "\ud800", "币安", "a/b.c"),
    *(
        [],
        {},
        [[]],
        [[[]]],
        [None],
        {"a": {}},
        [["1", "2"]],
        [["1"]],
        [[1, 2, 3, 4, 5]],
        ["x"] * 300,
    ),
)


class Broken(Exception):
    """A call violated a guarantee."""


def mutated(source: random.Random, payload: bytes) -> bytes:
    """Mutate a message, as JSON if it is JSON, and as bytes."""
    try:
        message = json.loads(payload) if source.random() < 0.7 else None
    except ValueError:
        message = None
    if message is None:
        return flipped(source, payload)
    for _ in range(source.randint(1, 3)):
        message = changed(source, message)
    return json.dumps(message, separators=(",", ":")).encode()


def changed(source: random.Random, message: Any) -> Any:
    """Change one place of a decoded message, at a random depth."""
    if isinstance(message, dict) and message and source.random() < 0.9:
        key = source.choice([*message])
        match source.randrange(8):
            case 0:
                return {name: value for name, value in message.items() if name != key}
            case 1:
                other = source.choice([*message])
                return message | {key: message[other]}
            case _:
                return message | {key: changed(source, message[key])}
    if isinstance(message, list) and message and source.random() < 0.9:
        at = source.randrange(len(message))
        match source.randrange(8):
            case 0:
                return message[:at] + message[at + 1 :]
            case 1:
                return message * source.choice((2, 50))
            case _:
                return [*message[:at], changed(source, message[at]), *message[at + 1 :]]
    return source.choice(VALUES)


def flipped(source: random.Random, payload: bytes) -> bytes:
    """Flip, cut, repeat and insert bytes."""
    data = bytearray(payload)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(data) + 1)
        match source.randrange(5):
            case 0 if at < len(data):
                data[at] = source.randrange(256)
            case 1:
                del data[at : at + source.randint(1, 20)]
            case 2:
                data[at:at] = source.choice(SPLINTERS)
            case 3:
                data[at:at] = data[at : at + source.randint(1, 200)]
            case _:
                del data[at:]
    return bytes(data)


def huge(size: int) -> Iterator[bytes]:
    """Inputs of the maximum size, one for each kind that is expensive to decode."""
    for left, fill, right in (
        (b"", b"[", b""),
        (b"", b'{"a":', b""),
        (b"[", b"[],", b"[]]"),
        (b"[", b"{},", b"{}]"),
        (b"[", b"1,", b"1]"),
        (b'{"data":[', b'{"a":1},', b'{}],"channel":"books","event":"update"}'),
        (b'{"', b"a", b'":1}'),
        (b'"', b"\\u0041", b'"'),
        (b"", b"9", b""),
        (b"1e", b"9", b""),
        (b"", b" ", b""),
        (b"", b"\x0a", b""),
        (b"", b"\xff", b""),
    ):
        yield left + fill * ((size - len(left) - len(right)) // len(fill)) + right


HUGE_FRAMES: Final = tuple(huge(FRAME_BYTES))
HUGE_LISTS: Final = tuple(huge(LIST_BYTES))


def growths(payload: bytes) -> Iterator[tuple[Any, tuple[Any, ...], str]]:
    """Each member of a message, with each kind of element that can fill it."""
    try:
        message = json.loads(payload)
    except ValueError:
        return
    for fill in ("[]", '"x"', '["1","2"]', "{}"):
        yield from ((message, place, fill) for place in places(message))


def swollen(message: Any, place: tuple[Any, ...], fill: str) -> bytes:
    """A message with one member grown to the limit."""
    text = json.dumps(put(message, place, "\x01"))
    count = (FRAME_BYTES - len(text)) // (len(fill) + 1) - 1
    return text.replace('"\\u0001"', f"[{(fill + ',') * count}{fill}]", 1).encode()


def places(message: Any, below: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every member of a message that is not inside a list of levels."""
    if len(below) < 4 and isinstance(message, dict):
        for key, value in message.items():
            yield (*below, key)
            yield from places(value, (*below, key))
    elif len(below) < 4 and isinstance(message, list) and message:
        yield from places(message[0], (*below, 0))


def put(message: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The message with another value at one place."""
    if not place:
        return value
    key, *rest = place
    copy = dict(message) if isinstance(message, dict) else [*message]
    copy[key] = put(message[key], tuple(rest), value)
    return copy


class Attack:
    """Fuzzing of one book channel."""

    def __init__(
        self, name: str, source: random.Random, strange: Iterable[bytes], shared: mmap.mmap
    ) -> None:
        self.name = name
        self.calls = 0
        self._shared = shared
        self._exchange = CHANNELS[name]
        self._source = source
        talk = self._talk = Talk(name).open()
        self._instruments = talk.instruments
        for instrument in talk.instruments:
            talk.change(instrument.native)
        self._frames = [step.payload for step in talk.script if step.kind != "body"]
        self._bodies = [step.payload for step in talk.script if step.kind == "body"]
        self._list = talk.venue.listed
        self._strange = [*UNKNOWN_FRAMES[name], *strange]

    def run(self, inputs: int) -> None:
        """Decode recordings of other exchanges, many mutations, and huge inputs."""
        own = [*self._frames, *self._bodies]
        for payload in self._strange:
            self._read_everywhere(payload)
        for _ in range(inputs):
            origin = own if self._source.random() < 0.8 else self._strange
            self._read_everywhere(mutated(self._source, self._source.choice(origin)))
            self._call("parse", self._parse, mutated(self._source, self._list))

    def run_huge(self, swollen_max: int, huge: slice) -> None:
        """Decode inputs of the maximum size that the settings allow."""
        for payload in HUGE_FRAMES[huge]:
            self._read_everywhere(payload)
        for payload in HUGE_LISTS[huge]:
            self._call("parse", self._parse, payload)
        kinds = {payload[:40]: payload for payload in (*self._frames, *self._bodies)}
        grown = [each for payload in kinds.values() for each in growths(payload)]
        for each in self._source.sample(grown, min(swollen_max, len(grown))):
            self._read_everywhere(swollen(*each))

    def _read_everywhere(self, payload: bytes) -> None:
        if self.calls % SAME_CONNECTOR == 0:
            self._connector = reopened(self._talk)
            self._seeded = reopened(self._talk)
        self.calls += 1
        self._call("received", self._connector.received, payload)
        self._call("fetched", partial(self._seeded.fetched, self._instruments[0]), payload)

    def _parse(self, body: bytes) -> Iterable[Output]:
        self._exchange.parse_instruments(body)
        return ()

    def _call(self, what: str, read: Callable[[bytes], Iterable[Output]], payload: bytes) -> None:
        place = f"{self.name} {what} {len(payload)} bytes {payload[:150]!r}"
        self._shared[:] = place.encode()[:PLACE_BYTES].ljust(PLACE_BYTES)
        try:
            with bounded():
                about = {getattr(out, "instrument", None) for out in read(payload)}
        except ProtocolError as error:
            about = {error.instrument}
            if len(error.reason) > REASON_CHARACTERS:
                raise Broken(f"{place}: a reason of {len(error.reason)} characters") from None
        except BaseException as error:
            raise Broken(f"{place}: {type(error).__name__}: {str(error)[:200]}") from error
        if not about <= {None, *self._instruments}:
            raise Broken(f"{place}: about {about}")


@contextmanager
def bounded() -> Iterator[None]:
    """Use at most `MEMORY_BYTES` more memory and `CPU_S` seconds of CPU time."""
    with open("/proc/self/status") as status:
        kib = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    resource.setrlimit(resource.RLIMIT_DATA, (kib * 1_024 + MEMORY_BYTES, HARD))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (HARD, HARD))
        signal.setitimer(signal.ITIMER_PROF, 0)


def recorded(samples: Path) -> Iterator[bytes]:
    """The first frames and bodies of all recordings, in any protocol."""
    for file in sorted((samples / "exchange_frames").iterdir()):
        yield from frames(samples, file.name)[:RECORDED]
        yield from (body for _, body in [*bodies(samples, file.name)][:2])


def main(
    place: str, seed: int, inputs: int, swollen_max: int, huge_step: int, samples: str = ""
) -> None:
    """Attack every channel and print the violations.

    Each channel reads every N-th of the huge inputs, and the next channel those beside them.
    """
    strange = [*recorded(Path(samples))] if samples else []
    calls = 0
    with open(place, "r+b") as file, mmap.mmap(file.fileno(), PLACE_BYTES) as shared:
        for number, name in enumerate(CHANNELS):
            attack = Attack(name, random.Random(f"{seed} {name}"), strange, shared)
            try:
                attack.run(inputs)
                attack.run_huge(swollen_max, slice(number % huge_step, None, huge_step))
            except Broken as broken:
                print(f"seed {seed}: {broken}")
            calls += attack.calls
    print(f"{calls:,} inputs, each read in two ways")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]), *sys.argv[6:])
