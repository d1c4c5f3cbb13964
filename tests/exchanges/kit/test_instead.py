"""Every exchange that the public reference names is one of ours, or has an answer."""

import pytest

from onebook.exchanges import EXCHANGES, resolve
from onebook.exchanges.kit.instead import INSTEAD, instead_of

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
