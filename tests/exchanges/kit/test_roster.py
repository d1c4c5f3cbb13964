"""The instruments of a connection, and its waiting requests."""

from onebook.exchanges.kit.roster import REQUESTS_MAX, Requests, Roster
from onebook.exchanges.kit.sync import Chain
from onebook.model import Instrument

BTC = Instrument("x", "BTC/USD", "BTC-USD")


def test_unanswered_requests_have_a_bound_and_the_oldest_goes() -> None:
    requests = Requests()
    numbers = [requests.issue([BTC]) for _ in range(REQUESTS_MAX + 1)]
    assert requests.complete(numbers[0]) == ()
    assert requests.complete(numbers[1]) == (BTC,)
    assert requests.complete(str(numbers[2])) == (BTC,)
    assert requests.complete(numbers[1]) == (), "once"
    assert requests.complete(None) == ()


def test_a_sentence_names_instruments_as_whole_words() -> None:
    eth = Instrument("x", "ETH/USD", "ETH-USD")
    roster = Roster([BTC, eth], Chain)
    assert roster.named_in("no [ETH-USD], 'ETH-USD' nor BTC-USD.") == [eth, BTC]
    assert roster.named_in("BTC-USDT and XBTC-USD and BTC") == []


def test_an_instrument_that_comes_back_is_no_stranger() -> None:
    roster = Roster([BTC], Chain)
    assert roster.remove([BTC, BTC]) == [BTC]
    assert not roster.absent("BTC-USD")
    assert roster.add([BTC]) == [BTC]
    assert roster.known("BTC-USD") is BTC
    assert roster.all() == [BTC]
