"""Description of an exchange's order book channel, and the events of its control frames.

A connector declares a `BookChannel`: pure module-level functions that encode requests and decode
frames, and properties of the protocol that the engine needs. `control` turns a frame without book
data into an `Event`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from msgspec import Struct

from onebook.exchanges.kit.codec import texts_of
from onebook.exchanges.kit.contract import (
    UNTIMED,
    Alive,
    Closing,
    Ignored,
    Moment,
    Outputs,
    Send,
    SlowDown,
    Trading,
)
from onebook.exchanges.kit.roster import native
from onebook.exchanges.kit.sync import Tracker, Trackers
from onebook.model import Instrument


class Accepted(Struct, frozen=True):
    """The exchange accepted subscriptions.

    Args:
        names: The accepted names, or none if the request is numbered.
        number: The number of the request.
        channel: The id in the frames of the name (`BookChannel.channel_ids`).
        lists_all: True if the names are complete: the other names of the request are refused.
        top: True for fast best prices, where the answer has no number.
    """

    names: Sequence[str] = ()
    number: int | str | None = None
    channel: int | None = None
    lists_all: bool = False
    top: bool = False


class RequestRejected(Struct, frozen=True):
    """The exchange refused a request.

    Args:
        words: The error message; the names that it contains are refused.
        number: The number of the request; None if the exchange does not number them.
        whole: True if one bad name fails the whole request; its other names are subscribed again.
        repeated: True if the names are already subscribed, in which case nothing is refused.
        names: Refused names that the error lists separately.
        code: The error code, if any: see `BookChannel.too_many` and `unavailable`.
        top: True if the request was for best prices, in which case no book is refused.
    """

    words: str
    number: int | str | None = None
    whole: bool = False
    repeated: bool = False
    names: Sequence[str] = ()
    code: int | str | None = None
    top: bool = False


class BookFrame(Struct, frozen=True):
    """A frame of a book that `data` did not process: damaged, or of a book that is not subscribed.

    Args:
        name: "" if the frame contains no name, several, or only a `channel` id.
        channel: The id of the book (`BookChannel.channel_ids`).
        top: It is a frame of the fast best prices: a damaged one says nothing about the levels.
    """

    name: str = ""
    channel: int | None = None
    top: bool = False


class SocketSeed(Struct, frozen=True):
    """The whole book of an instrument, requested on the socket (`BookChannel.request`).

    With `top` it is the book of `Join.shallow`.
    """

    name: str
    bids: bytes
    asks: bytes
    sequence: int
    at: Moment = UNTIMED
    top: bool = False


class SeedRefused(Struct, frozen=True):
    """The exchange refused the requested book of an instrument; the subscription continues."""

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
    """The event of a control frame with its number, if the exchange counts these frames too.

    A damaged frame of a book is a `BookFrame` without a number: the next frame reveals the gap.
    """

    number: int
    event: Plain


Event = Plain | Counted


def verbs(
    write: Callable[[Sequence[Any], int, str], object],
    on: str = "subscribe",
    off: str = "unsubscribe",
) -> tuple[Written, Written]:
    """Make `subscribe` and `unsubscribe` from one function, if they differ only in a verb.

    `write` is called with the names, the number of the request and the verb.
    """

    def subscribe(names: Sequence[Any], number: int) -> object:
        return write(names, number, on)

    def unsubscribe(names: Sequence[Any], number: int) -> object:
        return write(names, number, off)

    return subscribe, unsubscribe


class FastChannel(Struct, frozen=True):
    """Requests for best prices that are not part of the requests for the levels.

    They follow these requests. Their answers decide nothing: a book without fast best prices is
    shown as it is. A request that is refused for its rate, or because the exchange is
    unavailable, is repeated a few times, each after a longer pause.

    Args:
        subscribe: Encodes the subscription of some names, with the number of this request.
        unsubscribe: Encodes the unsubscription.
        names_per_request: Maximum number of names in a request.
        lists_all: Each subscription lists all names of the connection, because the exchange does
            not say whether it replaces the previous one.
        after_levels: They follow the first whole book of the levels instead (`Join.shallow`), so
            that no book waits for the requests of another one's best prices.
    """

    subscribe: Written
    unsubscribe: Written
    names_per_request: int = 1
    lists_all: bool = False
    after_levels: bool = False


class BookChannel(Struct, frozen=True):
    """An exchange's order book channel: pure functions, and properties that the engine needs.

    Connectors pass the first five by position.

    Args:
        data: Decodes a frame of a book to outputs (the hot path). For any other frame it raises one
            of `codec.UNREADABLE` or returns None, and has changed nothing.
        control: Decodes every frame that `data` did not process.
        subscribe: Encodes the subscription of some names, with the number of this request. A
            message that contains its sending time is a `codec.Dated`.
        unsubscribe: Encodes the unsubscription; None if each request replaces the previous ones, so
            that `subscribe` always lists all names of the connection.
        track: Makes the sequencing strategy of one book (`sync`).
        names_per_request: Maximum number of names in a request; if requests replace each other,
            `ExchangeLimits.topics`.
        key: Returns the name in the frames, if it differs from the native one.
        pause: Encodes the request before a repeated subscription, if it differs from
            `unsubscribe`.
        seed: Decodes the body that starts a book: `bids`, `asks`, `sequence`, and `at` if it
            contains its time.
        request: Encodes the request for the whole book of one name, if it is answered on the socket
            (`SocketSeed`, `SeedRefused`) and not by REST.
        welcomes: Whether the exchange must greet a connection before it accepts requests.
        configure: Messages to send first on each connection, before any request.
        channel_ids: Whether frames name a book by an id that the acknowledgement of its
            subscription assigned (`Accepted.channel`). `data` then gets the books by these ids,
            and `unsubscribe` and `pause` get ids.
        unsubscribes_all: Whether `unsubscribe` ends every subscription of the connection: the
            remaining ones are subscribed again.
        renews: Whether a repeated subscription is answered with another snapshot: a resync then
            subscribes without unsubscribing.
        acknowledges: Whether the exchange acknowledges subscriptions. If not, requested ones count
            as accepted, and only their data confirms them.
        too_many: Codes of errors about too many requests, which refuse nothing. Messages are
            recognized without codes (`roster.RATE_LIMITS`).
        unavailable: Codes of errors about a temporary failure of the exchange. Messages are
            recognized without codes (`roster.UNAVAILABLE`).
        fast: Requests for the fast best prices, if `subscribe` does not include them.
        expected: Whole frames without consequences, such as an answer to our ping that is not JSON.
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
    fast: FastChannel | None = None
    expected: Collection[bytes] = (b"pong",)


def accepted_of(items: object, number: int | str | None) -> Accepted:
    """Accept the names that the answer to a request lists, and refuse its other names.

    An answer without a list of names accepts the whole request, so that an answer in an unexpected
    form refuses none.
    """
    names = texts_of(items)
    whole = isinstance(items, list) and len(names) == len(items)
    return Accepted(names, number, lists_all=whole)
