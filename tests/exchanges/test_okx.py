"""OKX, as conversations: what it says, what we answer."""

import json
from typing import Any

import pytest

from onebook.exchanges.contract import (
    TEXT_25,
    Acknowledged,
    Closing,
    Delta,
    Gap,
    ProtocolError,
    Refused,
    Send,
    Snapshot,
    Verify,
)
from onebook.exchanges.okx import EXCHANGE, Okx
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("okx", "BTC/USDT", "BTC-USDT")
ETH = Instrument("okx", "ETH/USDT", "ETH-USDT")


def book(action: str, *items: dict[str, Any], native: str = "BTC-USDT") -> bytes:
    arg = {"channel": "books", "instId": native}
    return json.dumps({"arg": arg, "action": action, "data": items}).encode()


def item(previous: int | None, sequence: int | None, checksum: int | None = 0) -> dict[str, Any]:
    rows: dict[str, Any] = {"asks": [], "bids": [["1", "2", "0", "1"]], "ts": "1"}
    numbers = {"prevSeqId": previous, "seqId": sequence, "checksum": checksum}
    return rows | {name: number for name, number in numbers.items() if number is not None}


def live(*, at: int = 10) -> Okx:
    connector = Okx([BTC, ETH])
    connector.received(book("snapshot", item(-1, at)))
    return connector


def kinds(outputs: tuple[object, ...]) -> list[type]:
    return [type(output) for output in outputs]


def test_subscribes_and_hears_it_accepted() -> None:
    connector = Okx([BTC])
    asked = b'{"op":"subscribe","args":[{"channel":"books","instId":"BTC-USDT"}]}'
    assert connector.opened() == (Send(asked),)
    frame = b'{"event":"subscribe","arg":{"channel":"books","instId":"BTC-USDT"},"connId":"a"}'
    assert connector.received(frame) == (Acknowledged(BTC),)
    other = b'{"event":"subscribe","arg":{"channel":"trades","instId":"BTC-USDT"},"connId":"a"}'
    assert connector.received(other) == ()


def test_a_hundred_arguments_share_a_frame() -> None:
    instruments = [Instrument("okx", f"C{rank}/USDT", f"C{rank}-USDT") for rank in range(150)]
    frames = [json.loads(out.frame) for out in Okx(instruments).opened()]  # type: ignore[union-attr]
    assert [len(frame["args"]) for frame in frames] == [100, 50]


def test_levels_are_handed_on_as_they_came() -> None:
    (snapshot,) = Okx([BTC]).received(book("snapshot", item(-1, 10)))
    assert isinstance(snapshot, Snapshot)
    assert snapshot.instrument is BTC
    assert bytes(snapshot.bids) == b'[["1", "2", "0", "1"]]'
    assert bytes(snapshot.asks) == b"[]"


def test_updates_follow_by_the_previous_id_even_downwards() -> None:
    connector = live(at=10)
    for previous, sequence in ((10, 17), (17, 17), (17, 3), (3, 4)):
        outputs = connector.received(book("update", item(previous, sequence)))
        assert kinds(outputs) == [Delta]


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
    assert outputs[1] == Verify(BTC, TEXT_25, -855196043)
    assert kinds(connector.received(book("update", item(11, 12, 0)))) == [Delta]
    assert kinds(connector.received(book("update", item(12, 13, None)))) == [Delta]
    assert kinds(connector.received(book("update", item(99, 100, 5)))) == [Gap]
    assert connector.received(book("update", item(100, 101, 5))) == ()


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live()
    args = b'"args":[{"channel":"books","instId":"BTC-USDT"}]}'
    assert connector.resync(BTC) == (
        Send(b'{"op":"unsubscribe",' + args),
        Send(b'{"op":"subscribe",' + args),
    )
    assert connector.received(book("update", item(10, 11))) == ()


def test_an_error_refuses_the_instrument_it_names() -> None:
    words = "Wrong URL or channel:books,instId:BTC-USDT doesn't exist. Please use the correct URL"
    frame = json.dumps({"event": "error", "code": "60018", "msg": words}).encode()
    assert Okx([BTC, ETH]).received(frame) == (Refused(BTC, words),)


def test_an_error_that_names_nobody_may_be_about_anybody() -> None:
    frame = b'{"event":"error","code":"60012","msg":"Illegal request"}'
    with pytest.raises(ProtocolError, match="Illegal request") as caught:
        live().received(frame)
    assert caught.value.instrument is None


def test_the_notice_of_an_upgrade_is_passed_on() -> None:
    notice = {"event": "notice", "code": "64008", "msg": "The connection will soon be closed"}
    assert live().received(json.dumps(notice).encode()) == (Closing(notice["msg"]),)


def test_the_heartbeat_is_a_text_and_so_is_its_answer() -> None:
    assert EXCHANGE.heartbeat is not None
    assert EXCHANGE.heartbeat.frame == b"ping"
    assert live().received(b"pong") == ()


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


def test_a_list_with_an_error_code_is_refused() -> None:
    with pytest.raises(ProtocolError, match="50011"):
        EXCHANGE.parse_instruments(b'{"code":"50011","msg":"Too Many Requests","data":[]}')
