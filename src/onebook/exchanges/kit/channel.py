"""What an exchange states of its order book channel, and what its other frames mean.

An exchange states a `BookChannel`: pure module-level functions that write requests and read frames,
and what `engine` must know of them. An `Event` is what `control` makes of a frame without data.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from msgspec import Struct

from onebook.exchanges.kit.contract import Alive, Closing, Ignored, Outputs, Send, SlowDown, Trading
from onebook.exchanges.kit.moments import UNTIMED, Moment
from onebook.exchanges.kit.roster import native
from onebook.exchanges.kit.sync import Tracker, Trackers
from onebook.model import Instrument


class Accepted(Struct, frozen=True):
    """The exchange accepted subscriptions: by name, or those of a numbered request.

    `channel` is the id that frames of the name carry (`BookChannel.channel_ids`). `lists_all`
    means that the answer names all that is accepted of its request: the others are refused.
    """

    names: Sequence[str] = ()
    number: int | str | None = None
    channel: int | None = None
    lists_all: bool = False


class RequestRejected(Struct, frozen=True):
    """The exchange refused a request.

    Args:
        words: Its reason; names in it are the ones that are refused.
        names: Those that it states apart from its reason.
        number: Of the request; None where this exchange does not number them.
        whole: One bad name costs the whole request: the others of it are subscribed again.
        repeated: The names are subscribed already, which is no refusal.
        code: Of the error, where the exchange has codes: see `BookChannel.too_many` and
            `unavailable`.
    """

    words: str
    number: int | str | None = None
    whole: bool = False
    repeated: bool = False
    names: Sequence[str] = ()
    code: int | str | None = None


class BookFrame(Struct, frozen=True):
    """A frame of a book that `data` did not take: it is damaged, or its book is not followed.

    `name` is "" where it names none or several, or where it has a `channel` id instead.
    """

    name: str = ""
    channel: int | None = None


class SocketSeed(Struct, frozen=True):
    """The whole book of a name, as it was requested on the socket (`BookChannel.request`)."""

    name: str
    bids: bytes
    asks: bytes
    sequence: int
    at: Moment = UNTIMED


class SeedRefused(Struct, frozen=True):
    """The whole book of a name will not come; its subscription is not touched."""

    name: str
    words: str
    code: int | str | None = None


class ExchangeReady(Struct, frozen=True):
    """The exchange is ready for requests (`BookChannel.welcomes`)."""


Written = Callable[[Sequence[Any], int], object]
Plain = (
    Accepted
    | RequestRejected
    | BookFrame
    | SocketSeed
    | SeedRefused
    | ExchangeReady
    | Send
    | SlowDown
    | Trading
    | Ignored
    | Alive
    | Closing
)


class Counted(Struct, frozen=True):
    """The meaning of a frame that is not of a book, where the exchange counts these frames too.

    A damaged frame of a book is a `BookFrame` without its number: the next frame shows the gap.
    """

    number: int
    event: Plain


Event = Plain | Counted


def verbs(
    write: Callable[[Sequence[Any], int, str], object],
    on: str = "subscribe",
    off: str = "unsubscribe",
) -> tuple[Written, Written]:
    """Make `subscribe` and `unsubscribe` of one function, where they differ in a verb alone.

    `write` gets the names, the number of the request and the verb.
    """

    def subscribe(names: Sequence[Any], number: int) -> object:
        return write(names, number, on)

    def unsubscribe(names: Sequence[Any], number: int) -> object:
        return write(names, number, off)

    return subscribe, unsubscribe


class BookChannel(Struct, frozen=True):
    """An exchange's order book channel: pure functions and what the engine must know of them.

    Connectors pass the first five by position.

    Args:
        data: Decodes a frame of a book and turns it into outputs (the hot path). For every other
            frame it raises what msgspec raises, or returns None and has changed nothing.
        control: Reads every frame that `data` does not take.
        subscribe: Writes the request for some names; the number is this request's own. One that
            names its time returns `frames.Dated`.
        unsubscribe: Writes its opposite; None where each request replaces those before it, so that
            `subscribe` always names everything that is on the connection.
        track: Makes what keeps one book in sync (`sync`).
        names_per_request: The most names in one request; where requests replace,
            `ExchangeLimits.topics`.
        key: The name in the frames, where it is not the native one.
        pause: Writes the request that comes before a repeated subscription, where it differs from
            `unsubscribe`.
        seed: Reads the REST body that starts a book: `bids`, `asks`, `sequence`, and `at` where it
            names its time.
        request: Writes the request for the whole book of one name, where it comes on the socket as
            a `SocketSeed` or `SeedRefused` and not by REST.
        welcomes: Whether the exchange must greet a connection before it takes requests.
        configure: Messages that are sent first on each connection, before any request.
        channel_ids: Whether frames name a book by an id that the acknowledgement of its
            subscription assigned (`Accepted.channel`). `data` then gets the books by these ids,
            and `unsubscribe` and `pause` get ids.
        unsubscribes_all: Whether `unsubscribe` ends every subscription of the connection: those
            that stay are asked for again.
        renews: Whether a repeated subscription brings another snapshot: a resync then asks for it
            without unsubscribing.
        acknowledges: Whether it answers a subscription that it accepts. Where it does not, what
            was requested counts as accepted, and only its data shows whether it is.
        too_many: The codes of errors that ask for fewer requests and refuse nothing. Sentences that
            do so are known without (`roster.RATE_LIMITS`).
        unavailable: The codes of errors of a server that cannot serve a request now and may serve
            the same one later. Sentences that say so are known without (`roster.UNAVAILABLE`).
        expected: Whole frames without consequences: the answer to our ping, where it is no JSON.
    """

    data: Callable[[Trackers[Any, Any], bytes], Outputs | None]
    control: Callable[[bytes], Event]
    subscribe: Written
    unsubscribe: Written | None
    track: Callable[[Instrument], Tracker]
    names_per_request: int = 1
    key: Callable[[Instrument], str] = native
    pause: Written | None = None
    seed: Callable[[bytes], Any] | None = None
    request: Written | None = None
    welcomes: bool = False
    configure: Sequence[object] = ()
    channel_ids: bool = False
    unsubscribes_all: bool = False
    renews: bool = False
    acknowledges: bool = True
    too_many: Collection[int | str] = ()
    unavailable: Collection[int | str] = ()
    expected: Collection[bytes] = (b"pong",)
