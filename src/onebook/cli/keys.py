"""`onebook keys`: issue, list and change API keys.

A new key is printed once, alone on standard output so that scripts can read it; messages go to
standard error.
"""

from datetime import date
from typing import Annotated

import typer

from onebook import config as config_module
from onebook.accounts.admin import NewKey
from onebook.accounts.keys import fees_from
from onebook.accounts.pepper import (
    changing,
    prepare_pepper,
    retire_peppers,
    rotate_pepper,
    waiting_pepper,
)
from onebook.cli.common import fail, print_table, reported, run
from onebook.cli.dates import now_ms, span_ms, until_ms
from onebook.cli.exchange_facts import is_recorded_fee
from onebook.cli.operator import (
    AsJson,
    ConfigFile,
    Reason,
    change,
    fields,
    operator_store,
    print_json,
    print_keys,
    size_bytes,
)
from onebook.clock import day_of
from onebook.exchanges import EXCHANGES, known_name
from onebook.exchanges.kit.published import fee_pages, is_old_fee
from onebook.fees import PUBLISHED, TakerFees, named_table
from onebook.model import Tier
from onebook.store import KeyRow

UNCONFIRMED = "; unconfirmed"  # the fee is in no recorded response

keys_app = typer.Typer(
    no_args_is_help=True,
    help="API keys: create, list, change, suspend, resume, expire, rotate.",
)

DEFAULT_ALLOWANCE = "default"
KeyName = Annotated[str, typer.Argument(metavar="KEY_ID", help="Key id, as shown by `keys list`.")]


@keys_app.command("create")
@reported
def create(
    username: Annotated[str, typer.Argument(help="Owner of the key: username or account id.")],
    tier: Annotated[Tier, typer.Option(help="The billing tier.")] = Tier.BASIC,
    expires: Annotated[
        str | None,
        typer.Option(
            help=(
                "Expiry: a span such as 90d, or the last valid day (UTC), such as 2027-01-31; "
                "default: never."
            )
        ),
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Issue a key to a user and print it; it cannot be shown again.

    Example: onebook keys create alice --tier premium --expires 90d
    """
    made = change(reason)
    expires_at_ms = None if expires is None else until_ms(expires, made.now_ms)

    async def work() -> NewKey:
        async with operator_store(config) as (_store, admin):
            return await admin.create_key(username, tier, made, expires_at_ms=expires_at_ms)

    _print_new(run(work()), as_json)


@keys_app.command("list")
@reported
def list_keys(
    account: Annotated[str | None, typer.Option(help="Only keys of this user.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """List keys; only the first characters of each are shown.

    Example: onebook keys list --account alice
    """

    async def work() -> list[KeyRow]:
        async with operator_store(config) as (_store, admin):
            return await admin.keys(account, now_ms())

    keys = run(work())
    if as_json:
        print_json([fields(key) for key in keys])
    else:
        print_keys(keys)


@keys_app.command("show")
@reported
def show(key: KeyName, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Show one key.

    Example: onebook keys show key_0f3a5c7e9b1d
    """

    async def work() -> KeyRow:
        async with operator_store(config) as (_store, admin):
            return await admin.key(key, now_ms())

    _print_key(run(work()), as_json)


@keys_app.command("suspend")
@reported
def suspend(
    key: KeyName, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None
) -> None:
    """Suspend a key; its connections and sessions are closed within 2 s.

    Example: onebook keys suspend key_0f3a5c7e9b1d --reason "found in a public repository"
    """
    _print_key(run(_move(key, "suspend", reason, config)), as_json)


@keys_app.command("resume")
@reported
def resume(
    key: KeyName, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None
) -> None:
    """Resume a suspended key; it is accepted again.

    Example: onebook keys resume key_0f3a5c7e9b1d
    """
    _print_key(run(_move(key, "resume", reason, config)), as_json)


@keys_app.command("expire")
@reported
def expire(
    key: KeyName, reason: Reason = "", as_json: AsJson = False, config: ConfigFile = None
) -> None:
    """Expire a key permanently; this cannot be undone.

    Example: onebook keys expire key_0f3a5c7e9b1d --reason "contract ended"
    """
    _print_key(run(_move(key, "expire", reason, config)), as_json)


@keys_app.command("change")
@reported
def change_key(
    key: KeyName,
    tier: Annotated[Tier | None, typer.Option(help="The new billing tier.")] = None,
    allowance: Annotated[
        str | None,
        typer.Option(
            help="Monthly allowance of this key: 200GiB, 500MiB or a number of bytes; `default` "
            "for the value of accounts.allowance_bytes."
        ),
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Change the tier or allowance of a key; it takes effect within 2 s, also on open connections.

    Example: onebook keys change key_0f3a5c7e9b1d --tier premium --allowance 200GiB
    """
    if tier is None and allowance is None:
        fail("Nothing to change: give --tier or --allowance.")
    own = allowance != DEFAULT_ALLOWANCE
    allowance_bytes = size_bytes(allowance) if own and allowance is not None else None

    async def work() -> KeyRow:
        async with operator_store(config) as (_store, admin):
            return await admin.change_key(
                key,
                change(reason),
                tier=tier,
                allowance_bytes=allowance_bytes,
                own_allowance=own,
            )

    _print_key(run(work()), as_json)


@keys_app.command("fees")
@reported
def fees(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help=f"Key id, or `{PUBLISHED}` for the fees that exchanges publish."
        ),
    ],
    table: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXCHANGE=PERCENT",
            help='Taker fees in percent, such as okx=0.08 "*=0.1"; they replace the whole table. '
            "Without fees, the table is shown.",
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the table.")] = False,
    reason: Reason = "",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Show or replace the taker fees of a key, used by subscriptions with `fees: "key"`.

    `onebook keys fees published` shows where the fees of `fees: "published"` are from: the
    instrument list of the exchange, or a page of its site with its date.

    Example: onebook keys fees key_0f3a5c7e9b1d okx=0.08 "*=0.1"
    """
    if table and clear:
        fail("Give either fees or --clear.")
    if key == PUBLISHED:
        if table or clear:
            fail("Published fees cannot be changed; give the id of a key.")
        _print_published(as_json)
        return
    given = _fees_of(table or [])

    async def work() -> KeyRow:
        async with operator_store(config) as (_store, admin):
            if given or clear:
                return await admin.change_fees(key, given, change(reason))
            return await admin.key(key, now_ms())

    found = fees_from(run(work()).fees)
    if as_json:
        print_json(found)
    elif found:
        print_table(("exchange", "percent"), found.items())
    else:
        typer.echo("This key has no fee table.", err=True)


def _print_published(as_json: bool) -> None:
    """Print the source of each exchange's published fee, and the exchanges without one."""
    today = day_of(now_ms())
    stated: list[tuple[str, str, str, date | None, bool]] = []
    unknown = []
    for name, exchange in sorted(EXCHANGES.items()):
        page = fee_pages().get(name)
        if page is not None:
            stated.append((name, str(page), page.page, page.date, is_old_fee(page.date, today)))
        elif exchange.lists_fees:
            read = "instrument list, read hourly"
            read += "" if is_recorded_fee(exchange) else UNCONFIRMED
            stated.append((name, "of each pair", read, None, False))
        else:
            unknown.append(name)
    if as_json:
        names = ("exchange", "percent", "source", "date", "old")
        fees = [dict(zip(names, each, strict=True)) for each in stated]
        print_json({"fees": fees, "unknown_fee": unknown})
        return
    print_table(
        ("exchange", "percent", "source", "date"),
        [
            (name, percent, source, f"{day or ''}{' (old)' if is_old else ''}")
            for name, percent, source, day, is_old in stated
        ],
    )
    typer.echo(f"Without a published fee: {', '.join(unknown)}.", err=True)


def _fees_of(table: list[str]) -> TakerFees:
    given = {}
    for entry in table:
        name, found, percent = entry.partition("=")
        if not found or name in given:
            fail(f"Invalid fee {entry!r}: use EXCHANGE=PERCENT, at most once per exchange.")
        given[name] = percent
    try:
        return named_table(given, known_name)
    except ValueError as error:
        fail(str(error))


@keys_app.command("rotate")
@reported
def rotate(
    key: KeyName,
    overlap: Annotated[
        str, typer.Option(help="How long the old secret stays valid: 0s to 30d.")
    ] = "24h",
    reason: Reason = "",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Replace the secret of a key and print the new one; the old one stays valid for --overlap.

    Id, usage and limits are kept. With an overlap, open connections and sessions are kept too. With
    --overlap 0s, the old secret is revoked at once, and connections and sessions that use the key
    are closed within 2 s.

    Example: onebook keys rotate key_0f3a5c7e9b1d --overlap 24h
    """
    overlap_ms = span_ms(overlap)

    async def work() -> NewKey:
        async with operator_store(config) as (_store, admin):
            return await admin.rotate_key(key, change(reason), overlap_ms=overlap_ms)

    _print_new(run(work()), as_json)


@keys_app.command("rotate-pepper")
@reported
def rotate_pepper_command(
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Add the new pepper to the file without using it yet.")
    ] = False,
    retire: Annotated[
        bool,
        typer.Option(
            "--retire",
            help="Remove the older peppers; keys not used since the rotation are revoked.",
        ),
    ] = False,
    reason: Reason = "",
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Start using a new pepper, and print the keys that are still hashed with an older one.

    Clients are not affected: a key is rehashed when it is next used. Restart the nodes, so that
    every client reconnects; after some days, remove the older peppers with --retire, which also
    revokes and lists the keys that were not used in the meantime. Give such a key a new secret with
    `keys rotate`.

    With nodes on several machines (PostgreSQL): run this command with --prepare, copy the pepper
    file to each machine, then run it again without --prepare.

    Example: onebook keys rotate-pepper --reason "the pepper file was in a public backup"
    """
    if prepare and retire:
        fail("Give --prepare or --retire, not both.")
    settings = config_module.load(config).store
    file = settings.pepper_file

    async def work() -> tuple[str, list[KeyRow]]:
        async with operator_store(config) as (store, _admin):
            if prepare:
                with changing(file):
                    return prepare_pepper(file, await store.accounts.list_peppers()), []
            if retire:
                revoked = await store.accounts.keys_by_id(
                    await retire_peppers(store, file, change(reason))
                )
                return (await store.accounts.list_peppers())[-1].pepper_id, list(revoked.values())
            if store.database.path is None and not waiting_pepper(
                file, await store.accounts.list_peppers()
            ):
                fail(
                    "Nodes on other machines need the new pepper first: run this with "
                    f"--prepare, copy {file} to each machine, then run it again."
                )
            made = await rotate_pepper(store, file, change(reason))
            return made, await store.accounts.keys_under_old_peppers(now_ms())

    pepper, keys = run(work())
    if as_json:
        print_json({"pepper_id": pepper, "keys": [fields(key) for key in keys]})
        return
    if prepare:
        typer.echo(
            f"Pepper {pepper} was added to {file}: copy the file to each machine, then run this "
            "again without --prepare."
        )
    elif retire:
        typer.echo(f"Pepper {pepper} is now the only one. Keys revoked: {len(keys)}.")
    else:
        typer.echo(
            f"Pepper {pepper} is now current. Keys still hashed with an older one: {len(keys)}."
        )
    if keys:
        print_keys(keys)


async def _move(key: str, action: str, reason: str, config: ConfigFile) -> KeyRow:
    async with operator_store(config) as (_store, admin):
        return await admin.move_key(key, action, change(reason))


def _print_key(row: KeyRow, as_json: bool) -> None:
    if as_json:
        print_json(fields(row))
    else:
        print_keys([row])


def _print_new(made: NewKey, as_json: bool) -> None:
    if as_json:
        print_json({"api_key": made.text} | fields(made.row))
        return
    typer.echo(made.text)
    typer.echo(
        f"{made.row.key_id} of {made.row.username}, tier {made.row.tier}. "
        "Save the key now: it cannot be shown again.",
        err=True,
    )
