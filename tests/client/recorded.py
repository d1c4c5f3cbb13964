"""Messages and answers of a real node, and copies with one field dropped or mistyped."""

import copy
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from websockets.asyncio.client import connect

from e2e.service import ws_url
from onebook.gateway import messages, replies

OPTIONS = {
    "depth": 2,
    "interval_ms": 50,
    "mode": "delta",
    "split": True,
    "ages": True,
    "coverage": True,
    "fill": {"amounts": ["0.5"], "notionals": []},
}
SYMBOL = "BTC/USDT"
QUESTIONS = {
    "get_aggregated_orderbook": {"symbol": SYMBOL, **OPTIONS, "mode": "full"},
    "get_exchanges": {},
    "get_pairs": {},
}
DROPPED = object()
EACH = 5  # of the wrong values one in so many is tried on a field
WRONG = (None, "x", True, 7.5, [], {}, {"x": 1}, ["x"])
# What a null means: a side of a book that is empty, or known to its end.
NULLABLE = {"best_bid", "best_ask", "spread", "spread_percent", "mid_price", "total_bid_volume"}
NULLABLE |= {"total_ask_volume", "average", "worst", "bids", "asks", "next_cursor", "reason"}
WHOLE = {"update_number", "previous_update_number", "checksum", "participating_exchanges"}
WHOLE |= {"levels", "bytes_used", "bytes_limit", "okx", "kraken"}  # and ages, by exchange

SHUTDOWN = replies.ServerShutdown("Bye.", 60_000, "2026-11-20T10:00:00.000000Z")
ERROR = replies.Error(
    "error", "rate_limit_exceeded", "Slowly.", "2026-11-20T10:00:00.000000Z", retry_after=1
)


class Conversation:
    """Messages of a real node: the start of a stream, all later kinds, the final full book."""

    def __init__(self) -> None:
        self.starts: list[dict[str, Any]] = []  # two greetings, the acceptance, updates, a status
        self.last: dict[str, Any] = {}
        self.replies: dict[str, dict[str, Any]] = {}


async def record(rig: Any, levels: str) -> Conversation:
    """Send messages to a node as the clients do."""
    heard = Conversation()
    async with connect(ws_url(rig.node)) as ws:

        async def until(kind: str) -> dict[str, Any]:
            while True:
                message = json.loads(await ws.recv())
                if message["type"] == kind:
                    return message
                assert "error" not in message, message

        async def ask(kind: str, **fields: Any) -> None:
            await ws.send(json.dumps({"type": kind, **fields}))

        heard.starts.append(await until("welcome"))
        await ask("authenticate", api_key=rig.key)
        heard.starts.append(await until("welcome"))
        await ask("subscribe_aggregated", symbol=SYMBOL, levels=levels, **OPTIONS)
        heard.starts.append(await until("aggregated_subscription_response"))
        heard.starts.append(await until("aggregated_orderbook_update"))
        heard.starts += [await until("aggregated_orderbook_delta") for _ in range(2)]
        await ask("resync", symbol=SYMBOL)
        heard.last = await until("aggregated_orderbook_update")
        for kind, fields in QUESTIONS.items():
            await ask(kind, id="1", **fields)
            while (reply := json.loads(await ws.recv())).get("id") != "1":
                pass
            heard.replies[kind] = reply
        await rig.simulated["kraken"].stop()
        status = await until("exchange_status")
        heard.starts.insert(-1, status)
    for event in (SHUTDOWN, ERROR):
        heard.starts.append(json.loads(messages.encode(event)))
    return heard


def damaged(message: Any) -> Iterator[tuple[str, Any]]:
    """Each copy with one field dropped or mistyped, and a description of the change.

    Of a list only the first and the last entry: the others are read in the same way. Fields take
    turns with what stands in them.
    """
    for turn, path in enumerate(_paths(message)):
        present = _at(message, path)
        for wrong in (DROPPED, *WRONG[turn % EACH :: EACH]):
            if wrong is DROPPED and isinstance(path[-1], int):
                continue  # an entry of a list: nobody can miss it
            if wrong is not DROPPED and _may_be(path, present, wrong):
                continue
            copied = copy.deepcopy(message)
            owner = _at(copied, path[:-1])
            if wrong is DROPPED:
                del owner[path[-1]]
            else:
                owner[path[-1]] = wrong
            done = "dropped" if wrong is DROPPED else f"= {json.dumps(wrong)}"
            yield f"{'.'.join(map(str, path))} {done}", copied


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _paths(each, (*path, name))
    elif isinstance(value, list):
        for at in sorted({0, len(value) - 1} if value else ()):
            yield from _paths(value[at], (*path, at))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _may_be(path: tuple[Any, ...], present: Any, wrong: Any) -> bool:
    """Whether a value is valid: of the same type, or a null that has a meaning."""
    if type(wrong) is type(present) or present is None:
        return True
    if wrong is None:
        return path[-1] in NULLABLE
    return isinstance(wrong, float) and isinstance(present, int) and path[-1] not in WHOLE


def exact(frame: Any) -> Any:
    """Without binary floats."""
    return json.loads(frame if isinstance(frame, str) else json.dumps(frame), parse_float=Decimal)
