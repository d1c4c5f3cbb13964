"""Conversations with Coinbase's Advanced Trade feed: its messages and our answers."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.exchanges import EXCHANGES, channel_of
from onebook.exchanges.coinbase_advanced import ADVANCED, LEVELS
from onebook.exchanges.kit import (
    EXPECTED,
    HEARTBEAT,
    NO_LEVELS,
    NOTHING,
    Acknowledged,
    BookRefused,
    Connector,
    Delta,
    Gap,
    LossDetection,
    ProtocolError,
    Snapshot,
    Unnamed,
)
from onebook.model import Instrument

BTC = Instrument("coinbase", "BTC/USD", "BTC-USD")
ETH = Instrument("coinbase", "ETH/USD", "ETH-USD")
HEARTBEATS = Sent(b'{"type":"subscribe","channel":"heartbeats"}')


def asked(kind: str, *natives: str) -> Sent:
    products = json.dumps(natives, separators=(",", ":"))
    return Sent(f'{{"type":"{kind}","product_ids":{products},"channel":"level2"}}'.encode())


def frame(channel: str, number: Any, *events: Any) -> bytes:
    at = "2026-02-09T20:32:50.714964855Z"
    message = {"channel": channel, "timestamp": at, "sequence_num": number, "events": events}
    return json.dumps(message, separators=(",", ":")).encode()


def change(kind: str, native: str = "BTC-USD", amount: str = "0.5") -> dict[str, Any]:
    level = {"side": "offer", "event_time": "x", "price_level": "2", "new_quantity": amount}
    return {"type": kind, "product_id": native, "updates": [level]}


def book(number: Any, kind: str = "update", native: str = "BTC-USD") -> bytes:
    return frame("l2_data", number, change(kind, native))


def subscriptions(number: int, *natives: str) -> bytes:
    channels = {"level2": natives, "heartbeats": ["heartbeats"]}
    return frame("subscriptions", number, {"subscriptions": channels})


def heartbeat(number: int) -> bytes:
    return frame("heartbeats", number, {"current_time": "x", "heartbeat_counter": 7})


def live() -> Connector:
    """Both books live; the last number is 3."""
    connector = ADVANCED.connector([BTC, ETH])
    connector.opened()
    connector.received(subscriptions(0, "BTC-USD", "ETH-USD"))
    connector.received(book(1, "snapshot"))
    connector.received(book(2, "snapshot", "ETH-USD"))
    connector.received(heartbeat(3))
    return connector


def kinds(outputs: Any) -> list[type]:
    return [type(output) for output in outputs]


def gaps(last: int, following: int) -> Sequence[Gap]:
    reason = f"the connection is at frame {last}, the next is {following}"
    return (Gap(BTC, reason), Gap(ETH, reason))


def test_it_is_a_channel_of_coinbase_that_shows_what_is_lost() -> None:
    assert channel_of(EXCHANGES["coinbase"], "advanced") is ADVANCED
    assert (EXCHANGES["coinbase"].guard, ADVANCED.guard) == (
        LossDetection.ORDER,
        LossDetection.COUNT,
    )


def test_heartbeats_are_asked_for_first_and_books_in_requests_of_their_own() -> None:
    connector = ADVANCED.connector([BTC, ETH])
    assert connector.opened() == (HEARTBEATS, asked("subscribe", "BTC-USD", "ETH-USD"))
    assert connector.received(subscriptions(0, "BTC-USD")) == (Acknowledged(BTC),)
    assert connector.received(subscriptions(1, "BTC-USD", "ETH-USD")) == (Acknowledged(ETH),)
    assert connector.received(subscriptions(2, "BTC-USD")) == EXPECTED


def test_levels_are_objects_with_their_side_and_the_time_is_that_of_the_frame() -> None:
    connector = ADVANCED.connector([BTC])
    assert connector.received(book(0)) == NOTHING, "before the snapshot"
    (snapshot,) = connector.received(book(1, "snapshot"))
    (delta,) = connector.received(book(2))
    for out, kind in ((snapshot, Snapshot), (delta, Delta)):
        assert isinstance(out, kind)
        assert (out.shape, out.asks, out.at_ms) == (LEVELS, NO_LEVELS, 1_770_669_170_714)  # type: ignore[attr-defined]


def test_acknowledgements_and_heartbeats_are_counted_with_the_books() -> None:
    connector = live()
    assert kinds(connector.received(book(4))) == [Delta]
    assert connector.received(heartbeat(5)) == HEARTBEAT
    assert connector.received(heartbeat(5)) == HEARTBEAT, "sent twice"
    assert kinds(connector.received(book(6, native="ETH-USD"))) == [Delta]
    assert connector.received(book(6, native="ETH-USD")) == NOTHING


@pytest.mark.parametrize("following", [book(5), heartbeat(5), subscriptions(5), book(0)])
def test_a_number_that_is_skipped_may_have_been_of_any_book(following: bytes) -> None:
    number = json.loads(following)["sequence_num"]
    outputs = tuple(live().received(following))
    assert outputs[:2] == gaps(3, number)
    assert not {Delta, Snapshot} & {*kinds(outputs)}


def test_after_a_gap_only_a_snapshot_starts_a_book() -> None:
    connector = live()
    connector.received(book(5))
    again = (asked("unsubscribe", "BTC-USD"), asked("subscribe", "BTC-USD"))
    assert connector.resync([BTC]) == again
    assert connector.received(book(6)) == NOTHING
    assert kinds(connector.received(book(7, "snapshot"))) == [Snapshot]


def test_one_message_may_have_several_books() -> None:
    both = frame("l2_data", 4, change("update"), change("update", "ETH-USD"))
    deltas = live().received(both)
    assert [delta.instrument for delta in deltas] == [BTC, ETH]  # type: ignore[union-attr]


def test_late_frames_of_a_product_that_was_left_are_counted() -> None:
    connector = live()
    assert connector.remove([ETH]) == (asked("unsubscribe", "ETH-USD"),)
    assert connector.received(book(4, native="ETH-USD")) == NOTHING
    assert kinds(connector.received(book(5))) == [Delta]


def test_an_error_refuses_the_product_it_names_and_the_others_are_asked_for_again() -> None:
    connector = ADVANCED.connector([BTC, ETH])
    connector.opened()
    error = b'{"type":"error","message":"BTC-USD is not a product"}'
    assert connector.received(error) == (
        BookRefused(BTC, "BTC-USD is not a product"),
        asked("subscribe", "ETH-USD"),
    )
    words = "too many L2 streams requested in a single session"
    error = json.dumps({"type": "error", "message": words}).encode()
    assert live().received(error) == (Unnamed(words),)


@pytest.mark.parametrize(
    ("bad", "instrument"),
    [
        (book("4"), BTC),
        (book(2**63), BTC),
        (book(4, "more"), BTC),
        (book(4).replace(b"updates", b"dates"), BTC),
        (frame("l2_data", 4, change("more"), change("update", "ETH-USD")), None),
        (book(4, native="SOL-USD"), None),
        (book(4)[:-4], None),
    ],
)
def test_a_damaged_frame_is_not_counted_so_that_the_next_shows_the_gap(
    bad: bytes, instrument: Instrument | None
) -> None:
    connector = live()
    with pytest.raises(ProtocolError) as caught:
        connector.received(bad)
    assert caught.value.instrument is instrument
    assert tuple(connector.received(heartbeat(5)))[:2] == gaps(3, 5)


def test_products_in_usdc_are_those_in_usd_but_for_two() -> None:
    row = {"base_currency": "A", "quote_currency": "USDC", "status": "online"}
    natives = ("BTC-USD", "BTC-USDC", "USDT-USDC", "EURC-USDC", "USDC-EUR")
    body = json.dumps([row | {"id": native} for native in natives]).encode()
    listed = [each.native for each in ADVANCED.parse_instruments(body)]
    assert listed == ["BTC-USD", "USDT-USDC", "EURC-USDC", "USDC-EUR"]
    with pytest.raises(ProtocolError, match="more than 4"):
        ADVANCED.parse_instruments(body, rows_max=4)
    future = row | {"id": "BIT-28NOV25-CDE", "product_type": "FUTURE"}
    assert ADVANCED.parse_instruments(json.dumps([future]).encode()) == []
