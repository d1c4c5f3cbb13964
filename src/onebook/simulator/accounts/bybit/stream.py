"""The simulated private WebSocket: authentication, topics, heartbeat, pushes.

https://bybit-exchange.github.io/docs/v5/ws/connect and the pages of the topics. Unconfirmed: the
words of a refused authentication, and that the connection is then closed.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from msgspec import MsgspecError, json
from starlette.websockets import WebSocket, WebSocketDisconnect

from onebook.simulator.accounts.bybit.keys import SimulatedKey

PATH: Final = "/v5/private"
TOPICS: Final = ("execution", "order", "wallet", "position", "greeks")
UNSENT_MAX: Final = 1_000  # messages of one connection; a slower client is cut off
POLICY: Final = 1008


class PrivateConnection:
    """One client: what it has subscribed to, and what is not sent yet."""

    def __init__(self, number: int) -> None:
        self.conn_id = f"simulated-{number}"
        self.key: SimulatedKey | None = None
        self.topics: set[str] = set()
        self.unsent: asyncio.Queue[str | None] = asyncio.Queue(UNSENT_MAX)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message after those before it."""
        if self.unsent.full():
            self.end()
            return
        self.unsent.put_nowait(json.encode(message).decode())

    def end(self) -> None:
        """Close the connection, at once."""
        while not self.unsent.empty():
            self.unsent.get_nowait()
        self.unsent.put_nowait(None)


class PrivateStreams:
    """All private connections to a simulated exchange.

    Attributes:
        refusing: Whether connections are refused.
        losing: Whether messages of topics are lost.
        doubling: Whether each is sent twice.
    """

    def __init__(self, keys: Mapping[str, SimulatedKey], now_ms: Callable[[], int]) -> None:
        self.refusing = False
        self.losing = False
        self.doubling = False
        self.connections: list[PrivateConnection] = []
        self.opened = 0
        self._keys = keys
        self._now_ms = now_ms
        self._numbers = count(1)

    def drop(self) -> None:
        """Close every connection."""
        for each in self.connections:
            each.end()

    def announce(self, topic: str, rows: list[dict[str, Any]]) -> None:
        """Send rows of a topic to its subscribers."""
        if self.losing or not rows:
            return
        message = {
            "id": f"{self._now_ms()}_{next(self._numbers)}",
            "topic": topic,
            "creationTime": self._now_ms(),
            "data": rows,
        }
        for each in self.connections:
            if topic in each.topics:
                for _ in range(1 + self.doubling):
                    each.send(message)

    async def serve(self, socket: WebSocket) -> None:
        """Serve a client until it leaves."""
        if self.refusing or socket.url.path != PATH:
            await socket.close()
            return
        await socket.accept()
        self.opened += 1
        connection = PrivateConnection(self.opened)
        self.connections.append(connection)
        sender = asyncio.create_task(self._send(socket, connection), name="simulated stream")
        try:
            while True:
                self._take(connection, await socket.receive_text())
        except (WebSocketDisconnect, RuntimeError):
            pass  # the client has left, or it was closed
        finally:
            self.connections.remove(connection)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send(self, socket: WebSocket, connection: PrivateConnection) -> None:
        while (text := await connection.unsent.get()) is not None:
            await socket.send_text(text)
        await socket.close()

    def _take(self, connection: PrivateConnection, text: str) -> None:
        try:
            message = json.decode(text)
        except MsgspecError:
            message = None
        request = message if isinstance(message, dict) else {}
        op, args = request.get("op"), request.get("args") or []
        reply = {"conn_id": connection.conn_id, "op": op}
        asked = {"req_id": request.get("req_id", "")}
        if op == "ping":
            connection.send(asked | reply | {"op": "pong", "args": [str(self._now_ms())]})
        elif op == "auth":
            problem = self._authenticate(connection, args)
            connection.send({"success": not problem, "ret_msg": problem} | reply)
        elif op in ("subscribe", "unsubscribe") and connection.key is not None:
            unknown = [each for each in args if each not in TOPICS]
            if not unknown:
                change = connection.topics.update if op == "subscribe" else (
                    connection.topics.difference_update
                )  # fmt: skip
                change(args)
            problem = f"error:handler not found,topic:{unknown[0]}" if unknown else ""
            connection.send({"success": not unknown, "ret_msg": problem} | asked | reply)
        else:
            problem = "Request not authorized" if op in ("subscribe", "unsubscribe") else "error"
            connection.send({"success": False, "ret_msg": problem} | asked | reply)

    def _authenticate(self, connection: PrivateConnection, args: list[Any]) -> str:
        """Check a signature; return what is wrong with it."""
        if len(args) != 3 or not isinstance(args[1], int):
            return "Params Error"
        api_key, expires, sign = args
        key = self._keys.get(str(api_key))
        if key is None:
            return "API key is invalid."
        if expires <= self._now_ms():
            return "Params Error: expired"
        text = f"GET/realtime{expires}".encode()
        if not hmac.compare_digest(
            hmac.new(key.secret.encode(), text, hashlib.sha256).hexdigest(), str(sign)
        ):
            return "error:request:signature invalid"
        connection.key = key
        return ""
