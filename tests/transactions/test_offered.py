"""Which exchanges are offered, their hosts, and credentials with optional fields."""

import pytest

from onebook.config import AccountUrls, TransactionSettings
from onebook.errors import ConfigError
from onebook.transactions import registry
from onebook.transactions.adapter import Environment
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.registry import adapters_of, offered
from transactions.fennec.adapter import FENNEC


@pytest.fixture
def _fennec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.EXCHANGES, "fennec", FENNEC)


@pytest.mark.usefixtures("_fennec")
def test_everything_unless_the_operator_chooses() -> None:
    assert {"bybit", "fennec"} <= offered(TransactionSettings()).keys()
    found = adapters_of(TransactionSettings(exchanges=("fennec",)))
    assert [adapter.entry.name for adapter in found] == ["fennec"]


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(ConfigError, match=r"transactions\.exchanges names mtgox; supported:"):
        offered(TransactionSettings(exchanges=("bybit", "mtgox")))


def test_addresses_of_the_operator_replace_every_host_or_one() -> None:
    urls = AccountUrls(
        mainnet_url="http://sim", testnet_url="http://sim", hosts={"other": "http://o"}
    )
    adapter = ExchangeAdapter(FENNEC, TransactionSettings(overrides={"fennec": urls}))
    assert list(adapter.environments) == [Environment.MAINNET]  # it has no testnet, nor gets one
    assert adapter._sites[Environment.MAINNET].hosts == {"": "http://sim", "other": "http://o"}
