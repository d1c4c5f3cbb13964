"""Replays, read by a bare client and by the service's own connectors."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from websockets.exceptions import ConnectionClosed

from onebook.clock import ManualClock
from onebook.feeds.recording import Received, Recorder, read
from onebook.simulator import SimulatedExchanges
from onebook.simulator.kit import replay as replay_module
from onebook.simulator.kit.replay import Replay
from simulator.follower import Follower

OKX_URL = "wss://ws.okx.com:8443/ws/v5/public"
SUBSCRIBE = {"op": "subscribe", "args": [{"channel": "books", "instId": "BTC-USDT"}]}


@pytest.fixture
def frames(samples: Path) -> Path:
    return samples / "exchange_frames"


def recorded(path: Path, *marks: bytes) -> list[str]:
    entries = [entry for entry in read(path) if isinstance(entry, Received)]
    return [e.frame.decode() for e in entries if all(mark in e.frame for mark in marks)]


async def heard(url: str, request: Any, count: int) -> list[str]:
    """Subscribe; the first frame is the acknowledgement."""
    async with websockets.connect(url, max_size=None) as ws, asyncio.timeout(30):
        await ws.send(json.dumps(request))
        return [str(await ws.recv()) for _ in range(count + 1)]


async def test_okx_gets_exactly_the_recorded_frames_in_order(frames: Path) -> None:
    expected = recorded(frames / "OKX.ws.1.0", b'"channel":"books"', b'"BTC-USDT"', b'"data"')
    async with Replay([frames / "OKX.ws.1.0"], speed=None) as replay:
        ack, *rest = await heard(replay.urls["okx"].ws, SUBSCRIBE, len(expected))
        again = await heard(replay.urls["okx"].ws, SUBSCRIBE, len(expected))
    assert json.loads(ack)["event"] == "subscribe"
    assert rest == again[1:] == expected
    assert len(expected) == 98


async def test_poloniex_gets_exactly_the_recorded_frames_in_order(frames: Path) -> None:
    natives = ["BTC_USDT", "BCH_USDT"]
    expected = [
        frame
        for frame in recorded(frames / "POLONIEX.ws.1.0", b'"book_lv2","data"')
        if json.loads(frame)["data"][0]["symbol"] in natives
    ]
    request = {"event": "subscribe", "channel": ["book_lv2"], "symbols": natives}
    async with Replay([frames / "POLONIEX.ws.1.0"], speed=None) as replay:
        _, *rest = await heard(replay.urls["poloniex"].ws, request, len(expected))
    assert rest == expected


async def test_binance_gets_the_recorded_events_and_the_recorded_rest_book(frames: Path) -> None:
    paths = [frames / "BINANCE.ws.1.0", frames / "BINANCE.http.0.0"]
    expected = recorded(paths[0], b"depthUpdate", b"NKNUSDT")
    request = {"method": "SUBSCRIBE", "params": ["nknusdt@depth@100ms"], "id": 1}
    async with Replay(paths, speed=None) as replay, httpx.AsyncClient() as http:
        urls = replay.urls["binance"]
        _, *rest = await heard(urls.ws, request, len(expected))
        body = await http.get(f"{urls.rest}/api/v3/depth?symbol=NKNUSDT&limit=1000")
        missing = await http.get(f"{urls.rest}/api/v3/depth?symbol=BTCUSDT&limit=1000")
    assert rest == expected
    assert body.json()["lastUpdateId"] == 499869752
    assert missing.status_code == 400


async def test_the_connectors_accept_whole_recordings_checksums_and_all(frames: Path) -> None:
    names = ("OKX.ws.1.0", "POLONIEX.ws.1.0", "BINANCE.ws.1.0", "BINANCE.http.0.0")
    wanted = {
        "okx": {"BTC/USDT"},
        "poloniex": {"BTC/USDT", "BCH/USDT", "ZEC/USDT"},
        "binance": {"NKN/USDT", "BLZ/ETH", "LRC/BTC", "RUNE/EUR"},
    }
    async with Replay([frames / name for name in names], speed=None) as replay:
        assert set(replay.urls) == set(wanted)
        for name, symbols in wanted.items():
            async with Follower(replay.exchanges()[name], symbols) as follower:
                natives = {one.native for one in follower.instruments.values()}
                count = sum(line.native in natives for line in replay.scripts[name].lines)
                await follower.until(lambda f=follower, n=count: f.frames > n)  # type: ignore[misc]
                await follower.until(lambda f=follower: set(f.books) == f.symbols)  # type: ignore[misc]
                assert follower.faults == []
                for symbol in symbols:
                    bids, asks = follower.book(symbol)
                    assert max(map(float, bids)) < min(map(float, asks))
        await asyncio.wait_for(replay.finished.wait(), 5)


def small(tmp_path: Path, *, gap_s: float = 0.0) -> Path:
    """Two natives, two frames each."""
    path = tmp_path / "rec"
    with Recorder(path) as recorder:
        recorder.opened(OKX_URL, 1.0)
        for number, native in enumerate(["BTC-USDT", "ETH-USDT"] * 2):
            frame = {"arg": {"channel": "books", "instId": native}, "data": [], "n": number}
            recorder.frame_in(OKX_URL, 2.0 + number * gap_s, json.dumps(frame).encode())
    return path


async def test_recorded_pauses_are_kept_and_shortened_by_the_speed(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with Replay([small(tmp_path, gap_s=10.0)], speed=200) as replay:
        start_s = loop.time()
        await heard(replay.urls["okx"].ws, SUBSCRIBE, 2)
        # 20 s between the two frames of BTC-USDT, 200 times as fast.
        assert 0.1 <= loop.time() - start_s < 5


async def test_a_second_subscription_starts_that_native_over_and_no_other(tmp_path: Path) -> None:
    both = SUBSCRIBE["args"] + [{"channel": "books", "instId": "ETH-USDT"}]  # type: ignore[operator]
    async with (
        Replay([small(tmp_path, gap_s=0.25)], speed=1) as replay,
        websockets.connect(replay.urls["okx"].ws) as ws,
        asyncio.timeout(30),
    ):
        await ws.send(json.dumps({"op": "subscribe", "args": both}))
        first = [json.loads(await ws.recv()) for _ in range(3)]
        assert [m.get("n") for m in first] == [None, None, 0]
        await ws.send(json.dumps(SUBSCRIBE | {"op": "unsubscribe"}))
        await ws.send(json.dumps(SUBSCRIBE))
        rest = [json.loads(await ws.recv()) for _ in range(6)]
        numbers = [m["n"] for m in rest if "n" in m]
        assert sorted(numbers) == [0, 1, 2, 3]
        await replay.finished.wait()
        await ws.send("ping")
        assert await ws.recv() == "pong"


async def test_a_loop_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "LOOP_PAUSE_S", 0.0)
    async with Replay([small(tmp_path)], speed=None, loop=True) as replay:
        got = await heard(replay.urls["okx"].ws, SUBSCRIBE, 6)
        assert [json.loads(m)["n"] for m in got[1:]] == [0, 2] * 3
        assert not replay.finished.is_set()


async def test_a_loop_of_an_exchange_with_rest_books_sends_its_clients_away(
    frames: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "LOOP_PAUSE_S", 0.0)
    paths = [frames / "BINANCE.ws.1.0", frames / "BINANCE.http.0.0"]
    request = {"method": "SUBSCRIBE", "params": ["runeeur@depth@100ms"], "id": 1}
    async with Replay(paths, speed=None, loop=True) as replay:
        with pytest.raises(ConnectionClosed, match="starts over"):
            await heard(replay.urls["binance"].ws, request, 10_000)


async def test_a_client_that_leaves_ends_its_playback(tmp_path: Path) -> None:
    async with Replay([small(tmp_path, gap_s=1000)], speed=1) as replay:
        await heard(replay.urls["okx"].ws, SUBSCRIBE, 1)
        await asyncio.wait_for(replay.finished.wait(), 5)
        await heard(replay.urls["okx"].ws, SUBSCRIBE, 1)


async def test_heartbeats_go_on_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "WATCH_S", 0.001)
    clock = ManualClock(100.0)
    path = tmp_path / "kraken"
    frame = '{"channel":"book","type":"snapshot","data":[{"symbol":"BTC/USD"}]}'
    path.write_text(f"wss://ws.kraken.com/v2 <-> 1.0\n2.0: {frame}\n")
    params = {"channel": "book", "symbol": ["BTC/USD"], "depth": 100}
    async with (
        Replay([path], speed=None, clock=clock) as replay,
        websockets.connect(replay.urls["kraken"].ws) as ws,
        asyncio.timeout(30),
    ):
        await ws.send(json.dumps({"method": "subscribe", "params": params}))
        got = [str(await ws.recv()) for _ in range(3)]
        assert got[2] == frame
        clock.now_s += 2
        assert await ws.recv() == '{"channel":"heartbeat"}'


async def test_a_recording_of_the_simulator_replays_to_the_same_book(tmp_path: Path) -> None:
    path = tmp_path / "rec"
    async with SimulatedExchanges(["kraken"], seed=5, rate_hz=0) as sim:
        exchange = sim.exchanges()["kraken"]
        async with Follower(exchange, ["BTC/USDT"]) as follower:
            await follower.until(lambda: "BTC/USDT" in follower.books)
            for _ in range(20):
                sim.step()
            truth = tuple(sim["kraken"].book("BTC/USDT"))
            await follower.until(lambda: follower.book("BTC/USDT") == truth)
        with Recorder(path) as recorder:
            recorder.opened(exchange.ws_url, 1.0)
            for frame in follower.frame_log:
                recorder.frame_in(exchange.ws_url, 2.0, frame.encode())
    async with (
        Replay([path], speed=None) as replay,
        Follower(replay.exchanges()["kraken"], ["BTC/USDT"]) as again,
    ):
        await again.until(lambda: again.book("BTC/USDT") == truth)
        assert again.faults == []


async def test_ports_may_be_chosen(tmp_path: Path, unused_tcp_port: int) -> None:
    async with Replay([small(tmp_path)], port=unused_tcp_port) as replay:
        assert replay.urls["okx"].ws == f"ws://127.0.0.1:{unused_tcp_port}/ws/v5/public"


async def test_two_clients_are_played_to_independently(tmp_path: Path) -> None:
    async with Replay([small(tmp_path, gap_s=0.1)], speed=1) as replay:
        url = replay.urls["okx"].ws
        async with websockets.connect(url) as stays, asyncio.timeout(30):
            await stays.send(json.dumps(SUBSCRIBE))
            await stays.recv()
            assert json.loads(await stays.recv())["n"] == 0
            async with websockets.connect(url) as leaves:
                await leaves.send(json.dumps(SUBSCRIBE))
                assert json.loads(await leaves.recv())["event"] == "subscribe"
            assert json.loads(await stays.recv())["n"] == 2
