"""Net views and routes of streams: option `fees`, with `net` and with `fill`."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from onebook.fees import TakerFees, fees_of
from onebook.streams import StreamKey, ViewOptions
from onebook.streams.fill import fill_sizes, order_rules

from .test_streams import Rig

NAMES = ("kraken", "okx")
FEES = TakerFees(kraken="0.26", okx="0.1")
BOOKS = {
    "kraken": ([("99.9", "1")], [("100", "2")]),
    "okx": ([("99.8", "3")], [("100.1", "4")]),
}


def key(**options):
    return StreamKey("BTC/USDT", NAMES, ViewOptions(fees=FEES, **options))


def test_a_net_view_has_net_prices_and_those_before_fees():
    rig = Rig(NAMES)
    rig.opened(key(net=True, split=True), **BOOKS)
    rig.time.run(0.1)
    data = rig.heard.updates[-1][2]["data"]
    assert [(each["price"], each["gross"], each["amounts"]) for each in data["asks"]] == [
        (Decimal("100.2001"), [Decimal("100.1")], [4]),
        (Decimal("100.26"), [100], [2]),
    ]
    assert data["market_stats"]["best_bid"] == Decimal("99.7002")


def test_a_route_is_the_best_split_after_fees_with_the_age_of_its_oldest_part():
    rig = Rig(NAMES)
    sizes = fill_sizes(["3", "5"], [], limit="100.5")
    rig.opened(key(fill=sizes), **BOOKS)
    rig.time.run(0.1)
    rig.time.run(0.5)
    rig.delta("kraken", [], [("100", "2.5")])
    rig.time.run(1)
    small, large = rig.heard.updates[-1][2]["data"]["fill"]["buy"]
    assert small["split"] == [
        {
            "exchange": "okx",
            "amount": 3,
            "notional": Decimal("300.3"),
            "fee": Decimal("0.3003"),
            "limit": Decimal("100.1"),
        }
    ]
    assert (small["net"], small["fees"]) == (Decimal("300.6003"), Decimal("0.3003"))
    assert small["worst"] == Decimal("100.2001")
    assert small["oldest_ms"] >= 500
    assert small["complete"]
    assert small["exact"]
    assert small["unknown_rules"] == ["okx"]
    assert [each["exchange"] for each in large["split"]] == ["okx", "kraken"]
    assert large["extra"] == large["unplaced"] == 0


def test_a_route_keeps_the_least_orders_that_the_lists_state():
    """5 of 4 and 2: the last 1 on kraken is worth 100, which kraken does not take."""
    rig = Rig(NAMES)
    for exchange, least in (("okx", "0"), ("kraken", "150")):
        before = rig.feeds.listed[exchange, "BTC/USDT"]
        rig.feeds.listed[exchange, "BTC/USDT"] = replace(
            before, lot="0.5", least_amount="0.5", least_notional=least
        )
    rig.opened(key(fill=fill_sizes(["5"], [])), **BOOKS)
    rig.time.run(0.1)
    (bought,) = rig.heard.updates[-1][2]["data"]["fill"]["buy"]
    amounts = {each["exchange"]: each["amount"] for each in bought["split"]}
    assert amounts == {"okx": Decimal("3.5"), "kraken": Decimal("1.5")}
    assert bought["unknown_rules"] == []
    assert bought["exact"]


@pytest.mark.parametrize("text", ["", "1e", "nan", "-1", "inf"])
def test_an_unusable_rule_is_an_unknown_one(text):
    assert order_rules("0.1", text, "5") == (Decimal("0.1"), None, 5)


def test_an_excluded_exchange_and_a_limit_price_are_kept():
    rig = Rig(NAMES)
    rig.opened(key(fill=fill_sizes(["3"], [], limit="100.05", exclude=["okx"])), **BOOKS)
    rig.time.run(0.1)
    fill = rig.heard.updates[-1][2]["data"]["fill"]
    (bought,), (sold,) = fill["buy"], fill["sell"]
    assert [each["exchange"] for each in bought["split"]] == ["kraken"]
    assert (bought["amount"], bought["complete"]) == (2, False)
    assert sold["split"] == []  # no bid is at the limit or above
    assert sold["net_average"] is None


def test_views_with_equal_fees_are_one_stream_whatever_their_tables():
    """1,000 subscriptions on 20 tables make 20 merges."""
    rig = Rig(NAMES)
    for number in range(1_000):
        table = {"okx": f"0.{number % 20:02}", "*": "0.2", f"unused{number}": "1"}
        known = fees_of(table, NAMES, "BTC/USDT").known
        rig.streams.open(replace_fees(known))
    assert len(rig.streams) == 20
    for exchange, (bids, asks) in BOOKS.items():
        rig.snapshot(exchange, bids, asks)
    rig.time.run(5)
    published = rig.streams.published_total
    rig.delta("okx", [("99.8", "7")], [])
    rig.time.run(5)
    assert rig.streams.published_total - published == 20
    assert sum(each.users for _, each, *_ in rig.heard.updates[-20:]) == 1_000


def replace_fees(fees):
    found = key(net=True, split=True)
    return found._replace(options=replace(found.options, fees=fees))


@pytest.mark.parametrize("option", [{"exclude": ["okx"]}, {"max_exchanges": 1}, {"limit": "101"}])
def test_each_option_of_a_route_may_be_chosen_alone(option):
    rig = Rig(NAMES)
    stream = rig.opened(key(fill=fill_sizes(["1"], [], **option)), **BOOKS)
    assert stream.id != key(fill=fill_sizes(["1"], [])).id
    rig.time.run(0.1)
    (bought,) = rig.heard.updates[-1][2]["data"]["fill"]["buy"]
    assert bought["amount"] == 1


def test_a_view_without_fees_keeps_its_id():
    plain = StreamKey("BTC/USDT", NAMES, ViewOptions(fill=fill_sizes(["1"], ["5"])))
    assert plain.id == "sub_236050026f8a"
    assert key().id != key(net=True).id != StreamKey("BTC/USDT", NAMES).id
