"""`onebook transactions`: export an account's history, collect it, follow it, report any gaps."""

import json
from collections.abc import Iterable
from contextlib import aclosing
from datetime import UTC, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from onebook.cli.commands import require_server
from onebook.cli.common import fail, print_sentence, print_table, reported, run
from onebook.cli.dates import NOW, minute_in, now_ms, past_end_ms, past_ms, year_ms, zone_of
from onebook.cli.fetching import (
    OLDER_NOT_KEPT,
    WAIT_SHOWN_S,
    FetchOutcome,
    FetchRequest,
    doing,
    fetch_here,
    fetch_there,
    progress_bar,
    showing,
)
from onebook.cli.options import ConfigFile, ServiceKey, ServiceUrl, require_service_key
from onebook.client import AsyncOnebook
from onebook.client.failures import ServiceError
from onebook.client.follow import LiveTransaction
from onebook.clock import iso_ms
from onebook.errors import InvalidRequest
from onebook.transactions.adapter import Coverage
from onebook.transactions.export import ENDINGS, FORMS, form_of, refuse_rowless
from onebook.transactions.reconciliation import CheckState, ProofCheck, ProofGrade, Verification

if TYPE_CHECKING:  # needs the server's packages
    from rich.progress import Progress

    from onebook.transactions.collector import Collected, Forgotten, Step
    from onebook.transactions.exchange import ExchangeAdapter

ALL: Final = "all"  # everything the exchange keeps
SINCE: Final = "30d"
EXIT_INCOMPLETE: Final = 1

transactions_app = typer.Typer(
    no_args_is_help=True,
    help="Transaction history of exchange accounts: fetch, verify, collect, forget, follow.",
)


Exchange = Annotated[
    str,
    typer.Option(help="Exchange, comma-separated accounts (bybit,bybit:treasury), or all."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--from",
        help=(
            "Start: a day or time, such as 2025-01-01 or 2025-01-01T00:00+01:00; a duration "
            "before now, such as 90d; or all."
        ),
        show_default=SINCE,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="End: a day, inclusive, such as 2025-12-31; a time, a duration before now, or now.",
        show_default=NOW,
    ),
]
Year = Annotated[
    int | None,
    typer.Option(help="A calendar year, instead of --from and --to.", show_default=False),
]
TimeZone = Annotated[
    str,
    typer.Option(
        help=(
            "Time zone for days, years, and times without an offset, such as Europe/Berlin or "
            "+01:00."
        )
    ),
]
From = Annotated[
    Literal["exchange", "collected"] | None,
    typer.Option(
        "--source",
        help="Read only from the exchange, or only from the collected records.",
        show_default="collected records, and the rest from the exchange",
    ),
]
Testnet = Annotated[bool, typer.Option("--testnet", help="Use the testnet.")]
Demo = Annotated[bool, typer.Option("--demo", help="Use the demo account.")]


@transactions_app.command("fetch")
@reported
def fetch(
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file.")],
    exchange: Exchange = "bybit",
    types: Annotated[
        str,
        typer.Option(
            help=(
                "Transaction types, comma separated; the rows of some types alone do not "
                "add up to the balances."
            ),
            show_default="all but holdings",
        ),
    ] = "",
    since: Since = None,
    until: Until = None,
    year: Year = None,
    time_zone: TimeZone = "UTC",
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help=f"One of {', '.join(FORMS)}.",
            show_default=f"from the file extension ({', '.join(filter(None, ENDINGS))})",
        ),
    ] = "",
    testnet: Testnet = False,
    demo: Demo = False,
    source: From = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Reconcile the records with the balances.")
    ] = False,
    url: ServiceUrl = "",
    key: ServiceKey = "",
    config: ConfigFile = None,
) -> None:
    """Export the history of an account to a file and report its coverage.

    The file is created when it is complete. The exit status is 0 only if nothing is missing.
    Without --types, the rows of every format add up to the change of each balance.

    Example: onebook transactions fetch --types trades,ledger --from 2025-01-01 -o history.jsonl
    """
    zone = zone_of(time_zone)
    start_ms, end_ms = _range_ms(since, until, year, zone)
    if output.is_dir():
        raise InvalidRequest(f"{output} is a directory; give the path of a file.")
    words = [word.strip() for word in types.split(",") if word.strip()]
    found = form_of(output, form)
    refuse_rowless(found, words)
    wanted = FetchRequest(
        exchange=_accounts(exchange),
        types=words,
        testnet=testnet,
        demo=demo,
        start_ms=start_ms,
        end_ms=end_ms,
        ends_now=until in (None, NOW) and year is None,
        source=source,
        verify=verify,
        output=output,
        form=found,
    )
    _fetch(wanted, url, key, config, zone)


@transactions_app.command("verify")
@reported
def verify_command(
    exchange: Exchange = "bybit",
    since: Since = None,
    until: Until = None,
    year: Year = None,
    time_zone: TimeZone = "UTC",
    testnet: Testnet = False,
    demo: Demo = False,
    source: From = None,
    url: ServiceUrl = "",
    key: ServiceKey = "",
    config: ConfigFile = None,
) -> None:
    """Reconcile all records of an account with its balances, without writing a file.

    The exit status is 0 only if nothing is missing and every possible check holds.

    Example: onebook transactions verify --from 90d
    """
    zone = zone_of(time_zone)
    start_ms, end_ms = _range_ms(since, until, year, zone)
    wanted = FetchRequest(
        exchange=_accounts(exchange),
        types=[],
        testnet=testnet,
        demo=demo,
        start_ms=start_ms,
        end_ms=end_ms,
        ends_now=until in (None, NOW) and year is None,
        source=source,
        verify=True,
        output=None,
    )
    _fetch(wanted, url, key, config, zone)


@transactions_app.command("collect")
@reported
def collect_command(
    exchange: Annotated[
        str,
        typer.Option(help="Exchange, comma-separated accounts (bybit,bybit:treasury), or all."),
    ] = ALL,
    testnet: Testnet = False,
    demo: Demo = False,
    config: ConfigFile = None,
) -> None:
    """Read accounts into the database, to keep records longer than the exchange does.

    The first collection reads everything the exchange keeps; later ones read new records. An
    interrupted collection resumes where it stopped. The exit status is 0 only if everything the
    exchange keeps is stored. A service collects automatically with transactions.collect_every.

    Example: onebook transactions collect --exchange kraken
    """
    try:
        done = run(collect_here(_accounts(exchange), testnet=testnet, demo=demo, config=config))
    except KeyboardInterrupt:
        print_sentence("Interrupted; the next collection continues from here.", err=True)
        raise
    rows = (
        (
            each.account,
            each.environment.value,
            f"{each.records:,}",
            f"{each.new:,}",
            "yes" if each.complete else "no",
        )
        for each in done
    )
    print_table(("account", "environment", "read", "new", "complete"), rows)
    errors = ((each.account, e.transaction_type, e.message) for each in done for e in each.errors)
    for sentence in _stated(errors):
        print_sentence(sentence)
    if not done:
        fail("No credentials are stored in this environment; store some with onebook credentials.")
    if not all(each.complete for each in done):
        raise typer.Exit(EXIT_INCOMPLETE)


@transactions_app.command("forget")
@reported
def forget_command(
    account: Annotated[str, typer.Argument(help="Account, such as kraken or bybit:treasury.")],
    before: Annotated[
        str | None,
        typer.Option(
            help="Delete only records older than this day, time or duration (such as 3650d).",
            show_default="everything",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without confirmation.")] = False,
    testnet: Testnet = False,
    demo: Demo = False,
    config: ConfigFile = None,
) -> None:
    """Delete collected records of an account from the database.

    Records deleted with --before are not collected again; answers report them as missing. Without
    it, everything is deleted, and the next collection starts from the beginning. Copies in backups
    stay.

    Example: onebook transactions forget kraken --before 2020-01-01
    """
    before_ms = None if before is None else past_ms(before, now_ms(), UTC)
    if not yes:
        what = "all collected records" if before is None else f"collected records before {before}"
        typer.confirm(f"Delete {what} of {account}?", abort=True)
    gone = run(forget_here(account, before_ms, testnet=testnet, demo=demo, config=config))
    print_sentence(
        f"Deleted {_counted(gone.records, 'record')} and {_counted(gone.readings, 'reading')} of "
        f"the holdings of {account}."
    )


@transactions_app.command("follow")
@reported
def follow(
    key: Annotated[
        str,
        typer.Option(
            envvar="ONEBOOK_KEY", help="API key; preferably set in the variable ONEBOOK_KEY."
        ),
    ],
    exchange: Exchange = "bybit",
    types: Annotated[
        str,
        typer.Option(
            help="Transaction types, comma separated.", show_default="all but ledger and holdings"
        ),
    ] = "",
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Print the history first, from a day, a time or a duration before now (1h).",
            show_default=NOW,
        ),
    ] = None,
    testnet: Testnet = False,
    demo: Demo = False,
    count: Annotated[int, typer.Option(min=0, help="Stop after N records (0: never).")] = 0,
    url: Annotated[str, typer.Option(help="URL of the service.")] = "http://127.0.0.1:8000",
) -> None:
    """Print new transactions of an account as they occur, as one line of JSON each.

    A changed record is printed again, with "updated" as its change. Subscription status is
    written to standard error.

    Example: onebook transactions follow --from 1h
    """
    options = {
        "start": None if since is None else _range_ms(since, None, None, UTC)[0],
        "testnet": testnet,
        **({"demo": True} if demo else {}),
    }
    words = [word.strip() for word in types.split(",") if word.strip()]
    try:
        run(follow_there(AsyncOnebook(url, key), _accounts(exchange), words, options, count))
    except ServiceError as error:
        fail(error.message)


def _fetch(wanted: FetchRequest, url: str, key: str, config: Path | None, zone: tzinfo) -> None:
    require_service_key(url, key)
    try:
        outcome = run(fetch_there(wanted, url, key) if url else fetch_here(wanted, config))
    except ServiceError as error:
        fail(error.message)
    except KeyboardInterrupt:
        print_sentence(_interrupted(wanted, url), err=True)
        raise
    _show(outcome, wanted.output, zone)
    if not outcome.complete:
        raise typer.Exit(EXIT_INCOMPLETE)


def _interrupted(wanted: FetchRequest, url: str) -> str:
    if wanted.output is None:
        return "Interrupted."
    sentence = f"Interrupted; {wanted.output} was not written, because records would be missing."
    if url:
        return sentence
    return f"{sentence} onebook transactions collect keeps what it has read."


def _range_ms(
    since: str | None, until: str | None, year: int | None, zone: tzinfo
) -> tuple[int | None, int]:
    """Return the first and last millisecond to fetch; the first is None for everything."""
    if year is None:
        now, since = now_ms(), since or SINCE
        start_ms = None if since == ALL else past_ms(since, now, zone)
        end_ms = past_end_ms(until or NOW, now, zone)
        if start_ms is not None and start_ms > now:
            raise InvalidRequest(f"--from {since} is in the future.")
        if start_ms is not None and start_ms > end_ms:
            raise InvalidRequest(f"--from {since} is after --to {until}.")
        return start_ms, end_ms
    if since is not None or until is not None:
        raise InvalidRequest("Give either --year, or --from and --to.")
    start_ms, end_ms = year_ms(year, zone)
    if start_ms > now_ms():
        raise InvalidRequest(f"The year {year} has not begun.")
    return start_ms, end_ms


def _show(outcome: FetchOutcome, output: Path | None, zone: tzinfo) -> None:
    joint = any(entry.account for entry in outcome.coverage)
    rows = (
        (
            *([str(entry.account)] if joint else []),
            entry.transaction_type,
            "" if entry.from_ms is None else minute_in(zone, entry.from_ms),
            minute_in(zone, entry.to_ms),
            "yes" if entry.complete else "no",
            entry.reason or "",
        )
        for entry in outcome.coverage
    )
    columns = ("transaction_type", "from", "to", "complete", "reason")
    print_table(("account", *columns) if joint else columns, rows)
    if zone is not UTC:
        rest = "" if output is None else "; the file uses UTC"
        print_sentence(f"Times in this table are in {zone}{rest}.")
    for sentence in _stated(
        [
            *((e.account or "", e.transaction_type, e.message) for e in outcome.errors),
            *((e.account or "", e.transaction_type, e.omitted or "") for e in outcome.coverage),
            *((e.account or "", e.transaction_type, _kept(e, zone)) for e in outcome.coverage),
        ]
    ):
        print_sentence(sentence)
    for sentence in _proof(outcome.verification):
        print_sentence(sentence)
    for sentence in _summary(outcome, output):
        print_sentence(sentence)


def _kept(entry: Coverage, zone: tzinfo) -> str:
    """The sentence about a type that is complete only from the oldest kept record on."""
    if not entry.complete or entry.reason != OLDER_NOT_KEPT or entry.from_ms is None:
        return ""
    return (
        f"complete from {minute_in(zone, entry.from_ms)}; nothing older is kept, so that "
        "earlier balances cannot be proven."
    )


def _stated(statements: Iterable[tuple[str, str, str]]) -> list[str]:
    """Statements about an account and a type, each once with all of its types; without empty ones.

    The account is "" in an answer for a single one.
    """
    types: dict[tuple[str, str], list[str]] = {}
    for account, kind, sentence in statements:
        if sentence:
            types.setdefault((account, sentence), []).append(kind)
    return [
        f"{account} {', '.join(kinds)}: {sentence}".lstrip()
        for (account, sentence), kinds in types.items()
    ]


def _summary(outcome: FetchOutcome, output: Path | None) -> list[str]:
    """Summary of the file: records written and left out."""
    sentences = []
    if outcome.left_out:
        sentences.append(
            f"Left out by --types: {', '.join(outcome.left_out)}. Only with all types do the "
            "rows add up to the balance changes."
        )
    if output is None:
        return [*sentences, f"{_counted(outcome.count, 'record')} read."]
    if not outcome.skipped and outcome.rows == outcome.count:
        return [*sentences, f"{outcome.count:,} records in {output}."]
    written = outcome.count - outcome.skipped
    sentence = f"{outcome.rows:,} rows of {_counted(written, 'record')} in {output}."
    if outcome.skipped:
        sentence += (
            f" Not written: {_counted(outcome.skipped, 'record')} that would count an event twice "
            "or changed no balance (second views, own transfers, pending and failed events)."
        )
    return [*sentences, sentence]


def _accounts(text: str) -> str | list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return names[0] if len(names) == 1 else names


def _proof(found: Verification | None) -> list[str]:
    """Describe the reconciliation: checks that hold, differences, and unchecked parts."""
    if found is None:
        return []
    if found.accounts:
        sentences = [
            f"{name}: {sentence}"
            for name, proof in found.accounts.items()
            for sentence in _proof(proof)
        ]
        return sentences + [f"Not provable: {one.what}. {one.why}" for one in found.unproven]
    sentences = [_sentence(check) for check in found.checks]
    if found.holds is None:
        sentences.append(
            "Not proven: no contradiction was found, but not everything could be checked."
        )
    sentences += [
        f"{each.transaction_type.replace('_', ' ')}: as the exchange returned it, not proven. "
        f"{each.why}"
        for each in found.grades
        if each.grade is ProofGrade.AS_ANSWERED
    ]
    sentences.append("Not provable from the exchange's data:")
    sentences += [f"  {one.what}. {one.why}" for one in found.unproven]
    return sentences


def _sentence(check: ProofCheck) -> str:
    name, count = check.name.replace("_", " "), f"{check.checked:,} compared"
    if check.state is CheckState.NOT_CHECKED:
        return f"{name}: not checked. {check.reason}"
    if check.state is CheckState.HOLDS:
        return f"{name}: holds, {count}."
    counts = [("broken", check.broken), ("open", check.open)]
    words = ", ".join(f"{number:,} {word}" for word, number in counts if number)
    sentence = f"{name}: {words} of {count}."
    if check.breaks:
        first = check.breaks[0]
        sentence += f" {first.transactionId}: {first.what}, {first.expected} / {first.found}."
    return f"{sentence} {check.reason or ''}".rstrip()


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


async def collect_here(
    exchange: str | list[str], *, testnet: bool, demo: bool, config: Path | None
) -> list["Collected"]:
    """Collect accounts with the operator's credentials."""
    with require_server("transactions collect"):
        from onebook.cli.credentials import exchange_service, open_vault
        from onebook.transactions.collector import Collector
        from onebook.transactions.request import environment_of
    environment = environment_of(testnet=testnet, demo=demo)
    names = [exchange] if isinstance(exchange, str) else exchange
    done = []
    async with open_vault(config) as opened:
        service = exchange_service(opened)
        collector = Collector(service, opened.store.facts, settings=opened.settings)
        try:
            for name in names if exchange != ALL else ():
                await service.require_account(name, environment)
            for account in await collector.accounts():
                wanted = exchange == ALL or str(account.name) in names
                if not wanted or account.environment is not environment:
                    continue
                adapter = service.adapters[account.name.exchange]
                with progress_bar() as bar:
                    shown = ShownCollection(bar, str(account.name), adapter)
                    async with showing(shown.show):
                        done.append(await collector.collect(account, shown.progressed))
        finally:
            await service.close()
    return done


async def forget_here(
    account: str, before_ms: int | None, *, testnet: bool, demo: bool, config: Path | None
) -> "Forgotten":
    """Delete the collected records of an account."""
    with require_server("transactions forget"):
        from onebook.cli.credentials import exchange_service, open_vault
        from onebook.transactions.collector import CollectedAccount, Collector
        from onebook.transactions.request import environment_of, find
    wanted = CollectedAccount.of(account, environment_of(testnet=testnet, demo=demo))
    async with open_vault(config) as opened:
        service = exchange_service(opened)
        try:
            collector = Collector(service, opened.store.facts, settings=opened.settings)
            gone = await collector.forget(wanted, before_ms)
            if not (gone.records or gone.readings):
                find(dict(service.adapters), account)  # a misspelt name must not look deleted
            return gone
        finally:
            await service.close()


class ShownCollection:
    """The progress of a collection, and what it waits for."""

    def __init__(self, bar: "Progress", account: str, adapter: "ExchangeAdapter") -> None:
        self._bar = bar
        self._account = account
        self._adapter = adapter
        self._doing = account
        self._task = bar.add_task(account, total=1.0, count=0)

    def progressed(self, step: "Step") -> None:
        """Show a step."""
        self._doing = f"{step.account} {step.name}"
        if step.reached_ms is not None:
            self._doing += f" back to {iso_ms(step.reached_ms)[:10]}"
        self._bar.update(self._task, completed=step.share, count=step.records)
        self.show()

    def show(self) -> None:
        """Show the seconds until the exchange's rate limit allows the next request, if any."""
        waiting_s, text = self._adapter.waiting_s, self._doing
        if waiting_s > WAIT_SHOWN_S:
            text = f"{self._account}: {doing(self._adapter.entry.display, waiting_s)}"
        self._bar.update(self._task, description=text)


async def follow_there(
    client: AsyncOnebook,
    exchange: str | list[str],
    types: list[str],
    options: dict[str, Any],
    count: int,
) -> None:
    """Print records to standard output and the subscription status to standard error.

    Args:
        count: Number of records after which it ends; 0: never.
    """
    printed = 0
    async with client, aclosing(client.follow_transactions(exchange, types, **options)) as events:
        async for event in events:
            if event.record is None:
                print_sentence(_status_line(event), err=True)
                continue
            body = {"change": event.change, "account": event.account, "transaction": event.record}
            typer.echo(json.dumps(body, default=_number))
            printed += 1
            if printed == count:
                return


def _status_line(event: LiveTransaction) -> str:
    status = event.status or {}
    announced = [each["transaction_type"] for each in status["types"] if each["source"] == "stream"]
    words = f"announced: {', '.join(announced)}" if announced else "polling"
    return f"{event.account}: {status['state']}, {words}. {status['reason'] or ''}".rstrip()


def _number(value: object) -> float:
    """A number of a record as a float; the record also has its exact text."""
    assert isinstance(value, Decimal)
    return float(value)
