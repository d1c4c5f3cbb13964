"""Conversations with Coinbase: its messages and our answers."""

import json
import re
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.core import PAIRS
from onebook.exchanges.coinbase import CHANGES, EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    NO_LEVELS,
    Acknowledged,
    Alive,
    BookRefused,
    Delta,
    Exchange,
    ProtocolError,
    Snapshot,
    Unnamed,
)
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("coinbase", "BTC/USD", "BTC-USD")
ETH = Instrument("coinbase", "ETH/USD", "ETH-USD")
SOL = Instrument("coinbase", "SOL/USD", "SOL-USD")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"type":"ticker","product_id":"BTC-USD","price":"1"}',
    b'{"type":"status","products":[],"currencies":[]}',
    b"{}",
)

SNAPSHOT = b'{"type":"snapshot","product_id":"BTC-USD","bids":[["1","2"]],"asks":[["3","4"]]}'
UPDATE = b'{"type":"l2update","product_id":"BTC-USD","time":"t","changes":[["buy","1","0.00"]]}'
BOTH = '["level2_batch","heartbeat"]'


def damaged(frame: bytes) -> bytes:
    """A frame of a book of either feed without its levels."""
    return re.sub(rb'"(changes|bids|asks|updates)":', b'"gone":', frame)


def asked(kind: str, *natives: str, channels: str = BOTH) -> Sent:
    products = json.dumps(natives, separators=(",", ":"))
    return Sent(f'{{"type":"{kind}","product_ids":{products},"channels":{channels}}}'.encode())


def subscriptions(*natives: str) -> bytes:
    channels = [
        {"name": "level2_batch", "product_ids": natives},
        {"name": "heartbeat", "product_ids": ["SOL-USD"]},
    ]
    return json.dumps({"type": "subscriptions", "channels": channels}).encode()


def error(reason: str) -> bytes:
    return json.dumps(
        {"type": "error", "message": "Failed to subscribe", "reason": reason}
    ).encode()


def test_subscribes_to_books_and_to_signs_of_life() -> None:
    assert EXCHANGE.connector([BTC, ETH]).opened() == (asked("subscribe", "BTC-USD", "ETH-USD"),)


def test_a_snapshot_then_changes_with_their_side() -> None:
    connector = EXCHANGE.connector([BTC])
    assert connector.received(UPDATE) == (), "before the snapshot"
    (snapshot,) = connector.received(SNAPSHOT)
    assert isinstance(snapshot, Snapshot)
    assert (bytes(snapshot.bids), bytes(snapshot.asks)) == (b'[["1","2"]]', b'[["3","4"]]')
    assert snapshot.shape is PAIRS
    (delta,) = connector.received(UPDATE)
    assert isinstance(delta, Delta)
    assert (bytes(delta.bids), delta.asks) == (b'[["buy","1","0.00"]]', NO_LEVELS)
    assert delta.shape is CHANGES


def test_changes_have_the_time_that_they_name_and_a_snapshot_has_none() -> None:
    connector = EXCHANGE.connector([BTC])
    (snapshot,) = connector.received(SNAPSHOT)
    update = UPDATE.replace(b'"t"', b'"2026-08-14T20:42:27.265999Z"')
    (delta,) = connector.received(update)
    (unreadable,) = connector.received(UPDATE)
    assert [out.at_ms for out in (snapshot, delta, unreadable)] == [0, 1_786_740_147_265, 0]


def test_a_heartbeat_is_a_sign_of_life_of_one_product() -> None:
    frame = b'{"type":"heartbeat","sequence":90,"last_trade_id":20,"product_id":"BTC-USD"}'
    assert EXCHANGE.connector([BTC, ETH]).received(frame) == (Alive(BTC),)
    assert EXCHANGE.connector([BTC]).received(frame.replace(b"90", b"2")) == (Alive(BTC),)


def test_the_list_of_subscriptions_confirms_each_product_once() -> None:
    connector = EXCHANGE.connector([BTC, ETH, SOL])
    assert connector.received(subscriptions("BTC-USD")) == (Acknowledged(BTC),)
    assert connector.received(subscriptions("BTC-USD", "ETH-USD", "X-Y")) == (Acknowledged(ETH),)


def test_resync_leaves_the_heartbeat_alone() -> None:
    connector = EXCHANGE.connector([BTC])
    connector.received(subscriptions("BTC-USD"))
    connector.received(SNAPSHOT)
    assert connector.resync([BTC]) == (
        asked("unsubscribe", "BTC-USD", channels='["level2_batch"]'),
        asked("subscribe", "BTC-USD"),
    )
    assert connector.received(UPDATE) == ()
    assert connector.received(subscriptions("BTC-USD")) == (Acknowledged(BTC),)


def test_an_error_refuses_the_product_it_names_and_the_others_are_asked_for_again() -> None:
    connector = EXCHANGE.connector([BTC, ETH, SOL])
    connector.received(subscriptions("SOL-USD"))
    refused, again = connector.received(error("BTC-USD is not a valid product"))
    assert refused == BookRefused(BTC, "Failed to subscribe: BTC-USD is not a valid product")
    assert again == asked("subscribe", "ETH-USD")
    (refused,) = connector.received(error("ETH-USD is not a valid product"))
    assert isinstance(refused, BookRefused), "and nothing is asked for twice without end"


def test_an_error_that_names_no_product_may_be_about_any() -> None:
    (unnamed,) = EXCHANGE.connector([BTC]).received(error("level2 requires authentication"))
    assert isinstance(unnamed, Unnamed)
    (unnamed,) = EXCHANGE.connector([BTC]).received(
        b'{"type":"error","message":"too many L2 streams requested in a single session"}'
    )
    assert isinstance(unnamed, Unnamed)


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    row = {
        "id": "BIT-28NOV25-CDE",
        "base_currency": "BTC",
        "quote_currency": "USD",
        "status": "online",
        "product_type": "FUTURE",
    }
    assert EXCHANGE.parse_instruments(json.dumps([row]).encode()) == []


@pytest.mark.parametrize(
    "frame",
    [
        UPDATE.replace(b"changes", b"charges"),
        SNAPSHOT.replace(b"asks", b"tasks"),
    ],
)
def test_a_damaged_frame_names_its_product(frame: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        EXCHANGE.connector([BTC]).received(frame)
    assert caught.value.instrument is BTC


@pytest.mark.parametrize("channels", [{"name": 1}, None, [None, {"name": "level2_batch"}]])
def test_subscriptions_without_a_list_of_products_accept_none(channels: Any) -> None:
    frame = json.dumps({"type": "subscriptions", "channels": channels}).encode()
    assert EXCHANGE.connector([BTC]).received(frame) == EXPECTED


@pytest.mark.parametrize(
    ("member", "trading"),
    [
        ("trading_disabled", False),
        ("cancel_only", False),
        ("post_only", False),
        ("limit_only", True),
        ("auction_mode", True),
    ],
)
@pytest.mark.parametrize("exchange", [EXCHANGE, EXCHANGE.channels["advanced"]])
def test_a_product_whose_orders_are_not_matched_is_halted(
    exchange: Exchange, member: str, *, trading: bool
) -> None:
    row = {"id": "BTC-USD", "base_currency": "BTC", "quote_currency": "USD", "status": "online"}
    usual = dict.fromkeys(
        ("trading_disabled", "cancel_only", "post_only", "limit_only", "auction_mode"), False
    )
    rows = [row, row | usual, row | usual | {member: True}]
    found = exchange.parse_instruments(json.dumps(rows).encode())
    assert [one.status is InstrumentStatus.TRADING for one in found] == [True, True, trading]


def test_instruments_are_read_row_by_row() -> None:
    row = {
        "id": "BTC-USD",
        "base_currency": "BTC",
        "quote_currency": "USD",
        "quote_increment": "0.01",
        "base_increment": "0.00000001",
        "status": "online",
        "trading_disabled": False,
    }
    rows = [
        row,
        row | {"id": "A-USD", "base_currency": "A", "status": "delisted"},
        row | {"id": "B-USD", "base_currency": "b", "trading_disabled": True},
        row | {"status": None},
        {},
        5,
    ]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USD", "BTC-USD", "0.01", "0.00000001"),
        ("A/USD", "A-USD", "0.01", "0.00000001"),
        ("B/USD", "B-USD", "0.01", "0.00000001"),
    ]
    trading = [one.status is InstrumentStatus.TRADING for one in found]
    assert trading == [True, False, False]
