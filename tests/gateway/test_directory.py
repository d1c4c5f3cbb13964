"""Lists of exchanges and pairs in replies: only those that the settings switch on."""

from typing import Any

import msgspec
import pytest

from gateway.conversation import AWAY, SUPPORTED, assert_error
from onebook.gateway.directory import Directory


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
