"""What a feed needs of its connection, and of whoever records what passes."""

from typing import Protocol

from onebook.feeds.session import Session


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

    session: Session

    def carry_out(self, now: float) -> None:
        """Do what the session wants done."""

    async def attend(self) -> None:
        """Let time pass for the session until the connection is gone."""

    async def release(self) -> None:
        """Leave nothing behind."""


class NotReached(Exception):
    """An exchange that cannot be reached: a state word of `stats`, and what is wrong in words."""

    def __init__(self, trouble: str, problem: str) -> None:
        super().__init__(problem)
        self.trouble = trouble
        self.problem = problem
