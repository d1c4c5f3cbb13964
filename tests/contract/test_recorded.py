"""Recorded frames of real exchanges, against plain dicts; skipped without the recordings."""

import json
import re
from binascii import crc32
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from contract.oracle import Dicts, Reader
from contract.recorded import bodies, frames, timed_frames
from onebook.books import Books
from onebook.exchanges import EXCHANGES
from onebook.exchanges.binance import BOOKS, SEED_PATH
from onebook.exchanges.kit import (
    Delta,
    Gap,
    Ignored,
    Output,
    SeededEngine,
    Snapshot,
    TopOfBook,
    Verify,
    join_by_rest,
)
from onebook.model import Health, Instrument


def count(outputs: list[Output], kind: type) -> int:
    return sum(isinstance(output, kind) for output in outputs)


@pytest.mark.replayed("binance", "BINANCE.ws.1.0")
def test_binance_replays_without_a_gap_and_equals_dicts_frame_by_frame(samples: Path) -> None:
    exchange = EXCHANGES["binance"]
    seeds = dict(bodies(samples, "BINANCE.http.0.0"))
    assert len(seeds) == 4
    instruments = {native: Instrument("binance", native, native) for native in seeds}
    connector, reader = exchange.connector([*instruments.values()]), Reader(exchange)
    connector.opened()
    reader.read(connector.received(b'{"result":null,"id":1}'))
    truth: dict[str, Dicts] = {}
    events = 0
    for frame in frames(samples, "BINANCE.ws.1.0"):
        outputs = list(connector.received(frame))
        data = json.loads(frame)["data"]
        if "B" in data:  # a best price, of a number that the depth has too
            assert all(isinstance(each, TopOfBook) for each in outputs)
            continue
        if data.get("e") != "depthUpdate":
            assert all(isinstance(each, Ignored) for each in outputs)
            continue
        events += 1
        native = data["s"]
        if native not in truth:  # the body that was fetched when the first event was there
            body = json.loads(seeds[native])
            truth[native] = Dicts()
            truth[native].replace(body["bids"], body["asks"])
            outputs += connector.fetched(instruments[native], seeds[native])
        if data["u"] > json.loads(seeds[native])["lastUpdateId"]:
            truth[native].apply(data["b"], data["a"])
        reader.read(outputs)
        assert reader.sides(instruments[native]) == truth[native].sides
    assert (events, len(truth), reader.invalidated) == (177, 4, [])


@pytest.mark.parametrize("seed_levels", [20, 25, 50])
def test_binance_from_a_small_seed_shows_no_wrong_level_while_live(
    samples: Path, seed_levels: int
) -> None:
    """Without a horizon, a seed gave a wrong book in most states (`wrong_before`)."""
    seeds = dict(bodies(samples, "BINANCE.http.0.0"))
    instruments = {native: Instrument("binance", native, native) for native in seeds}
    channel = replace(BOOKS, track=join_by_rest(SEED_PATH, seed_levels))
    connector = SeededEngine(channel, [*instruments.values()])
    books, unaware, truth = Books(), Books(), Books()
    for each in instruments.values():
        for some in (books, unaware, truth):
            some.open(each)
    connector.opened()
    connector.received(b'{"result":null,"id":1}')
    states = wrong_before = 0
    for frame in frames(samples, "BINANCE.ws.1.0"):
        outputs = list(connector.received(frame))
        data = json.loads(frame)["data"]
        if data.get("e") != "depthUpdate":
            continue
        instrument = instruments[data["s"]]
        true, shown, blind = (some.get(instrument) for some in (truth, books, unaware))
        assert true is not None
        assert shown is not None
        assert blind is not None
        if true.health is Health.SYNCING:
            body = json.loads(seeds[data["s"]])
            whole = Snapshot(instrument, raw(body["bids"]), raw(body["asks"]), levels_asked=1_000)
            assert truth.fill(whole, 0.0) is None
            body |= {side: body[side][:seed_levels] for side in ("bids", "asks")}
            outputs += connector.fetched(instrument, raw(body))
        for output in outputs:
            if isinstance(output, Snapshot):
                assert books.fill(output, 0.0) is None
                assert unaware.fill(replace(output, levels_asked=0), 0.0) is None
            else:
                assert isinstance(output, Delta)
                for each in (books, truth, unaware):
                    assert each.change(output, 0.0) is None
        states += 1
        for side in (0, 1):
            top = shown.core.top(20)[side]
            assert top == true.core.top(20)[side][: len(top)]
        wrong_before += blind.core.top(20) != true.core.top(20)
    assert states == 177
    print(f"{wrong_before} of {states} would have been wrong from {seed_levels} levels")
    assert wrong_before or seed_levels > 25


def raw(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.replayed("okx", "OKX.ws.1.0")
def test_okx_every_recorded_checksum_agrees(samples: Path) -> None:
    exchange = EXCHANGES["okx"]
    natives = ("BTC-USD-220527", "UNI-USD-SWAP", "BTC-USDT")
    connector = exchange.connector([Instrument("okx", native, native) for native in natives])
    reader = Reader(exchange)
    outputs: list[Output] = []
    for frame in frames(samples, "OKX.ws.1.0"):
        results = list(connector.received(frame))
        reader.read(results)
        outputs += results
    assert (count(outputs, Snapshot), count(outputs, Delta), count(outputs, Verify)) == (
        3,
        287,
        290,
    )
    assert (reader.invalidated, len(reader.live)) == ([], 3)


def test_okx_a_lost_recorded_frame_fails_the_checksum(samples: Path) -> None:
    exchange = EXCHANGES["okx"]
    instrument = Instrument("okx", "BTC-USDT", "BTC-USDT")
    results = [
        frame
        for frame in frames(samples, "OKX.ws.1.0")
        if b'"books","instId":"BTC-USDT"' in frame and b'"action"' in frame
    ]
    seen = 0
    for lost in range(1, len(results) - 1):
        connector, reader = exchange.connector([instrument]), Reader(exchange)
        for frame in (*results[:lost], *results[lost + 1 :]):
            reader.read(connector.received(frame))
        seen += bool(reader.invalidated)
    # The others changed levels below the 25 best, or were overwritten by the next frame.
    assert seen > len(results) * 0.9


@pytest.mark.replayed("poloniex", "POLONIEX.ws.1.0")
def test_poloniex_every_recorded_update_chains(samples: Path) -> None:
    exchange = EXCHANGES["poloniex"]
    results = [json.loads(frame) for frame in frames(samples, "POLONIEX.ws.1.0")]
    natives = {
        item["symbol"]
        for message in results
        if message.get("channel") == "book_lv2"
        for item in message.get("data", ())
    }
    instruments = {native: Instrument("poloniex", native, native) for native in natives}
    connector, reader = exchange.connector([*instruments.values()]), Reader(exchange)
    truth = {native: Dicts() for native in natives}
    outputs: list[Output] = []
    for message in results:
        values = list(connector.received(json.dumps(message).encode()))
        outputs += values
        reader.read(values)
        if message.get("channel") == "book_lv2" and "data" in message:
            (item,) = message["data"]
            book = truth[item["symbol"]]
            put = book.replace if message["action"] == "snapshot" else book.apply
            put(item["bids"], item["asks"])
            assert reader.sides(instruments[item["symbol"]]) == book.sides
            assert max(map(len, book.sides)) <= exchange.depth
    assert (count(outputs, Snapshot), count(outputs, Delta)) == (len(natives), 283)
    assert (count(outputs, Gap), reader.invalidated) == (0, [])


@pytest.mark.replayed("kraken", "KRAKEN.ws.50.0", differs="v1, retold in the shape of v2")
def test_kraken_recorded_v1_checksums_agree_when_converted_to_v2(samples: Path) -> None:
    """v1 and v2 differ in form: strings in lists became members of objects.

    The recording is of depth 1000, where v2 is subscribed at 100, so the book is not cut here.
    """
    exchange = EXCHANGES["kraken"]
    results = [json.loads(frame) for frame in frames(samples, "KRAKEN.ws.50.0")]
    books = [message for message in results if isinstance(message, list)]
    natives = {message[-1] for message in books}
    instruments = [Instrument("kraken", native, native) for native in natives]
    connector, reader = exchange.connector(instruments), Reader(exchange)
    reader.levels_max = 1_000
    checked = 0
    for message in books:
        outputs = list(connector.received(_as_v2(message)))
        reader.read(outputs)
        checked += count(outputs, Verify)
    # 4,269 are the exchange's; the 10 snapshots of v1 carry none and get an oracle's.
    assert (checked, reader.invalidated, len(reader.live)) == (4_279, [], 10)


def _as_v2(message: list[Any]) -> bytes:
    parts: dict[str, Any] = {}
    for part in message[1:-2]:
        parts |= part
    snapshot = "as" in parts
    bids = parts.get("bs" if snapshot else "b", [])
    asks = parts.get("as" if snapshot else "a", [])
    checksum = parts.get("c") or _checksum(bids, asks)
    levels = {"bids": _objects(bids), "asks": _objects(asks)}
    sides = ",".join(f'"{side}":[{rows}]' for side, rows in levels.items())
    kind = "snapshot" if snapshot else "update"
    data = f'[{{"symbol":"{message[-1]}",{sides},"checksum":{checksum}}}]'
    return f'{{"channel":"book","type":"{kind}","data":{data}}}'.encode()


def _objects(rows: list[list[str]]) -> str:
    return ",".join(f'{{"price":{price},"qty":{amount}}}' for price, amount, *_ in rows)


def _checksum(bids: list[list[str]], asks: list[list[str]]) -> int:
    best = (*sorted(asks, key=lambda row: Decimal(row[0]))[:10],)
    best += (*sorted(bids, key=lambda row: -Decimal(row[0]))[:10],)
    digits = (text.replace(".", "").lstrip("0") for row in best for text in row[:2])
    return crc32("".join(digits).encode())


@pytest.mark.parametrize(
    ("name", "field", "count"), [("okx", b"instId", 290), ("poloniex", b"symbol", 294)]
)
def test_recorded_data_arrived_soon_after_its_own_time(
    samples: Path, name: str, field: bytes, count: int
) -> None:
    results = timed_frames(samples, f"{name.upper()}.ws.1.0")
    found = re.findall(rb'"%b":"([^"]+)"' % field, b"".join(frame for _, frame in results))
    natives = sorted({native.decode() for native in found})
    connector = EXCHANGES[name].connector([Instrument(name, each, each) for each in natives])
    latencies_ms = [
        arrived_s * 1_000 - out.at_ms
        for arrived_s, frame in results
        for out in connector.received(frame)
        if isinstance(out, Snapshot | Delta)
    ]
    assert len(latencies_ms) == count
    assert min(latencies_ms) > 0
    assert max(latencies_ms) < 500
