"""Hostile instrument lists: bad names are skipped, endless lists are refused."""

import json
import re
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from contract.venue import CHANNELS, START, list_body
from onebook.core.types import SCALE_MAX
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import ProtocolError, codec, instrument_of, sound
from onebook.exchanges.kit.codec import COMMAS_PER_ITEM
from onebook.exchanges.kit.listing import NATIVE_CHARACTERS_MAX
from onebook.simulator import DIALECTS
from onebook.simulator.kit import ExchangeBoard, ListedSymbol

every_exchange = pytest.mark.parametrize("name", EXCHANGES)


def body_of(name: str, pairs: list[tuple[str, str]]) -> bytes:
    """An instrument list with these pairs, as the simulated exchange encodes it."""
    example = DIALECTS[name].listings[0]
    spelling = example.native.upper().replace(example.base, "{0}").replace(example.quote, "{1}")
    listings = [
        ListedSymbol(f"{base}/{quote}", spelling.format(base, quote), 2, 8) for base, quote in pairs
    ]
    dialect = DIALECTS[name](ExchangeBoard(listings, {}, rules=DIALECTS[name].rules))
    return list_body(EXCHANGES[name], dialect, START)


def each_replaced(message: Any, value: Any) -> Iterator[bytes]:
    """A JSON message with each member replaced in turn; of a list, only the first element."""

    def replaced(inner: Any) -> Iterator[None]:
        for place in [*inner] if isinstance(inner, dict) else range(len(inner[:1])):
            before, inner[place] = inner[place], value
            yield
            inner[place] = before
            if isinstance(before, dict | list):
                yield from replaced(before)

    for _ in replaced(message):
        yield json.dumps(message).encode()


HOSTILE = {
    "NUL": "B\0TC",
    "newline": "BTC\nERROR node is down",
    "escape": "\x1b[2JBTC",
    "delete": "BTC\x7f",
    "C1": "BTC\x9b",
    "bidi override": "\u202eCTB",
    "bidi isolate": "\u2066BTC\u2069",
    "right-to-left mark": "BTC\u200f",
    "zero width": "B\u200bTC",
    "line separator": "BTC\u2028",
    "byte order mark": "\ufeffBTC",
    "HTML": "<img src=x onerror=alert(1)>",
    "quote": 'BTC"',
    "apostrophe": "BTC'",
    "ampersand": "B&TC",
    "blank": "B TC",
    "100 KB": "B" * 100_000,
}


@every_exchange
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_name_that_is_not_sound_costs_its_row_and_no_other(name: str, kind: str) -> None:
    pairs = [("ETH", "USD"), (HOSTILE[kind], "USD"), ("币安", "USD"), ("1INCH", "USD")]
    found = EXCHANGES[name].parse_instruments(body_of(name, pairs))
    assert [each.symbol for each in found] == ["ETH/USD", "币安/USD", "1INCH/USD"]
    assert found.refused == 1


@pytest.mark.parametrize("name", CHANNELS)
def test_an_integer_beyond_every_float_costs_at_most_the_list(name: str) -> None:
    body = json.loads(body_of(CHANNELS[name].name, [("ETH", "USD")]))
    for hostile in each_replaced(body, 10**400):
        with suppress(ProtocolError):
            assert len(CHANNELS[name].parse_instruments(hostile)) <= 1


@every_exchange
def test_a_list_with_more_rows_than_allowed_is_refused_in_one_sentence(name: str) -> None:
    body = body_of(name, [(f"C{rank}", "USD") for rank in range(11)])
    assert len(EXCHANGES[name].parse_instruments(body, rows_max=11)) == 11
    with pytest.raises(ProtocolError, match="the list has 11 rows, more than 10"):
        EXCHANGES[name].parse_instruments(body, rows_max=10)


CROWD_ROWS_MAX = 2_000  # of the limit in use 4 %, which cost as much less to read
CROWD = CROWD_ROWS_MAX * COMMAS_PER_ITEM + 1
CROWDS = {
    b"[": b"{}," * CROWD,
    b"{": b"".join(b'"%d":0,' % each for each in range(CROWD)),  # equal names would be one member
}
CROWD_BYTES = 640_000  # as objects they are 2 MB


@every_exchange
def test_a_list_of_very_many_items_takes_no_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever they are in the body, at most the list is refused."""
    monkeypatch.setattr(codec, "ROWS_MAX", CROWD_ROWS_MAX)
    body = body_of(name, [("BTC", "USD")])
    places = [(found.end(), CROWDS[found[0]]) for found in re.finditer(rb"[\[{](?![\]}])", body)]
    assert places
    tracemalloc.start()
    try:
        for place, crowd in places:
            swollen = body[:place] + crowd + body[place:]
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with suppress(ProtocolError):
                EXCHANGES[name].parse_instruments(swollen, rows_max=CROWD_ROWS_MAX)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < CROWD_BYTES, (place, peak - before)
    finally:
        tracemalloc.stop()


# What the lists state of the least order, besides lots: amount, notional or both.
AMOUNT, NOTIONAL, BOTH = (True, False), (False, True), (True, True)
LEAST_ORDERS = {
    **dict.fromkeys(("backpack", "deribit", "gemini", "lbank", "okx", "okxus"), AMOUNT),
    **dict.fromkeys(("bingx", "coinbase", "hyperliquid", "phemex"), NOTIONAL),
    **dict.fromkeys(("binance", "binanceus", "bitget", "bitvavo", "bybit", "cex", "gate"), BOTH),
    **dict.fromkeys(("kraken", "kucoin", "mexc", "p2b", "poloniex", "whitebit", "woo", "xt"), BOTH),
    "bitstamp": NOTIONAL,  # and an amount where it states one
}


@every_exchange
def test_the_least_order_is_read_where_the_list_states_it(name: str) -> None:
    (found,) = EXCHANGES[name].parse_instruments(body_of(name, [("ETH", "USD")]))
    stated = (found.least_amount != "", found.least_notional != "")
    assert stated == LEAST_ORDERS.get(name, (False, False))


@pytest.mark.parametrize("tick", ["1e-8", "0.01<b>", "x" * 100, "0.1\n", "1" * 40])
def test_a_step_is_a_plain_number(tick: str) -> None:
    instrument = instrument_of("okx", "A-B", base="A", quote="B", trading=True, tick=tick)
    assert instrument is not None
    assert sound(instrument) == (tick == "1e-8")


@pytest.mark.parametrize("scale", [-1, 0, SCALE_MAX, SCALE_MAX + 1])
def test_a_scale_is_one_that_a_book_can_hold(scale: int) -> None:
    instrument = instrument_of("okx", "A-B", base="A", quote="B", trading=True, scales=(scale, 0))
    assert instrument is not None
    assert sound(instrument) == (0 <= scale <= SCALE_MAX)


def test_the_longest_native_is_bounded() -> None:
    native = "N" * (NATIVE_CHARACTERS_MAX + 1)
    long = instrument_of("okx", native, base="A", quote="B", trading=True)
    assert long is not None
    assert not sound(long)
