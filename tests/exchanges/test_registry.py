"""Selection of exchanges by the lists that clients and callers write."""

import pytest

from onebook.exchanges import EXCHANGES, INSTEAD, instead_of, resolve, select

SUPPORTED = ("binance", "kraken", "okx")


@pytest.mark.parametrize(
    ("asked", "selected"),
    [
        (["all"], SUPPORTED),
        ([" ALL ", "okx"], SUPPORTED),
        (["all", "-kraken"], ("binance", "okx")),
        (["all", "- OKEx "], ("binance", "kraken")),
        (["okx", "binance", "okex"], ("okx", "binance")),
        (["okx", "binance", "-binance"], ("okx",)),
        (["okx", "mtgox"], ("okx",)),
    ],
)
def test_a_list_names_exchanges_all_of_them_or_all_but_some(asked, selected):
    assert select(asked, resolve).among(SUPPORTED) == selected


def test_unknown_names_are_listed_as_they_were_asked_for():
    selection = select(["Mtgox", "okx", "-Quadriga"], resolve)
    assert selection.unknown == ["Mtgox", "-Quadriga"]
    assert selection.known == ("okx",)


@pytest.mark.parametrize("asked", [[], ["-okx"], ["-mtgox"]])
def test_a_list_that_names_none_is_refused(asked):
    with pytest.raises(ValueError, match=r'^exchanges: give at least one, or "all"\.$'):
        select(asked, resolve)


def test_a_list_that_leaves_out_all_that_it_names_is_refused():
    with pytest.raises(ValueError, match="excludes every exchange"):
        select(["okx", "-okex"], resolve).among(SUPPORTED)
    with pytest.raises(ValueError, match="excludes every exchange"):
        select(["all", "-binance", "-kraken", "-okx"], resolve).among(SUPPORTED)


# Names without a connector

# The list of supported exchanges that the reference prints.
REFERENCE = (
    "alpaca apex ascendex bequant binance binancecoinm binanceus binanceusdm bingx bitfinex bitget "
    "bithumb bitmart bitmex bitopro bitrue bitstamp bittrade bitvavo blockchaincom blofin bybit "
    "cex coinbase coinbaseadvanced coinbaseexchange coinbaseinternational coincatch coincheck "
    "coinex coinone cryptocom defx deribit derive exmo gate gateio gemini hashkey hitbtc hollaex "
    "htx huobi hyperliquid independentreserve kraken krakenfutures kucoin kucoinfutures lbank luno "
    "mexc modetrade myokx ndax okcoin okx okxus onetrading oxfun p2b paradex phemex poloniex "
    "probit tradeogre upbit vertex whitebit woo woofipro xt"
)


@pytest.mark.parametrize("name", REFERENCE.split())
def test_a_name_of_the_reference_is_ours_or_is_answered(name: str) -> None:
    assert (resolve(name) is None) == bool(instead_of(name))


@pytest.mark.parametrize(
    ("name", "ours"),
    [("coinbaseadvanced", "coinbase"), ("myokx", "okx"), ("gateio", "gate"), ("huobi", "htx")],
)
def test_other_names_of_an_exchange_are_known(name: str, ours: str) -> None:
    assert resolve(name) == ours


def test_what_is_to_be_used_instead_exists() -> None:
    advised = {text.rpartition("use ")[2].split(" ")[0].rstrip(".") for text in INSTEAD.values()}
    assert {name for name in advised if name in EXCHANGES} >= {"binance", "kraken", "okxus"}
    assert not any(resolve(name) for name in INSTEAD)
    assert set(INSTEAD) <= set(REFERENCE.split())
    assert instead_of(" BinanceUSDM ").endswith("use binance.")
    assert instead_of("mtgox") == ""
