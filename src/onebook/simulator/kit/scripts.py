"""What a replay plays: recordings sorted by exchange, reduced to order-book frames by native.

Pure but for reading the files. An exchange is recognised by the host of the recorded URL; what
was recorded from the simulator, by the path, and by the frames where a path is shared: of those
that speak one protocol it is the first. Recordings have no list of instruments, so one is made of
the natives that occur.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from onebook.exchanges import EXCHANGES
from onebook.feeds.recording import ConnectionOpened, Entry, Fetched, Received, RecordingError, read
from onebook.simulator.kit.board import Frame
from onebook.simulator.kit.dialects import DIALECTS
from onebook.simulator.kit.listings import ListedSymbol

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
NATIVE_CHARACTERS_MAX: Final = 64  # of the names of pairs
DECIMALS: Final = 8  # what the listing claims; the true steps were not recorded
# For natives without a separator, the longest first where one ends another.
QUOTES: Final = (
    *("FDUSD", "USDT", "USDC", "BUSD", "TUSD", "USDE", "USD1", "BIDR", "USD", "EUR", "GBP"),
    *("TRY", "BRL", "ARS", "JPY", "AUD", "DAI", "BTC", "ETH", "BNB", "SOL", "XRP", "TRX"),
)


class Line(NamedTuple):
    """One recorded order-book frame."""

    at: float
    native: str
    frame: Frame


class Script(NamedTuple):
    """Everything that is recorded of one exchange."""

    name: str
    listings: tuple[ListedSymbol, ...]
    lines: tuple[Line, ...]  # in recorded order
    bodies: dict[str, bytes]  # REST books by native


def scripts(paths: Iterable[Path]) -> dict[str, Script]:
    """Read recordings into one script for each exchange.

    Raises:
        RecordingError: A file is no recording, or nothing in it can be replayed.
    """
    lines: dict[str, list[Line]] = {}
    bodies: dict[str, dict[str, bytes]] = {}
    for path in paths:
        for name, entries in by_exchange(read(path), path.name).items():
            lines.setdefault(name, []).extend(_lines(name, entries))
            bodies.setdefault(name, {}).update(_bodies(entries))
    return {name: _script(name, lines[name], bodies[name]) for name in lines}


def by_exchange(entries: list[Entry], file: str) -> dict[str, list[Entry]]:
    """Sort a file's entries; a received frame belongs to the connection opened last."""
    found: dict[str, list[Entry]] = {}
    owners: dict[str, str] = {}  # of addresses: what was recorded from a simulator shares ports
    connected = ""
    for at, entry in enumerate(entries):
        owner = connected
        if isinstance(entry, ConnectionOpened | Fetched):
            address = urlsplit(entry.url).netloc
            if address not in owners:
                owners[address] = exchange_of(entry.url, file, _texts(entries[at:]))
            owner = owners[address]
        if isinstance(entry, ConnectionOpened):
            connected = owner
        if not owner:
            raise RecordingError(f"{file} has frames before any connection was opened.")
        found.setdefault(owner, []).append(entry)
    return found


def _texts(entries: Iterable[Entry]) -> Iterator[str]:
    """The frames that came, as text."""
    return (each.frame.decode(errors="replace") for each in entries if isinstance(each, Received))


def _lines(name: str, entries: list[Entry]) -> list[Line]:
    frames = [(entry.at, entry.frame) for entry in entries if isinstance(entry, Received)]
    messages = [(at, message_of(frame)) for at, frame in frames]
    named = [(at, native_of(name, frame), frame) for at, frame in messages]
    return [Line(at, native, frame) for at, native, frame in named if native]


def native_of(name: str, frame: Frame) -> str | None:
    """The native whose order book a recorded frame carries; None for any other frame.

    Dialects read their own frames. One that is damaged, or of another protocol, fails there with
    whatever its shape leads to, and is no order-book frame.
    """
    try:
        native = DIALECTS[name].native_of(frame)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError, ArithmeticError):
        return None
    return native if isinstance(native, str) and len(native) <= NATIVE_CHARACTERS_MAX else None


def message_of(frame: bytes) -> Frame:
    """A recorded frame as it is sent: what is no text is binary."""
    try:
        return frame.decode()
    except UnicodeDecodeError:
        return frame


def _bodies(entries: list[Entry]) -> dict[str, bytes]:
    """The first REST book of each native: the one that its first frames join."""
    found: dict[str, bytes] = {}
    for entry in entries:
        if isinstance(entry, Fetched):
            for native in parse_qs(urlsplit(entry.url).query).get("symbol", []):
                found.setdefault(native, entry.body)
    return found


def _script(name: str, lines: list[Line], bodies: dict[str, bytes]) -> Script:
    natives = dict.fromkeys(line.native for line in lines)
    listings = tuple(filter(None, (listing_of(name, native) for native in natives)))
    if not listings:
        raise RecordingError(f"The recording of {name} has no order-book frame of a spot pair.")
    listed = {listing.native for listing in listings}
    return Script(name, listings, tuple(line for line in lines if line.native in listed), bodies)


def listing_of(name: str, native: str) -> ListedSymbol | None:
    """Make the listing of a native; None where its two sides cannot be separated (futures)."""
    simulated = DIALECTS[name].listings
    known = next((each.symbol for each in simulated if each.native == native), None)
    if known is not None:
        return ListedSymbol(known, native, DECIMALS, DECIMALS)
    example = simulated[0]
    separator = example.native.upper().removeprefix(example.base).removesuffix(example.quote)
    text = native.upper()
    if separator:
        parts = text.split(separator)
    else:
        quote = next((each for each in QUOTES if text.endswith(each)), "")
        parts = [text.removesuffix(quote), quote]
    if len(parts) != 2 or not all(parts):
        return None
    return ListedSymbol("/".join(parts), native, DECIMALS, DECIMALS)


def exchange_of(url: str, file: str, frames: Iterable[str] = ()) -> str:
    """Find the exchange of a recorded URL, by the frames that follow where several could be it.

    Raises:
        RecordingError: It is none that can be replayed, or an older protocol of one.
    """
    parts = urlsplit(url)
    if parts.hostname in LOOPBACK:
        names = [name for name, each in EXCHANGES.items() if _same_path(each.ws_url, url)]
        known = (name for frame in frames for name in names if native_of(name, frame))
        if names:
            return names[0] if len(names) == 1 else next(known, names[0])
    for name, exchange in EXCHANGES.items():
        ours = urlsplit(exchange.ws_url)
        if parts.hostname == urlsplit(exchange.rest_url).hostname and parts.scheme != "wss":
            return name
        if parts.hostname == ours.hostname:
            if _same_path(exchange.ws_url, url):
                return name
            raise RecordingError(
                f"{file} cannot be replayed: it was recorded from {parts.path or '/'} of "
                f"{parts.hostname}, and {exchange.display} is now spoken to at {ours.path}."
            )
    raise RecordingError(
        f"{file} cannot be replayed: {parts.hostname} is none of {', '.join(EXCHANGES)}."
    )


def _same_path(ours: str, theirs: str) -> bool:
    return urlsplit(ours).path.rstrip("/") == urlsplit(theirs).path.rstrip("/")
