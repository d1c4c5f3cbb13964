"""Every fault, observed in the resulting frames."""

import json
from decimal import Decimal
from urllib.parse import urlsplit

import pytest

from contract.venue import list_body
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit.contract import LossDetection, Send
from onebook.model import Instrument
from onebook.simulator import DIALECTS
from onebook.simulator.kit.board import Frame, Now, PublishedBook, TextChanges
from onebook.simulator.kit.server import FAULTS, HUGE_BYTES
from simulator.pure import Desk, main_pair


@pytest.fixture(params=DIALECTS)
def desk(request: pytest.FixtureRequest) -> Desk:
    return followed(request.param)


def followed(name: str) -> Desk:
    """An exchange whose main pair its own connector has subscribed to."""
    exchange = EXCHANGES[name]
    desk = Desk(name, urlsplit(exchange.ws_url).path)
    connector = exchange.connector([main_instrument(desk)])
    outputs = [*connector.opened()]
    for greeting in desk.greeting:
        text = greeting if isinstance(greeting, str) else json.dumps(greeting)
        outputs += connector.received(text.encode())
    for output in outputs:
        if isinstance(output, Send):
            desk.say(output.at(0).decode())
    return desk


def main_instrument(desk: Desk) -> Instrument:
    """The main pair as its exchange's list describes it."""
    exchange, native = EXCHANGES[desk.name], DIALECTS[desk.name].listings[0].native
    body = list_body(exchange, desk.dialect, desk.now)
    (found,) = (each for each in exchange.parse_instruments(body) if each.native == native)
    return found


def scaled(desk: Desk, price: str, amount: str) -> tuple[str, ...]:
    """A level in the exchange's form: integers if its list states scales."""
    scales = main_instrument(desk).scales
    return tuple(
        str(int(Decimal(number).scaleb(scale))) if scale else number
        for number, scale in zip((price, amount), scales, strict=True)
    )


def texts_in(frame: str) -> set[str]:
    """Every text and number of a frame, unchanged."""
    found: set[str] = set()
    rest = [json.loads(frame, parse_constant=str, parse_float=str, parse_int=str)]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            rest += [*value, *value.values()]
        elif isinstance(value, list):
            rest += value
        else:
            found.add(str(value))
    return found


def mentions(frame: Frame, text: str) -> bool:
    return text in texts_in(frame) if isinstance(frame, str) else text.encode() in frame


def test_a_gap_loses_the_frame_and_uses_its_number(desk: Desk) -> None:
    [channel] = desk.board.followed()
    before = channel.updates
    assert desk.step("gap") == []
    assert channel.updates == before + 1


def test_a_duplicate_comes_twice(desk: Desk) -> None:
    first, second = desk.step("duplicate")
    assert first == second


def test_garbage_is_no_message(desk: Desk) -> None:
    [frame] = desk.step("garbage")
    assert desk.dialect.native_of(frame) is None
    if isinstance(frame, str):
        with pytest.raises(ValueError, match=r"."):
            json.loads(frame)


def test_a_price_that_is_no_number(desk: Desk) -> None:
    [frame] = desk.step("nan")
    assert mentions(frame, "NaN")


def test_an_amount_below_zero(desk: Desk) -> None:
    [frame] = desk.step("negative")
    _, amount = scaled(desk, "1", "-1")
    assert mentions(frame, amount) or mentions(frame, "-1.0")


def test_a_huge_frame_is_one_byte_over_what_feeds_accept(desk: Desk) -> None:
    [frame] = desk.step("huge")
    assert len(frame) == HUGE_BYTES
    if isinstance(frame, str):
        json.loads(frame)


def test_a_crossing_bid_comes_as_a_change_of_its_own(desk: Desk) -> None:
    _, frame = desk.step("crossed")
    [channel] = desk.board.followed()
    [bid], [ask] = channel.top(1)
    assert mentions(frame, scaled(desk, *bid)[0])
    assert float(bid[0]) > float(ask[0])


def test_a_wrong_symbol_is_another_listed_one(desk: Desk) -> None:
    [frame] = desk.step("wrong_symbol")
    native = desk.dialect.native_of(frame)
    assert native in desk.board.listings
    assert desk.board.listings[native].symbol != main_pair(desk.name)


@pytest.mark.parametrize(
    "name", [name for name, each in EXCHANGES.items() if each.guard is LossDetection.CHECKSUM]
)
def test_a_wrong_checksum_differs_only_there(name: str) -> None:
    field = f'"{DIALECTS[name].rules.checksum_field}":'
    one, other = followed(name), followed(name)
    [true], [false] = one.step(), other.step("checksum")
    assert isinstance(true, str)
    assert true != false
    assert true.replace(field, f"{field}1") == false


def test_every_fault_has_a_sentence_for_the_help() -> None:
    assert all(fault.__doc__ and fault.__doc__.endswith(".") for fault in FAULTS.values())


class Binary(DIALECTS["okx"]):  # type: ignore[misc]
    """A dialect whose book frames are bytes."""

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> bytes:
        return super().delta(channel, changes, now).encode()


@pytest.mark.parametrize("fault", ["huge", "garbage", "wrong_symbol", "nan"])
def test_a_binary_frame_stays_one(fault: str) -> None:
    one, other = followed("okx"), followed("okx")
    other.dialect = Binary(other.board)
    [text], [frame] = one.step(fault), other.step(fault)
    assert isinstance(text, str)
    assert isinstance(frame, bytes)
    assert len(frame) == len(text)
    assert fault == "huge" or frame == text.encode()
