"""Frames: built once, right for all clients; where a client's frame ends."""

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import NegotiationError
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from onebook.gateway import frames

LENGTHS = (0, 1, 125, 126, 65_535, 65_536, 200_000)


def read(frame):
    """The messages that the websockets library decodes from our bytes."""
    client = Protocol(CLIENT, max_size=None)
    client.receive_data(frame)
    (event,) = client.events_received()
    return event


@pytest.mark.parametrize("length", LENGTHS)
def test_a_text_frame_is_read_back(length):
    payload = b"x" * length
    frame = frames.text_frame(payload)
    assert read(frame) == Frame(Opcode.TEXT, payload)
    assert frames.payload_length(frame) == length


@pytest.mark.parametrize("length", [256, 5_000, 300_000])
def test_a_deflated_frame_holds_the_message_within_a_window_of_4_kib(length):
    payload = (b'{"price":64000.1,"amount":0.25,"exchanges":["okx"]}' * (length // 50 + 1))[:length]
    frame = frames.deflated_frame(payload)
    assert frame[0] == 0xC1
    body = frame[len(frame) - frames.payload_length(frame) :]
    assert zlib.decompressobj(-frames.WINDOW_BITS).decompress(body + frames.EMPTY_BLOCK) == payload
    assert len(frame) < len(payload)


def test_incompressible_messages_survive():
    payload = os.urandom(100_000)
    frame = frames.deflated_frame(payload)
    body = frame[len(frame) - frames.payload_length(frame) :]
    assert zlib.decompressobj(-frames.WINDOW_BITS).decompress(body + frames.EMPTY_BLOCK) == payload


def test_short_messages_are_not_compressed():
    assert frames.deflated_frame(b"{}") == frames.text_frame(b"{}")


def test_close_and_ping_frames_are_read_back():
    assert Close.parse(read(frames.close_frame(4108, "slow")).data) == Close(4108, "slow")
    assert len(read(frames.close_frame(4108, "x" * 500)).data) == 125
    assert read(frames.ping_frame(b"12345678")) == Frame(Opcode.PING, b"12345678")


@given(payload=st.binary(max_size=125))
def test_the_payload_of_a_pong_is_what_the_library_masked(payload):
    assert frames.pong_payload(Frame(Opcode.PONG, payload).serialize(mask=True)) == payload


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Opcode.PONG, bytes(8)).serialize(mask=False),
        Frame(Opcode.PONG, bytes(4)).serialize(mask=False),
        Frame(Opcode.PONG, b"").serialize(mask=False),
        b"\x0a\x88" + bytes(4 + 8),  # a fragment
        b"\xca\x88" + bytes(4 + 8),  # a reserved bit
        Frame(Opcode.PING, bytes(8)).serialize(mask=True),
        Frame(Opcode.TEXT, bytes(8)).serialize(mask=True),
        b"\x8a\xfe\x00\x7e" + bytes(4 + 126),
        b"\x8a\x88" + bytes(4 + 9),
    ],
)
def test_other_frames_are_left_to_the_library(frame):
    assert frames.pong_payload(frame) is None


@given(
    payload=st.binary(max_size=300) | st.integers(0, 70_000).map(bytes),
    before=st.binary(max_size=5),
    after=st.binary(max_size=5),
    cut=st.integers(0, 400),
)
def test_a_frame_ends_where_the_parser_says_and_not_before_it_is_whole(payload, before, after, cut):
    frame = Frame(Opcode.TEXT, payload).serialize(mask=True)
    start = len(before)
    end = start + len(frame)
    assert frames.frame_end(before + frame + after, start, 1 << 20) == end
    if cut < len(frame):
        assert frames.frame_end(before + frame[:cut], start, 1 << 20) == 0


@pytest.mark.parametrize("length", [126, 70_000])
def test_a_long_length_is_waited_for(length):
    frame = Frame(Opcode.TEXT, bytes(length)).serialize(mask=True)
    assert [frames.frame_end(frame[:there], 0, 1 << 20) for there in range(4)] == [0] * 4


@pytest.mark.parametrize("length", [200, 70_000])
def test_a_frame_that_announces_too_much_is_not_waited_for(length):
    frame = Frame(Opcode.TEXT, bytes(length)).serialize(mask=True)
    assert frames.frame_end(frame[:20], 0, 100) == 20


@pytest.mark.parametrize("bits", [8, 9, 10, 11])
def test_a_client_with_a_smaller_window_gets_no_compression(bits):
    with pytest.raises(NegotiationError):
        frames.SharedDeflate().process_request_params([("server_max_window_bits", str(bits))], [])


@pytest.mark.parametrize("bits", [12, 13, 15])
def test_a_client_with_a_larger_window_gets_the_shared_frames(bits):
    answer, _ = frames.SharedDeflate().process_request_params(
        [("server_max_window_bits", str(bits)), ("client_max_window_bits", None)], []
    )
    assert ("server_no_context_takeover", None) in answer
    assert ("client_no_context_takeover", None) in answer
