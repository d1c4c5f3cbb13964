"""Every exchange with transactions."""

from onebook.config import TransactionSettings
from onebook.transactions.registry import EXCHANGES, adapters_of


async def test_each_registered_exchange_makes_an_adapter_of_its_name() -> None:
    found = adapters_of(TransactionSettings())
    assert [adapter.entry.name for adapter in found] == list(EXCHANGES)
    for adapter in found:
        assert adapter.entry == EXCHANGES[adapter.entry.name].entry
        await adapter.close()


def test_entries_name_their_sources_and_fields() -> None:
    for registered in EXCHANGES.values():
        entry = registered.entry
        assert {"api_key", "secret"} <= {field.name for field in entry.fields}
        assert entry.bookkeeping.types_of("trades") <= set(entry.types)
        assert set(entry.bookkeeping.contracts.values()) <= set(entry.types)
