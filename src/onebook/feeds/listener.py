"""Sorts the frames of a feed's socket: messages to the session, everything else to `unusual`."""

from collections.abc import Callable
from typing import Final

from picows import WSFrame, WSListener, WSMsgType, WSTransport

from onebook.feeds.session import FeedSession

DATA: Final = (WSMsgType.TEXT, WSMsgType.BINARY)


class Listener(WSListener):
    """Base of a feed's connection: gives messages to the session, all else to `unusual`.

    A message is a whole one of at most `bytes_max` bytes, without reserved bits, that comes while
    no fragments are `joining`. `received` takes it and the time of `clock` (the session itself, or
    a recorder); then the session's actions are executed. After `budget`
    frames reading is paused until a new one is granted: the feeds share one event loop.
    """

    session: FeedSession
    received: Callable[[bytes, float], None]
    clock: Callable[[], float]
    joining: bool
    bytes_max: int
    budget: int

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Sort one frame (the hot path)."""
        self.budget -= 1
        if self.budget == 0:
            self.pause(transport)
        if (
            frame.msg_type in DATA
            and frame.fin
            and not self.joining
            and not (frame.rsv1 or frame.rsv2 or frame.rsv3)
        ):
            # The length of a bytes object is cheaper to read than a field of the frame.
            message = frame.get_payload_as_bytes()
            if len(message) <= self.bytes_max:
                now = self.clock()
                self.received(message, now)
                if self.session.pending:
                    self.execute(now)
                return
        self.unusual(transport, frame)

    def unusual(self, transport: WSTransport, frame: WSFrame) -> None:
        """Act on a frame that is not simply a message."""
        raise NotImplementedError

    def pause(self, transport: WSTransport) -> None:
        """Read no more: the budget of frames is used up."""
        raise NotImplementedError

    def execute(self, now: float) -> None:
        """Execute the session's actions."""
        raise NotImplementedError
