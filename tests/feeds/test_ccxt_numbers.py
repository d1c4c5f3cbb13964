"""The pure parts of the ccxt feeds: floats as text, markets, exceptions."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.exchanges.kit.through_ccxt import Market
from onebook.feeds.ccxt.client import (
    DECIMAL_PLACES,
    TEXTS_MAX,
    TICK_SIZE,
    ErrorScope,
    Texts,
    best,
    classify_error,
    describe_error,
    precision_of,
    rows,
    writer,
)
from onebook.model import Reason

precise = pytest.importorskip(
    "ccxt.base.decimal_to_precision", reason="the extra onebook[ccxt] is not installed"
)
SIGNIFICANT_DIGITS = precise.SIGNIFICANT_DIGITS


def market(price=0.01, amount=0.0001, **more):
    pair = {"id": "btcusdt", "symbol": "BTC/USDT", "base": "BTC", "quote": "USDT", "spot": True}
    return pair | {"active": True, "precision": {"price": price, "amount": amount}} | more


def written(rows, counting=TICK_SIZE, **of):
    side = writer(market(**of), counting, precise.decimal_to_precision, precise.number_to_string)
    return side.write(rows).decode()


@pytest.mark.parametrize(
    ("counting", "precision", "number", "text"),
    [
        (TICK_SIZE, 0.01, 100.1, "100.1"),
        (TICK_SIZE, 0.01, 0.1 + 0.2, "0.3"),  # the noise of binary arithmetic
        (TICK_SIZE, 0.5, 63999.5, "63999.5"),
        (TICK_SIZE, 1e-8, 1e-8, "0.00000001"),
        (TICK_SIZE, 10, 63990, "63990"),
        (DECIMAL_PLACES, 3, 1.1 * 3, "3.3"),
        (DECIMAL_PLACES, 3.0, 2.5, "2.5"),
        (SIGNIFICANT_DIGITS, 5, 63999.000000001, "63999"),
        (TICK_SIZE, None, 1e-7, "0.0000001"),  # none: the shortest text of the float
        (TICK_SIZE, 0, 1.5, "1.5"),
        (TICK_SIZE, 0.01, 0.0004, "0.0004"),  # it would vanish
    ],
)
def test_numbers_are_written_at_the_precision_of_the_market(counting, precision, number, text):
    assert written([(number, 1)], counting, price=precision, amount=None) == f'[["{text}","1"]]'
    assert written([(1, number)], counting, price=None, amount=precision) == f'[["1","{text}"]]'


def test_a_precision_coarser_than_the_book_merges_no_prices():
    text = written([(100.12, 1), (100.11, 2)], price=0.1, amount=1)
    assert text == '[["100.12","1"],["100.11","2"]]'


STEPS = st.integers(1, 10**9)


@given(st.lists(st.tuples(STEPS, STEPS), unique_by=lambda level: level[0]))
def test_what_an_exchange_wrote_comes_back_exactly(steps):
    texts = [(Decimal(price).scaleb(-4), Decimal(amount).scaleb(-8)) for price, amount in steps]
    floats = [(float(price), float(amount)) for price, amount in texts]
    levels = (f'["{price.normalize():f}","{amount.normalize():f}"]' for price, amount in texts)
    assert written(floats, price=0.0001, amount=1e-8) == f"[{','.join(levels)}]"


def test_the_memory_of_texts_is_bounded():
    made = []
    texts = Texts(lambda number: made.append(number) or str(number))
    for number in range(TEXTS_MAX + 1):
        texts.of(number)
    assert texts.of(TEXTS_MAX) == str(TEXTS_MAX)
    assert len(made) == TEXTS_MAX + 1
    texts.of(0)
    assert len(made) == TEXTS_MAX + 2, "all were forgotten at once"


def test_the_best_levels_are_copied():
    side = [[3.0, 1.0], [2.0, 1.0], [1.0, 1.0]]
    copied = best(side, 2)
    side[0][1] = 9.0
    assert copied == [(3.0, 1.0), (2.0, 1.0)]


def test_the_list_has_spot_markets_that_are_active():
    markets = [
        market(),
        market(symbol="ETH/USDT", id="ethusdt", base="ETH", active=None),
        market(symbol="OLD/USDT", active=False),
        market(symbol="BTC/USDT:USDT", spot=False, contract=True),
        market(symbol="BTC/USDT", id=None),
        market(symbol="X/USDT", base=None),
    ]
    assert rows(markets, TICK_SIZE, precise.number_to_string) == [
        Market("btcusdt", "BTC/USDT", "BTC", "USDT", "0.01", "0.0001"),
        Market("ethusdt", "ETH/USDT", "ETH", "USDT", "0.01", "0.0001"),
    ]
    (places,) = rows([market(price=2, amount=0)], DECIMAL_PLACES, precise.number_to_string)
    assert (places.tick, places.lot) == ("0.01", "1")
    (digits,) = rows([market(price=5, amount=8)], SIGNIFICANT_DIGITS, precise.number_to_string)
    assert (digits.tick, digits.lot) == ("", "")


@pytest.mark.parametrize("precision", [None, "0.1", True, 0, -1, float("nan")])
def test_a_step_that_is_none_is_no_precision(precision):
    assert precision_of(market(price=precision), "price", TICK_SIZE) is None
    assert precision_of(market(price=float("nan")), "price", DECIMAL_PLACES) is None
    assert precision_of({"precision": None}, "price", TICK_SIZE) is None


def test_what_an_exception_of_ccxt_means():
    errors = pytest.importorskip("ccxt.base.errors")
    expected = {
        errors.ChecksumError: (ErrorScope.BOOK, Reason.CHECKSUM),
        errors.InvalidNonce: (ErrorScope.BOOK, Reason.GAP),
        errors.ExchangeError: (ErrorScope.BOOK, Reason.GAP),
        errors.BadSymbol: (ErrorScope.REFUSAL, Reason.REFUSED),
        errors.PermissionDenied: (ErrorScope.REFUSAL, Reason.REFUSED),
        errors.OnMaintenance: (ErrorScope.CONNECTION, Reason.MAINTENANCE),
        errors.RateLimitExceeded: (ErrorScope.CONNECTION, Reason.RATE_LIMITED),
        errors.RequestTimeout: (ErrorScope.CONNECTION, Reason.DISCONNECTED),
        ConnectionResetError: (ErrorScope.CONNECTION, Reason.DISCONNECTED),
        KeyError: (ErrorScope.BOOK, Reason.GAP),
    }
    assert {kind: tuple(classify_error(kind("x"))) for kind in expected} == expected
    assert describe_error(errors.BadSymbol("no\n such\tpair " + "x" * 500)).startswith(
        "BadSymbol: no such pair xxx"
    )
    assert len(describe_error(errors.BadSymbol("x" * 500))) == 200
    assert describe_error(KeyError()) == "KeyError"
