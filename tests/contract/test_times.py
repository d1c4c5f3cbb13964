"""The contract of every exchange with a time endpoint, found through the registry."""

import pytest

from contract.venue import CHANNELS, Venue
from onebook.exchanges.kit import ProtocolError, time_in

TIMED = [name for name, each in CHANNELS.items() if each.time is not None]


@pytest.mark.parametrize("name", TIMED)
def test_the_answer_has_the_time_of_the_exchange(name: str) -> None:
    venue = Venue(name)
    request = CHANNELS[name].time
    assert request is not None
    venue.wait(1.234)
    assert time_in(venue.body(request.path), request.member) == venue.now.ms * 1_000


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b"null", b"0", b"<html></html>", b'"soon"', b"[" * 2_000, b'{"data":[]}'],
)
def test_any_other_answer_is_no_time(name: str, body: bytes) -> None:
    request = CHANNELS[name].time
    assert request is not None
    with pytest.raises(ProtocolError, match="no time"):
        time_in(body, request.member)


def test_enough_exchanges_tell_their_time() -> None:
    assert len(TIMED) >= 18, "or this suite checks nothing"
