"""Effects of a session, and the queue in which its frames wait for the exchange's rate limits.

Pure: frames and requests come in, effects that may be executed now are returned by `take`. The
queue is bounded; urgent frames go first.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from onebook.exchanges.contract import Fetch, Send
from onebook.exchanges.limits import Quotas
from onebook.model import Instrument, Reason


class Transmit(NamedTuple):
    """Send this text frame now."""

    frame: bytes


class SendPing(NamedTuple):
    """Send a WebSocket ping: nothing was received for a while."""


class Request(NamedTuple):
    """GET this and pass the body to `fetched`, or call `fetch_failed`."""

    fetch: Fetch


class End(NamedTuple):
    """Close the connection.

    `at_once`: reconnect without a wait; `abrupt`: read nothing more.
    """

    reason: Reason
    detail: str = ""
    at_once: bool = False
    abrupt: bool = False


Action = Transmit | SendPing | Request | End
PING: Final = SendPing()


class Outbox:
    """The frames and requests of a connection that wait to leave.

    Args:
        quotas: What the exchange takes; its limits of the address are shared.
        frames_max: The most frames that may wait.
        wake: Called when there is something new to take.
        wall: Unix seconds, for frames that name the time at which they leave.
    """

    def __init__(
        self,
        quotas: Quotas,
        *,
        frames_max: int,
        wake: Callable[[], object],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._wake = wake
        self._wall = wall
        self._frames_max = frames_max
        self._frames: deque[Send] = deque()
        self._urgent: list[Action] = []
        self._fetches: list[Fetch] = []
        self._messages, self._requests = quotas.of_connection()
        self.held_until = 0.0  # no frame is sent before: the exchange asked for a slower pace

    @property
    def waiting(self) -> bool:
        """Return whether frames wait to leave."""
        return bool(self._frames)

    def send(self, output: Send) -> bool:
        """Queue a frame; False where too many wait already."""
        if output.urgent:
            self.urge(self._leaving(output))
        elif len(self._frames) >= self._frames_max:
            return False
        else:
            self._frames.append(output)
            self._wake()
        return True

    def urge(self, action: Action) -> None:
        """Send something ahead of the queue, regardless of the limits."""
        self._urgent.append(action)
        self._wake()

    def sent(self, now: float) -> None:
        """Count a message that was sent outside of the queue: a pong."""
        self._messages.take(1, now)

    def request(self, fetch: Fetch) -> None:
        """Request a REST body; the REST client paces it."""
        self._fetches.append(fetch)
        self._wake()

    def hold(self, until: float) -> None:
        """Send no frame before `until`."""
        self.held_until = max(self.held_until, until)

    def withdraw(self, instruments: Collection[Instrument]) -> None:
        """Drop the queued frames that ask for some of these books and no other."""
        self._frames = deque(
            one for one in self._frames if not one.asks or not set(one.asks).issubset(instruments)
        )

    def wait_s(self, now: float) -> float:
        """Return the time until the whole queue is sent.

        Frames of other connections that share a limit are not counted.
        """
        count = len(self._frames)
        return max(
            self.held_until - now,
            self._messages.until_s(count, now),
            self._requests.until_s(count, now),
        )

    def take(self, now: float) -> list[Action]:
        """Return what must be done now; frames beyond the limits wait for the next call."""
        actions: list[Action] = []
        if self._urgent:
            # They are sent at once and delay the queue: exchanges count pings as frames.
            self._messages.take(len(self._urgent), now)
            actions, self._urgent = self._urgent, []
        while self._frames and self._may_send(now):
            actions.append(self._leaving(self._frames.popleft()))
        actions.extend(Request(fetch) for fetch in self._fetches)
        self._fetches.clear()
        return actions

    def _leaving(self, output: Send) -> Transmit:
        return Transmit(output.at(round(self._wall() * 1_000)))

    def _may_send(self, now: float) -> bool:
        """Take one frame of the exchange's limits; False where it must wait."""
        if now < self.held_until:
            return False
        if self._messages.wait_s(1, now) > 0 or self._requests.wait_s(1, now) > 0:
            return False
        self._messages.take(1, now)
        self._requests.take(1, now)
        return True
