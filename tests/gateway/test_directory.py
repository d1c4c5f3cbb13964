"""Lists of exchanges and pairs in replies contain only those enabled in the settings."""

import json
from datetime import date
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gateway.conversation import (
    AWAY,
    LISTED,
    PUBLISHED,
    SUPPORTED,
    Conversation,
    Listed,
    assert_error,
)
from onebook.core import MEMBERS_MAX, View
from onebook.fees import PublishedFee, fee_table
from onebook.gateway.directory import Directory
from onebook.gateway.effects import FetchBook
from onebook.gateway.processor import NONE_SUBSCRIBED
from onebook.streams.fill import FillSizes


def test_get_exchanges_states_supported_active_and_status(alice):
    (reply,) = alice.says(type="get_exchanges")
    assert reply == {
        "type": "exchanges_data",
        "data": {
            "supported_exchanges": SUPPORTED,
            "active_exchanges": [name for name in SUPPORTED if name not in AWAY],
            "total_supported": len(SUPPORTED),
            "total_active": len(SUPPORTED) - 2,
            "exchange_status": {name: AWAY.get(name, "active") for name in SUPPORTED},
            "via": {},
        },
        "timestamp": "2025-11-20T10:00:00.000000Z",
    }


def test_get_pairs_of_all_counts_different_and_common_pairs(alice):
    (reply,) = alice.says(type="get_pairs")
    data = reply["data"]
    assert data["exchanges"]["kraken"] == ["BTC/USD", "BTC/USDT"]
    assert data["exchanges"]["poloniex"] == []
    assert (data["total_exchanges"], data["total_pairs"]) == (len(SUPPORTED), 3)
    assert data["common_pairs"] == ["BTC/USD", "BTC/USDT"]


def test_get_pairs_of_one_has_categories(alice):
    (reply,) = alice.says(type="get_pairs", exchange="binance")
    assert reply["data"] == {
        "exchange": "binance",
        "pairs": ["BTC/USDT", "DOGE/USDT"],
        "total_pairs": 2,
        "categories": {"major": ["BTC/USDT"], "meme": ["DOGE/USDT"]},
    }


def test_lists_are_encoded_once_in_a_while(alice):
    before = alice.client.directory.pairs_json(None)
    assert alice.client.directory.pairs_json(None) is before
    alice.now_s += 6
    after = alice.client.directory.pairs_json(None)
    assert after is not before
    assert after == before


def test_get_pairs_of_an_unknown_exchange_is_invalid_exchange(alice):
    assert_error(
        alice.says(type="get_pairs", exchange="mtgox"),
        "invalid_exchange",
        supported_exchanges=SUPPORTED,
    )


class TwoInUse:
    """A catalogue and feeds of which two exchanges are in use."""

    def in_use(self) -> list[str]:
        return ["kraken", "gate"]

    def state(self, exchange: str) -> str:
        return "active" if exchange == "kraken" else "offline"

    def exchanges(self, symbol: str) -> list[str]:
        return ["kraken"]

    def pairs(self, exchange: str) -> list[str]:
        return ["BTC/USDT"] if exchange == "kraken" else []

    def unread(self) -> set[str]:
        return set()

    def suggest(self, symbol: str, n: int = 3) -> list[str]:
        return []


@pytest.fixture
def directory() -> Directory:
    feeds: Any = TwoInUse()
    return Directory(feeds, feeds, monotonic=lambda: 0.0, via={"bitopro": "ccxt"})


def test_exchanges_that_are_switched_off_are_not_listed(directory: Directory) -> None:
    assert list(directory.supported) == ["bitopro", "gate", "kraken"]
    listed = msgspec.json.decode(directory.exchanges_json())
    assert listed["supported_exchanges"] == ["bitopro", "gate", "kraken"]
    assert listed["active_exchanges"] == ["kraken"]
    assert listed["exchange_status"] == {
        "bitopro": "offline",
        "gate": "offline",
        "kraken": "active",
    }


@pytest.mark.parametrize(
    ("name", "found"),
    [("Kraken ", "kraken"), ("gateio", "gate"), ("bitopro", "bitopro"), ("binance", None)],
)
def test_a_name_is_resolved_to_an_exchange_in_use(
    directory: Directory, name: str, found: str | None
) -> None:
    assert directory.resolve(name) == found


@pytest.mark.parametrize(
    ("sent", "accepted"),
    [
        ({}, ["binance", "kraken", "okx"]),
        ({"exchanges": "all"}, ["binance", "kraken", "okx"]),
        ({"exchanges": ["all"]}, ["binance", "kraken", "okx"]),
        ({"exchanges": ["okx"]}, ["okx"]),
        ({"exchanges": ["okx", "okx", "kraken"]}, ["kraken", "okx"]),
        ({"exchanges": ["all", "-binance"]}, ["kraken", "okx"]),
        ({"exchanges": ["all", "okx", "-binance"]}, ["kraken", "okx"]),
        ({"exchanges": ["okx", "kraken", "-kraken"]}, ["okx"]),
        ({"exchanges": ["okex"]}, ["okx"]),
        ({"exchanges": ["all", "-okex"]}, ["binance", "kraken"]),
    ],
)
def test_exchanges_are_a_list_all_or_all_but_some_and_former_names_count(alice, sent, accepted):
    response, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", **sent)
    assert response["exchanges"] == accepted
    assert response["requested"] == sent.get("exchanges", "all")
    assert opened.key.exchanges == tuple(accepted)


def many(count):
    """A client of a node with this many exchanges, all of which trade BTC/USDT."""
    names = [f"venue{number:02}" for number in range(count)]
    listed = Listed()
    listed.exchanges = lambda symbol: names
    listed.in_use = lambda: names
    talk = Conversation().authenticated()
    directory = talk.client.directory = Directory(listed, listed, monotonic=lambda: 0.0)
    directory.resolve = {name: name for name in names}.get
    return talk


@pytest.mark.parametrize("kind", ["subscribe_aggregated", "get_aggregated_orderbook"])
def test_a_view_of_more_exchanges_than_can_be_merged_is_refused_with_the_limit(kind):
    (refusal,) = many(MEMBERS_MAX + 1).says(type=kind, symbol="BTC/USDT")
    assert refusal["error"] == "invalid_parameters"
    assert f"at most {MEMBERS_MAX} exchanges, and {MEMBERS_MAX + 1}" in refusal["message"]


def test_a_view_of_as_many_exchanges_as_can_be_merged_is_subscribed():
    talk = many(MEMBERS_MAX + 1)
    response, subscribe = talk.says(
        type="subscribe_aggregated", symbol="BTC/USDT", exchanges=["all", "-venue07"]
    )
    assert len(response["exchanges"]) == MEMBERS_MAX
    View(subscribe.key.exchanges, depth=20)


def test_unknown_exchanges_are_rejected_and_the_rest_is_subscribed(alice):
    response = alice.says(
        type="subscribe_aggregated",
        symbol="BTC/USDT",
        exchanges=["mtgox", "okx", "coinbase", "-quadriga"],
    )[0]
    assert response["exchanges"] == ["okx"]
    assert response["rejected"] == [
        {
            "exchange": "mtgox",
            "reason": "unknown_exchange",
            "detail": 'Unknown exchange "mtgox".',
        },
        {
            "exchange": "-quadriga",
            "reason": "unknown_exchange",
            "detail": 'Unknown exchange "quadriga".',
        },
        {"exchange": "coinbase", "reason": "symbol_not_traded"},
    ]


def test_an_exchange_that_others_have_is_answered_with_what_to_use_instead(alice):
    sentence = (
        'Unknown exchange "binanceusdm". It lists derivatives, but Onebook has only spot books:'
        " use binance."
    )
    request = {"type": "subscribe_aggregated", "symbol": "BTC/USDT"}
    (response, *_) = alice.says(**request, exchanges=["binanceusdm", "okx"])
    assert response["rejected"] == [
        {"exchange": "binanceusdm", "reason": "unknown_exchange", "detail": sentence}
    ]
    (refused,) = alice.says(**request, exchanges=["binanceusdm"])
    assert (refused["type"], refused["message"]) == ("subscription_error", sentence)
    (pairs,) = alice.says(type="get_pairs", exchange="binanceusdm")
    assert (pairs["error"], pairs["message"]) == ("invalid_exchange", sentence)


def test_all_exchanges_unknown_is_exchange_unavailable(alice):
    assert_error(
        alice.says(type="subscribe_aggregated", symbol="BTC/USDT", exchanges=["mtgox", "x"]),
        "exchange_unavailable",
        kind="subscription_error",
        exchange="mtgox",
        supported_exchanges=SUPPORTED,
    )


@pytest.mark.parametrize("exchanges", ["all", ["coinbase"], ["coinbase", "mtgox"]])
def test_a_symbol_on_none_of_them_is_invalid_symbol(alice, exchanges):
    symbol = "BTC/EUR" if exchanges == "all" else "BTC/USDT"
    assert_error(
        alice.says(type="subscribe_aggregated", symbol=symbol, exchanges=exchanges),
        "invalid_symbol",
        kind="subscription_error",
        symbol=symbol,
        suggested_symbols=["BTC/USD", "BTC/USDT", "DOGE/USDT"]
        if exchanges == "all"
        else ["BTC/USD"],
    )
    assert alice.client.subscriptions is NONE_SUBSCRIBED


def test_a_symbol_that_only_excluded_exchanges_trade_is_invalid_symbol(alice):
    subscribe = {"type": "subscribe_aggregated", "symbol": "DOGE/USDT"}
    for exchanges in (["all", "-binance"], ["okx", "binance", "-binance"]):
        (refusal,) = alice.says(**subscribe, exchanges=exchanges)
        assert refusal["error"] == "invalid_symbol"
        assert refusal["message"] == 'None of these exchanges lists "DOGE/USDT".'
    unread(alice, "bybit")
    (refusal,) = alice.says(**subscribe, exchanges=["all", "-binance"])
    assert (refusal["error"], refusal["exchange"]) == ("exchange_unavailable", "bybit")


def unread(alice, *names):
    alice.client.directory.unread = lambda: set(names)


@pytest.mark.parametrize("exchanges", ["all", ["bybit"], ["bybit", "coinbase"], ["all", "-okx"]])
def test_a_symbol_that_an_unread_list_may_have_is_exchange_unavailable(alice, exchanges):
    unread(alice, "bybit")
    assert_error(
        alice.says(type="subscribe_aggregated", symbol="BTC/EUR", exchanges=exchanges),
        "exchange_unavailable",
        kind="subscription_error",
        symbol="BTC/EUR",
        exchange="bybit",
        retry_after=10,
    )


@pytest.mark.parametrize("exchanges", [["kraken"], ["all", "-bybit"]])
def test_an_unread_list_that_was_not_asked_for_excuses_nothing(alice, exchanges):
    unread(alice, "bybit")
    (refusal,) = alice.says(type="subscribe_aggregated", symbol="BTC/EUR", exchanges=exchanges)
    assert refusal["error"] == "invalid_symbol"


def test_an_exchange_whose_list_is_unread_is_rejected_for_that(alice):
    unread(alice, "bybit")
    response, _ = alice.says(
        type="subscribe_aggregated", symbol="BTC/USDT", exchanges=["okx", "bybit", "coinbase"]
    )
    assert response["rejected"] == [
        {"exchange": "bybit", "reason": "exchange_unavailable"},
        {"exchange": "coinbase", "reason": "symbol_not_traded"},
    ]


@pytest.mark.parametrize(
    "exchanges", [["OKX", " Kraken "], ["OKEx", "kraken"], ["ALL", "-BINANCE"]]
)
def test_names_of_exchanges_have_no_case(alice, exchanges):
    response, _ = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", exchanges=exchanges)
    assert response["exchanges"] == ["kraken", "okx"]
    assert response["requested"] == exchanges


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 1},
        {"depth": 500},
        {"interval_ms": 10},
        {"interval_ms": 60_000},
        {"mode": "delta"},
        {"levels": "array"},
        {"split": True},
        {"ages": True},
        {"coverage": True},
        {"group": "0.5"},
    ],
)
def test_options_are_applied_and_reported(alice, options):
    response, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", **options)
    ((name, value),) = options.items()
    assert response["options"][name] == value
    assert getattr(opened.key.options, name) == value


@pytest.mark.parametrize(
    ("sent", "shortest"),
    [("1.0", "1"), ("0010", "10"), ("0.50", "0.5"), (".5", "0.5"), ("100", "100")],
)
def test_equal_price_steps_are_one_stream(alice, sent, shortest):
    response, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", group=sent)
    assert opened.key.options.group == response["options"]["group"] == shortest


def test_get_aggregated_orderbook_takes_what_is_absent_from_the_subscription(alice):
    options = {"depth": 7, "levels": "array", "split": True, "group": "0.5"}
    options |= {"ages": True, "coverage": True, "fill": {"amounts": ["1"]}}
    _, opened = alice.says(
        type="subscribe_aggregated", symbol="BTC/USDT", exchanges=["okx"], mode="delta", **options
    )
    ask = {"type": "get_aggregated_orderbook", "symbol": "BTC/USDT"}
    assert alice.says(**ask) == [FetchBook(opened.key, None)]
    assert alice.says(**ask, depth=9, group=None) == [
        FetchBook(
            opened.key._replace(options=replace(opened.key.options, depth=9, group=None)), None
        )
    ]
    (everywhere,) = alice.says(**ask, exchanges="all")
    assert everywhere.key.exchanges != opened.key.exchanges
    (other,) = alice.says(type="get_aggregated_orderbook", symbol="BTC/USD")
    assert (other.key.options.depth, other.key.options.levels) == (20, "object")


def test_the_sizes_of_fills_are_one_stream_in_whatever_form_they_come(alice):
    fill = {"amounts": ["2", "0.50", "2.0"], "notionals": ["10000"]}
    response, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", fill=fill)
    assert response["options"]["fill"] == {"amounts": ["0.5", "2"], "notionals": ["10000"]}
    assert opened.key.options.fill == FillSizes(("0.5", "2"), ("10000",))


@pytest.mark.parametrize("within", ["0", "-1", "x", "10000.5", "0.0000001", ""])
def test_a_distance_from_the_mid_that_is_none_is_refused_in_a_sentence(alice, within):
    (answer,) = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", within=within)
    assert (answer["type"], answer["error"]) == ("subscription_error", "invalid_parameters")
    assert answer["message"].startswith("within: The distance from the mid must be above 0")


# Ids are public and must outlive every release, as must the order of the reply's members.
BARE = (
    b'"depth":20,"interval_ms":100,"mode":"full","levels":"object","split":false,"group":null,'
    b'"ages":false,"coverage":false,"fill":null'
)


@pytest.mark.parametrize(
    ("options", "stream_id", "replied"),
    [
        ({}, b"sub_95de91600852", BARE),
        (
            {"depth": 5, "interval_ms": 250, "mode": "delta", "levels": "array", "split": True}
            | {"group": "0.50"},
            b"sub_06793689aa53",
            b'"depth":5,"interval_ms":250,"mode":"delta","levels":"array","split":true,'
            b'"group":"0.5","ages":false,"coverage":false,"fill":null',
        ),
        ({"ages": True}, b"sub_518e6b0adbd4", BARE.replace(b'ages":false', b'ages":true')),
        (
            {"coverage": True},
            b"sub_e5e7e9e85f83",
            BARE.replace(b'coverage":false', b'coverage":true'),
        ),
        (
            {"within": "25.50", "on": "best", "interval_ms": 0, "mode": "delta"},
            b"sub_6c29e95caca8",
            BARE.replace(
                b'depth":20,"interval_ms":100,"mode":"full"',
                b'depth":1,"interval_ms":0,"mode":"delta"',
            )
            + b',"within":"25.5","on":"best"',
        ),
        (
            {"fill": {"amounts": ["2", "0.50"]}},
            b"sub_44f760d1483d",
            BARE.replace(b'fill":null', b'fill":{"amounts":["0.5","2"],"notionals":[]}'),
        ),
        (
            {"fill": {"notionals": ["10000"]}, "ages": True, "coverage": True},
            b"sub_0f71cd836d69",
            BARE.replace(b'fill":null', b'fill":{"amounts":[],"notionals":["10000"]}')
            .replace(b'ages":false', b'ages":true')
            .replace(b'coverage":false', b'coverage":true'),
        ),
    ],
)
def test_ids_and_replies_of_options_are_the_same_bytes_in_every_release(
    alice, options, stream_id, replied
):
    message = {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "exchanges": ["okx", "mtgox"]}
    text = json.dumps(message | {"id": 1} | options)
    response, _ = alice.client.received(text, now=alice.now)
    assert response.payload == (
        b'{"type":"aggregated_subscription_response","symbol":"BTC/USDT","exchanges":["okx"],'
        b'"requested":["okx","mtgox"],"success":true,'
        b'"message":"Subscribed to BTC/USDT on 1 exchange.","subscription_id":"%b",'
        b'"rejected":[{"exchange":"mtgox","reason":"unknown_exchange",'
        b'"detail":"Unknown exchange \\"mtgox\\"."}],"options":{%b},'
        b'"expected_gb_per_30_days":null,"id":1}' % (stream_id, replied)
    )
    (listed,) = alice.client.received('{"type":"get_subscriptions"}', now=alice.now)
    assert listed.payload == (
        b'{"type":"subscriptions_data","data":{"subscriptions":[{"symbol":"BTC/USDT",'
        b'"exchanges":["okx"],"subscription_id":"%b","options":{%b},'
        b'"expected_gb_per_30_days":null}],"total":1},'
        b'"timestamp":"2025-11-20T10:00:00.000000Z"}' % (stream_id, replied)
    )


FEES = {"okx": "0.080", "*": "0.1"}


def subscribed(alice, **options):
    reply = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", **options)[0]
    return reply, alice.client.subscriptions.get(("BTC/USDT", None))


PAIRS = {"BTC/USDC": ["kraken", "okx"], "USDC/USDT": ["kraken"], "USDT/EUR": ["okx"]}


@pytest.fixture
def listed(monkeypatch):
    """More pairs than in the other tests."""
    for symbol, names in PAIRS.items():
        monkeypatch.setitem(LISTED, symbol, names)


@pytest.mark.usefixtures("listed")
def test_quotes_make_a_view_of_the_books_of_all_of_them(alice):
    both = ["okx", "kraken"]
    reply, key = subscribed(alice, exchanges=both, quotes=["usdc", "USDT", "USDC"], fees=FEES)
    assert reply["exchanges"] == ["kraken", "kraken:USDC", "okx", "okx:USDC"]
    assert key.exchanges == tuple(reply["exchanges"])
    assert reply["options"]["quotes"] == ["USDC"]
    assert reply["options"]["fees"] == {"kraken": "0.1", "okx": "0.08"}
    assert reply["rejected"] == []
    _, other = subscribed(alice, exchanges=both, quotes=["USDC"], fees=FEES)
    assert other == key
    (fetch,) = alice.says(type="get_aggregated_orderbook", symbol="BTC/USDT", depth=5)
    assert fetch.key.exchanges == key.exchanges


@pytest.mark.usefixtures("listed")
def test_a_book_that_nothing_converts_yet_is_a_member(alice):
    reply, key = subscribed(alice, exchanges=["okx"], quotes=["USDC", "EUR"])
    assert reply["exchanges"] == ["okx", "okx:USDC"]
    assert reply["rejected"] == []
    # It would be converted on an exchange without a fee.
    _, key = subscribed(alice, exchanges=["okx", "kraken"], quotes=["USDC"], fees={"okx": "0"})
    assert key.exchanges == ("okx", "okx:USDC")


@pytest.mark.usefixtures("listed")
def test_a_bridge_needs_no_exchange_that_lists_the_pair_itself(alice):
    (reply,) = alice.says(type="subscribe_aggregated", symbol="BTC/EUR", quotes=["USDT"])[:1]
    assert "okx:USDT" in reply["exchanges"]
    assert "kraken:USDT" in reply["exchanges"]  # through okx, the only one that lists USDT/EUR


@pytest.mark.parametrize(
    ("quotes", "problem"),
    [
        (["USTD"], 'quotes: no exchange lists a pair in "USTD".'),
        (["USDC!"], "quotes: must be currencies such as USDC"),
        (["BTC/USDC"], "quotes: must be currencies such as USDC"),
        ([f"A{number}" for number in range(9)], "quotes"),
        ("USDC", "quotes"),
    ],
)
@pytest.mark.usefixtures("listed")
def test_unusable_quotes_are_refused(alice, quotes, problem):
    reply, key = subscribed(alice, quotes=quotes)
    assert reply["error"] == "invalid_parameters"
    assert problem in reply["message"]
    assert key is None


@pytest.mark.usefixtures("listed")
def test_a_basket_without_any_convertible_book_is_refused(alice):
    (reply,) = alice.says(type="subscribe_aggregated", symbol="BTC/GBP", quotes=["USDC"])
    assert reply["error"] == "invalid_parameters"
    assert reply["message"] == (
        "quotes: none of these exchanges lists a pair that converts USDC to GBP."
    )


@pytest.mark.usefixtures("listed")
def test_a_basket_has_a_limit_of_books(alice, monkeypatch):
    monkeypatch.setattr("onebook.gateway.directory.MEMBERS_MAX", 3)
    reply, _ = subscribed(alice, exchanges=["okx", "kraken"], quotes=["USDC"])
    assert "a view merges at most 3 books, and these exchanges have 4" in reply["message"]


def test_fees_become_those_of_the_exchanges_of_the_view(alice):
    reply, first = subscribed(alice, exchanges=["okx", "kraken"], fees=FEES, net=True)
    assert reply["success"]
    assert reply["options"]["fees"] == {"kraken": "0.1", "okx": "0.08"}
    assert reply["options"]["net"] is reply["options"]["split"] is True
    assert reply["unknown_fee"] == reply["rejected"] == []
    same = {"OKEX": "0.08", "kraken": "0.10", "binance": "0"}
    _, second = subscribed(alice, exchanges=["okx", "kraken"], fees=same, net=True)
    assert first == second


def test_an_exchange_without_a_fee_is_named_and_not_in_the_view(alice):
    reply, key = subscribed(alice, exchanges=["okx", "kraken"], fees={"okx": "-0.01"})
    assert reply["unknown_fee"] == ["kraken"]
    assert reply["rejected"] == [{"exchange": "kraken", "reason": "unknown_fee"}]
    assert key.exchanges == ("okx",)


def test_the_table_of_the_key_is_that_of_the_key_when_the_view_was_opened(alice):
    alice.client.key = replace(alice.client.key, fees=fee_table({"okx": "0.02", "*": "0.3"}))
    reply, key = subscribed(alice, exchanges=["okx", "kraken"], fees="key", net=True)
    assert reply["options"]["fees"] == {"kraken": "0.3", "okx": "0.02"}
    alice.client.key = replace(alice.client.key, fees=fee_table({"okx": "0.01"}))
    assert alice.client.subscriptions["BTC/USDT", None] is key
    reply, _ = subscribed(alice, exchanges=["okx", "kraken"], fees="key", net=True)
    assert reply["options"]["fees"] == {"okx": "0.01"}
    assert reply["unknown_fee"] == ["kraken"]


def published(exchange, symbol, percent, page="", *, old=False):
    source = "page" if page else "instruments"
    return PublishedFee(exchange, symbol, percent, source, date(2026, 3, 26), page, old)


@pytest.fixture
def stated(listed, monkeypatch):
    """Published fees: of kraken they differ by pair, of okx all are equal."""
    page = "https://okx.com/fees"
    for fee in (
        published("kraken", "BTC/USDT", "0.4"),
        published("kraken", "BTC/USDC", "0.4"),
        published("kraken", "USDC/USDT", "0.2"),
        published("okx", "BTC/USDT", "0.1", page, old=True),
        published("okx", "BTC/USDC", "0.1", page, old=True),
    ):
        monkeypatch.setitem(PUBLISHED, (fee.exchange, fee.symbol), fee)


@pytest.mark.usefixtures("stated")
def test_published_fees_are_stated_with_their_source_and_date(alice):
    both = {"exchanges": ["okx", "kraken", "binance"], "net": True}
    reply, key = subscribed(alice, fees="published", **both)
    assert reply["options"]["fees"] == {"kraken": "0.4", "okx": "0.1"}
    assert reply["unknown_fee"] == ["binance"]
    assert reply["rejected"] == [{"exchange": "binance", "reason": "unknown_fee"}]
    assert reply["published_fees"] == [
        {"exchange": "kraken", "symbol": "BTC/USDT", "percent": "0.4", "source": "instruments",
         "date": "2026-03-26"},
        {"exchange": "okx", "symbol": "BTC/USDT", "percent": "0.1", "source": "page",
         "date": "2026-03-26", "page": "https://okx.com/fees", "old": True},
    ]  # fmt: skip
    own, same = subscribed(alice, fees={"kraken": "0.4", "okx": "0.1"}, **both)
    assert same == key  # equal fees are one stream, wherever they are from
    assert "published_fees" not in own


def test_without_published_fees_every_exchange_is_named(alice):
    reply, _ = subscribed(alice, exchanges=["okx", "kraken"], fees="published")
    assert "fees: no exchange of this view has a fee: kraken, okx" in reply["message"]


@pytest.mark.usefixtures("stated")
def test_a_basket_has_the_published_fee_of_each_pair(alice):
    both = {"exchanges": ["okx", "kraken"], "quotes": ["USDC"]}
    reply, key = subscribed(alice, fees="published", **both)
    assert reply["options"]["fees"] == {
        "kraken:BTC/USDC": "0.4", "kraken:BTC/USDT": "0.4", "kraken:USDC/USDT": "0.2",
        "okx:BTC/USDC": "0.1", "okx:BTC/USDT": "0.1",  # so that a pair listed later has no fee
    }  # fmt: skip
    named = [(each["exchange"], each["symbol"]) for each in reply["published_fees"]]
    assert named == [
        ("kraken", "BTC/USDC"), ("kraken", "BTC/USDT"), ("kraken", "USDC/USDT"),
        ("okx", "BTC/USDC"), ("okx", "BTC/USDT"),
    ]  # fmt: skip
    (fetch,) = alice.says(type="get_aggregated_orderbook", symbol="BTC/USDT", depth=5)
    assert fetch.key.options.fees == key.options.fees


@pytest.mark.usefixtures("stated")
def test_a_book_or_conversion_without_a_published_fee_is_left_out(alice, monkeypatch):
    monkeypatch.delitem(PUBLISHED, ("okx", "BTC/USDC"))
    both = {"exchanges": ["okx", "kraken"], "quotes": ["USDC"]}
    reply, _ = subscribed(alice, fees="published", **both)
    assert reply["exchanges"] == ["kraken", "kraken:USDC", "okx"]
    assert reply["unknown_fee"] == ["okx:USDC"]
    monkeypatch.delitem(PUBLISHED, ("kraken", "USDC/USDT"))
    reply, _ = subscribed(alice, fees="published", **both)
    assert reply["exchanges"] == ["kraken", "kraken:USDC", "okx"]
    assert "kraken:USDC/USDT" not in reply["options"]["fees"]


def test_a_view_without_fees_says_nothing_of_them(alice):
    reply, _ = subscribed(alice, exchanges=["okx"])
    assert "unknown_fee" not in reply
    assert not {"fees", "net"} & reply["options"].keys()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fees": {"okx": "x"}}, "fees: A fee is a decimal number of percent"),
        ({"fees": {"binanse": "0.1"}}, 'fees: Unknown exchange "binanse".'),
        ({"fees": {"binance": "0.1"}}, "fees: no exchange of this view has a fee"),
        ({"fees": "key"}, "fees: this API key has no fee table"),
        ({"fees": "mine"}, "fees: must be an object of exchange names"),
        ({"fees": 1}, "fees: must be an object of exchange names"),
        ({"net": True}, "net: needs fees."),
        ({"crossings": "0"}, "crossings: needs fees."),
        ({"fees": FEES, "crossings": "-1"}, "crossings: must be 0 to 10 percent"),
        ({"fees": FEES, "crossings": "x"}, "crossings: must be 0 to 10 percent"),
        ({"fees": FEES, "crossings": 0}, "crossings: must be a percentage as decimal text"),
        ({"fees": FEES, "on": "crossing"}, "on: crossing needs the option crossings."),
        ({"fill": {"amounts": ["1"], "max_exchanges": 2}}, "max_exchanges need fees"),
        ({"fees": FEES, "fill": {"amounts": ["1"], "exclude": ["mtgox"]}}, "fill: exclude:"),
        ({"fees": FEES, "fill": {"amounts": ["1"], "limit": "0"}}, "must be more than 0"),
    ],
)
def test_fees_that_are_none_are_refused(alice, options, words):
    reply, key = subscribed(alice, exchanges=["okx"], **options)
    assert reply["error"] == "invalid_parameters"
    assert words in reply["message"]
    assert key is None
