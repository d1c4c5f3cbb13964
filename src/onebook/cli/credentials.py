"""`onebook credentials`: manage the operator's exchange credentials, stored encrypted."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer
from msgspec.structs import replace

from onebook import config
from onebook.cli.common import fail, print_sentence, print_table, reported, run
from onebook.cli.operator import AsJson, ConfigFile, change, print_json, require_database
from onebook.cli.options import ServiceKey, ServiceUrl, require_service_key
from onebook.client.addresses import addresses_of
from onebook.client.failures import ServiceError, Unavailable
from onebook.client.rest import RestClient
from onebook.clock import iso_ms
from onebook.errors import ExchangeFailed, InvalidRequest, naming
from onebook.files import read_bounded
from onebook.orderbook import meant
from onebook.store import Store
from onebook.transactions.accounts import account_name
from onebook.transactions.adapter import (
    AccountInfo,
    AdapterEntry,
    CredentialField,
    Environment,
)
from onebook.transactions.collected import Collection
from onebook.transactions.credentials import SECRET_CHARS_MAX, Credentials, Vault, master_keys
from onebook.transactions.registry import EXCHANGES, adapter_of, adapters_of, exports_of
from onebook.transactions.request import environment_of
from onebook.transactions.service import Transactions, Validation, validated

EXIT_INVALID = 1
UNCHECKED: Final = "Nothing was changed. Use --no-check to store them without verification."

credentials_app = typer.Typer(
    no_args_is_help=True,
    help="Exchange credentials of the operator: set, check, list, rotate, remove.",
)

Exchange = Annotated[
    str, typer.Argument(help="Exchange or named account: bybit, or bybit:treasury.")
]
Testnet = Annotated[bool, typer.Option("--testnet", help="Select the testnet credentials.")]
Demo = Annotated[bool, typer.Option("--demo", help="Select the credentials of the demo account.")]


class OpenVault(NamedTuple):
    """The opened vault and the settings with the exchanges' addresses."""

    vault: Vault
    settings: config.TransactionSettings
    store: Store


@asynccontextmanager
async def open_vault(file: Path | None, *, create: bool = False) -> AsyncIterator[OpenVault]:
    """Open the vault in the configured store."""
    settings = config.load(file)
    async with Store(settings.store.url) as store:
        await require_database(store, settings.store.pepper_file, create=create)
        masters = master_keys(settings.transactions)
        with naming(settings.transactions.master_key_file):
            yield OpenVault(Vault(store.credentials, masters), settings.transactions, store)


def exchange_service(opened: OpenVault, *, cursor_secret: bytes = b"") -> Transactions:
    """The transaction service for commands: without HTTP and without cursors."""
    # No share of the limits is reserved: this process has only one user.
    settings = opened.settings.model_copy(update={"reserve_share": 0.0})
    exports = exports_of(settings, opened.store, opened.vault)
    return Transactions(
        adapters_of(settings, exports),
        opened.vault,
        cursor_secret=cursor_secret,
        settings=settings,
        collection=collection_of(opened),
        exports=exports,
    )


def collection_of(opened: OpenVault) -> Collection:
    """The collected transactions of the exchange accounts."""
    sealed = opened.settings.collect_encrypted
    return Collection(opened.store.collected, opened.vault, sealed=sealed)


@credentials_app.command("set")
@reported
def set_credentials(
    exchange: Exchange,
    testnet: Testnet = False,
    demo: Demo = False,
    rsa_key_file: Annotated[
        Path | None,
        typer.Option(help="PEM file of a self-generated key; default: prompt for a secret."),
    ] = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Store the credentials without verification.")
    ] = False,
    may_withdraw: Annotated[
        bool, typer.Option("--may-withdraw", help="Accept a key that can withdraw funds.")
    ] = False,
    may_trade: Annotated[
        bool, typer.Option("--may-trade", help="Accept a key that can place or cancel orders.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Replace stored credentials without confirmation.")
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Prompt for an API key, secret and other fields of the exchange; store them encrypted.

    The credentials are first verified with the exchange; if it rejects them, nothing is changed. A
    read-only key is sufficient. Scripts write the fields to standard input, one per line; an empty
    line leaves an optional field out, and the field that completes it then has no line.

    Example: onebook credentials set bybit --testnet
    """
    entry = _known(exchange)
    if rsa_key_file is not None and not any(field.from_file for field in entry.fields):
        raise InvalidRequest(f"{entry.display} does not use key files.")
    environment = environment_of(testnet=testnet, demo=demo)
    if entry.advice and sys.stdin.isatty():
        print_sentence(entry.advice)
    fields = _fields(entry, rsa_key_file)

    async def work() -> None:
        credentials = Credentials(**fields)
        if not no_check:
            info = await _accepted(exchange, environment, credentials, config)
            _refuse_powers(info, may_withdraw=may_withdraw, may_trade=may_trade)
            _show_account(info)
            credentials = Credentials(**{**info.found, **fields})
        async with open_vault(config, create=True) as opened:
            asks = sys.stdin.isatty() and not yes
            if asks and await opened.vault.has(exchange, environment):
                typer.confirm(f"Replace the {exchange} {environment} credentials?", abort=True)
            made = change("")
            await opened.vault.put(
                exchange, environment, credentials, now_ms=made.now_ms, change=made
            )

    run(work())
    print_sentence(f"The {exchange} {environment} credentials are set.")


def _refuse_powers(info: AccountInfo, *, may_withdraw: bool, may_trade: bool) -> None:
    """Refuse a key that can do more than read, unless the operator accepts it.

    Raises:
        InvalidRequest: The key can do more.
    """
    powers = (
        ("withdraw funds", info.may_withdraw and not may_withdraw, "--may-withdraw"),
        ("place or cancel orders", info.may_trade and not may_trade, "--may-trade"),
    )
    refused = [(able, option) for able, is_refused, option in powers if is_refused]
    if not refused:
        return
    able = " and ".join(able for able, _ in refused)
    options = " ".join(option for _, option in refused)
    raise InvalidRequest(
        f"The key can {able}, which is not needed: create a read-only key. Nothing was changed; "
        f"{options} stores it anyway."
    )


async def _accepted(
    exchange: str, environment: Environment, credentials: Credentials, file: Path | None
) -> AccountInfo:
    """Verify credentials with the exchange before they are stored.

    Raises:
        InvalidRequest: The exchange rejects them or is unreachable.
    """
    name = account_name(exchange)
    adapter = adapter_of(EXCHANGES[name.exchange], config.load(file).transactions)
    try:
        found = await validated(adapter, environment, credentials, name=name)
    except ExchangeFailed as error:
        raise InvalidRequest(f"{error.message} {UNCHECKED}") from None
    finally:
        await adapter.close()
    if found.info is None:
        raise InvalidRequest(f"{found.message} {UNCHECKED}")
    return found.info


@credentials_app.command("check")
@reported
def check(
    exchange: Exchange,
    testnet: Testnet = False,
    demo: Demo = False,
    url: ServiceUrl = "",
    key: ServiceKey = "",
    config: ConfigFile = None,
) -> None:
    """Verify the credentials with the exchange and show the permissions of the key.

    With --url, the service at that address verifies the credentials that it has stored.

    Example: onebook credentials check bybit
    """
    require_service_key(url, key)
    try:
        found = run(
            _checked_there(exchange, url, key, testnet=testnet, demo=demo)
            if url
            else _checked_here(exchange, config, testnet=testnet, demo=demo)
        )
    except ServiceError as error:
        fail(error.message)
    print_sentence(found.message)
    if found.info is None:
        raise typer.Exit(EXIT_INVALID)
    if found.info.read_only:
        print_sentence("The key can only read.")
    _show_account(found.info)


async def _checked_here(
    exchange: str, file: Path | None, *, testnet: bool, demo: bool
) -> Validation:
    async with open_vault(file) as opened:
        service = exchange_service(opened)
        try:
            return await service.validate(exchange, testnet=testnet, demo=demo)
        finally:
            await service.close()


async def _checked_there(
    exchange: str, url: str, key: str, *, testnet: bool, demo: bool
) -> Validation:
    """Let a service verify its credentials.

    Raises:
        Refused, Unavailable: The service refuses the request or its answer is unreadable.
    """
    body = {"exchange": exchange, "testnet": testnet} | ({"demo": True} if demo else {})
    async with RestClient(addresses_of(url).rest, key) as service:
        answer = await service.post("/transactions/validate-credentials", body)
    try:
        found = msgspec.convert(answer, ValidationBody)
    except msgspec.ValidationError as error:
        message = f"{url} sent an unexpected answer: {error}."
        raise Unavailable("damaged_answer", message) from None
    return Validation(exchange, found.message, found.account_info if found.success else None)


class ValidationBody(msgspec.Struct, frozen=True):
    """The answer of a service that verified its credentials."""

    success: bool
    message: str
    account_info: AccountInfo | None = None


def _show_account(info: AccountInfo) -> None:
    """Print expiry and missing permissions of a valid key."""
    for warning in info.warnings:
        print_sentence(warning)
    if info.expires_at is not None:
        print_sentence(f"The key expires on {iso_ms(info.expires_at)[:10]} (UTC).")
    if info.unavailable_types:
        types = ", ".join(info.unavailable_types)
        print_sentence(f"The key does not have the permissions to read {types}.")


@credentials_app.command("list")
@reported
def list_credentials(as_json: AsJson = False, config: ConfigFile = None) -> None:
    """List the stored credentials, without their values.

    Example: onebook credentials list --json
    """

    async def work() -> list[Any]:
        async with open_vault(config) as opened:
            return list(await opened.vault.listed())

    rows = [
        (row.exchange, row.environment, row.kek_id, iso_ms(row.created_at_ms))
        for row in run(work())
    ]
    columns = ("exchange", "environment", "kek_id", "created_at")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


@credentials_app.command("rotate")
@reported
def rotate(config: ConfigFile = None) -> None:
    """Create a new master key and re-encrypt all stored credentials, while the service runs.

    Example: onebook credentials rotate
    """

    async def work() -> int:
        async with open_vault(config) as opened:
            count = await opened.vault.rotate()
            await opened.store.audit.record(change(""), "rotate_master_key", "credentials")
            return count

    count = run(work())
    print_sentence(
        f"Re-encrypted {count} credential{'' if count == 1 else 's'} with a new master key."
    )


@credentials_app.command("remove")
@reported
def remove(
    exchange: Exchange,
    testnet: Testnet = False,
    demo: Demo = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without confirmation.")] = False,
    config: ConfigFile = None,
) -> None:
    """Delete the credentials of an exchange; its collected records stay.

    Example: onebook credentials remove bybit --testnet
    """

    environment = environment_of(testnet=testnet, demo=demo)

    async def work() -> bool:
        async with open_vault(config) as opened:
            asks = sys.stdin.isatty() and not yes
            if asks and await opened.vault.has(exchange, environment):
                typer.confirm(f"Delete the {exchange} {environment} credentials?", abort=True)
            return await opened.vault.remove(exchange, environment, change=change(""))

    if not run(work()):
        raise InvalidRequest(f"No {exchange} {environment} credentials are stored.")
    print_sentence(f"The {exchange} {environment} credentials are deleted.")


def _asked(field: CredentialField) -> str:
    """Prompt for a field; "" if an optional one is left out."""
    if sys.stdin.isatty():
        words = [field.label, *(f"({', '.join(field.choices)})" for _ in field.choices[:1])]
        words += ["[optional]"] if field.optional and field.name_alone == field.label else []
        default = "" if field.optional else None
        asked = typer.prompt(
            " ".join(words), hide_input=field.secret, default=default, show_default=False
        )
        text = str(asked).strip()
    else:  # a script sends one line per field; getpass would warn that it cannot hide the input
        text = sys.stdin.readline().strip()
    if not text and field.optional:
        return ""
    fits = text and len(text) <= SECRET_CHARS_MAX and text.isprintable()
    if not fits or (field.choices and text not in field.choices):
        if not field.choices:
            raise InvalidRequest(f"Invalid {field.name_alone}.")
        empty = ", or empty" if field.optional else ""
        raise InvalidRequest(
            f"{field.name_alone} must be one of {', '.join(field.choices)}{empty}."
        )
    return text


def _fields(entry: AdapterEntry, file: Path | None) -> dict[str, str]:
    """Prompt for the fields of an exchange; without those that are left out."""
    found: dict[str, str] = {}
    for field in entry.fields:
        if field.follows:
            if field.follows not in found:
                continue
            field = replace(field, optional=False)
        if value := _field(field, file):
            found[field.name] = value
    return found


def _field(field: CredentialField, file: Path | None) -> str:
    if file is None or not field.from_file:
        return _asked(field)
    try:
        return read_bounded(file, SECRET_CHARS_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidRequest(f"The key file {file} cannot be read: {reason}.") from None


def _known(exchange: str) -> AdapterEntry:
    found = EXCHANGES.get(account_name(exchange).exchange)
    if found is None:
        raise InvalidRequest(
            f"Exchange {exchange!r} is not supported; supported: {', '.join(EXCHANGES)}."
            f"{meant(exchange, EXCHANGES)}"
        )
    return found.entry
