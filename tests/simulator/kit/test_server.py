"""Simulated exchanges on their ports, followed by the service's own connectors."""

import asyncio
import gzip

import httpx
import pytest
import websockets
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close

from onebook.clock import ManualClock
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit.contract import LossDetection, Trading
from onebook.simulator import DIALECTS, SimulatedExchanges
from onebook.simulator.kit import loopback
from simulator.follower import Follower
from simulator.pure import main_pair

SYMBOL = "BTC/USDT"
REASONS = {"coinbase": "No subscription within 5 s."}


@pytest.fixture(params=DIALECTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def ended(ws: ClientConnection) -> Close | None:
    """Read until the connection is closed; return the exchange's close code, None without one."""
    async with asyncio.timeout(30):
        try:
            while True:
                await ws.recv()
        except ConnectionClosed as closed:
            return closed.rcvd


async def settled(follower: Follower, sim: SimulatedExchanges, symbol: str = "") -> None:
    name = follower.exchange.name
    pair = symbol or main_pair(name)
    if follower.exchange.guard is LossDetection.WHOLE:
        sim.step()  # the first book may come with the next change

    def equal(levels: int | None = None) -> bool:
        return follower.book(pair, levels) == tuple(sim[name].book(pair, levels))

    # The best levels first: before the last frame they differ, and whole books are large.
    await follower.until(lambda: equal(5) and equal())


@pytest.mark.over_sockets
async def test_every_connector_keeps_every_book_equal_to_the_truth(name: str) -> None:
    fitting = EXCHANGES[name].limits.topics
    symbols = [listing.symbol for listing in DIALECTS[name].listings[:fitting]]
    async with (
        SimulatedExchanges([name], seed=11, rate_hz=0) as sim,
        Follower(sim.exchanges()[name], symbols) as follower,
    ):
        await follower.until(lambda: follower.acknowledged == set(symbols))
        for _ in range(10):
            sim.step()
            for symbol in symbols:
                await settled(follower, sim, symbol)
        assert follower.faults == []
        assert sim[name].clients == 1


@pytest.mark.over_sockets
@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        *(("gap", True), ("garbage", True), ("duplicate", False)),
        # Refused as garbage is; tests/contract/test_hostile has them of every exchange.
        *(pytest.param(fault, True, marks=pytest.mark.soak) for fault in ("nan", "negative")),
    ],
)
async def test_a_fault_is_seen_and_a_resync_repairs_it(name: str, fault: str, seen: bool) -> None:
    async with (
        SimulatedExchanges([name], seed=11, rate_hz=0) as sim,
        Follower(sim.exchanges()[name], [main_pair(name)]) as follower,
    ):
        sim.step()
        await follower.until(lambda: main_pair(name) in follower.acknowledged)
        await settled(follower, sim)
        sim[name].corrupt_next(main_pair(name), fault)
        sim.step()
        sim.step()
        if fault == "gap" and EXCHANGES[name].guard in (LossDetection.ORDER, LossDetection.WHOLE):
            return  # what is lost cannot be seen, or is whole in the next frame
        if seen:
            await follower.until(lambda: bool(follower.faults))
            await follower.resync(main_pair(name))
        sim.step()
        await settled(follower, sim)
        assert follower.faults == []


@pytest.mark.over_sockets
@pytest.mark.parametrize("fault", ["crossed", "checksum", "wrong_symbol", "huge"])
async def test_faults_that_need_a_look_at_the_book(name: str, fault: str) -> None:
    async with (
        SimulatedExchanges([name], seed=11, rate_hz=0) as sim,
        Follower(sim.exchanges()[name], [main_pair(name)]) as follower,
    ):
        if fault == "checksum" and EXCHANGES[name].guard is not LossDetection.CHECKSUM:
            with pytest.raises(ValueError, match="sends no checksum"):
                sim[name].corrupt_next(main_pair(name), fault)
            return
        await follower.until(lambda: main_pair(name) in follower.acknowledged)
        sim.step()
        await settled(follower, sim)
        sim[name].corrupt_next(main_pair(name), fault)
        sim.step()
        if fault == "huge":
            await follower.until(lambda: len(follower.frame_log[-1]) > 4 * 1024 * 1024)
        else:
            await follower.until(lambda: bool(follower.faults))


@pytest.mark.over_sockets
async def test_the_state_of_the_trading_engine_reaches_the_connector_or_cannot_be_reported(
    name: str,
) -> None:
    async with (
        SimulatedExchanges([name], rate_hz=0) as sim,
        Follower(sim.exchanges()[name], [main_pair(name)]) as follower,
    ):
        status = DIALECTS[name].rules.status
        if status is None:
            with pytest.raises(ValueError, match="does not publish"):
                sim[name].set_system("maintenance")
            return
        await settled(follower, sim)
        sim[name].set_system("maintenance")
        frame = status("maintenance")
        await follower.until(lambda: frame in follower.frame_log)
        (trading,) = EXCHANGES[name].connector([]).received(frame.encode())
        assert isinstance(trading, Trading)
        assert not trading.open
        assert "maintenance" in trading.reason.lower()


async def test_unknown_faults_and_exchanges_are_named() -> None:
    async with SimulatedExchanges(["okx"], rate_hz=0) as sim:
        with pytest.raises(ValueError, match="unknown fault 'x'; there are: gap"):
            sim["okx"].corrupt_next(SYMBOL, "x")
    with pytest.raises(ValueError, match="unknown simulated exchange 'mars'"):
        SimulatedExchanges(["mars"])


@pytest.mark.over_sockets
async def test_stop_ends_without_a_word_and_start_comes_back_on_the_same_port(name: str) -> None:
    async with SimulatedExchanges([name], rate_hz=0) as sim:
        urls = sim.urls[name]
        async with websockets.connect(urls.ws) as ws:
            await sim[name].stop()
            await sim[name].stop()
            assert await ended(ws) is None
        with pytest.raises(OSError, match="Connect call failed"):
            await websockets.connect(urls.ws)
        await sim[name].start()
        await sim[name].start()
        assert sim.urls[name] == urls
        async with websockets.connect(urls.ws):
            pass


async def test_freeze_silence_and_heal() -> None:
    async with (
        SimulatedExchanges(["okx"], rate_hz=0) as sim,
        Follower(sim.exchanges()["okx"], [SYMBOL]) as follower,
    ):
        await settled(follower, sim)
        before = follower.book(SYMBOL)
        sim["okx"].freeze()
        sim.step()
        assert tuple(sim["okx"].book(SYMBOL)) == before
        sim["okx"].unfreeze()
        sim["okx"].silence()
        sim.step()
        frames = len(follower.frame_log)
        await follower.ws.send("ping")
        await follower.until(lambda: follower.frame_log[frames:][-1:] == ["pong"])
        since = [frame for frame in follower.frame_log[frames:] if "bbo-tbt" not in frame]
        assert since == ["pong"], "a silent exchange answers pings"
        sim["okx"].end_silence()
        sim.step()
        await follower.until(lambda: bool(follower.faults))
        sim["okx"].refuse(SYMBOL)
        sim["okx"].ack_without_snapshot(SYMBOL)
        sim["okx"].drop_next_frame(SYMBOL)
        sim["okx"].fail_rest(503)
        sim["okx"].heal()
        await follower.resync(SYMBOL)
        sim.step()
        await settled(follower, sim)


@pytest.mark.over_sockets
async def test_a_book_without_followers_has_a_truth_too(name: str) -> None:
    async with SimulatedExchanges([name], rate_hz=0) as sim:
        bids, asks = sim[name].book(main_pair(name))
        assert max(map(float, bids)) < min(map(float, asks))


async def test_a_refused_symbol_and_an_acknowledged_silent_one() -> None:
    async with SimulatedExchanges(["okx"], rate_hz=0) as sim:
        sim["okx"].refuse(SYMBOL)
        sim["okx"].ack_without_snapshot("ETH/USDT")
        async with Follower(sim.exchanges()["okx"], [SYMBOL, "ETH/USDT"]) as follower:
            await follower.until(lambda: bool(follower.acknowledged and follower.faults))
            sim.step()
            await follower.ws.send("ping")
            await follower.until(lambda: follower.frame_log[-1] == "pong")
            assert follower.books == {}


async def test_rest_failures_come_as_often_as_asked_then_end() -> None:
    async with SimulatedExchanges(["binance"], rate_hz=0) as sim, httpx.AsyncClient() as http:
        url = sim.urls["binance"].rest + "/api/v3/exchangeInfo"
        sim["binance"].fail_rest(429, times=2, retry_after_s=7)
        sim["binance"].fail_rest(503)
        answers = [await http.get(url) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [429, 429, 503, 200]
        assert answers[0].headers["Retry-After"] == "7"
        assert "Retry-After" not in answers[2].headers
        missing = await http.get(sim.urls["binance"].rest + "/nothing")
        assert missing.status_code == 404


@pytest.mark.parametrize(
    ("name", "seconds"), [("okx", 31), ("poloniex", 31), ("coinbase", 6), ("kraken", 61)]
)
async def test_a_silent_client_is_dropped_when_the_real_one_drops_it(
    name: str, seconds: float
) -> None:
    clock = ManualClock(1_000.0)
    async with (
        SimulatedExchanges([name], rate_hz=0, clock=clock) as sim,
        websockets.connect(sim.urls[name].ws) as ws,
    ):
        clock.now_s += seconds - 2
        sim[name].watch()
        assert sim[name].clients == 1
        clock.now_s += 2
        sim[name].watch()
        assert await ended(ws) == Close(1008, REASONS.get(name, "Idle for too long."))


async def test_traffic_keeps_an_okx_client_but_not_a_poloniex_client() -> None:
    clock = ManualClock(1_000.0)
    async with SimulatedExchanges(["okx", "poloniex"], rate_hz=0, clock=clock) as sim:
        followers = [Follower(sim.exchanges()[name], [SYMBOL]) for name in ("okx", "poloniex")]
        async with followers[0] as okx, followers[1] as poloniex:
            await settled(okx, sim)
            await settled(poloniex, sim)
            clock.now_s += 29
            sim.step()
            clock.now_s += 29
            for name in ("okx", "poloniex"):
                sim[name].watch()
            await settled(okx, sim)
            assert await ended(poloniex.ws) == Close(1008, "Idle for too long.")
            assert sim["okx"].clients == 1


async def test_heartbeats_come_when_nothing_else_does() -> None:
    clock = ManualClock(1_000.0)
    async with (
        SimulatedExchanges(["kraken"], rate_hz=0, clock=clock) as sim,
        Follower(sim.exchanges()["kraken"], [SYMBOL]) as follower,
    ):
        await settled(follower, sim)
        clock.now_s += 1
        sim["kraken"].watch()
        await follower.until(lambda: follower.frame_log[-1] == '{"channel":"heartbeat"}')


async def test_too_many_frames_end_the_connection() -> None:
    async with (
        SimulatedExchanges(["binance"], rate_hz=0, clock=ManualClock(1_000.0)) as sim,
        websockets.connect(sim.urls["binance"].ws) as ws,
    ):
        for number in range(6):
            await ws.send(f'{{"method":"LIST_SUBSCRIPTIONS","id":{number}}}')
        assert await ended(ws) == Close(1008, "Too many messages.")


async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "QUEUE_FRAMES_MAX", 4)
    async with (
        SimulatedExchanges(["okx"], rate_hz=0) as sim,
        Follower(sim.exchanges()["okx"], [SYMBOL]) as follower,
    ):
        await settled(follower, sim)
        for _ in range(5):
            sim.step()
        assert await ended(follower.ws) is None


async def test_the_pace_moves_all_exchanges_by_itself_and_raw_streams_are_unwrapped() -> None:
    async with SimulatedExchanges(["binance", "okx"], seed=4, rate_hz=200) as sim:
        url = sim.urls["binance"].ws.replace("/stream", "/ws/btcusdt@depth@100ms")
        async with websockets.connect(url) as raw, Follower(sim.exchanges()["okx"], [SYMBOL]) as o:
            async with asyncio.timeout(30):
                assert '{"e":"depthUpdate"' in str(await raw.recv())[:20]
            await o.until(lambda: o.frames > 5)
            assert o.faults == []


async def test_the_watch_runs_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.simulator.kit.server.WATCH_S", 0.001)
    clock = ManualClock(1_000.0)
    async with (
        SimulatedExchanges(["okx"], rate_hz=0, clock=clock) as sim,
        websockets.connect(sim.urls["okx"].ws) as ws,
    ):
        clock.now_s += 31
        assert await ended(ws) == Close(1008, "Idle for too long.")


async def test_messages_are_binary_ones_in_gzip_where_the_exchange_compresses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = DIALECTS["okx"]
    monkeypatch.setattr(kind, "rules", kind.rules._replace(gzip=True))
    async with (
        SimulatedExchanges(["okx"], rate_hz=0) as sim,
        websockets.connect(sim.urls["okx"].ws, compression=None) as ws,
    ):
        await ws.send("ping")
        frame = await ws.recv()
        assert isinstance(frame, bytes)
        assert gzip.decompress(frame) == b"pong"
