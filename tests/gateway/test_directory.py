"""Exchanges and pairs as clients see them: only those that the settings switch on."""

from typing import Any

import msgspec
import pytest

from onebook.gateway.directory import Directory


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
