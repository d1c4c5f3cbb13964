"""`onebook accounts`: create, list, suspend and resume users."""

from typing import Annotated

import typer

from onebook.cli.common import reported, run
from onebook.cli.dates import now_ms
from onebook.cli.operator import (
    AsJson,
    ConfigFile,
    Reason,
    change,
    fields,
    operator_store,
    print_accounts,
    print_json,
    print_keys,
)
from onebook.store import AccountRow, KeyRow

accounts_app = typer.Typer(no_args_is_help=True, help="Users: create, list, suspend, resume.")

Username = Annotated[str, typer.Argument(help="Username or account id.")]


@accounts_app.command("create")
@reported
def create(
    username: Annotated[str, typer.Argument(help="Username of the new user.")],
    reason: Reason = "",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Create a user.

    Example: onebook accounts create alice
    """

    async def work() -> AccountRow:
        async with operator_store(config, create=True) as (_store, admin):
            return await admin.create_account(username, change(reason))

    _show(run(work()), as_json)


@accounts_app.command("list")
@reported
def list_accounts(as_json: AsJson = False, config: ConfigFile = None) -> None:
    """List all users.

    Example: onebook accounts list --json
    """

    async def work() -> list[AccountRow]:
        async with operator_store(config) as (store, _admin):
            return await store.accounts.list_accounts()

    accounts = run(work())
    if as_json:
        print_json([fields(account) for account in accounts])
    else:
        print_accounts(accounts)


@accounts_app.command("show")
@reported
def show(username: Username, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Show one user and its keys.

    Example: onebook accounts show alice
    """

    async def work() -> tuple[AccountRow, list[KeyRow]]:
        async with operator_store(config) as (_store, admin):
            return await admin.account(username), await admin.keys(username, now_ms())

    account, keys = run(work())
    if as_json:
        print_json({"account": fields(account), "keys": [fields(key) for key in keys]})
        return
    print_accounts([account])
    print_keys(keys)


@accounts_app.command("suspend")
@reported
def suspend(
    username: Username, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None
) -> None:
    """Suspend a user: within 2 s its keys are rejected and its connections closed.

    Example: onebook accounts suspend alice --reason "unpaid invoice"
    """
    _show(run(_move(username, "suspend", reason, config)), as_json)


@accounts_app.command("resume")
@reported
def resume(
    username: Username, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None
) -> None:
    """Resume a suspended user; its keys work again.

    Example: onebook accounts resume alice
    """
    _show(run(_move(username, "resume", reason, config)), as_json)


async def _move(username: str, action: str, reason: str, config: ConfigFile) -> AccountRow:
    async with operator_store(config) as (_store, admin):
        return await admin.move_account(username, action, change(reason))


def _show(account: AccountRow, as_json: bool) -> None:
    if as_json:
        print_json(fields(account))
    else:
        print_accounts([account])
