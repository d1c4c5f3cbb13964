"""What a replay plays: recordings sorted by exchange, reduced to order-book frames by native.

Pure but for reading the files. An exchange is recognised by the host of the recorded URL; what
was recorded from the simulator, by the path. Nobody recorded a list of instruments, so one is
made of the natives that occur.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from onebook.exchanges import EXCHANGES
from onebook.feeds.recording import Entry, Fetched, Opened, Received, RecordingError, read
from onebook.simulator.dialects import DIALECTS
from onebook.simulator.listings import Listing

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
DECIMALS: Final = 8  # what the listing claims; the true steps were not recorded
SEPARATORS: Final = {"okx": "-", "coinbase": "-", "kraken": "/", "poloniex": "_"}
# For natives without a separator, the longest first where one ends another.
QUOTES: Final = (
    *("FDUSD", "USDT", "USDC", "BUSD", "TUSD", "USDE", "USD1", "BIDR", "USD", "EUR", "GBP"),
    *("TRY", "BRL", "ARS", "JPY", "AUD", "DAI", "BTC", "ETH", "BNB", "SOL", "XRP", "TRX"),
)


class Line(NamedTuple):
    """One recorded order-book frame."""

    at: float
    native: str
    frame: str


class Script(NamedTuple):
    """Everything that is recorded of one exchange."""

    name: str
    listings: tuple[Listing, ...]
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
        for name, entries in _by_exchange(read(path), path.name).items():
            lines.setdefault(name, []).extend(_lines(name, entries))
            bodies.setdefault(name, {}).update(_bodies(entries))
    return {name: _script(name, lines[name], bodies[name]) for name in lines}


def _by_exchange(entries: list[Entry], file: str) -> dict[str, list[Entry]]:
    """Sort a file's entries; a received frame belongs to the connection opened last."""
    found: dict[str, list[Entry]] = {}
    owners: dict[str, str] = {}  # of addresses: what was recorded from a simulator shares ports
    connected = ""
    for entry in entries:
        owner = connected
        if isinstance(entry, Opened | Fetched):
            address = urlsplit(entry.url).netloc
            owner = owners.setdefault(address, owners.get(address) or exchange_of(entry.url, file))
        if isinstance(entry, Opened):
            connected = owner
        if not owner:
            raise RecordingError(f"{file} has frames before any connection was opened")
        found.setdefault(owner, []).append(entry)
    return found


def _lines(name: str, entries: list[Entry]) -> list[Line]:
    frames = [(entry.at, entry.frame) for entry in entries if isinstance(entry, Received)]
    texts = [(at, frame.decode(errors="replace")) for at, frame in frames]
    named = [(at, DIALECTS[name].native_of(text), text) for at, text in texts]
    return [Line(at, native, text) for at, native, text in named if native]


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
        raise RecordingError(f"the recording of {name} has no order-book frame of a spot pair")
    listed = {listing.native for listing in listings}
    return Script(name, listings, tuple(line for line in lines if line.native in listed), bodies)


def listing_of(name: str, native: str) -> Listing | None:
    """Make the listing of a native; None where its two sides cannot be told (futures)."""
    separator = SEPARATORS.get(name)
    if separator:
        parts = native.split(separator)
    else:
        quote = next((each for each in QUOTES if native.endswith(each)), "")
        parts = [native.removesuffix(quote), quote]
    if len(parts) != 2 or not all(parts):
        return None
    return Listing("/".join(parts), native, DECIMALS, DECIMALS)


def exchange_of(url: str, file: str) -> str:
    """Find the exchange of a recorded URL.

    Raises:
        RecordingError: It is none that can be replayed, or an older protocol of one.
    """
    parts = urlsplit(url)
    for name, exchange in EXCHANGES.items():
        ours = urlsplit(exchange.ws_url)
        same_path = parts.path.rstrip("/") == ours.path.rstrip("/")
        if parts.hostname in LOOPBACK and same_path:
            return name
        if parts.hostname == urlsplit(exchange.rest_url).hostname and parts.scheme != "wss":
            return name
        if parts.hostname == ours.hostname:
            if same_path:
                return name
            raise RecordingError(
                f"{file} cannot be replayed: it was recorded from {parts.path or '/'} of "
                f"{parts.hostname}, and {exchange.display} is now spoken to at {ours.path}"
            )
    raise RecordingError(
        f"{file} cannot be replayed: {parts.hostname} is none of {', '.join(EXCHANGES)}"
    )
