"""The clients of a dialect: connections, their messages, and what is due to them.

The same front serves a simulated exchange and a replayed one; they differ in where the book
frames come from, and in what the two hooks do.
"""

import gzip
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from onebook.clock import Clock
from onebook.exchanges.kit.contract import Exchange
from onebook.simulator.kit.board import (
    Dialect,
    Dropped,
    ExchangeBoard,
    Frame,
    Now,
    PostDesk,
    RestReply,
    SimulatedSession,
    Weigher,
)
from onebook.simulator.kit.loopback import LoopbackClient, Urls
from onebook.simulator.kit.windows import Most, Windows

TOO_MANY = 429


def ignore(client: LoopbackClient) -> None:
    """Do nothing."""


class Front:
    """The clients of one exchange.

    Args:
        dialect: Its protocol.
        board: What it publishes.
        clock: The time of this exchange.
        instead: Asked for the answer to a REST request; None lets the dialect answer.
        started: Called with a client that subscribed; `client.session.started` has the natives.
        gone: Called with a client that left.
    """

    def __init__(
        self,
        dialect: Dialect,
        board: ExchangeBoard,
        *,
        clock: Clock,
        instead: Callable[[str, Mapping[str, str]], RestReply | None],
        started: Callable[[LoopbackClient], None] = ignore,
        gone: Callable[[LoopbackClient], None] = ignore,
    ) -> None:
        self.clients: list[LoopbackClient] = []
        self.silent = False
        self.ping_s = dialect.rules.ping_s
        self.deflate = dialect.rules.deflate
        # How often clients went beyond a limit: of connects, messages, requests.
        self.breaches: Counter[str] = Counter()
        self.connects = Windows(dialect.rules.connects, breaches=self.breaches, kind="connects")
        self._fetches = Windows(dialect.rules.fetches, breaches=self.breaches, kind="fetches")
        # Every client of the loopback has the same address.
        self._limited_requests = dialect.rules.requests
        self._messages: dict[Most, deque[float]] = {}
        self._requests: dict[Most, deque[float]] = {}
        self._dialect = dialect
        self._board = board
        self._clock = clock
        self._instead = instead
        self._started = started
        self._gone = gone

    def now(self) -> Now:
        """Both times of this moment."""
        return Now(self._clock.monotonic(), self._clock.wall_ms())

    def admit_all(self) -> None:
        """Take connection attempts and requests at any rate; messages keep their limit."""
        self.connects = self._fetches = Windows(())
        self._limited_requests = ()

    def session(self, path: str) -> SimulatedSession:
        """A client's connection begins."""
        session, rules = SimulatedSession(path, now_s=self._clock.monotonic()), self._dialect.rules
        session.messages = Windows(
            rules.messages, self._messages, breaches=self.breaches, kind="messages"
        )
        session.requests = Windows(
            self._limited_requests, self._requests, breaches=self.breaches, kind="requests"
        )
        return session

    def admits(self) -> bool:
        """Whether another connection may be opened now."""
        return self.connects.takes(self._clock.monotonic())

    def joined(self, client: LoopbackClient) -> None:
        """A client connected."""
        self.clients.append(client)
        self._board.sessions.append(client.session)
        self.say(client, self._dialect.opened(client.session, self.now()))
        self._look(client)

    def received(self, client: LoopbackClient, frame: str) -> None:
        """A client sent a frame."""
        now = self.now()
        client.session.received(now.s)
        replies = self._dialect.received(client.session, frame, now)
        if self.silent and "ping" in frame.lower():
            self._put(client, replies)  # a socket that answers and delivers nothing
        self.say(client, replies)
        self._look(client)

    def left(self, client: LoopbackClient) -> None:
        """A client has disconnected."""
        self.clients.remove(client)
        self._board.sessions.remove(client.session)
        self._gone(client)

    def get(self, path: str, query: Mapping[str, str]) -> RestReply | None:
        """Answer a REST request."""
        if path in self._dialect.rules.posted:
            return None
        return self._answer(path, query)

    def _answer(self, path: str, query: Mapping[str, str]) -> RestReply | None:
        now, dialect = self.now(), self._dialect
        weight = dialect.weight(path, query) if isinstance(dialect, Weigher) else 1
        if not self._fetches.takes(now.s, weight):
            return RestReply(TOO_MANY, b"{}", (("Retry-After", "1"),))
        return self._instead(path, query) or dialect.get(path, query, now)

    def post(self, path: str, host: str, question: Mapping[str, str]) -> RestReply | None:
        """Answer a POST request that came to `host`."""
        if path in self._dialect.rules.posted:
            return self._answer(path, question)
        failure = self._instead(path, {})
        if failure or not isinstance(self._dialect, PostDesk):
            return failure
        return self._dialect.post(path, host, self.now())

    def say(self, client: LoopbackClient, frames: Sequence[Frame]) -> None:
        """Send frames to a client, unless the exchange is silent."""
        if not self.silent and frames:
            self._put(client, frames)

    def _put(self, client: LoopbackClient, frames: Sequence[Frame]) -> None:
        client.session.sent_s = self._clock.monotonic()
        for frame in frames:
            client.put(self._encoded(client, frame))

    async def say_when_read(self, client: LoopbackClient, frame: Frame) -> None:
        """Send a book frame in the client's form, waiting while its queue is full."""
        client.session.sent_s = self._clock.monotonic()
        form = client.session.form
        await client.waited_put(self._encoded(client, form(frame) if form else frame))

    def _encoded(self, client: LoopbackClient, frame: Frame) -> Frame:
        if isinstance(frame, bytes):
            return frame
        if self._dialect.rules.gzip:
            return gzip.compress(frame.encode())
        return frame.encode() if client.session.binary else frame

    def watch(self) -> None:
        """Send the heartbeats that are due and drop the clients that are silent."""
        now = self.now()
        for client in self.clients:
            try:
                self._watch(client, now)
            except Dropped as dropped:
                client.put(dropped)

    def _watch(self, client: LoopbackClient, now: Now) -> None:
        session, rules = client.session, self._dialect.rules
        last = (
            max(session.received_s, session.sent_s) if rules.traffic_counts else session.received_s
        )
        if now.s - last > rules.silence_max_s:
            raise Dropped("Idle for too long.")
        if rules.heartbeat_s is not None and now.s - session.heartbeat_s >= rules.heartbeat_s:
            session.heartbeat_s = now.s
            self.say(client, self._dialect.heartbeat(session, now))

    def _look(self, client: LoopbackClient) -> None:
        if client.session.started:
            self._started(client)
            client.session.started.clear()


def redirected(exchange: Exchange, urls: Urls) -> Exchange:
    """An exchange's facts with other addresses."""
    return msgspec.structs.replace(exchange, ws_url=urls.ws, rest_url=urls.rest)
