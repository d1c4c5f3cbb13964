"""OKX US: the differences from OKX; the protocol is tested in `test_okx`."""

import json
from urllib.parse import urlsplit

import pytest

from exchanges.sent import Sent
from onebook.exchanges import resolve
from onebook.exchanges.kit import (
    Acknowledged,
    BookRefused,
    Delta,
    Gap,
    ProtocolError,
    SlowDown,
    Snapshot,
)
from onebook.exchanges.okxus import EXCHANGE
from onebook.model import Instrument

BTC = Instrument("okxus", "BTC/USD", "BTC-USD")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b"pong",
    b'{"event":"channel-conn-count","channel":"books","connCount":"1","connId":"a"}',
    b'{"arg":{"channel":"tickers","instId":"BTC-USD"},"data":[{"last":"1"}]}',
    b"{}",
)


def book(action: str, previous: int, sequence: int) -> bytes:
    """The frame of the exchange's page, changed to another pair."""
    item = {"asks": [["8476.98", "415", "0", "13"]], "bids": [["8476.97", "256", "0", "12"]]}
    item |= {"ts": "1597026383085", "checksum": 0, "prevSeqId": previous, "seqId": sequence}
    arg = {"channel": "books", "instId": "BTC-USD"}
    return json.dumps({"arg": arg, "action": action, "data": [item]}).encode()


def test_a_book_from_its_subscription_to_a_gap() -> None:
    connector = EXCHANGE.connector([BTC])
    asked = (
        b'{"op":"subscribe","args":[{"channel":"books","instId":"BTC-USD"},'
        b'{"channel":"bbo-tbt","instId":"BTC-USD"}]}'
    )
    assert connector.opened() == (Sent(asked),)
    ack = b'{"event":"subscribe","arg":{"channel":"books","instId":"BTC-USD"},"connId":"a"}'
    assert connector.received(ack) == (Acknowledged(BTC),)
    frames = [book("snapshot", -1, 10), book("update", 10, 15), book("update", 16, 17)]
    outputs = [out for frame in frames for out in connector.received(frame)]
    assert [type(out) for out in outputs] == [Snapshot, Delta, Gap]


def test_a_refusal_a_rate_limit_and_a_damaged_frame() -> None:
    connector = EXCHANGE.connector([BTC])
    slow = b'{"event":"error","code":"60014","msg":"Requests too frequent","connId":"a"}'
    assert connector.received(slow) == (SlowDown("Requests too frequent"),)
    words = "Wrong URL or channel:books,instId:BTC-USD doesn't exist."
    refusal = json.dumps({"event": "error", "code": "60018", "msg": words}).encode()
    assert connector.received(refusal) == (BookRefused(BTC, words),)
    with pytest.raises(ProtocolError) as caught:
        connector.received(book("update", 10, 15).replace(b'"asks"', b'"tasks"'))
    assert caught.value.instrument is BTC


@pytest.mark.derivatives
def test_the_list_is_of_this_exchange_and_of_spot() -> None:
    row = {"instType": "SPOT", "instId": "BTC-USD", "state": "live", "tickSz": "0.1"}
    rows = [row, row | {"instId": "AE-USD"}, row | {"instType": "SWAP", "instId": "BTC-USD-SWAP"}]
    found = EXCHANGE.parse_instruments(json.dumps({"code": "0", "data": rows}).encode())
    assert [(one.exchange, one.symbol, one.native) for one in found] == [
        ("okxus", "BTC/USD", "BTC-USD"),
        ("okxus", "AET/USD", "AE-USD"),
    ]


def test_the_former_names_of_okx_stay_with_okx() -> None:
    assert (resolve("okex"), resolve("okxus")) == ("okx", "okxus")


def test_its_address_is_on_the_port_that_is_open() -> None:
    """OKX closed 8443, which other clients still name, on 2026-10-31."""
    address = urlsplit(EXCHANGE.ws_url)
    assert (address.scheme, address.port) == ("wss", None)
