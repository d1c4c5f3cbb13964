"""Private WebSockets of simulated exchanges: connections, pushes, and injected faults.

The subclass of an exchange interprets the messages of clients and subscribes them to topics.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar, Final

from msgspec import MsgspecError, json
from starlette.websockets import WebSocket, WebSocketDisconnect

EVENT_S: Final = 20.0  # average time between two events of an active account
UNSENT_MAX: Final = 1_000  # messages per connection; a slower client is disconnected


class PrivateConnection:
    """One client: its subscriptions and unsent messages.

    Attributes:
        path: The path that it has connected to.
        owner: The authenticated account; None before authentication.
    """

    def __init__(self, number: int, path: str) -> None:
        self.number = number
        self.path = path
        self.owner: Any = None
        self.topics: set[str] = set()
        self.unsent: asyncio.Queue[str | None] = asyncio.Queue(UNSENT_MAX)

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message."""
        self.send_text(json.encode(message).decode())

    def send_text(self, text: str) -> None:
        """Send a frame after those before it."""
        if self.unsent.full():
            self.end()
            return
        self.unsent.put_nowait(text)

    def end(self) -> None:
        """Close the connection immediately."""
        while not self.unsent.empty():
            self.unsent.get_nowait()
        self.unsent.put_nowait(None)


class PrivateStreams(ABC):
    """All private connections to a simulated exchange.

    Attributes:
        refusing: Whether connections are refused.
        losing: Whether messages of topics are lost.
        doubling: Whether each message is sent twice.
        opened: Number of connections so far.
    """

    paths: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self.refusing = False
        self.losing = False
        self.doubling = False
        self.connections: list[PrivateConnection] = []
        self.opened = 0

    @abstractmethod
    def _take(self, connection: PrivateConnection, request: dict[str, Any]) -> None:
        """Answer a client's message; one that is not a JSON object is treated as empty."""

    def _receive(self, connection: PrivateConnection, text: str) -> None:
        """Answer a frame of a client, which is a JSON object by default."""
        self._take(connection, _object(text))

    def _greet(self, connection: PrivateConnection) -> None:
        """Send the unsolicited messages of a new client; nothing by default."""
        return

    def drop(self) -> None:
        """Close every connection."""
        for each in self.connections:
            each.end()

    def push(self, topic: str, message: Mapping[str, Any]) -> None:
        """Send a message to the subscribers of a topic."""
        for each in self.connections:
            if topic in each.topics and not self.losing:
                for _ in range(1 + self.doubling):
                    each.send(message)

    async def serve(self, socket: WebSocket) -> None:
        """Serve a client until it disconnects."""
        if self.refusing or socket.url.path not in self.paths:
            await socket.close()
            return
        await socket.accept()
        self.opened += 1
        connection = PrivateConnection(self.opened, socket.url.path)
        self.connections.append(connection)
        sender = asyncio.create_task(_send(socket, connection), name="simulated stream")
        self._greet(connection)
        try:
            while True:
                self._receive(connection, await socket.receive_text())
        except (WebSocketDisconnect, RuntimeError):
            pass  # the client has disconnected, or was closed
        finally:
            self.connections.remove(connection)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)


@asynccontextmanager
async def living(act: Callable[[str], object], weights: Mapping[str, int]) -> AsyncIterator[None]:
    """Run an event in an account about every 20 seconds, within the context."""
    random = Random()  # noqa: S311  # a simulation

    async def live() -> None:
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.5) * EVENT_S)
            act(random.choices(list(weights), list(weights.values()))[0])

    task = asyncio.create_task(live(), name="simulated account")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _send(socket: WebSocket, connection: PrivateConnection) -> None:
    while (text := await connection.unsent.get()) is not None:
        await socket.send_text(text)
    await socket.close()


def _object(text: str) -> dict[str, Any]:
    try:
        message = json.decode(text)
    except MsgspecError:
        message = None
    return message if isinstance(message, dict) else {}
