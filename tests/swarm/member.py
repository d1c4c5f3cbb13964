"""One client of a swarm: its requests, the expected replies, and its views."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from swarm.truth import Asked, Truth
from swarm.viewer import Broken, Viewer, microseconds

BOOKS = ("aggregated_orderbook_update", "aggregated_orderbook_delta")
ALONE = ("exchange_status", "rate_limit_warning")
RESYNC_AGE_MS = 1_000
Check = Callable[[dict[str, Any]], None]


class Member:
    """A client: sends commands with ids, and checks every received message."""

    def __init__(self, name: str, peer: Any, truth: Truth, clock: Any, ids: dict) -> None:
        self.name = name
        self.peer = peer
        self.asked: dict[str, Asked] = {}  # by symbol: what the service was asked for last
        self.viewers: dict[str, Viewer] = {}  # by symbol: what it confirmed last
        self.expected: dict[str, tuple[Check, str]] = {}  # by id: of replies that are due
        self.received_bytes: dict[str, int] = {}  # by key: that are to be charged
        self.gaps = lambda: False  # whether it may have missed updates
        self.updates = 0
        self._truth = truth
        self._clock = clock
        self._ids = ids  # of all clients: which view has which id
        self._key = ""
        self._count = 0
        self._welcomes = 0

    @property
    def awake(self) -> bool:
        return self.peer.reading.is_set()

    @property
    def key(self) -> str:
        return self._key

    async def say(self, check: Check, **message: Any) -> str:
        """Send a command whose reply must pass a check."""
        self._count += 1
        name = f"{self.name}-{self._count}"
        self.expected[name] = check, json.dumps(message)[:300]
        await self.peer.send(json.dumps(message | {"id": name}))
        return name

    async def authenticate(self, text: str, key: str) -> None:
        """Send a key; all messages from its welcome on are charged to it."""

        def welcomed(message: dict) -> None:
            self._is("welcome", message)
            if message["authentication"]["api_key"] != text[:12] + "...":
                raise Broken("the welcome shows another key")
            self._key = key

        await self.say(welcomed, type="authenticate", api_key=text)

    async def subscribe(self, asked: Asked, rejected: list, **message: Any) -> None:
        """Subscribe with valid options."""
        self.asked[asked.symbol] = asked

        def subscribed(reply: dict) -> None:
            self._is("aggregated_subscription_response", reply)
            options = _asked(reply)
            if options != asked:
                raise Broken(f"asked for {asked}, applied {options}")
            if sorted(each["exchange"] for each in reply["rejected"]) != sorted(rejected):
                raise Broken(f"rejected {reply['rejected']}, not {rejected}")
            view_id = reply["subscription_id"]
            if self._ids.setdefault(view_id, asked) != asked:
                raise Broken(f"{view_id} is two views")
            if list(self._ids.values()).count(asked) > 1:
                raise Broken(f"{asked} has two ids")
            now_us = self._clock.wall_us()
            self.viewers[asked.symbol] = Viewer(self._truth, asked, view_id, now_us)

        await self.say(subscribed, type="subscribe_aggregated", **message)

    async def unsubscribe(self, symbol: str) -> None:
        """End a subscription, or expect the error that there is none."""
        known = self.asked.pop(symbol, None) is not None

        def unsubscribed(reply: dict) -> None:
            if not known:
                self.refused("no_subscription")(reply)
                return
            self._is("unsubscribe_response", reply)
            self.viewers.pop(symbol, None)

        await self.say(unsubscribed, type="unsubscribe_aggregated", symbol=symbol)

    async def resync(self, symbol: str, now_us: int) -> None:
        """Request the whole book of a subscription: at most its interval and a second old."""
        known = symbol in self.asked
        age_ms = min(self.asked[symbol].interval_ms, RESYNC_AGE_MS) if known else 0
        oldest = self._truth.since(symbol, now_us - age_ms * 1_000) if known else 0

        def resynced(reply: dict) -> None:
            if not known:
                self.refused("no_subscription")(reply)
                return
            self._is("aggregated_orderbook_update", reply)
            self.viewers[symbol].check_newer(oldest)

        await self.say(resynced, type="resync", symbol=symbol)

    async def look(self, asked: Asked, pending_max: int, **message: Any) -> None:
        """Request a book once."""

        def looked(reply: dict) -> None:
            if reply["type"] == "error" and pending >= pending_max:
                self.refused("subscription_limit_exceeded")(reply)
                return
            self._is("aggregated_orderbook_data", reply)
            viewer = Viewer(self._truth, asked, "", 0)
            viewer.at_us = microseconds(reply["timestamp"])
            viewer.check(reply["data"], b"")
            self.updates += 1

        pending = sum("get_aggregated" in sent for _, sent in self.expected.values())
        await self.say(looked, type="get_aggregated_orderbook", **message)

    async def list_subscriptions(self) -> None:
        """The subscriptions equal the requested ones."""
        expected = dict(self.asked)

        def listed(reply: dict) -> None:
            self._is("subscriptions_data", reply)
            found = {each["symbol"]: _asked(each) for each in reply["data"]["subscriptions"]}
            if found != expected:
                raise Broken(f"subscribed to {expected}, listed are {found}")

        await self.say(listed, type="get_subscriptions")

    def refused(self, error: str) -> Check:
        """The reply is this error."""

        def check(reply: dict) -> None:
            if reply.get("error") != error:
                raise Broken(f"expected {error}, got {str(reply)[:300]}")
            if not reply["message"].endswith((".", "?")):
                raise Broken(f"no sentence: {reply['message']}")

        return check

    def is_type(self, kind: str) -> Check:
        return lambda reply: self._is(kind, reply)

    # What comes

    def take(self, payload: bytes, wire_bytes: int) -> None:
        """Check one message."""
        message = json.loads(payload, parse_float=Decimal, parse_int=Decimal)
        try:
            self._take(message, payload)
        except Broken as broken:
            raise Broken(f"{self.name}: {broken}") from None
        if self._key:
            self.received_bytes[self._key] = self.received_bytes.get(self._key, 0) + wire_bytes

    def _take(self, message: dict, payload: bytes) -> None:
        kind = message["type"]
        if kind in BOOKS:
            self._update(message, payload)
        if "id" in message:
            check, sent = self.expected.pop(message["id"], (None, ""))
            if check is None:
                raise Broken(f"a second reply to {message['id']}: {payload[:200]!r}")
            try:
                check(message)
            except Broken as broken:
                raise Broken(f"{sent}: {broken}") from None
        elif kind == "welcome":
            self._welcomes += 1
            if self._welcomes > 1:
                raise Broken("a second welcome without an id")
        elif kind == "exchange_status":
            viewer = self.viewers.get(message["symbol"])
            if viewer is None or message["exchange"] not in viewer.asked.exchanges:
                raise Broken(f"a status of what is not subscribed: {payload[:200]!r}")
            viewer.states[message["exchange"]] = message["state"]
        elif kind not in (*BOOKS, *ALONE):
            raise Broken(f"a message that nothing asked for: {payload[:300]!r}")

    def _update(self, message: dict, payload: bytes) -> None:
        viewer = self.viewers.get(message["symbol"])
        if viewer is None or viewer.id != message["subscription_id"]:
            raise Broken(f"an update of what is not subscribed: {payload[:200]!r}")
        viewer.take(message, payload, gaps=self.gaps())
        self.updates += 1

    def _is(self, kind: str, reply: dict) -> None:
        if reply["type"] != kind:
            raise Broken(f"expected {kind}, got {str(reply)[:300]}")


def _asked(reply: dict) -> Asked:
    """The view that a reply describes."""
    options = {
        name: int(value) if isinstance(value, Decimal) else value
        for name, value in reply["options"].items()
    }
    fill = options["fill"]
    if fill is not None:
        options["fill"] = tuple(fill["amounts"]), tuple(fill["notionals"])
    return Asked(reply["symbol"], tuple(reply["exchanges"]), **options)
