"""Fetches the history of an account into a file, on the operator's host or from a service.

Both write the same file: a service sends records as lines, which this process converts to the
file's format. Fetching from a service needs no server package.
"""

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from onebook.cli.commands import require_server
from onebook.cli.common import console
from onebook.client.addresses import addresses_of
from onebook.client.failures import Refused, Unavailable
from onebook.client.rest import RestClient
from onebook.clock import SYSTEM_CLOCK
from onebook.errors import naming
from onebook.model import MINUTE_MS
from onebook.transactions.adapter import Coverage, ErrorEntry, EventType, PendingExport
from onebook.transactions.export import Writer, writer
from onebook.transactions.reconciliation import Verification
from onebook.transactions.record import Record

OPERATOR: Final = "operator"
OLDER_NOT_KEPT: Final = "older_not_kept"
PROGRESS_S: Final = 0.2
WAIT_SHOWN_S: Final = 1.0
DEADLINE_S: Final = 24 * 3_600.0
BATCH_RECORDS: Final = 1_000
T = TypeVar("T")
_SUMMARY: Final = b'{"type":"summary"'


class FetchRequest(Struct, frozen=True, kw_only=True):
    """The records to fetch, and the file for them.

    Args:
        types: Transaction types; empty for all that change balances, and holdings if there is no
            file.
        start_ms: Oldest time, Unix ms; None for everything the exchange keeps.
        end_ms: Newest time, inclusive.
        ends_now: Whether `end_ms` is now.
        source: `exchange` or `collected`; None for both.
        output: The file; None to reconcile only.
    """

    exchange: str | list[str]
    types: list[str]
    testnet: bool
    demo: bool = False
    start_ms: int | None
    end_ms: int
    ends_now: bool = False
    source: Literal["exchange", "collected"] | None = None
    verify: bool
    output: Path | None
    form: str = ""

    @property
    def last_ms(self) -> int | None:
        """The end of the request; None for everything collected up to now."""
        return None if self.ends_now and self.source == "collected" else self.end_ms

    def judged(self, coverage: list[Coverage]) -> list[Coverage]:
        """The coverage in relation to what was wanted."""
        return coverage if self.start_ms is not None else all_kept(coverage)


class FetchOutcome(Struct, frozen=True, kw_only=True):
    """Result of a fetch.

    Args:
        count: Number of records read.
        rows: Number of rows in the file.
        skipped: Number of records without a row.
        left_out: Types that change balances but were not requested.
    """

    count: int
    rows: int
    skipped: int
    left_out: tuple[str, ...]
    coverage: list[Coverage]
    errors: list[ErrorEntry]
    verification: Verification | None

    @property
    def complete(self) -> bool:
        """Whether nothing is missing and the reconciliation, if requested, succeeded."""
        proven = self.verification is None or self.verification.holds is True
        return proven and all(entry.complete for entry in self.coverage) and not self.errors


class Summary(Struct, frozen=True):
    """The last line of a service's answer, with `error` if it is incomplete."""

    success: bool
    message: str = ""
    error: str = ""
    coverage: list[Coverage] = []
    errors: list[ErrorEntry] = []
    verification: Verification | None = None


async def fetch_here(wanted: FetchRequest, config: Path | None) -> FetchOutcome:
    """Fetch with the operator's credentials, from the exchange."""
    with require_server("transactions fetch", "use --url to fetch from a service"):
        from onebook.cli.credentials import exchange_service, open_vault
        from onebook.transactions.request import TransactionsRequest
    request = TransactionsRequest(
        exchange=wanted.exchange,
        transaction_types=wanted.types,
        testnet=wanted.testnet,
        demo=wanted.demo,
        start_time=wanted.start_ms,
        everything=wanted.start_ms is None,
        end_time=wanted.last_ms,
        source=wanted.source,
        verify=wanted.verify,
    )
    async with open_vault(config) as opened:
        service = exchange_service(opened, cursor_secret=secrets.token_bytes(32))
        try:
            if wanted.output is None:
                types = every_type(wanted, {each.name: each.types for each in service.exchanges})
                request = request.model_copy(update={"transaction_types": types})
            query = await service.prepare(request, key_id=OPERATOR, streamed=True, summing=True)
            async with service.run(query, key_id=OPERATOR, patient=True) as run:
                with _part(wanted, run.wallet) as file, progress_bar() as progress:

                    def show() -> None:
                        progress.update(
                            task,
                            completed=run.query.to_ms - run.reached_ms,
                            count=run.totals.count,
                            description=doing(run.display, run.waiting_s, run.exports),
                        )

                    total = max(1, query.to_ms - query.from_ms)
                    task = progress.add_task("fetching", total=total, count=0)
                    async with showing(show), aclosing(run.records(DEADLINE_S)) as batches:
                        async for batch in batches:
                            file.write(batch)
                    run.raise_if_nothing()
                return FetchOutcome(
                    count=run.totals.count,
                    rows=file.rows,
                    skipped=file.skipped,
                    left_out=run.left_out,
                    coverage=wanted.judged(run.coverage()),
                    errors=run.errors(),
                    verification=run.verification(),
                )
        finally:
            await service.close()


async def fetch_there(wanted: FetchRequest, url: str, key: str) -> FetchOutcome:
    """Fetch from a service, with an API key.

    Raises:
        Refused, Unavailable: The service refuses the request or cannot complete it.
    """
    body: dict[str, Any] = {
        "exchange": wanted.exchange,
        "transaction_types": wanted.types,
        "testnet": wanted.testnet,
        "demo": wanted.demo,
        "start_time": wanted.start_ms,
        "end_time": wanted.last_ms,
        "verify": wanted.verify,
    }
    # Unknown to services of earlier releases
    if wanted.source is not None:
        body["source"] = wanted.source
    if wanted.start_ms is None:
        body["everything"] = True
    summary: Summary | None = None
    count = 0
    async with RestClient(addresses_of(url).rest, key) as service:
        listed = await service.get("/exchanges")
        if not isinstance(listed, list):
            raise Refused("not_onebook", f"{url} is not an Onebook service: check the URL.")
        display = _display(listed, wanted.exchange)
        if wanted.output is None:
            found = ((str(e["exchange_name"]), e["supported_transaction_types"]) for e in listed)
            body["transaction_types"] = every_type(wanted, dict(found))
        with _part(wanted, display) as file, progress_bar() as progress:
            total = None if wanted.start_ms is None else max(1, wanted.end_ms - wanted.start_ms)
            task = progress.add_task("fetching", total=total, count=0)
            held: list[Record] = []
            async with aclosing(service.transaction_lines(body)) as lines:
                async for line in lines:
                    if line.startswith(_SUMMARY):
                        summary = decoded_line(line, Summary)
                        break
                    held.append(decoded_line(line, Record))
                    if len(held) == BATCH_RECORDS:
                        count += len(held)
                        came_ms = wanted.end_ms - held[-1].timestamp
                        progress.update(task, completed=came_ms, count=count)
                        file.write(held)
                        held = []
            count += len(held)
            file.write(held)
            if summary is None:
                raise Unavailable("no_answer", f"{url} ended the answer before its last line.")
            if not summary.success:
                raise Refused(summary.error, summary.message)
    coverage = wanted.judged(summary.coverage)
    served = {entry.transaction_type for entry in coverage} | {EventType.HOLDINGS.value}
    return FetchOutcome(
        count=count,
        rows=file.rows,
        skipped=file.skipped,
        left_out=tuple(kind for kind in _types(listed, wanted, coverage) if kind not in served),
        coverage=coverage,
        errors=summary.errors,
        verification=summary.verification,
    )


def decoded_line(line: bytes, kind: type[T]) -> T:
    """Decode a line of the service's answer.

    Raises:
        Unavailable: The line is damaged or from another version of the service.
    """
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unavailable("damaged_answer", f"A line of the answer is damaged: {error}.") from None


def all_kept(coverage: Iterable[Coverage]) -> list[Coverage]:
    """Coverage of a request for everything that is kept: complete from the oldest kept record.

    The reason stays, because other types may reach further back.
    """
    return [
        replace(entry, complete=True)
        if entry.reason == OLDER_NOT_KEPT and entry.from_ms is not None
        else entry
        for entry in coverage
    ]


def doing(
    exchange: str,
    waiting_s: float,
    exports: Sequence[PendingExport] = (),
    *,
    now_ms: int | None = None,
) -> str:
    """Text of the progress bar; shows when the fetch waits for an export or a rate limit."""
    if exports:
        newest = exports[0]
        text = f"waiting for {newest.display}'s export of {newest.name}"
        if newest.requested_at is not None:
            now_ms = SYSTEM_CLOCK.wall_ms() if now_ms is None else now_ms
            minutes = max(0, now_ms - newest.requested_at) // MINUTE_MS
            text += f", requested {minutes} min ago"
        return text if len(exports) == 1 else f"{text} ({len(exports) - 1} more)"
    if waiting_s <= WAIT_SHOWN_S:
        return "fetching"
    return f"waiting for {exchange}'s rate limit, {math.ceil(waiting_s)} s"


def every_type(wanted: FetchRequest, types: Mapping[str, Iterable[str]]) -> list[str]:
    """The types to verify: by default all types of the exchange, including holdings."""
    if wanted.types or not isinstance(wanted.exchange, str):
        return wanted.types
    return list(types.get(wanted.exchange.partition(":")[0], ()))


class NoFile:
    """A writer that discards records, to reconcile only."""

    rows = skipped = 0

    def write(self, records: Iterable[Record]) -> None:
        """Discard records."""

    def close(self) -> None:
        """Do nothing."""


def _display(listed: list[dict[str, Any]], exchange: str | list[str]) -> str:
    """The display name of one account; "" for several, as `writer` expects."""
    if not isinstance(exchange, str) or exchange == "all":
        return ""
    name, _, label = exchange.partition(":")
    facts = {each["exchange_name"]: each for each in listed}.get(name, {})
    display = str(facts.get("display_name", name))
    return f"{display} ({label})" if label else display


def _types(
    listed: list[dict[str, Any]], wanted: FetchRequest, coverage: Iterable[Coverage]
) -> tuple[str, ...]:
    """The types of the exchanges that were read."""
    names = [str(entry.account) for entry in coverage if entry.account]
    if isinstance(wanted.exchange, str):
        names.append(wanted.exchange)
    exchanges = {name.partition(":")[0] for name in names}
    found = (each for each in listed if each["exchange_name"] in exchanges)
    types = (kind for each in found for kind in each.get("supported_transaction_types", ()))
    return tuple(dict.fromkeys(types))


@contextmanager
def _part(wanted: FetchRequest, display: str) -> Iterator[Writer]:
    """Write a temporary file, which replaces the target unless an exception is raised."""
    if wanted.output is None:
        yield NoFile()
        return
    part = wanted.output.with_name(wanted.output.name + ".part")
    try:
        with naming(part):
            file = writer(wanted.form, part, exchange=display)
            try:
                yield file
            finally:
                file.close()
        part.replace(wanted.output)
    finally:
        part.unlink(missing_ok=True)


def progress_bar() -> Progress:
    """A progress bar with the number of records."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[count]:,} records"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


@asynccontextmanager
async def showing(show: Callable[[], None]) -> AsyncIterator[None]:
    """Show the progress repeatedly, also while nothing arrives."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            show()

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
