"""Conversations with Independent Reserve: its messages and our answers."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from contract.oracle import Reader
from exchanges.sent import Sent
from onebook.exchanges.independentreserve import CHECKSUM, EXCHANGE, LEVELS
from onebook.exchanges.kit import (
    Acknowledged,
    Alive,
    BookRefused,
    Connector,
    Delta,
    ProtocolError,
    SlowDown,
    Snapshot,
    Unnamed,
    Verify,
)
from onebook.model import Instrument, InstrumentStatus
from onebook.simulator.kit import Dropped
from simulator.pure import Desk

BTC = Instrument("independentreserve", "BTC/USD", "btc-usd")
ETH = Instrument("independentreserve", "ETH/USD", "eth-usd")

# Why no test feeds it derivative rows.
NO_DERIVATIVES = "its list names coins, and it trades spot alone"

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"Event":"Heartbeat","Time":1676156208182}',
    b'{"Channel":"ticker-btc-usd","Nonce":130,"Data":{"Pair":"btc-usd"},"Event":"Trade"}',
    b"{}",
)


def damaged(frame: bytes) -> bytes:
    """Remove either side."""
    return frame.replace(b'"Bids":', b'"gone":').replace(b'"Offers":', b'"gone":')


def book(event: str, pair: str = "btc/usd", **members: Any) -> bytes:
    data = {"Bids": [{"Price": 2198.09, "Volume": 0.16143952}], "Offers": [], "Crc32": 42}
    frame = {"Channel": f"orderbook/100/{pair}", "Event": f"OrderBook{event}"}
    return json.dumps(frame | {"Time": 1_676_150_558_254, "Data": data | members}).encode()


def levels(text: str) -> list[dict[str, float]]:
    """Parse levels from a text of prices and volumes."""
    numbers = [float(each) for each in text.split()]
    return [
        {"Price": price, "Volume": volume}
        for price, volume in zip(numbers[::2], numbers[1::2], strict=True)
    ]


def asked(event: str, *natives: str) -> Sent:
    codes = json.dumps(natives, separators=(",", ":"))
    return Sent(f'{{"Event":"{event}","Data":{codes}}}'.encode())


def said(event: str, data: object) -> bytes:
    return json.dumps({"Event": event, "Data": data, "Time": 1}).encode()


def live() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.received(book("Snapshot"))
    return connector


def test_subscribes_at_the_depth_of_the_address_that_the_book_is_cut_to() -> None:
    assert EXCHANGE.connector([BTC, ETH]).opened() == (asked("Subscribe", "btc-usd", "eth-usd"),)
    assert EXCHANGE.ws_url.endswith(f"/{EXCHANGE.depth}")
    assert EXCHANGE.truncate


@pytest.mark.parametrize("spelling", ["eth-usd", "orderbook/100/eth/usd"])
def test_the_list_of_subscriptions_confirms_each_pair_once(spelling: str) -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.received(said("Subscriptions", [spelling])) == (Acknowledged(ETH),)
    listed = said("Subscriptions", [spelling, "btc-usd", "sol-usd"])
    assert connector.received(listed) == (Acknowledged(BTC),)


def test_every_book_frame_brings_its_checksum() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.received(book("Change")) == (), "before the snapshot"
    snapshot, verify = connector.received(book("Snapshot", Crc32=4_294_967_295))
    assert isinstance(snapshot, Snapshot)
    assert verify == Verify(BTC, CHECKSUM, 4_294_967_295)
    delta, verify = connector.received(book("Change"))
    assert isinstance(delta, Delta)
    assert (snapshot.shape, delta.shape) == (LEVELS, LEVELS)
    assert (delta.at_ms, verify) == (1_676_150_558_254, Verify(BTC, CHECKSUM, 42))


def test_the_checksum_is_over_bids_then_asks_with_eight_decimals() -> None:
    """The only frame that ccxt prints, of a book with one level per side."""
    sides = {"Bids": [{"Price": 2198.09, "Volume": 0.16143952}]}
    sides |= {"Offers": [{"Price": 2201.25, "Volume": 15}]}
    connector, reader = EXCHANGE.connector([ETH]), Reader(EXCHANGE)
    reader.read(connector.received(book("Snapshot", "eth/usd", **sides, Crc32=1_519_697_650)))
    assert reader.invalidated == []


def test_the_books_that_the_page_prints_have_their_checksums() -> None:
    """A book of depth 5: the change pushes out a level without deleting it."""
    printed = "31802.46 0.25 31802.45 0.32464684 31802.42 0.34465528 31785.01 2.733 31785 1.5"
    offered = "31844.99 0.30740328 31845 1.5 31865.3 0.2 31875 1.5 31875.9 0.788"
    connector, reader = EXCHANGE.connector([BTC]), Reader(replace(EXCHANGE, depth=5))
    sides = {"Bids": levels(printed), "Offers": levels(offered)}
    reader.read(connector.received(book("Snapshot", **sides, Crc32=2_893_776_693)))
    sides = {"Bids": [], "Offers": levels("31844.98 0.02396605")}
    reader.read(connector.received(book("Change", **sides, Crc32=263_206_970)))
    assert reader.invalidated == []
    _, asks = reader.sides(BTC) or ({}, {})
    assert [*map(str, asks)] == ["31844.98", "31844.99", "31845", "31865.3", "31875"]


def test_a_later_snapshot_replaces_the_book_that_is_followed() -> None:
    connector, reader = live(), Reader(EXCHANGE)
    snapshot, _ = connector.received(book("Snapshot"))
    again, _ = connector.received(book("Snapshot", Bids=levels("2100.5 3")))
    reader.read([snapshot, again])
    bids, _ = reader.sides(BTC) or ({}, {})
    assert [*map(str, bids)] == ["2100.5"]


def test_a_price_that_goes_and_comes_back_in_one_frame_is_there() -> None:
    rows = [{"Price": 1.5, "Volume": 0}, {"Price": 1.5, "Volume": 2}]
    connector, reader = EXCHANGE.connector([BTC]), Reader(EXCHANGE)
    snapshot, _ = connector.received(book("Snapshot", Bids=rows[1:]))
    delta, _ = connector.received(book("Change", Bids=rows))
    reader.read([snapshot, delta])
    bids, _ = reader.sides(BTC) or ({}, {})
    assert [*map(str, bids)] == ["1.5"]


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live()
    assert connector.resync([BTC]) == (
        asked("Unsubscribe", "btc-usd"),
        asked("Subscribe", "btc-usd"),
    )
    assert connector.received(book("Change")) == ()


def test_an_error_refuses_the_pair_that_it_names_and_no_other() -> None:
    words = "Invalid channel: btc-usd"
    assert live().received(said("Error", words)) == (BookRefused(BTC, words),)
    assert live().received(said("Error", "Invalid")) == (Unnamed("Invalid"),)
    slow = "Too many requests"
    assert live().received(said("Error", slow)) == (SlowDown(slow),)


def test_a_heartbeat_is_one_of_the_connection() -> None:
    assert live().received(UNKNOWN_FRAMES[0]) == (Alive(),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book("Replace"), BTC),
        (book("Change", Crc32=-(2**31) - 1), BTC),
        (book("Change").replace(b'"Offers"', b'"gone"'), BTC),
        (book("Change").replace(b"orderbook/100/btc/usd", b"orderbook/100/"), None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


def test_coins_are_listed_in_dollars_under_the_names_of_the_socket() -> None:
    places = {"OrderPrimaryCurrency": 8, "OrderSecondaryCurrency": 2}
    row = {"Currency": "Xbt", "IsTradeEnabled": True, "DecimalPlaces": places, "Networks": []}
    rows = [row, row | {"Currency": "Usdc", "IsTradeEnabled": False}, {"Currency": 5}, None]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USD", "btc-usd", "0.01", "0.00000001"),
        ("USDC/USD", "usdc-usd", "0.01", "0.00000001"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


def test_the_simulated_exchange_refuses_what_the_real_one_does() -> None:
    desk = Desk("independentreserve", "/orderbook/50")
    assert desk.say({"Event": "Subscribe", "Data": ["no-pe"]})[0]["Event"] == "Error"
    ack, snapshot = desk.say({"Event": "Subscribe", "Data": ["XBT-USD"]})
    assert ack["Data"] == ["btc-usd"]
    assert snapshot["Channel"] == "orderbook/50/btc/usd"
    assert len(snapshot["Data"]["Offers"]) == 50
    with pytest.raises(Dropped):
        Desk("independentreserve", "/orderbook/50?subscribe=no-pe")
