"""Deadlines of HTTP connections: one for each state, and one pass over those that are due.

uvicorn has a timer for idle connections alone, and it is not set in every state: it is not used.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from onebook.config import ServerSettings


class Wait(Enum):
    """State of an HTTP connection: what it waits for."""

    HEADERS = auto()
    BODY = auto()
    ANSWER = auto()  # of the application
    WRITE = auto()  # the client reads its answer
    NEXT = auto()  # a next request
    CLOSING = auto()  # the client reads the last bytes, or ends TLS


class Expiry(Enum):
    """Action on a connection whose deadline has passed."""

    REFUSE = auto()  # 408; aborted where an answer has begun
    ABORT = auto()
    CLOSE = auto()


class Deadline(NamedTuple):
    """The deadline of one state.

    Args:
        renewed: Whether progress of the client begins it anew. The deadline of ANSWER, which
            counts from the headers of a request, holds all the same.
    """

    then: Expiry
    renewed: bool = False


DEADLINES: Final[Mapping[Wait, Deadline]] = {
    Wait.HEADERS: Deadline(Expiry.REFUSE),
    Wait.BODY: Deadline(Expiry.REFUSE),
    Wait.ANSWER: Deadline(Expiry.ABORT),
    Wait.WRITE: Deadline(Expiry.ABORT, renewed=True),
    Wait.NEXT: Deadline(Expiry.CLOSE),
    Wait.CLOSING: Deadline(Expiry.ABORT, renewed=True),
}
BETWEEN_REQUESTS: Final = (Wait.HEADERS, Wait.NEXT)


class TimedConnection(Protocol):
    """What deadlines need of an HTTP connection."""

    wait: Wait | None
    unread: int  # bytes that a slow client had not got when it was last checked
    transport: asyncio.Transport

    def unacknowledged(self) -> int:
        """Bytes of answers that the client has not got."""

    def wait_again(self) -> None:
        """The client has read everything: determine what to wait for next."""

    def expired(self, wait: Wait) -> None:
        """A deadline has passed."""


class Deadlines:
    """The deadlines of all HTTP connections, in the order in which they fall due, and one timer.

    Args:
        settings: Of the server.
        answer_timeout_s: Maximum seconds from the headers of a request to the end of its answer.
        keep_alive_timeout_s: Seconds an idle connection is kept open.
    """

    def __init__(
        self, settings: ServerSettings, *, answer_timeout_s: float, keep_alive_timeout_s: float
    ) -> None:
        self._timeouts_s = {
            Wait.HEADERS: settings.header_timeout_s,
            Wait.BODY: settings.body_timeout_s,
            Wait.ANSWER: answer_timeout_s,
            Wait.WRITE: settings.write_timeout_s,
            Wait.NEXT: keep_alive_timeout_s,
            Wait.CLOSING: settings.write_timeout_s,
        }
        self._due: dict[Wait, dict[TimedConnection, float]] = {wait: {} for wait in Wait}
        self._loop = asyncio.get_running_loop()

    def begin(self, connection: TimedConnection, wait: Wait) -> None:
        """Start the deadline of a connection's state; the one before has ended."""
        self.leave(connection)
        connection.wait = wait
        if DEADLINES[wait].renewed:
            connection.unread = connection.unacknowledged()
        if wait in BETWEEN_REQUESTS:
            self._due[Wait.ANSWER].pop(connection, None)
        else:
            self._set(connection, Wait.ANSWER)
        self._set(connection, wait)

    def _set(self, connection: TimedConnection, wait: Wait) -> None:
        self._due[wait].setdefault(connection, self._loop.time() + self._timeouts_s[wait])

    def leave(self, connection: TimedConnection) -> None:
        """Remove the deadline of a state; that of the request goes on."""
        if connection.wait not in (None, Wait.ANSWER):
            self._due[connection.wait].pop(connection, None)
        connection.wait = None

    def end(self, connection: TimedConnection) -> None:
        """Remove every deadline of a connection, or of its request."""
        self.leave(connection)
        self._due[Wait.ANSWER].pop(connection, None)

    def check(self) -> None:
        """Close the connections whose deadline has passed."""
        now_s = self._loop.time()
        for wait, due in self._due.items():
            while due:
                connection, deadline_s = next(iter(due.items()))
                if deadline_s > now_s:
                    break
                self._expire(connection, wait)

    def _expire(self, connection: TimedConnection, wait: Wait) -> None:
        if wait is Wait.WRITE and not connection.transport.get_write_buffer_size():
            connection.wait_again()
        elif DEADLINES[wait].renewed and connection.unacknowledged() < connection.unread:
            self.begin(connection, wait)  # it made progress
        else:
            self.end(connection)
            connection.expired(wait)
