"""The private WebSocket of an exchange account, which signals that something happened.

Its messages are hints: records pushed to clients are always read from the exchange's lists, so that
a record has one form and one id everywhere. `PrivateStream` contains the facts and pure functions
of an exchange; `AccountStream` holds the connection and reopens it after a loss.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from onebook.backoff import Backoff
from onebook.errors import OnebookError
from onebook.transactions.adapter import Environment, SourceFailed
from onebook.transactions.credentials import Credentials

OPEN_S: Final = 10.0  # for the handshake, and for the answer to each opening message
CLOSE_S: Final = 1.0
FRAME_BYTES_MAX: Final = 1 << 20
FRAMES_HELD_MAX: Final = 64  # received but not processed; above this, the socket is not read
REFUSED_S: Final = 600.0  # until the next attempt if the key is not permitted to connect
SILENCE_PINGS: Final = 2.5  # ping intervals without any message until the connection counts as lost

log = logging.getLogger("onebook.transactions.live")
# websockets logs entire messages at level DEBUG, and the first one is signed.
_library_log = logging.getLogger("onebook.transactions.live.websockets")
_library_log.setLevel(logging.CRITICAL)


class StreamAccepted(Struct, frozen=True):
    """The exchange accepted an opening message."""


class StreamHint(Struct, frozen=True):
    """Something happened in the account.

    Args:
        types: The exchange's types that it may concern; empty: any.
    """

    types: frozenset[str] = frozenset()


class StreamRefused(Struct, frozen=True):
    """The exchange refused an opening message; its own text is not passed on."""


StreamMessage = StreamAccepted | StreamHint | StreamRefused | None


class PrivateStream(Struct, frozen=True, kw_only=True):
    """Facts of a private stream of an exchange, and its pure protocol functions.

    Args:
        urls: The base URL by environment, where there is one.
        regions: The base URLs of accounts whose credentials name a host other than the first.
        path: Its path, which no other stream of the exchange has.
        types: The exchange's types for which every new record is announced.
        opening: Returns the opening messages, each sent after the previous one was accepted, from
            the credentials, the time (Unix ms) and a token.
        read: Interprets a message; None: irrelevant.
        ping: A message that keeps the connection open.
        ping_s: Seconds between pings.
    """

    urls: Mapping[Environment, str]
    path: str
    types: frozenset[str]
    regions: Mapping[str, Mapping[Environment, str]] = {}
    opening: Callable[[Credentials, int, str], tuple[str, ...]]
    read: Callable[[str | bytes], StreamMessage]
    ping: str
    ping_s: float = 20.0


class StreamOpening(Struct, frozen=True):
    """The data that one connection needs.

    Args:
        account_id: Identifies the credentials.
        messages: See `PrivateStream.opening`.
    """

    url: str
    account_id: str
    messages: tuple[str, ...]

    def __repr__(self) -> str:
        return f"StreamOpening({self.url})"


class StreamLost(Exception):
    """The connection cannot be opened or has ended; the message is the reason in our own words."""


class AccountStream:
    """Keeps one private stream open; `run` it in a task.

    Args:
        opening: Prepares a connection.
        happened: Called with each `StreamHint`.
        changed: Called when the stream opens, and with the reason when it is lost.
        backoff: Determines the waits between connections.
        sleep: Waits.
    """

    def __init__(
        self,
        facts: PrivateStream,
        opening: Callable[[], Awaitable[StreamOpening]],
        *,
        name: str,
        happened: Callable[[StreamHint], None],
        changed: Callable[[str | None], None],
        backoff: Backoff,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.account_id: str | None = None
        self._facts = facts
        self._opening = opening
        self._name = name
        self._happened = happened
        self._changed = changed
        self._backoff = backoff
        self._sleep = sleep
        self._restart = asyncio.Event()
        self._refused = False

    def restart(self) -> None:
        """Reconnect, because the credentials have changed."""
        self._restart.set()

    async def run(self) -> None:
        """Connect, read and reconnect until cancelled."""
        while True:
            reason = await self._once()
            log.debug("%s: no private stream: %s", self._name, reason)
            self._changed(reason)
            await self._sleep(REFUSED_S if self._refused else self._backoff.next_s())

    async def _once(self) -> str:
        """Hold one connection; return the reason why it ended."""
        self._refused = False
        try:
            opening = await self._opening()
            self._restart.clear()
            self.account_id = opening.account_id
            async with connect(
                opening.url,
                open_timeout=OPEN_S,
                close_timeout=CLOSE_S,
                ping_interval=None,
                max_size=FRAME_BYTES_MAX,
                max_queue=FRAMES_HELD_MAX,
                proxy=None,
                logger=_library_log,
            ) as socket:
                await self._begin(socket, opening)
                self._backoff.reset()
                self._changed(None)
                await self._follow(socket)
        except StreamLost as lost:
            return str(lost)
        except SourceFailed as failure:
            self._refused = not failure.retryable
            return failure.message
        except OnebookError as error:
            return error.message
        except TimeoutError:
            return "The exchange did not answer in time."
        except InvalidHandshake:
            return "The exchange refused the connection."
        except (OSError, WebSocketException):
            return "The connection was lost."
        raise AssertionError  # `_follow` only ends with an exception

    async def _begin(self, socket: ClientConnection, opening: StreamOpening) -> None:
        """Send each opening message and wait until it is accepted."""
        for message in opening.messages:
            async with asyncio.timeout(OPEN_S):
                await socket.send(message)
                while not isinstance(read := self._facts.read(await socket.recv()), StreamAccepted):
                    if isinstance(read, StreamRefused):
                        raise StreamLost("The exchange refused the subscription.")
                    if isinstance(read, StreamHint):
                        self._happened(read)

    async def _follow(self, socket: ClientConnection) -> None:
        """Read until the connection ends.

        Raises:
            StreamLost, WebSocketException: It has ended.
        """
        helpers = [
            asyncio.create_task(self._ping(socket), name=f"ping {self._name}"),
            asyncio.create_task(self._until_restart(socket), name=f"restart {self._name}"),
        ]
        try:
            while True:
                async with asyncio.timeout(self._facts.ping_s * SILENCE_PINGS):
                    frame = await socket.recv()
                read = self._facts.read(frame)
                if isinstance(read, StreamHint):
                    self._happened(read)
                elif isinstance(read, StreamRefused):
                    raise StreamLost("The exchange ended the subscription.")
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def _ping(self, socket: ClientConnection) -> None:
        while True:
            await self._sleep(self._facts.ping_s)
            await socket.send(self._facts.ping)

    async def _until_restart(self, socket: ClientConnection) -> None:
        await self._restart.wait()
        await socket.close()
