"""Control frames with a member that is null, of another type or missing.

Whatever an exchange writes into an acknowledgement, an error, a greeting or a heartbeat, no error
of the whole connection follows, and its books come, if not at once then with the next request.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final

import pytest

from contract.talk import Talk, opened, reopened
from contract.test_connectors import BOOK_CHANNELS, UNKNOWN_FRAMES, UNSEEN, in_step
from contract.unavailable import FRAMES as UNAVAILABLE
from contract.venue import CHANNELS
from onebook.exchanges.kit import (
    UNREADABLE,
    Alive,
    Connector,
    Output,
    ProtocolError,
    Send,
    SocketSeed,
    each_of,
)

MISSING: Final = object()
VALUES: Final = (MISSING, None, 7, -1.5, True, "", "x", "7", [], ["x"], {}, {"x": 1})

every_channel = pytest.mark.parametrize("name", CHANNELS)


def none_spared(key: object, member: Any) -> bool:
    return False


def replaced(
    message: Any, *values: Any, spared: Callable[[object, Any], bool] = none_spared
) -> Iterator[Any]:
    """The message with each value in place of each member, at any depth."""
    members = message.items() if isinstance(message, dict) else enumerate(message)
    for key, member in members:
        if spared(key, member):
            continue
        for value in values:
            if value is MISSING and not isinstance(message, dict):
                continue  # an answer that names fewer is another answer
            copy = dict(message) if isinstance(message, dict) else [*message]
            if value is MISSING:
                del copy[key]
            else:
                copy[key] = value
            yield copy
        if isinstance(member, dict | list):
            for inner in replaced(member, *values, spared=spared):
                copy = dict(message) if isinstance(message, dict) else [*message]
                copy[key] = inner
                yield copy


def variants(
    frame: bytes, *values: Any, spared: Callable[[object, Any], bool] = none_spared
) -> list[bytes]:
    """Replacements of a control frame; none if it is not a JSON object."""
    try:
        message = json.loads(frame)
    except ValueError:
        return []
    if not isinstance(message, dict):
        return []
    return [json.dumps(each).encode() for each in replaced(message, *values, spared=spared)]


def is_control(name: str, frame: bytes) -> bool:
    """Whether a frame of a conversation is not book data."""
    with suppress(*UNREADABLE):
        read = reopened(opened(name)).reader()(frame)
        if read is not None:
            return all(isinstance(out, Alive) for out in each_of(read))
    with suppress(ProtocolError):
        return not isinstance(BOOK_CHANNELS[name].control(frame), SocketSeed)
    return True


@cache
def controls(name: str) -> list[bytes]:
    """All known control frames of an exchange."""
    talk = Talk(name).open()
    talk.act(talk.connector.remove(talk.instruments[:1]))
    said = [step.payload for step in talk.script if step.kind == "frame"]
    said += talk.venue.heartbeats()
    said += [talk.venue.rate_limit_error(), Talk(name).venue.unnamed_error()]
    said += [frame.encode() for frame in UNAVAILABLE[name]]
    kept = [frame for frame in dict.fromkeys(said) if is_control(name, frame)]
    # Where no loss is seen, a message of another channel without its name may be of a book.
    return kept if name in UNSEEN else [*kept, *UNKNOWN_FRAMES[name]]


@every_channel
def test_a_strange_member_of_a_control_frame_is_no_error_of_the_connection(name: str) -> None:
    connector = reopened(opened(name))
    for frame in controls(name):
        for variant in variants(frame, *VALUES):
            error = failure(connector, variant)
            assert error is None or error.instrument, f"{variant!r} of {frame!r}: {error}"


def failure(connector: Connector, frame: bytes) -> ProtocolError | None:
    try:
        list(connector.received(frame))
    except ProtocolError as error:
        return error
    return None


class Garbled(Talk):
    """A conversation in which one control frame of the exchange is replaced."""

    def __init__(self, name: str, instead: dict[bytes, bytes]) -> None:
        super().__init__(name)
        self.instead = instead

    def _telling(self, frame: bytes) -> Callable[[], None]:
        return super()._telling(self.instead.pop(frame, frame))


@every_channel
def test_a_book_comes_whatever_is_strange_in_the_answer_to_its_request(name: str) -> None:
    answers = [
        step.payload
        for step in opened(name).script
        if step.kind == "frame" and step.payload not in opened(name).venue.greeting
    ]
    for frame in answers:
        for variant in variants(frame, MISSING, None, {"x": 1}) if is_control(name, frame) else ():
            talk = Garbled(name, {frame: variant}).open()
            assert not talk.instead, "it was said"
            for instrument in talk.instruments:
                if instrument not in talk.reader.live:
                    talk.resync(instrument)
            talk.check()
            for instrument in talk.instruments:
                talk.change(instrument.native)
            talk.check()


@every_channel
def test_a_greeting_is_known_by_the_one_member_that_says_so(name: str) -> None:
    talk = opened(name)
    for frame in talk.venue.greeting:
        asked = requests(talk, frame)
        deaf = {len(requests(talk, variant)) == 0 for variant in variants(frame, None) if asked}
        assert deaf != {True} or len(json.loads(frame)) == 1


def requests(talk: Talk, greeting: bytes) -> list[Output]:
    connector = talk.exchange.connector(talk.instruments)
    list(connector.opened())
    return [out for out in connector.received(greeting) if isinstance(out, Send)]


def holds_levels(key: object, member: Any) -> bool:
    """Whether a member is a side of a book, in any form."""
    if isinstance(member, list):
        return not any(isinstance(each, dict) and nested(each) for each in member)
    return key in ("bids", "asks") and isinstance(member, dict)


def nested(row: dict[str, Any]) -> bool:
    return any(isinstance(member, dict | list) for member in row.values())


@in_step
def test_a_strange_frame_of_a_book_leaves_it_equal_or_in_doubt(name: str) -> None:
    native = opened(name).instruments[0].native
    values = (MISSING, None, {"x": 1})
    count = len(variants(Talk(name).open().venue.changed(native), *values, spared=holds_levels))
    for index in range(count):
        talk = Talk(name, heal=False).open()
        frame = talk.venue.changed(native)
        talk.deliver(variants(frame, *values, spared=holds_levels)[index], native)
        talk.change(native)
        talk.check(live=False)
