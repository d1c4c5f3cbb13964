"""Commands as the operator of a host runs them."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from onebook.cli.credentials import credentials_app
from onebook.cli.transactions import transactions_app
from onebook.store import Store
from onebook.transactions.credentials import Credentials, MasterKeys, Vault

Command = Callable[..., Result]


def stored_credentials(folder: Path, exchange: str) -> Credentials:
    """The operator's files below a folder."""

    async def story() -> Credentials | None:
        async with Store(f"sqlite+aiosqlite:///{folder}/onebook.db") as store:
            vault = Vault(store.credentials, MasterKeys(folder / "master_key"))
            return await vault.get(exchange, "mainnet")

    found = asyncio.run(story())
    assert found is not None
    return found


def operator_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, overrides: dict[str, str]
) -> Command:
    """Run a command, typing the given answers to its prompts.

    Args:
        folder: Has the database and the keys.
        overrides: Settings below `transactions.overrides`.
    """
    app = typer.Typer()
    app.add_typer(credentials_app, name="credentials")
    app.add_typer(transactions_app, name="transactions")
    settings = {
        "STORE__URL": f"sqlite+aiosqlite:///{folder}/onebook.db",
        "STORE__PEPPER_FILE": str(folder / "pepper"),
        "TRANSACTIONS__MASTER_KEY_FILE": str(folder / "master_key"),
    }
    settings |= {f"TRANSACTIONS__OVERRIDES__{name}": url for name, url in overrides.items()}
    for name, value in settings.items():
        monkeypatch.setenv(f"ONEBOOK_{name}", value)
    return lambda *words, typed="": CliRunner().invoke(app, words, input=typed)
