"""Conversations with OKX: its messages and our answers."""

import json
from typing import Any

import pytest
from msgspec import Raw

from exchanges.sent import Sent
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    Alive,
    BookRefused,
    Closing,
    Connector,
    Delta,
    Gap,
    Ignored,
    ProtocolError,
    SlowDown,
    Snapshot,
    TopOfBook,
    Unnamed,
    Verify,
)
from onebook.exchanges.okx import CHECKSUM, EXCHANGE, INSTRUMENTS
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("okx", "BTC/USDT", "BTC-USDT")
ETH = Instrument("okx", "ETH/USDT", "ETH-USDT")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b"pong",
    b'{"event":"channel-conn-count","channel":"books","connCount":"1","connId":"a"}',
    b'{"event":"notice","code":"1","msg":"hello"}',
    b'{"arg":{"channel":"tickers","instId":"BTC-USDT"},"data":[{"last":"1"}]}',
    b'{"arg":{"channel":"bbo-tbt","instId":"BTC-USDT"},"data":[{"asks":[],"bids":[]}]}',
    b"{}",
)


ARGS = (
    b'"args":[{"channel":"books","instId":"BTC-USDT"},{"channel":"bbo-tbt","instId":"BTC-USDT"}]}'
)


def book(action: str, *items: dict[str, Any], native: str = "BTC-USDT") -> bytes:
    arg = {"channel": "books", "instId": native}
    return json.dumps({"arg": arg, "action": action, "data": items}).encode()


def item(previous: int | None, sequence: int | None, checksum: int | None = 0) -> dict[str, Any]:
    rows: dict[str, Any] = {"asks": [], "bids": [["1", "2", "0", "1"]], "ts": "1"}
    numbers = {"prevSeqId": previous, "seqId": sequence, "checksum": checksum}
    return rows | {name: number for name, number in numbers.items() if number is not None}


def live(*, at: int = 10) -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.received(book("snapshot", item(-1, at)))
    return connector


def kinds(outputs: tuple[object, ...]) -> list[type]:
    return [type(output) for output in outputs]


def test_subscribes_and_hears_it_accepted() -> None:
    connector = EXCHANGE.connector([BTC])
    assert connector.opened() == (Sent(b'{"op":"subscribe",' + ARGS),)
    frame = b'{"event":"subscribe","arg":{"channel":"books","instId":"BTC-USDT"},"connId":"a"}'
    assert connector.received(frame) == (Acknowledged(BTC),)
    other = b'{"event":"subscribe","arg":{"channel":"trades","instId":"BTC-USDT"},"connId":"a"}'
    assert connector.received(other) == EXPECTED
    best = b'{"event":"subscribe","arg":{"channel":"bbo-tbt","instId":"BTC-USDT"},"connId":"a"}'
    assert connector.received(best) == EXPECTED


def test_a_hundred_arguments_share_a_frame() -> None:
    instruments = [Instrument("okx", f"C{rank}/USDT", f"C{rank}-USDT") for rank in range(150)]
    frames = [json.loads(out.frame) for out in EXCHANGE.connector(instruments).opened()]  # type: ignore[union-attr]
    assert [len(frame["args"]) for frame in frames] == [100, 100, 100]


def test_levels_are_handed_on_as_they_came() -> None:
    (snapshot,) = EXCHANGE.connector([BTC]).received(book("snapshot", item(-1, 10)))
    assert isinstance(snapshot, Snapshot)
    assert snapshot.instrument is BTC
    assert bytes(snapshot.bids) == b'[["1", "2", "0", "1"]]'
    assert bytes(snapshot.asks) == b"[]"


def test_updates_follow_by_the_previous_id_even_downwards() -> None:
    connector = live(at=10)
    for previous, sequence in ((10, 17), (17, 17), (17, 3), (3, 4)):
        outputs = connector.received(book("update", item(previous, sequence)))
        assert kinds(outputs) == [Delta]


def test_an_update_without_levels_is_the_heartbeat_of_its_book_and_no_data() -> None:
    connector, empty = live(at=10), item(10, 10) | {"bids": []}
    assert connector.received(book("update", empty)) == (Alive(BTC),)
    assert kinds(connector.received(book("update", item(10, 11)))) == [Delta]
    later = book("update", empty | {"prevSeqId": 12, "seqId": 12})
    assert kinds(connector.received(later)) == [Gap], "something was lost before it"
    assert connector.received(later) == ()


def test_a_frame_has_the_time_that_its_item_names() -> None:
    connector = live()
    timed = item(10, 11) | {"ts": "1597026383085"}
    assert [out.at_ms for out in connector.received(book("update", timed))] == [1_597_026_383_085]
    whole = item(-1, 20) | {"ts": "1597026383086"}
    assert [out.at_ms for out in connector.received(book("snapshot", whole))] == [1_597_026_383_086]
    untimed = {name: value for name, value in item(20, 21).items() if name != "ts"}
    assert [out.at_ms for out in connector.received(book("update", untimed))] == [0]


def test_a_broken_chain_is_a_gap_and_then_silence_until_the_snapshot() -> None:
    connector = live(at=10)
    gap = connector.received(book("update", item(11, 12)))
    assert gap == (Gap(BTC, "the book is at 10, the delta follows 11"),)
    assert connector.received(book("update", item(12, 13))) == ()
    assert kinds(connector.received(book("snapshot", item(-1, 14)))) == [Snapshot]


def test_an_update_without_ids_does_not_follow_one_with_ids() -> None:
    assert kinds(live(at=10).received(book("update", item(None, None)))) == [Gap]


def test_several_items_of_one_frame_are_taken_in_order() -> None:
    outputs = live(at=10).received(book("update", item(10, 11), item(11, 12), item(14, 15)))
    assert kinds(outputs) == [Delta, Delta, Gap]
    assert live().received(book("update")) == ()


def test_a_checksum_is_checked_where_it_is_not_zero() -> None:
    connector = live(at=10)
    outputs = connector.received(book("update", item(10, 11, -855196043)))
    assert outputs[1] == Verify(BTC, CHECKSUM, -855196043)
    assert kinds(connector.received(book("update", item(11, 12, 0)))) == [Delta]
    assert kinds(connector.received(book("update", item(12, 13, None)))) == [Delta]
    assert kinds(connector.received(book("update", item(99, 100, 5)))) == [Gap]
    assert connector.received(book("update", item(100, 101, 5))) == ()


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live()
    assert connector.resync([BTC]) == (
        Sent(b'{"op":"unsubscribe",' + ARGS),
        Sent(b'{"op":"subscribe",' + ARGS),
    )
    assert connector.received(book("update", item(10, 11))) == ()


def test_an_error_refuses_the_instrument_it_names() -> None:
    words = "Wrong URL or channel:books,instId:BTC-USDT doesn't exist. Please use the correct URL"
    frame = json.dumps({"event": "error", "code": "60018", "msg": words}).encode()
    assert EXCHANGE.connector([BTC, ETH]).received(frame) == (BookRefused(BTC, words),)


def test_an_error_without_a_name_may_be_about_any_instrument() -> None:
    frame = b'{"event":"error","code":"60012","msg":"Illegal request"}'
    assert live().received(frame) == (Unnamed("Illegal request"),)


def test_a_rate_limit_asks_for_patience_and_refuses_nothing() -> None:
    frame = b'{"event":"error","code":"60014","msg":"Requests too frequent","connId":"a"}'
    assert live().received(frame) == (SlowDown("Requests too frequent"),)


@pytest.mark.derivatives
@pytest.mark.parametrize("kind", ["SWAP", "FUTURES", "OPTION", "MARGIN"])
def test_rows_of_derivatives_are_no_instruments(kind: str) -> None:
    row = {"instType": kind, "instId": "BTC-USDT-SWAP", "state": "live", "tickSz": "0.1"}
    body = {"code": "0", "data": [row, row | {"instId": "BTC-USDT"}]}
    assert EXCHANGE.parse_instruments(json.dumps(body).encode()) == []


def test_the_notice_of_an_upgrade_is_passed_on() -> None:
    notice = {"event": "notice", "code": "64008", "msg": "The connection will soon be closed"}
    assert live().received(json.dumps(notice).encode()) == (Closing(notice["msg"]),)


def test_the_heartbeat_is_a_text_and_so_is_its_answer() -> None:
    assert EXCHANGE.heartbeat is not None
    assert EXCHANGE.heartbeat.frame == b"ping"
    assert live().received(b"pong") == EXPECTED, "it proves a socket and no data"


@pytest.mark.parametrize(
    "frame",
    [
        book("update", item(10, 11)).replace(b'"asks"', b'"tasks"'),
        book("update", item(10, 2**63)),
        book("update", item(10, 11, 2**40)),
        book("replace", item(10, 11)),
        b'{"arg":{"channel":"books","instId":"BTC-USDT"},"action":"update"}',
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is BTC


def test_instruments_are_named_by_their_id() -> None:
    row = {"instId": "BTC-USDT", "baseCcy": "BTC", "quoteCcy": "USDT", "state": "live"}
    rows = [
        row | {"tickSz": "0.1", "lotSz": "0.00000001"},
        row | {"instId": "NEW-USDT", "baseCcy": "", "quoteCcy": "", "state": "preopen"},
        row | {"instId": "NODASH"},
        {"state": "live"},
        "row",
    ]
    body = json.dumps({"code": "0", "msg": "", "data": rows}).encode()
    found = EXCHANGE.parse_instruments(body)
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTC-USDT", "0.1", "0.00000001"),
        ("NEW/USDT", "NEW-USDT", "", ""),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


def test_another_exchange_s_list_is_its_own() -> None:
    body = b'{"code":"0","data":[{"instId":"BTC-USD","instType":"SPOT","state":"live"}]}'
    (found,) = INSTRUMENTS.of("another")(body)
    assert (found.exchange, found.symbol) == ("another", "BTC/USD")


def test_a_list_with_an_error_code_is_refused() -> None:
    with pytest.raises(ProtocolError, match="50011"):
        EXCHANGE.parse_instruments(b'{"code":"50011","msg":"Too Many Requests","data":[]}')


def test_best_prices_are_a_top_of_the_numbers_of_the_book() -> None:
    """The page's frame of `bbo-tbt`, which ccxt's comment also has, with the later `seqId`."""
    frame = (
        b'{"arg":{"channel":"bbo-tbt","instId":"BTC-USDT"},"data":[{"asks":[["8476.98","415","0",'
        b'"13"]],"bids":[["8476.97","256","0","12"]],"ts":"1597026383085","seqId":123456}]}'
    )
    assert live().reader()(frame) == TopOfBook(
        BTC,
        123456,
        Raw(b'[["8476.97","256","0","12"]]'),
        Raw(b'[["8476.98","415","0","13"]]'),
        at="1597026383085",
    )


def test_refused_best_prices_cost_no_book() -> None:
    words = "Wrong URL or channel:bbo-tbt,instId:BTC-USDT doesn't exist."
    error = json.dumps({"event": "error", "code": "60018", "msg": words}).encode()
    assert live().received(error) == (Ignored(known=True, refused=words),)
