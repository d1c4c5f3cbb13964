"""Effects of a session, and the queue of its frames, paced by the exchange's rate limits.

`drain` returns the effects that may be executed now. The queue is bounded; urgent frames go first.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from onebook.clock import SYSTEM_CLOCK
from onebook.exchanges.kit.contract import Fetch, Send
from onebook.exchanges.kit.limits import Quotas
from onebook.model import Instrument, Reason


class Transmit(NamedTuple):
    """Send this text frame now."""

    frame: bytes


class SendPing(NamedTuple):
    """Send a WebSocket ping, because nothing was received for a while."""


class Request(NamedTuple):
    """Send a GET request and pass the body to `fetched`, or call `fetch_failed`."""

    fetch: Fetch


class End(NamedTuple):
    """Close the connection.

    `at_once`: reconnect without waiting; `abrupt`: stop reading.
    """

    reason: Reason
    detail: str = ""
    at_once: bool = False
    abrupt: bool = False


Effect = Transmit | SendPing | Request | End
PING: Final = SendPing()


class Outbox:
    """Frames and requests of one connection that wait to be sent.

    Args:
        quotas: The exchange's rate limits; those per address are shared.
        frames_max: Maximum number of waiting frames.
        wake: Called when `drain` has new effects.
        wall_ms: Returns Unix milliseconds, for frames that contain their sending time.
    """

    def __init__(
        self,
        quotas: Quotas,
        *,
        frames_max: int,
        wake: Callable[[], object],
        wall_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
    ) -> None:
        self._wake = wake
        self._wall_ms = wall_ms
        self._frames_max = frames_max
        self._frames: deque[Send] = deque()
        self._urgent: list[Effect] = []
        self._fetches: list[Fetch] = []
        self._messages, self._requests = quotas.of_connection()
        self.held_until = 0.0  # no frame is sent before this time, after a rate limit error

    @property
    def waiting(self) -> bool:
        """Whether frames are queued."""
        return bool(self._frames)

    def send(self, output: Send) -> bool:
        """Queue a frame; returns False if the queue is full."""
        if output.urgent:
            self.urge(self._leaving(output))
        elif len(self._frames) >= self._frames_max:
            return False
        else:
            self._frames.append(output)
            self._wake()
        return True

    def urge(self, effect: Effect) -> None:
        """Send an effect ahead of the queue, regardless of the limits."""
        self._urgent.append(effect)
        self._wake()

    def sent(self, now: float) -> None:
        """Count a message sent outside the queue: a pong."""
        self._messages.take(1, now)

    def request(self, fetch: Fetch) -> None:
        """Request a REST body; the REST client paces the request."""
        self._fetches.append(fetch)
        self._wake()

    def hold(self, until: float) -> None:
        """Send no frame before `until`."""
        self.held_until = max(self.held_until, until)

    def withdraw(self, instruments: Collection[Instrument]) -> None:
        """Drop queued frames that request only these books."""
        self._frames = deque(
            one for one in self._frames if not one.asks or not set(one.asks).issubset(instruments)
        )

    def wait_s(self, now: float) -> float:
        """Return the time until the whole queue is sent.

        Ignores frames of other connections that share a limit.
        """
        count = len(self._frames)
        return max(
            self.held_until - now,
            self._messages.until_s(count, now),
            self._requests.until_s(count, now),
        )

    def drain(self, now: float) -> list[Effect]:
        """Return the effects that are due; frames beyond the limits wait for the next call."""
        effects: list[Effect] = []
        if self._urgent:
            # Urgent frames are sent at once and delay the queue: exchanges count pings as frames.
            self._messages.take(len(self._urgent), now)
            effects, self._urgent = self._urgent, []
        while self._frames and self._may_send(now):
            effects.append(self._leaving(self._frames.popleft()))
        effects.extend(Request(fetch) for fetch in self._fetches)
        self._fetches.clear()
        return effects

    def _leaving(self, output: Send) -> Transmit:
        return Transmit(output.at(self._wall_ms()))

    def _may_send(self, now: float) -> bool:
        """Charge one frame to the exchange's limits; returns False if it must wait."""
        if now < self.held_until:
            return False
        if self._messages.wait_s(1, now) > 0 or self._requests.wait_s(1, now) > 0:
            return False
        self._messages.take(1, now)
        self._requests.take(1, now)
        return True
