"""Bybit's simulated private WebSocket: authentication, topics, heartbeat, pushes.

https://bybit-exchange.github.io/docs/v5/ws/connect and the pages of the topics. Unconfirmed: the
text of a refused authentication.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from onebook.simulator.accounts.bybit.keys import SimulatedKey
from onebook.simulator.accounts.streams import PrivateConnection, PrivateStreams

TOPICS: Final = ("execution", "order", "wallet", "position", "greeks")


class BybitStreams(PrivateStreams):
    """The private connections to a simulated Bybit."""

    paths = ("/v5/private",)

    def __init__(self, keys: Mapping[str, SimulatedKey], now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._keys = keys
        self._now_ms = now_ms
        self._numbers = count(1)

    def announce(self, topic: str, rows: list[dict[str, Any]]) -> None:
        """Send rows of a topic to its subscribers, if there are any."""
        now_ms = self._now_ms()
        message = {
            "id": f"{now_ms}_{next(self._numbers)}",
            "topic": topic,
            "creationTime": now_ms,
            "data": rows,
        }
        if rows:
            self.push(topic, message)

    def _take(self, connection: PrivateConnection, request: dict[str, Any]) -> None:
        op, args = request.get("op"), request.get("args") or []
        reply = {"conn_id": f"simulated-{connection.number}", "op": op}
        asked = {"req_id": request.get("req_id", "")}
        if op == "ping":
            connection.send(asked | reply | {"op": "pong", "args": [str(self._now_ms())]})
        elif op == "auth":
            problem = self._authenticate(connection, args)
            connection.send({"success": not problem, "ret_msg": problem} | reply)
        elif op in ("subscribe", "unsubscribe") and connection.owner is not None:
            unknown = [each for each in args if each not in TOPICS]
            if not unknown and op == "subscribe":
                connection.topics.update(args)
            elif not unknown:
                connection.topics.difference_update(args)
            problem = f"error:handler not found,topic:{unknown[0]}" if unknown else ""
            connection.send({"success": not unknown, "ret_msg": problem} | asked | reply)
        else:
            problem = "Request not authorized" if op in ("subscribe", "unsubscribe") else "error"
            connection.send({"success": False, "ret_msg": problem} | asked | reply)

    def _authenticate(self, connection: PrivateConnection, args: list[Any]) -> str:
        """Check a signature; return the fault."""
        if len(args) != 3 or not isinstance(args[1], int):
            return "Params Error"
        api_key, expires, sign = args
        key = self._keys.get(str(api_key))
        if key is None:
            return "API key is invalid."
        if expires <= self._now_ms():
            return "Params Error: expired"
        text = f"GET/realtime{expires}".encode()
        digest = hmac.new(key.secret.encode(), text, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(digest, str(sign)):
            return "error:request:signature invalid"
        connection.owner = key
        return ""
