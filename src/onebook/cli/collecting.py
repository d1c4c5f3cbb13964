"""Collect exchange accounts into the operator's database, with their progress."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onebook.cli.commands import require_server
from onebook.cli.fetching import WAIT_SHOWN_S, doing, progress_bar

if TYPE_CHECKING:  # it needs the server's packages
    from rich.progress import Progress, TaskID

    from onebook.transactions.collector import Collected, Forgotten, Step

ALL = "all"


async def collect_here(
    exchange: str | list[str], *, testnet: bool, demo: bool, config: Path | None
) -> list["Collected"]:
    """Collect accounts with the operator's credentials."""
    with require_server("transactions collect"):
        from onebook.cli.credentials import exchange_service, safe
        from onebook.transactions.collector import Collector
        from onebook.transactions.request import environment_of
    environment = environment_of(testnet=testnet, demo=demo)
    names = [exchange] if isinstance(exchange, str) else exchange
    done = []
    async with safe(config) as opened:
        service = exchange_service(opened)
        collector = Collector(service, opened.store.facts, settings=opened.settings)
        try:
            for account in await collector.accounts():
                wanted = exchange == ALL or str(account.name) in names
                if not wanted or account.environment is not environment:
                    continue
                with progress_bar() as bar:
                    task = bar.add_task(str(account.name), total=1.0, count=0)
                    done.append(await collector.collect(account, partial(_show, bar, task)))
        finally:
            await service.close()
    return done


async def forget_here(
    account: str, before_ms: int | None, *, testnet: bool, demo: bool, config: Path | None
) -> "Forgotten":
    """Delete what was collected of an account."""
    with require_server("transactions forget"):
        from onebook.cli.credentials import exchange_service, safe
        from onebook.transactions.collector import CollectedAccount, Collector
        from onebook.transactions.request import environment_of
    wanted = CollectedAccount.of(account, environment_of(testnet=testnet, demo=demo))
    async with safe(config) as opened:
        service = exchange_service(opened)
        try:
            collector = Collector(service, opened.store.facts, settings=opened.settings)
            return await collector.forget(wanted, before_ms)
        finally:
            await service.close()


def _show(bar: "Progress", task: "TaskID", step: "Step") -> None:
    waiting = step.waiting_s > WAIT_SHOWN_S
    bar.update(
        task,
        completed=(step.number - 1 + step.share) / max(1, step.lists),
        count=step.records,
        description=doing(step.account, step.waiting_s)
        if waiting
        else f"{step.account} {step.name}",
    )
