"""Every option of a view has the same effect on a past book as it had on the live one."""

import pytest

from gateway.rig import SYMBOL, gateway, parse
from gateway.test_past import at_of
from onebook.archive.recorder import HistoryRecorder
from onebook.streams.options import ViewOptions
from onebook.updates import Update

LISTED = {
    "binance": [SYMBOL],
    "okx": [SYMBOL],
    "kraken": [SYMBOL, "BTC/USD", "USDT/USD"],
}
FEES = {"binance": "0.1", "okx": "0.05", "kraken": "0.2"}
SIZES = {"amounts": ["0.5", "100000"], "notionals": ["250"]}
OPTIONS = {
    "none": {},
    "depth": {"depth": 2},
    "levels": {"levels": "array"},
    "split": {"split": True},
    "split arrays": {"split": True, "levels": "array"},
    "group": {"group": "0.5"},
    "group split": {"group": "1", "split": True, "depth": 3},
    "within": {"within": "30"},
    "ages": {"ages": True},
    "coverage": {"coverage": True},
    "times": {"times": True},
    "fill": {"fill": SIZES},
    "fees": {"fees": {"okx": "0.05", "*": "0.1"}},
    "routes": {"fees": FEES, "fill": SIZES},
    "net": {"fees": FEES, "net": True},
    "net arrays": {"fees": FEES, "net": True, "levels": "array", "depth": 4},
    "net group": {"fees": FEES, "net": True, "group": "0.5"},
    "crossings": {"fees": {"*": "0"}, "crossings": "0"},
    "quotes": {"quotes": ["USD"]},
    "quotes net": {"quotes": ["USD"], "fees": FEES, "net": True, "fill": SIZES},
    "quotes group": {"quotes": ["USD"], "group": "0.5", "split": True},
    "mode": {"mode": "delta"},
    "on": {"on": "best"},
    "interval": {"interval_ms": 20},
    "encoding": {"encoding": "protobuf", "split": True, "fill": SIZES},
    "encoding quotes": {"encoding": "protobuf", "quotes": ["USD"], "fees": FEES, "net": True},
}
OF_THE_ANSWER = {"states"}  # of a past book only
OF_ITS_TIME = {"ages", "times", "crossings", "conversions"}  # compared apart


def test_every_option_has_a_row() -> None:
    assert {name for row in OPTIONS.values() for name in row} == {*ViewOptions.__struct_fields__}


def open_books(node):
    """Books that differ in price, depth and quote; okx and kraken cross."""
    node.snapshot("binance", [("100", "1"), ("99.7", "2.5"), ("98", "4")],
                  [("100.4", "1.25"), ("101", "3"), ("103", "9")])  # fmt: skip
    node.snapshot("okx", [("100.2", "0.75"), ("99.7", "1")], [("100.3", "2"), ("101", "1.5")])
    node.snapshot("kraken", [("100.35", "0.2"), ("99", "3")], [("100.6", "0.5"), ("102", "7")])
    node.snapshot("kraken", [("100.1", "2"), ("99.9", "4")], [("100.5", "2"), ("100.7", "8")],
                  symbol="BTC/USD")  # fmt: skip
    node.snapshot("kraken", [("0.998", "100000")], [("1.001", "90000")], symbol="USDT/USD")


@pytest.mark.parametrize("name", OPTIONS)
async def test_a_past_view_is_the_view_of_its_moment(tmp_path, name):
    options = OPTIONS[name]
    seen = {each: value for each, value in options.items() if each not in ("mode", "on")}
    live_options = {"interval_ms": 0} | seen
    live_options.pop("encoding", None)  # as JSON, which both can be compared in
    async with gateway(tmp_path, history=tmp_path / "history", listed=LISTED) as node:
        recorder = HistoryRecorder(
            node.books, tmp_path / "history", keep_days=10, keep_bytes=1 << 40, clock=node.clock
        )
        await recorder.begin()
        open_books(node)
        async with node.client(await node.key()) as client:
            await client.ask(type="subscribe_aggregated", symbol=SYMBOL, **live_options)
            kept = [await client.until("aggregated_orderbook_update")]
            for exchange, bids, asks in (
                ("okx", [("100.2", "0"), ("100", "0.4")], [("100.3", "0.1")]),
                ("kraken", [("100.35", "0.3")], []),
                ("binance", [], [("100.4", "0"), ("100.8", "2")]),
            ):
                node.delta(exchange, bids, asks)
                kept.append(await client.until("aggregated_orderbook_update"))
            await recorder.flush()
            for update in kept:
                await client.say(
                    type="get_aggregated_orderbook", symbol=SYMBOL, id=7, as_of=at_of(update),
                    **options,
                )  # fmt: skip
                answer = await answer_of(client, options)
                assert answer["id"] == 7
                assert answer["timestamp"] == update["timestamp"]
                compare(answer["data"], update["data"])
                if name == "routes":
                    assert_rules_unknown(answer["data"]["fill"])
        recorder._stop()
        recorder._thread.shutdown()
        recorder._closer.shutdown()
        recorder.folder.unlock()


def assert_rules_unknown(fill):
    """Lots and minimums of the past are not recorded, which each route says."""
    for route in [*fill["buy"], *fill["sell"]]:
        names = {each["exchange"] for each in route["split"]}
        assert names
        assert {*route["unknown_rules"]} == names


async def answer_of(client, options):
    """The answer; with protobuf, a binary frame that contains it."""
    while True:
        frame = await client.socket.recv()
        assert isinstance(frame, bytes) == (options.get("encoding") == "protobuf") or (
            isinstance(frame, str) and '"aggregated_orderbook_update"' in frame
        ), frame
        message = parse(Update.FromString(frame).json if isinstance(frame, bytes) else frame)
        if message["type"] != "aggregated_orderbook_update":
            assert message["type"] == "aggregated_orderbook_data", message
            return message


def compare(past, live):
    assert {*past} - OF_THE_ANSWER == {*live}
    for field in {*live} - OF_ITS_TIME:
        assert untimed(past[field]) == untimed(live[field]), field
    if "ages" in live:
        assert {*past["ages"]} == {*live["ages"]}
        for exchange, age in live["ages"].items():
            assert abs(past["ages"][exchange] - age) <= 2
    if "times" in live:
        assert {*past["times"]} == {*live["times"]}
    if "crossings" in live:  # that it lasts since an earlier update is not known
        lasting = [each for each in live["crossings"] if each["phase"] != "ended"]
        assert untimed(past["crossings"]) == untimed(lasting)
    if "conversions" in live:
        assert untimed(past["conversions"]) == untimed(live["conversions"])


def untimed(value):
    """A value without ages, which are milliseconds old, and since when a crossing lasts."""
    if isinstance(value, list):
        return [untimed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: untimed(each)
        for name, each in value.items()
        if name not in ("phase", "lasted_ms", "oldest_ms") and not name.endswith("age_ms")
    }
