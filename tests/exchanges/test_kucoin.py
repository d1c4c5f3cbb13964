"""Conversations with KuCoin: its messages and our answers; a recording of the classic feed."""

import asyncio
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from contract.oracle import Reader, Sides
from contract.recorded import bodies, frames
from contract.venue import greeted
from exchanges.sent import Sent
from onebook.books import Books
from onebook.config import ExchangeSettings, FeedSettings
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Closing,
    Connector,
    Delta,
    Fetch,
    Gap,
    Heartbeat,
    ProtocolError,
    Send,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kucoin import EXCHANGE
from onebook.exchanges.kucoin_classic import CLASSIC, address
from onebook.feeds import Catalogue, Supervisor
from onebook.feeds.supervisor import enabled
from onebook.model import Health, Instrument, InstrumentStatus
from onebook.rest import Rest
from onebook.simulator import SimulatedExchanges
from onebook.simulator.kit import Now, SimulatedSession
from simulator.pure import Desk

BTC = Instrument("kucoin", "BTC/USDT", "BTC-USDT")
ETH = Instrument("kucoin", "ETH/USDT", "ETH-USDT")

# Messages of other channels, and what changes no book, of both feeds.
UNKNOWN_FRAMES = (
    b'{"type":"pong","id":"ping","ts":1790113111261396000}',
    b'{"id":"1","op":"pong","timestamp":1790113111261}',
    b'{"id":"ping","type":"pong","timestamp":1790113097236506}',
    b'{"T":"ticker.SPOT","P":1768218267869446269,"d":{"a":"90580.5","A":"36","s":"BTC-USDT"}}',
    b'{"T":"obu.SPOT","dp":"1","t":"snapshot","P":1768217874990007701,"d":{"C":25984468414,'
    b'"M":1768217874986000000,"O":25984468414,"a":[["90701.2","0.5771583"]],"b":[],"s":"BTC-USDT"}}',
    b'{"type":"message","topic":"/market/ticker:BTC-USDT","subject":"trade.ticker",'
    b'"data":{"sequence":"1612844051653","bestAsk":"0.00028717","size":"0.01745248"}}',
    b"{}",
)

WELCOME = b'{"sessionId":"e8e46556-ae1d-4871-be0b","message":"welcome","pingInterval":18000}'
# The page's own snapshot of one level, and its delta, at the depth that is asked for.
SNAPSHOT = (
    b'{"T":"obu.SPOT","dp":"increment@10ms","t":"snapshot","P":1768217874990007701,"d":{'
    b'"C":25984468414,"M":1768217874986000000,"O":25984468414,"a":[["90701.2","0.5771583"]],'
    b'"b":[["90701.1","0.13918404"]],"s":"BTC-USDT"}}'
)
DELTA = (
    b'{"T":"obu.SPOT","dp":"increment@10ms","t":"delta","P":1768217909684719896,"d":{'
    b'"C":25984544840,"M":1768217909683000000,"O":25984544839,"a":[],'
    b'"b":[["1","12996.24994153"]],"s":"BTC-USDT"}}'
)

COMPARED_EVERY = 40  # recorded frames: reading a whole book takes far longer than changing it
CLASSIC_WELCOME = b'{"id":"NSkIrWGB1s","type":"welcome"}'


def obu(kind: str, first: int, final: int, native: str = "BTC-USDT") -> bytes:
    data = {"a": [["2", "1"]], "b": [["1", "0"]], "s": native, "C": final, "O": first}
    return json.dumps({"T": "obu.SPOT", "dp": "increment@10ms", "t": kind, "d": data}).encode()


def asked(action: str, number: int, native: str) -> Sent:
    return Sent(
        f'{{"id":"{number}","action":"{action}","channel":"obu","tradeType":"SPOT",'
        f'"symbol":"{native}","depth":"increment@10ms","rpiFilter":0}}'.encode()
    )


def welcomed(*instruments: Instrument) -> Connector:
    connector = EXCHANGE.connector(instruments or (BTC, ETH))
    list(greeted(connector, [WELCOME]))
    return connector


def live(*, at: int = 10) -> Connector:
    connector = welcomed()
    connector.received(obu("snapshot", at, at))
    return connector


def kinds(outputs: Sequence[object]) -> list[type]:
    return [type(output) for output in outputs]


def test_each_book_is_asked_for_after_the_welcome_and_accepted_by_its_number() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == ()
    requests = (asked("SUBSCRIBE", 1, "BTC-USDT"), asked("SUBSCRIBE", 2, "ETH-USDT"))
    assert connector.received(WELCOME) == requests
    assert connector.received(b'{"id":"2","result":true}') == (Acknowledged(ETH),)
    assert connector.received(b'{"id":"1","result":"true"}') == (Acknowledged(BTC),)
    assert connector.received(b'{"id":"1","result":true}') == EXPECTED


@pytest.mark.parametrize("member", ["data", "message", "op", "type"])
def test_the_word_of_welcome_is_read_in_each_member_that_it_is_known_in(member: str) -> None:
    """As kucoin_universal_sdk 1.3.2 does; `data` was announced on 2026-08-27."""
    connector = EXCHANGE.connector([BTC])
    assert connector.opened() == ()
    welcome = {"sessionId": "e8e46556", member: "welcome", "pingInterval": 18000}
    frame = json.dumps(welcome | {"pingTimeout": 10000}, separators=(",", ":")).encode()
    assert connector.received(frame) == (asked("SUBSCRIBE", 1, "BTC-USDT"),)
    assert connector.received(frame) == EXPECTED


def test_the_topic_is_read_in_either_case() -> None:
    """The page's examples have "obu.spot" in some frames, the wire "obu.SPOT"."""
    connector = welcomed()
    lower = obu("snapshot", 10, 10).replace(b"obu.SPOT", b"obu.spot")
    assert kinds(connector.received(lower)) == [Snapshot]
    assert kinds(connector.received(obu("delta", 11, 11))) == [Delta]
    damaged = lower.replace(b'"a"', b'"gone"')
    with pytest.raises(ProtocolError) as caught:
        connector.received(damaged)
    assert caught.value.instrument is BTC


def test_the_limits_are_those_of_the_change_log_of_2026_02_09() -> None:
    limits = EXCHANGE.limits
    (messages,), (connects,) = limits.messages, limits.connects
    pings = math.ceil(messages.per_s / EXCHANGE.heartbeat.every_s)
    assert (messages.per_s, messages.count + pings) <= (10.0, 100)
    assert (connects.count, connects.per_s, limits.connections) == (30, 60.0, 512)
    assert limits.topics <= 200


def test_the_frames_of_the_page_are_read() -> None:
    connector = welcomed()
    (snapshot,) = connector.received(SNAPSHOT)
    assert isinstance(snapshot, Snapshot)
    assert (bytes(snapshot.bids), snapshot.levels_asked) == (b'[["90701.1","0.13918404"]]', 0)
    (gap,) = connector.received(DELTA)
    assert gap == Gap(BTC, "the book is at 25984468414, the delta follows 25984544838")


def test_a_delta_follows_the_last_change_or_reaches_back_behind_it() -> None:
    connector = live(at=10)
    assert kinds(connector.received(obu("delta", 11, 13))) == [Delta]
    assert kinds(connector.received(obu("delta", 12, 15))) == [Delta]
    assert connector.received(obu("delta", 12, 15)) == ()
    assert kinds(connector.received(obu("delta", 17, 17))) == [Gap]
    assert connector.received(obu("delta", 18, 18)) == ()
    assert kinds(connector.received(obu("snapshot", 3, 3))) == [Snapshot]
    assert kinds(connector.received(obu("delta", 4, 4))) == [Delta]


def test_resync_unsubscribes_and_subscribes_one_symbol_at_a_time() -> None:
    connector = live()
    again = (asked("UNSUBSCRIBE", 3, "BTC-USDT"), asked("SUBSCRIBE", 4, "BTC-USDT"))
    assert connector.resync([BTC]) == again
    assert connector.received(obu("delta", 11, 11)) == ()


@pytest.mark.parametrize("member", ["message", "reason"])
def test_a_refusal_is_about_the_symbol_of_its_request(member: str) -> None:
    frame = f'{{"id":"2","result":false,"{member}":"invalid request data"}}'.encode()
    connector = welcomed()
    assert connector.received(frame) == (BookRefused(ETH, "invalid request data"),)
    assert connector.received(frame) == (Unnamed("invalid request data"),)
    slow = b'{"id":"1","result":false,"reason":"Too many requests"}'
    assert connector.received(slow) == (SlowDown("Too many requests"),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (obu("replace", 11, 11), BTC),
        (obu("delta", 11, 11).replace(b'"C": 11', b'"C": "x"'), BTC),
        (obu("delta", 11, 11).replace(b'"a"', b'"gone"'), BTC),
        (obu("delta", 11, 11).replace(b'"s": "BTC-USDT"', b'"s": 5'), None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


def test_the_ping_comes_before_the_interval_of_the_welcome() -> None:
    assert EXCHANGE.heartbeat is not None
    assert EXCHANGE.heartbeat.every_s == 9.0
    message = EXCHANGE.heartbeat.message()
    assert message.urgent
    ping = b'{"id":"ping","op":"ping","timestamp":1790113111261}'
    assert message.at(1_790_113_111_261) == ping, "as KuCoin's own client sends it"


# The instrument list of both


def row(**members: Any) -> dict[str, Any]:
    return {
        "symbol": "BTC-USDT",
        "name": "BTC-USDT",
        "baseCurrency": "BTC",
        "quoteCurrency": "USDT",
        "baseIncrement": "0.00000001",
        "priceIncrement": "0.1",
        "enableTrading": True,
    } | members


def test_instruments_are_read_row_by_row() -> None:
    renamed = row(symbol="BCHSV-USDT", name="BSV-USDT", baseCurrency="BSV", enableTrading=False)
    rows = [row(), renamed, row(symbol=5), {}, None]
    body = json.dumps({"code": "200000", "data": rows}).encode()
    found = EXCHANGE.parse_instruments(body)
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTC-USDT", "0.1", "0.00000001"),
        ("BSV/USDT", "BCHSV-USDT", "0.1", "0.00000001"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    classic = {"symbol": "XBTUSDTM", "rootSymbol": "USDT", "type": "FFWCSX", "status": "Open"}
    classic |= {"baseCurrency": "XBT", "quoteCurrency": "USDT", "settleCurrency": "USDT"}
    unified = {"symbol": "XBTUSDTM", "baseCurrency": "XBT", "quoteCurrency": "USDT"}
    unified |= {"contractType": 1, "multiplier": "0.001", "tradingStatus": 1}
    assert EXCHANGE.parse_instruments(json.dumps({"data": [classic, unified]}).encode()) == []


# The classic feed


def update(first: int, final: int, *levels: list[str], native: str = "BTC-USDT") -> bytes:
    data = {"changes": {"asks": [*levels], "bids": []}, "sequenceStart": first}
    data |= {"sequenceEnd": final, "symbol": native, "time": 1}
    topic = f"/market/level2:{native}"
    frame = {"type": "message", "topic": topic, "subject": "trade.l2update", "data": data}
    return json.dumps(frame).encode()


def depth(sequence: int) -> bytes:
    data = {"time": 1, "sequence": str(sequence), "bids": [["1", "1"]], "asks": [["2", "1"]]}
    return json.dumps({"code": "200000", "data": data}).encode()


def classic(*instruments: Instrument) -> Connector:
    connector = CLASSIC.connector(instruments or (BTC, ETH))
    list(greeted(connector, [CLASSIC_WELCOME]))
    return connector


def test_the_classic_feed_takes_all_symbols_at_once_and_asks_for_each_body() -> None:
    connector = CLASSIC.connector([BTC, ETH])
    topic = "/market/level2:BTC-USDT,ETH-USDT"
    request = f'{{"id":"1","type":"subscribe","topic":"{topic}","response":true}}'
    requests = list(greeted(connector, [CLASSIC_WELCOME]))
    assert requests == [Sent(request.encode())]
    path = "/api/v1/market/orderbook/level2_100?symbol="
    assert connector.received(b'{"id":"1","type":"ack"}') == (
        Acknowledged(BTC),
        Fetch(BTC, path + "BTC-USDT", 4),
        Acknowledged(ETH),
        Fetch(ETH, path + "ETH-USDT", 4),
    )


def test_a_classic_body_joins_its_deltas_and_bounds_what_is_known() -> None:
    connector = classic(BTC)
    connector.received(b'{"id":"1","type":"ack"}')
    assert connector.received(update(15, 17, ["2", "5", "15"], ["3", "1", "17"])) == ()
    snapshot, delta = connector.fetched(BTC, depth(16))
    assert isinstance(snapshot, Snapshot)
    assert isinstance(delta, Delta)
    assert snapshot.levels_asked == 100
    assert kinds(connector.received(update(18, 18, ["2", "0", "18"]))) == [Delta]
    assert kinds(connector.received(update(20, 20, ["2", "0", "20"]))) == [Gap]


def test_a_classic_error_refuses_the_symbol_it_names_and_asks_for_the_rest() -> None:
    words = "topic /market/level2:BTC-USDT is not found"
    frame = json.dumps({"id": "1", "type": "error", "code": 404, "data": words}).encode()
    refused, again = classic().received(frame)
    assert refused == BookRefused(BTC, words)
    assert isinstance(again, Send)
    assert b'"topic":"/market/level2:ETH-USDT"' in again.frame


@pytest.mark.parametrize(
    ("code", "words", "output"),
    [
        (509, "exceed max permits per second", SlowDown("exceed max permits per second")),
        (509, "service busy, please retry later", SlowDown("service busy, please retry later")),
        (401, "token is expired", Closing("the token is refused: token is expired")),
        (400, "ping timeout", Unnamed("ping timeout")),
    ],
)
def test_other_classic_errors_refuse_nothing(code: int, words: str, output: object) -> None:
    frame = json.dumps({"id": "x", "type": "error", "code": code, "data": words}).encode()
    assert classic().received(frame) == (output,)


@pytest.mark.parametrize(("interval_ms", "every_s"), [(18_000, 18.0), (50_000, 20.0), (0, 1.0)])
def test_a_classic_address_holds_its_token_and_its_ping(interval_ms: int, every_s: float) -> None:
    server = {"endpoint": "wss://ws-api-spot.kucoin.com/", "pingInterval": interval_ms}
    body = {"code": "200000", "data": {"token": "2neA_8VJ.28mIdGU==", "instanceServers": [server]}}
    found = address(json.dumps(body).encode(), [BTC])
    assert found.url == "wss://ws-api-spot.kucoin.com/?token=2neA_8VJ.28mIdGU%3D%3D"
    assert found.heartbeat == Heartbeat(b'{"id":"ping","type":"ping"}', every_s)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"code":"429000","msg":"Too many requests"}',
        b'{"data":{"token":"a"}}',
        b'{"data":{"token":"a","instanceServers":[]}}',
    ],
)
def test_an_answer_without_a_classic_address_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="bullet-public"):
        address(body, [BTC])


@pytest.mark.replayed("kucoin.classic", "KUCOIN.ws.1.0")
def test_every_recorded_classic_frame_joins_its_body_and_equals_dicts(samples: Path) -> None:
    seeds = dict(bodies(samples, "KUCOIN.http.0.0"))
    books = {native: Instrument("kucoin", native, native) for native in seeds}
    connector, reader = CLASSIC.connector([*books.values()]), Reader(CLASSIC)
    truth: dict[str, Sides] = {}
    reached: dict[str, int] = {}
    followed = fillers = 0
    for frame in frames(samples, "KUCOIN.ws.1.0"):
        reader.read(connector.received(frame))
        message = json.loads(frame)
        if message["type"] == "welcome":
            reader.read(connector.received(b'{"id":"1","type":"ack"}'))
        if message.get("subject") != "trade.l2update":
            continue
        data = message["data"]
        native, changes = data["symbol"], data["changes"]
        if native not in reached:  # the body was asked for when the first delta was there
            body = json.loads(seeds[native])["data"]
            truth[native] = applied(({}, {}), body)
            reached[native] = int(body["sequence"])
            reader.read(connector.fetched(books[native], seeds[native]))
        followed += 1
        fillers += any(row[0] == "0" for side in changes.values() for row in side)
        if data["sequenceStart"] > reached[native]:
            applied(truth[native], changes)
        if followed % COMPARED_EVERY == 0:
            assert reader.sides(books[native]) == truth[native]
    assert {native: reader.sides(books[native]) for native in reached} == truth
    assert (followed, fillers, len(truth), reader.invalidated) == (3_853, 1_355, 9, [])


def applied(sides: Sides, changes: dict[str, list[list[str]]]) -> Sides:
    """Apply rows to plain dicts; a price of zero is not a level."""
    for side, rows in zip(sides, (changes["bids"], changes["asks"]), strict=True):
        for price, amount, *_ in rows:
            side[Decimal(price)] = Decimal(amount)
            if not Decimal(price) * Decimal(amount):
                del side[Decimal(price)]
    return sides


# Its side of the talk


def test_the_simulated_exchange_refuses_what_the_real_one_does() -> None:
    desk = Desk("kucoin")
    request = json.loads(asked("SUBSCRIBE", 1, "BTC-USDT").frame)
    ok = {"id": "1", "result": True}
    assert desk.say("not JSON") == []
    assert desk.say(request | {"symbol": "NO-PE"}) == [ok]
    assert desk.say(request | {"depth": "20"})[0]["message"] == "invalid request data"
    assert desk.say(request | {"tradeType": "FUTURES"})[0]["result"] is False
    assert desk.say(request | {"symbols": ["BTC-USDT"]})[0]["reason"].startswith("symbols are not")
    ack, snapshot = desk.say(request)
    assert (ack, snapshot["d"]["O"]) == (ok, snapshot["d"]["C"])
    assert len(snapshot["d"]["a"]) == 500
    assert desk.say(request) == [ok], "a second subscription brings no second snapshot"
    for frame in map(json.loads, desk.step()):
        assert frame["d"]["O"] == snapshot["d"]["C"] + 1


def test_the_simulated_exchange_welcomes_in_every_known_form_and_answers_both_pings() -> None:
    desk = Desk("kucoin")
    session = SimulatedSession("/", now_s=desk.now.s)
    more = [desk.dialect.opened(session, desk.now)[0] for _ in range(4)]
    greetings = [*desk.greeting, *map(json.loads, more)]
    found = [{key for key, value in each.items() if value == "welcome"} for each in greetings]
    assert found == [{"message"}, {"data"}, {"op"}, {"type"}, {"message"}]
    assert desk.say({"id": "7", "type": "ping"}) == [
        {"type": "pong", "id": "7", "ts": desk.now.ms * 1_000_000}
    ]
    desk.now = Now(desk.now.s + 9.0, desk.now.ms + 9_000)
    assert desk.say({"id": "8", "op": "ping", "timestamp": desk.now.ms}) == [
        {"id": "8", "op": "pong", "timestamp": desk.now.ms}
    ]


async def test_the_classic_channel_is_chosen_connected_and_repaired_over_sockets() -> None:
    async with SimulatedExchanges(["kucoin"], seed=5, rate_hz=0) as simulated, Rest() as rest:
        place = simulated.urls["kucoin"]
        chosen = ExchangeSettings(ws_url=place.ws, rest_url=place.rest, channel="classic")
        settings = FeedSettings(exchanges=("kucoin",), overrides={"kucoin": chosen})
        exchanges = {
            name: replace(each, limits=replace(each.limits, connects=()))
            for name, each in enabled(EXCHANGES, settings).items()
        }
        books, moves = Books(), list[Health]()
        stirred = asyncio.Event()
        books.subscribe(on_changed=lambda book: stirred.set())
        books.subscribe(on_health=lambda book, previous: (moves.append(book.health), stirred.set()))
        async with (
            Catalogue(exchanges, rest=rest, settings=settings) as catalogue,
            Supervisor(
                exchanges,
                books=books,
                rest=rest,
                catalogue=catalogue,
                settings=settings,
                jitter=lambda: 0.0,
            ) as supervisor,
        ):
            assert await catalogue.first_read()
            instrument = catalogue.instrument("kucoin", "BTC/USDT")
            assert instrument is not None
            supervisor.acquire(instrument)

            async def true() -> None:
                """Wait until the book is live and equals the exchange's."""
                async with asyncio.timeout(20):
                    while not equal(books, simulated, instrument):
                        stirred.clear()
                        await stirred.wait()

            await true()
            for _ in range(5):
                simulated.step()
                await true()
            assert moves == [Health.LIVE]
            for harm in ("gap", "garbage"):
                moves.clear()
                simulated["kucoin"].corrupt_next("BTC/USDT", harm)
                simulated.step()
                simulated.step()
                await true()
                assert Health.STALE in moves
            await simulated["kucoin"].stop()
            await simulated["kucoin"].start()
            await true()


def equal(books: Books, simulated: SimulatedExchanges, instrument: Instrument) -> bool:
    book = books.get(instrument)
    if book is None or book.health is not Health.LIVE:
        return False
    bids, asks = book.core.top(50)
    truth = simulated["kucoin"].book(instrument.symbol)
    return (bids, asks) == tuple([*side.items()][:50] for side in truth)
