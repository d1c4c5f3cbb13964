"""Clients of a simulated world: frames in, frames out, no sockets; some of them read slowly."""

import json
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from msgspec.structs import asdict

from onebook.accounts import Key
from onebook.gateway.effects import CloseView, FetchBook, OpenView, ResendBook, SendText
from onebook.gateway.fanout import ClientOutput
from onebook.gateway.gateway import Gateway
from onebook.gateway.processor import CommandProcessor
from onebook.gateway.subscriptions import SubscriptionManager
from onebook.model import KeyStatus, Tier
from onebook.streams import StreamKey, ViewOptions
from proofs.viewer import Broken, Viewer

BUFFER_BYTES_MAX = 20_000  # unread bytes before a client counts as slow
UPDATES = ("aggregated_orderbook_update", "aggregated_orderbook_delta")
DEFLATE_TAIL = b"\x00\x00\xff\xff"  # RFC 7692 7.2.1


class Pipe:
    """A transport that buffers written data until the client reads."""

    def __init__(self) -> None:
        self.held = bytearray()

    def write(self, data: bytes) -> None:
        self.held += data

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def take(self) -> bytes:
        taken, self.held = bytes(self.held), bytearray()
        return taken


SERVED: dict[type, Callable[..., None]] = {
    OpenView: SubscriptionManager.open,
    CloseView: SubscriptionManager.close,
    FetchBook: SubscriptionManager.fetch,
    ResendBook: SubscriptionManager.resend,
}


class Wire(ClientOutput):
    """The outgoing side of a connection, without a socket."""

    def __init__(self, processor: CommandProcessor, *, packed: bool) -> None:
        super().__init__([], processor)
        self.packed = packed
        self.transport = Pipe()

    def transmit(self, data: bytes) -> None:
        self.transport.write(data)


class Client:
    """One client: its subscriptions, its views, and whether it reads."""

    def __init__(self, gateway: Gateway, name: str, *, packed: bool) -> None:
        self.name = name
        self.viewers: dict[str, Viewer] = {}  # by symbol
        self.reading = True
        self.refused: list[str] = []
        self._gateway = gateway
        self._ids: dict[str, str] = {}  # symbol: the view's id
        self._looks: dict[int, StreamKey] = {}
        self._sent = 0
        self.processor = gateway.parts.make_processor()
        self.output = self.wire = Wire(self.processor, packed=packed)
        self.fetches: set[Callable[[], None]] | None = None
        key = Key(
            name, "account", "user", Tier.ENTERPRISE, KeyStatus.ACTIVE, "ob_live_0000", 0, None
        )
        self.processor.authenticated(key, session_id=name)

    def subscribe(self, key: StreamKey) -> None:
        self._say("subscribe_aggregated", key)

    def look(self, key: StreamKey) -> None:
        self._sent += 1
        self._looks[self._sent] = key
        self._say("get_aggregated_orderbook", key, number=self._sent)

    def unsubscribe(self, symbol: str) -> None:
        self._say("unsubscribe_aggregated", symbol=symbol)

    def resync(self, symbol: str) -> None:
        self._say("resync", symbol=symbol)

    def read(self, check: Callable[[Viewer], None]) -> None:
        """Read all received frames, and check each update.

        Raises:
            Broken: A guarantee was violated.
        """
        if not self.reading:
            if not self.wire.behind and self.wire.transport.get_write_buffer_size() > (
                BUFFER_BYTES_MAX
            ):
                self.wire.behind = True
            return
        for text in messages(self.wire.transport.take()):
            self._take(text, check)
        if self.wire.behind:
            self.wire.behind = False
            self._gateway.fanout.caught_up(self.wire)
            for text in messages(self.wire.transport.take()):
                self._take(text, check)

    def _take(self, text: bytes, check: Callable[[Viewer], None]) -> None:
        message = json.loads(text, parse_float=Decimal, parse_int=Decimal)
        kind, symbol = message["type"], message.get("symbol")
        if kind == "aggregated_subscription_response":
            self._ids[symbol] = message["subscription_id"]
            replied = message["options"]
            options = ViewOptions(**replied | {"depth": int(replied["depth"])})
            self.viewers[symbol] = Viewer(StreamKey(symbol, tuple(message["exchanges"]), options))
        elif kind == "unsubscribe_response":
            self.viewers.pop(symbol, None)
        elif kind in UPDATES:
            viewer = self.viewers.get(symbol)
            if viewer is None or self._ids[symbol] != message["subscription_id"]:
                raise Broken(f"{self.name} gets an update that it is not subscribed to")
            viewer.take(message)
            check(viewer)
        elif kind == "aggregated_orderbook_data":
            viewer = Viewer(self._looks.pop(int(message["id"])))
            viewer.take(message | {"update_number": 0})
            check(viewer)
        elif kind.endswith("error"):
            self.refused.append(message["error"])
        elif kind != "exchange_status":
            raise Broken(f"{self.name} gets {kind}")

    def _say(
        self,
        kind: str,
        key: StreamKey | None = None,
        *,
        symbol: str = "",
        number: int | None = None,
    ) -> None:
        message: dict[str, Any] = {"type": kind, "symbol": symbol}
        if key is not None:
            message |= {"symbol": key.symbol, "exchanges": list(key.exchanges)}
            message |= asdict(key.options)
        if number is not None:
            message["id"] = number
        parts = self._gateway.parts
        for effect in self.processor.received(json.dumps(message), now=parts.now()):
            if isinstance(effect, SendText):
                self.wire.send_text(effect.payload)
            else:
                SERVED[type(effect)](parts.subscriptions, self, effect)


def messages(data: bytes) -> list[bytes]:
    """The text of each frame sent by a server (RFC 6455 5.2, RFC 7692 7.2.2)."""
    found, at = [], 0
    while at < len(data):
        size, start = data[at + 1], at + 2
        if size == 126:
            size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        elif size == 127:
            size, start = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
        payload = data[start : start + size]
        if data[at] & 0x40:
            payload = zlib.decompressobj(-15).decompress(payload + DEFLATE_TAIL)
        found.append(payload)
        at = start + size
    return found
