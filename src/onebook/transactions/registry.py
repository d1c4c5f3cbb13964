"""The exchanges of the transaction interface; adding one is one line here."""

from typing import Final

from onebook.clock import SYSTEM_CLOCK
from onebook.config import TransactionSettings
from onebook.errors import ConfigError
from onebook.store import Store
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import Vault
from onebook.transactions.exchange import ExchangeAdapter, ExchangeDefinition
from onebook.transactions.export_files import ExportFiles
from onebook.transactions.export_jobs import ExportJobs
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.okx import OKX

SHARED: Final = "exchanges"  # the folder of nonces and address limits, beside the master key
EXCHANGES: Final[dict[str, ExchangeDefinition]] = {
    each.entry.name: each
    for each in (
        BYBIT,
        KRAKEN,
        OKX,
    )
}  # fmt: skip


def offered(settings: TransactionSettings) -> dict[str, ExchangeDefinition]:
    """The exchanges that the operator offers, by name.

    Raises:
        ConfigError: The settings name an unknown exchange.
    """
    unknown = [name for name in settings.exchanges if name not in EXCHANGES]
    if unknown:
        raise ConfigError(
            f"transactions.exchanges names {', '.join(unknown)}; supported: {', '.join(EXCHANGES)}."
        )
    wanted = settings.exchanges or EXCHANGES
    return {name: each for name, each in EXCHANGES.items() if name in wanted}


def exports_of(settings: TransactionSettings, store: Store, vault: Vault) -> ExportJobs:
    """The exports of an installation."""
    files = ExportFiles(
        settings.exports_folder, bytes_max=settings.exports_bytes_max, days=settings.exports_days
    )
    return ExportJobs(
        store.exports,
        store.leases,
        files,
        vault,
        clock=SYSTEM_CLOCK,
        sealed=settings.collect_encrypted,
    )


def adapter_of(
    definition: ExchangeDefinition,
    settings: TransactionSettings,
    exports: ExportJobs | None = None,
) -> ExchangeAdapter:
    """Create the adapter of an exchange."""
    # Beside the master key, which the nodes and commands of an installation share.
    folder = settings.master_key_file.parent / SHARED
    return ExchangeAdapter(definition, settings, shared_folder=folder, exports=exports)


def adapters_of(
    settings: TransactionSettings, exports: ExportJobs | None = None
) -> list[ExchangeAdapter]:
    """Create an adapter for every exchange that the operator offers."""
    return [adapter_of(each, settings, exports) for each in offered(settings).values()]
