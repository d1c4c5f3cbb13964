"""One request over its own WebSocket: authenticate, send, read the reply, close."""

import asyncio
import json
import ssl
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from onebook.client.failures import Refused, Unavailable, closed, connect_failed
from onebook.client.session import (
    ANSWER_TIMEOUT_S,
    ERRORS,
    SILENCE_MAX_S,
    decoded,
    details_of,
    opening,
    seconds,
    unanswered,
)
from onebook.client.shapes import require, shapes_of
from onebook.orderbook import BookProblem

_ID = "1"


async def ask(
    url: str,
    api_key: str,
    message: dict[str, Any],
    reply: str,
    *,
    ssl_context: ssl.SSLContext | None = None,
) -> dict[str, Any]:
    """Send one message and return its reply, which has a given type.

    Raises:
        Refused: The service refuses it, or the URL is wrong. Unavailable: There is no answer at the
            moment, or an invalid one.
    """
    try:
        async with opening(url, ssl_context, SILENCE_MAX_S) as ws:
            await ws.send(json.dumps({"type": "authenticate", "api_key": api_key}))
            await ws.send(json.dumps({**message, "id": _ID}))
            return await _reply(ws, reply, shapes_of(message))
    except (OSError, TimeoutError, WebSocketException) as error:
        code, sentence, wait_s = connect_failed(url, error)
        raise Unavailable(code, sentence, retry_after_s=wait_s) from None


async def _reply(ws: ClientConnection, reply: str, shapes: dict[str, Any]) -> dict[str, Any]:
    cause: BookProblem | None = None
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while True:
                message = decoded(await ws.recv())
                if message["type"] in ERRORS:
                    require(message["type"], message, shapes[message["type"]])
                    cause = BookProblem(message.get("error", message["type"]), message["message"])
                    if message.get("id") == _ID or message["type"] == "authentication_error":
                        _raise(cause, message)
                elif message.get("id") == _ID:
                    require(reply, message, shapes[reply])
                    return message
    except TimeoutError:
        raise unanswered() from None
    except ConnectionClosed as error:
        code, sentence, _ = closed(error, cause)
        raise Unavailable(code, sentence) from None


def _raise(cause: BookProblem, message: dict[str, Any]) -> None:
    wait_s = message.get("retry_after")
    kind = Refused if wait_s is None else Unavailable
    raise kind(
        cause.code,
        cause.message,
        details=details_of(message),
        retry_after_s=None if wait_s is None else seconds(wait_s),
    )
