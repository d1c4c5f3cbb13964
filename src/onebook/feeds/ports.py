"""Ports of a feed: its connection, and the recorder of its frames."""

from typing import Protocol

from onebook.feeds.session import FeedSession


class FrameRecorder(Protocol):
    """Keeps what passes on connections, such as `feeds.recording`; `t` is monotonic seconds."""

    def opened(self, url: str, t: float) -> None:
        """A connection is open."""

    def frame_in(self, url: str, t: float, frame: bytes) -> None:
        """A message came."""

    def frame_out(self, url: str, t: float, frame: bytes) -> None:
        """A text frame was sent."""

    def http(self, url: str, t: float, body: bytes) -> None:
        """A REST body came."""


class Link(Protocol):
    """A connection of a feed: a socket of ours, or a client of ccxt."""

    session: FeedSession

    def execute(self, now: float) -> None:
        """Execute the session's actions."""

    async def run(self) -> None:
        """Tick the session until the connection is closed."""

    async def release(self) -> None:
        """Close it and end its tasks."""


class NotReached(Exception):
    """An exchange that cannot be reached: a state word of `stats`, and what is wrong in words."""

    def __init__(self, trouble: str, problem: str) -> None:
        super().__init__(problem)
        self.trouble = trouble
        self.problem = problem
