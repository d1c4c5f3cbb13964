"""Compressed frames, permessage-deflate messages and HTTP bodies, valid and invalid ones.

The other side of permessage-deflate is the websockets library.
"""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import (
    PerMessageDeflate,
)
from websockets.frames import Frame, Opcode

from onebook.inflate import (
    STEP_BYTES,
    MessageInflater,
    NotNegotiated,
    TooLong,
    Uninflatable,
    inflated,
    negotiated,
    read_body,
)

TEXT = b'{"ch":"market.btcusdt.mbp.400"}' * 10
MESSAGE = b'{"topic":"depth_update","data":{"a":[["34000","1.2"]]}}' * 10


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_a_frame_comes_back_as_it_was(compress) -> None:
    assert inflated(compress(TEXT), len(TEXT)) == TEXT


def test_a_frame_is_as_long_as_allowed_and_not_a_byte_longer() -> None:
    with pytest.raises(TooLong):
        inflated(gzip.compress(TEXT), len(TEXT) - 1)


def test_a_bomb_is_refused_without_being_inflated() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    assert len(bomb) < 100_000
    with pytest.raises(TooLong):
        inflated(bomb, 1 << 20)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        TEXT,
        gzip.compress(TEXT)[:-3],
        gzip.compress(TEXT)[:20],
        gzip.compress(TEXT) + b"more",
        gzip.compress(TEXT)[:-6] + b"\0\0\0\0\0\0",
    ],
)
def test_a_damaged_frame_is_the_one_declared_error(frame: bytes) -> None:
    with pytest.raises(Uninflatable):
        inflated(frame, 1_000)


async def parts_of(body: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("body", "encodings"),
    [
        (TEXT, []),
        (TEXT, ["identity", ""]),
        (gzip.compress(TEXT), ["GZip"]),
        (gzip.compress(TEXT), ["identity, x-gzip"]),
        (zlib.compress(TEXT), ["deflate"]),
        (b"", ["gzip"]),  # of HEAD and 304
    ],
)
async def test_a_body_comes_back_as_it_was(body: bytes, encodings: list[str], size: int) -> None:
    found = await read_body(parts_of(body, size), encodings, bytes_max=len(TEXT))
    assert found == (TEXT if body else b"")


async def test_a_body_of_many_steps_comes_back_whole_while_other_tasks_run() -> None:
    text, turns = bytes(range(256)) * (STEP_BYTES // 64), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    packed = gzip.compress(text)
    assert await read_body(parts_of(packed, len(packed)), ["gzip"], bytes_max=len(text)) == text
    task.cancel()
    assert turns >= len(text) // STEP_BYTES - 1


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("body", [TEXT, gzip.compress(TEXT)])
async def test_a_body_is_as_long_as_allowed_and_not_a_byte_longer(body: bytes, size: int) -> None:
    encodings = [] if body is TEXT else ["gzip"]
    with pytest.raises(TooLong):
        await read_body(parts_of(body, size), encodings, bytes_max=len(TEXT) - 1)


@pytest.mark.parametrize("encodings", [["gzip, gzip"], ["gzip", "deflate"], ["br"], ["g\0z" * 999]])
async def test_an_encoding_that_is_not_supported_is_the_one_declared_error(encodings) -> None:
    with pytest.raises(Uninflatable, match="is not supported") as raised:
        await read_body(parts_of(TEXT, 9), encodings, bytes_max=1_000)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "body",
    [
        TEXT,
        gzip.compress(TEXT)[:-3],
        gzip.compress(TEXT)[:20],
        gzip.compress(TEXT) + b"more",
        gzip.compress(TEXT)[:-6] + b"\0\0\0\0\0\0",
    ],
)
@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_a_damaged_body_is_the_one_declared_error(body: bytes, size: int) -> None:
    with pytest.raises(Uninflatable):
        await read_body(parts_of(body, size), ["gzip"], bytes_max=1_000)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.booleans(), st.integers(9, 15))
def test_messages_come_back_as_they_were(messages, fresh, bits) -> None:
    sender = PerMessageDeflate(False, fresh, 15, bits)
    ours = MessageInflater(fresh=fresh)
    for message in messages:
        packed = sender.encode(Frame(Opcode.BINARY, message))
        assert packed.rsv1
        assert ours.inflated(bytes(packed.data), 300) == message


def test_a_deflated_message_is_as_long_as_allowed_and_not_a_byte_longer() -> None:
    packed = bytes(PerMessageDeflate(False, True, 15, 15).encode(Frame(Opcode.TEXT, MESSAGE)).data)
    inflater = MessageInflater(fresh=True)
    assert inflater.inflated(packed, len(MESSAGE)) == MESSAGE
    with pytest.raises(TooLong):
        inflater.inflated(packed, len(MESSAGE) - 1)


def test_a_message_bomb_is_refused_without_being_inflated() -> None:
    packer = zlib.compressobj(wbits=-15)
    bomb = packer.compress(bytes(64 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert len(bomb) < 100_000
    with pytest.raises(TooLong):
        MessageInflater(fresh=False).inflated(bomb, 1 << 20)


def test_a_last_block_may_end_a_message() -> None:
    packer = zlib.compressobj(wbits=-15)
    ending = packer.compress(MESSAGE) + packer.flush()
    inflater = MessageInflater(fresh=False)
    for _ in range(2):
        assert inflater.inflated(ending + b"\0", len(MESSAGE)) == MESSAGE


@pytest.mark.parametrize("message", [b"\xff" * 20, MESSAGE])
def test_a_damaged_message_is_the_one_declared_error(message) -> None:
    with pytest.raises(Uninflatable):
        MessageInflater(fresh=False).inflated(message, 1_000)


@pytest.mark.parametrize("answer", [None, ""])
def test_a_server_that_takes_no_offer_sends_plain_messages(answer) -> None:
    assert negotiated(answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        "permessage-deflate",
        "permessage-deflate; server_no_context_takeover",
        'permessage-deflate;server_max_window_bits="10" ; client_no_context_takeover',
        "permessage-deflate; server_max_window_bits=15",
    ],
)
def test_what_a_server_may_answer(answer) -> None:
    assert negotiated(answer) is not None


@pytest.mark.parametrize(
    "answer",
    [
        "x-webkit-deflate-frame",
        "permessage-deflate, permessage-deflate",
        "permessage-deflate; client_max_window_bits=10",
        "permessage-deflate; server_max_window_bits=7",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; server_no_context_takeover=1",
        "permessage-deflate; other",
    ],
)
def test_what_was_not_offered_is_refused(answer) -> None:
    with pytest.raises(NotNegotiated):
        negotiated(answer)
