"""Recordings become scripts, or one clear error."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from onebook.exchanges import EXCHANGES
from onebook.feeds.recording import RecordingError
from onebook.simulator import DIALECTS
from onebook.simulator.kit.board import ChannelKey
from onebook.simulator.kit.replay import exchange_of, listing_of, scripts
from simulator.pure import Desk

OKX = "wss://ws.okx.com:8443/ws/v5/public <-> 1.0\n"
FRAME = '{"arg":{"channel":"books","instId":"BTC-USDT"},"data":[]}'


def file(tmp_path: Path, text: str) -> list[Path]:
    path = tmp_path / "rec"
    path.write_text(text)
    return [path]


def test_only_book_frames_of_the_exchange_are_kept_in_order(tmp_path: Path) -> None:
    other = FRAME.replace("BTC", "ETH")
    future = FRAME.replace("USDT", "USD-220527")
    text = f'{OKX}2.0: pong\n3.0: {FRAME}\n4.0: {other}\n5.0: {{"event":"x"}}\n6.0: {future}\n'
    script = scripts(file(tmp_path, text))["okx"]
    assert [(line.at, line.native, line.frame) for line in script.lines] == [
        (3.0, "BTC-USDT", FRAME),
        (4.0, "ETH-USDT", other),
    ]
    assert [listing.symbol for listing in script.listings] == ["BTC/USDT", "ETH/USDT"]


def test_sockets_and_rest_of_one_exchange_belong_together(tmp_path: Path) -> None:
    delta = '{"stream":"btcusdt@depth@100ms","data":{"e":"depthUpdate","s":"BTCUSDT"}}'
    ws, rest = tmp_path / "b.ws", tmp_path / "b.http"
    ws.write_text(f"wss://stream.binance.com:9443/stream?streams=x <-> 1.0\n2.0: {delta}\n")
    url = "https://api.binance.com/api/v3/depth?symbol=BTCUSDT&limit=1000"
    rest.write_text(f"{url} -> 1.5: one\n{url} -> 1.6: two\n{url[:-27]} -> 1.7: none\n")
    script = scripts([rest, ws])["binance"]
    assert script.bodies == {"BTCUSDT": b"one"}
    assert len(script.lines) == 1


def test_a_recording_of_the_simulator_is_known_by_its_path_and_port(tmp_path: Path) -> None:
    delta = '{"stream":"btcusdt@depth@100ms","data":{"e":"depthUpdate","s":"BTCUSDT"}}'
    rest = "http://127.0.0.1:5000/api/v3/depth?symbol=BTCUSDT&limit=1000"
    text = f"ws://127.0.0.1:5000/stream <-> 1.0\n{rest} -> 1.5: one\n2.0: {delta}\n"
    script = scripts(file(tmp_path, text))["binance"]
    assert (script.bodies, len(script.lines)) == ({"BTCUSDT": b"one"}, 1)


@pytest.mark.parametrize("name", EXCHANGES)
def test_where_a_path_is_shared_the_frames_identify_the_exchange(name: str) -> None:
    desk = Desk(name)
    listing = desk.dialect.listings[0]
    window = desk.board.channel(ChannelKey(listing.native, 500))
    assert window is not None
    frame = desk.dialect.delta(window, window.top(1), desk.now)
    path = urlsplit(EXCHANGES[name].ws_url).path
    found = exchange_of(f"ws://127.0.0.1:1{path}", "f", ['{"id":1}', frame])
    assert DIALECTS[found].native_of is DIALECTS[name].native_of, "one protocol may have two names"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "wss://ws.kraken.com <-> 1.0\n",
            r"rec cannot be replayed: it was recorded from .*\.$",
        ),
        ("wss://ws.example.com/x <-> 1.0\n", r"ws.example.com is none of binance, okx.*\.$"),
        ("1.0: x\n", r"rec has frames before any connection was opened\.$"),
        (OKX + "1.0: pong\n", r"The recording of okx has no order-book frame of a spot pair\.$"),
        (OKX + f"1.0: {FRAME.replace('USDT', 'USD-SWAP')}\n", "no order-book frame of a spot"),
        ("nonsense\n", r"rec, line 1: .*\.$"),
    ],
)
def test_what_cannot_be_replayed_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RecordingError, match=words):
        scripts(file(tmp_path, text))


def test_natives_are_split_into_the_symbols_of_the_simulator() -> None:
    for name, dialect in DIALECTS.items():
        for row in dialect.listings:
            listing = listing_of(name, row.native)
            assert listing is not None
            assert listing.symbol == row.symbol
    for name, native in (("okx", "BTC-USD-220527"), ("binance", "XYZ"), ("bybit", "USDT")):
        assert listing_of(name, native) is None
    assert [getattr(listing_of("binance", n), "symbol", "") for n in ("NKNUSDT", "BLZETH")] == [
        "NKN/USDT",
        "BLZ/ETH",
    ]
