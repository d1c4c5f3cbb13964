"""Frames that an exchange compresses itself."""

import gzip
import zlib

import pytest

from onebook.feeds.inflate import TooLong, Uninflatable, inflated

TEXT = b'{"ch":"market.btcusdt.mbp.400"}' * 10


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
