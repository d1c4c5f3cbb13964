"""Frames are sorted: messages to the session, everything else to `unusual`."""

import pytest
from picows import WSMsgType
from picows.picows import _make_test_ws_frame as frame_of

from onebook.feeds.listener import Listener

BYTES_MAX = 5
NOW = 12.5


class Asking:
    """A session with an action due, or none."""

    def __init__(self, pending):
        self.pending = pending


def sorted_by(frame, *, joining=False, pending=False, budget=100):
    """What a listener makes of one frame: the calls, in order."""
    calls = []

    class Writing(Listener):
        def unusual(self, transport, frame):
            calls.append(("unusual", frame.get_payload_as_bytes()))

        def pause(self, transport):
            calls.append("pause")

        def execute(self, now):
            calls.append(("execute", now))

    writing = Writing()
    writing.session = Asking(pending)
    writing.clock = lambda: NOW
    writing.received = lambda message, now: calls.append((message, now))
    writing.joining = joining
    writing.bytes_max = BYTES_MAX
    writing.budget = budget
    writing.on_ws_frame(None, frame)
    return calls


@pytest.mark.parametrize("kind", [WSMsgType.TEXT, WSMsgType.BINARY])
@pytest.mark.parametrize("message", [b"", b"a", b"12345"])
def test_a_whole_message_is_received_with_its_time(kind, message):
    assert sorted_by(frame_of(kind, message, True, False)) == [(message, NOW)]


def test_the_session_s_actions_are_executed_after_its_message():
    calls = sorted_by(frame_of(WSMsgType.TEXT, b"a", True, False), pending=True)
    assert calls == [(b"a", NOW), ("execute", NOW)]


@pytest.mark.parametrize(
    "frame",
    [frame_of(WSMsgType.TEXT, b"a", True, False), frame_of(WSMsgType.PONG, b"", True, False)],
)
def test_reading_pauses_with_the_last_frame_of_the_budget(frame):
    assert sorted_by(frame, budget=2)[0] != "pause"
    assert sorted_by(frame, budget=1)[0] == "pause"
    assert sorted_by(frame, budget=0)[0] != "pause", "once is enough"


@pytest.mark.parametrize(
    ("kind", "message", "fin", "rsv1", "joining"),
    [
        (WSMsgType.TEXT, b"123456", True, False, False),
        (WSMsgType.TEXT, b"a", False, False, False),
        (WSMsgType.TEXT, b"a", True, True, False),
        (WSMsgType.TEXT, b"a", True, False, True),
        (WSMsgType.CONTINUATION, b"a", True, False, False),
        (WSMsgType.CONTINUATION, b"a", True, False, True),
        (WSMsgType.PING, b"a", True, False, False),
        (WSMsgType.PONG, b"a", True, False, False),
        (WSMsgType.CLOSE, b"\x03\xe8", True, False, False),
    ],
    ids=[
        "too long", "a part", "a reserved bit", "a message among parts", "continuation",
        "the last part", "ping", "pong", "close",
    ],
)  # fmt: skip
def test_everything_else_is_unusual(kind, message, fin, rsv1, joining):
    frame = frame_of(kind, message, fin, rsv1)
    assert sorted_by(frame, joining=joining, pending=True) == [("unusual", message)]


def test_an_error_of_the_reader_is_not_swallowed():
    class Failing(Listener):
        pass

    failing = Failing()
    failing.session, failing.clock, failing.joining = Asking(False), lambda: NOW, False
    failing.bytes_max = BYTES_MAX
    failing.budget = 1_000
    failing.received = lambda message, now: 1 / 0
    with pytest.raises(ZeroDivisionError):
        failing.on_ws_frame(None, frame_of(WSMsgType.TEXT, b"a", True, False))
