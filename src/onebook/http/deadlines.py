"""Deadlines of HTTP connections: one for each wait, and one pass over those that are due.

uvicorn waits without limit for the rest of a request and for a client to read its answer.
"""

import asyncio
from enum import Enum, auto
from typing import Protocol

from onebook.config import ServerSettings


class Wait(Enum):
    """What an HTTP connection waits for."""

    HEADERS = auto()
    BODY = auto()
    ANSWER = auto()  # ours: it has limits of its own
    WRITE = auto()
    NEXT = auto()  # a next request: uvicorn's own keep-alive timer


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
    """The deadlines of all HTTP connections, in the order in which they fall due, and one timer."""

    def __init__(self, settings: ServerSettings) -> None:
        self._timeouts_s = {
            Wait.HEADERS: settings.header_timeout_s,
            Wait.BODY: settings.body_timeout_s,
            Wait.WRITE: settings.write_timeout_s,
        }
        self._due: dict[Wait, dict[TimedConnection, float]] = {
            wait: {} for wait in self._timeouts_s
        }
        self._loop = asyncio.get_running_loop()

    def begin(self, connection: TimedConnection, wait: Wait) -> None:
        """Start the deadline of a connection's wait."""
        self.end(connection)
        connection.wait = wait
        if wait is Wait.WRITE:
            connection.unread = connection.unacknowledged()
        if wait in self._due:
            self._due[wait][connection] = self._loop.time() + self._timeouts_s[wait]

    def end(self, connection: TimedConnection) -> None:
        """Remove the deadline of a connection."""
        if connection.wait in self._due:
            self._due[connection.wait].pop(connection, None)
        connection.wait = None

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
        unread = connection.unacknowledged()
        if wait is Wait.WRITE and not connection.transport.get_write_buffer_size():
            connection.wait_again()
        elif wait is Wait.WRITE and unread < connection.unread:
            self.begin(connection, wait)  # it made progress
        else:
            self.end(connection)
            connection.expired(wait)
