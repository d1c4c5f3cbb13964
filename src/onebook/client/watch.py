"""Keep views alive over one connection: authenticate, subscribe, reconnect by the close code.

Close codes: 40xx are final, 41xx back off, 42xx return at the time the service named.
"""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from decimal import Decimal
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from onebook.client.view import View

BACKOFF_BASE_S = 0.25
BACKOFF_MAX_S = 30.0
OPEN_TIMEOUT_S = 10.0
FRAME_BYTES_MAX = 4 << 20
FINAL_CODES = range(4000, 4100)
DRAINING_CODE = 4200

_UPDATES = frozenset(
    ("aggregated_orderbook_update", "aggregated_orderbook_delta", "exchange_status")
)
_REFUSALS = frozenset(("authentication_error", "subscription_error", "data_limit_exceeded"))


class Refused(Exception):
    """The service said no, and would say it again: the message tells why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def watch(
    url: str,
    api_key: str,
    symbols: Sequence[str],
    *,
    exchanges: Sequence[str] | str = "all",
    **options: Any,
) -> AsyncGenerator[View, None]:
    """Yield a symbol's view each time it changes, for ever, across reconnects.

    Args:
        url: The WebSocket address, such as ws://127.0.0.1:8000/api/v1/ws.
        api_key: The key; it is sent in a message, never in the address.
        symbols: Pairs such as BTC/USDT.
        exchanges: Names, or "all".
        options: Subscribe options: depth, interval_ms, mode, levels, split, group.

    Raises:
        Refused: The key, the symbol or an option is not accepted, or the allowance is used up.
    """
    held = [View(symbol) for symbol in symbols]
    failures = 0
    while True:
        pause_s = random.uniform(0, min(BACKOFF_MAX_S, BACKOFF_BASE_S * 2**failures))  # noqa: S311
        failures += 1
        try:
            async with connect(url, max_size=FRAME_BYTES_MAX, open_timeout=OPEN_TIMEOUT_S) as ws:
                session = _Session(ws, held)
                await session.start(api_key, {"exchanges": exchanges, **options})
                async with aclosing(session.views()) as views:
                    async for view in views:
                        failures = 0
                        yield view
        except ConnectionClosed as closed:
            pause_s = max(pause_s, _checked(closed, session))
        except (OSError, InvalidHandshake, TimeoutError):
            pass  # not reachable now: the pause grows
        for view in held:
            if view.live:
                view.lose()
                yield view
        await asyncio.sleep(pause_s)


def _checked(closed: ConnectionClosed, session: "_Session") -> float:
    """The least pause in seconds that the close asks for; a final code raises."""
    code, reason = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")
    if code in FINAL_CODES:
        raise Refused(str(code), reason or f"The service closed with code {code}.") from None
    return session.reconnect_s if code == DRAINING_CODE else 0.0


class _Session:
    """One connection's views."""

    def __init__(self, ws: ClientConnection, held: Sequence[View]) -> None:
        self.ws = ws
        self.held = {view.symbol: view for view in held}
        self.reconnect_s = BACKOFF_BASE_S

    async def start(self, api_key: str, options: dict[str, Any]) -> None:
        await self._send(type="authenticate", api_key=api_key)
        for symbol in self.held:
            await self._send(type="subscribe_aggregated", symbol=symbol, **options)

    async def views(self) -> AsyncGenerator[View, None]:
        while True:
            message = _decoded(await self.ws.recv())
            kind = message["type"]
            if kind in _UPDATES:
                view = self.held.get(message["symbol"])
                if view is None:
                    continue
                if view.apply(message):
                    if view.live:
                        yield view
                else:
                    await self._send(type="resync", symbol=view.symbol)
            elif kind == "server_shutdown":
                self.reconnect_s = float(message["reconnect_in_ms"]) / 1_000
            elif kind in _REFUSALS:
                raise Refused(message.get("error", kind), message["message"])

    async def _send(self, **message: Any) -> None:
        await self.ws.send(json.dumps(message))


def _decoded(frame: str | bytes) -> dict[str, Any]:
    """Parse without binary floats."""
    message: dict[str, Any] = json.loads(frame, parse_float=Decimal)
    return message
