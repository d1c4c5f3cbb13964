"""Exports made by an exchange on request: requested, awaited, downloaded once, and read by page.

An adapter defines what can be exported and how it is requested (`ExportRule`). A job is a row in
the database shared by all nodes, so that an export is requested once, regardless of the number of
answers that need it and of restarts; a job advances under a lease whenever an answer needs it. Its
file is stored where it was downloaded (`export_files`). Started work belongs to `ExportJobs`, not
to the answer that needed it, and continues after that answer.

Requests for exports are limited to a few: their budget is also in the database (`pools.Budget`).
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
from msgspec import Struct
from msgspec.structs import replace

from onebook.clock import Clock
from onebook.core import iso
from onebook.errors import ConfigError
from onebook.model import HOUR_MS, MINUTE_MS, SECOND_MS
from onebook.rest import NoCookies, trusted_authorities
from onebook.store import ExportJobRow
from onebook.store.exports import ExportStore
from onebook.store.leases import Lease, LeaseStore
from onebook.transactions.adapter import FailureReason, PendingExport, SourceFailed
from onebook.transactions.credentials import Vault
from onebook.transactions.export_files import (
    ExportFileError,
    ExportFiles,
    ExportsFull,
    Row,
    StoredExport,
)
from onebook.transactions.metrics import EXPORT_BYTES, EXPORT_WAITING, EXPORTS
from onebook.transactions.pools import Budget

DATA_KEY: Final = "exchange exports"
LEASE_MS: Final = 20 * MINUTE_MS  # longer than a download may take
RETRY_MS: Final = 10 * MINUTE_MS  # after a failure, before the next request to the exchange
EARLY_MS: Final = HOUR_MS  # after a refusal because the time of a part is not over
GIVE_UP_MS: Final = 24 * HOUR_MS  # an export that takes longer is requested again
POLL_S: Final = 30.0  # between two status checks of a pending export
BUSY_S: Final = 2.0  # between two checks of an export that another process is working on
LOOK_S: Final = 5.0  # total time that an answer waits for exports that may be finished
DOWNLOAD_BYTES_MAX: Final = 512 << 20
DOWNLOAD_S: Final = 600.0
DOWNLOAD_TRIES: Final = 3
DOWNLOAD_WAIT_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 30.0

REQUESTED, DAMAGED = "requested", "damaged"  # states of jobs, in addition to those of `ExportState`
STORED, FAILED, FULL = "stored", "failed", "full"  # outcomes, for metrics
# Reasons why an account has no exports at all.
NO_EXPORTS: Final = frozenset({FailureReason.NOT_OFFERED, FailureReason.NOT_OPENED})
# Failures after which an answer continues without an export; others are those of any list.
LACKS: Final = NO_EXPORTS | {
    FailureReason.EXPORT_PENDING,
    FailureReason.EXPORT_FAILED,
    FailureReason.EXPORTS_FULL,
}
REFUSED_MS: Final = 24 * HOUR_MS  # for which an account without exports is not queried again

log = logging.getLogger("onebook.transactions")


class ExportPiece(Struct, frozen=True):
    """A part of the history that is exported as one file.

    Args:
        name: Identifies it; used in file names.
        label: Its name for people.
        from_ms: Its start.
        to_ms: Its end, exclusive.
    """

    name: str
    label: str
    from_ms: int
    to_ms: int


class ExportState(StrEnum):
    """State of an export at the exchange."""

    MAKING = "making"
    READY = "ready"
    EMPTY = "empty"  # nothing to export: complete
    ABSENT = "absent"  # not requested, or no longer kept
    FAILED = "failed"  # at the exchange; it has to be requested again
    TOO_EARLY = "too_early"  # the exchange reports that its period is not over


class ExportAnswer(Struct, frozen=True):
    """The exchange's answer about an export.

    Args:
        url: The address of the file, if it is ready.
        reference: The exchange's id of the export, if its state must be requested by id.
    """

    state: ExportState
    url: str = ""
    reference: str = ""


class BadExport(Exception):
    """The content of an export does not have the documented form; the text describes the fault."""


class ExportRule(Struct, frozen=True, kw_only=True):
    """How an exchange exports a history; defined by its adapter.

    Args:
        pieces: The parts in a time range, newest first, including the current one.
        owner: Identifies the user at the exchange, whatever the key.
        apply: Requests an export.
        status: Requests its state; receives the `reference` of the answer to `apply`.
        rows: Reads a downloaded file; raises `BadExport`.
        at_ms: The time of a row.
        budget: How many exports may be requested.
        before_ms: How far before a part's start its rows may be dated, because of time zones.
        after_ms: How far after its end.
    """

    pieces: Callable[[int, int, int], list[ExportPiece]]
    owner: Callable[[Any], Awaitable[str]]
    apply: Callable[[Any, ExportPiece], Awaitable[ExportAnswer]]
    status: Callable[[Any, ExportPiece, str], Awaitable[ExportAnswer]]
    rows: Callable[[Path], Iterator[Row]]
    at_ms: Callable[[Row], int]
    budget: Budget
    before_ms: int = 0
    after_ms: int = 0


class Pending(Exception):
    """An export is being made.

    Args:
        wait_s: Seconds until the next useful check.
    """

    def __init__(self, requested_at_ms: int | None, wait_s: float = POLL_S) -> None:
        super().__init__()
        self.requested_at_ms = requested_at_ms
        self.wait_s = wait_s


class _LinkGone(Exception):
    """The link to a file no longer works."""


class ExportKey(Struct, frozen=True):
    """The owner of exports: an exchange, an environment and the user there."""

    exchange: str
    environment: str
    owner: str


class ExportJobs:
    """Requests and downloads exports for all accounts of this node. Must be closed.

    Args:
        store: Jobs and budgets.
        leases: Ensure that only one process works on an export.
        vault: Contains the data key of encrypted files.
        sealed: Whether new files are encrypted.
        transport: Replaces the connection pool of downloads.
    """

    def __init__(
        self,
        store: ExportStore,
        leases: LeaseStore,
        files: ExportFiles,
        vault: Vault,
        *,
        clock: Clock,
        sealed: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.files = files
        self.store = store
        self.clock = clock
        self._leases = leases
        self._vault = vault
        self._sealed = sealed
        self._holder = secrets.token_hex(8)
        self._tasks: dict[tuple[ExportKey, str], asyncio.Task[StoredExport | None]] = {}
        self._sweeps: set[asyncio.Task[None]] = set()
        self._pruned = False
        # When unfinished exports were requested and last checked, Unix ms.
        self._unfinished: dict[tuple[ExportKey, str], tuple[int, int]] = {}
        # A separate client, so that no header of an exchange's API reaches the host of its files.
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            transport=transport,
            headers={"User-Agent": "onebook", "Accept-Encoding": "identity"},
            verify=trusted_authorities(environment=False),
            trust_env=False,
            cookies=NoCookies(),
        )

    def offer(self, exchange: str) -> None:
        """Declare the metrics of an exchange: `increase` misses the first count of an absent
        sample."""
        for outcome in (REQUESTED, STORED, FAILED, FULL):
            EXPORTS.labels(exchange, outcome)
        EXPORT_WAITING.labels(exchange).set_function(partial(self.waiting_s, exchange))

    def waiting_s(self, exchange: str) -> float:
        """Age of the oldest unfinished export of an exchange when it was last checked, in seconds.

        An export that no answer needs any more is not checked again; it counts until `GIVE_UP_MS`.
        """
        now_ms = self.clock.wall_ms()
        ages = [
            checked_ms - requested_ms
            for (key, _), (requested_ms, checked_ms) in self._unfinished.items()
            if key.exchange == exchange and now_ms - requested_ms <= GIVE_UP_MS
        ]
        return max([0, *ages]) / SECOND_MS

    async def close(self) -> None:
        """Cancel downloads and close their connections; jobs continue when they are needed
        again."""
        tasks = self.working
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    @property
    def working(self) -> list[asyncio.Task[Any]]:
        """Running work."""
        return [*self._tasks.values(), *self._sweeps]

    def sweep(
        self, account: "AccountExports", key: ExportKey, pieces: list[ExportPiece]
    ) -> Mapping[str, asyncio.Event]:
        """Request the exports that an answer will need, so that they are made concurrently.

        Returns:
            An event per export that is set once it was requested: the answer, which reads several
            ranges at once, waits for it, so that the budget is spent on the newest exports.
        """
        tried = {piece.name: asyncio.Event() for piece in pieces}

        async def work() -> None:
            try:
                for piece in pieces:
                    if not await self._requested(account, key, piece):
                        return
                    tried[piece.name].set()
            finally:
                for event in tried.values():
                    event.set()

        task = asyncio.create_task(work(), name=f"exports {key.exchange}")
        self._sweeps.add(task)
        task.add_done_callback(self._sweeps.discard)
        return tried

    async def _requested(
        self, account: "AccountExports", key: ExportKey, piece: ExportPiece
    ) -> bool:
        """Request an export; return whether others can be requested."""
        try:
            await self.advance(account, key, piece)
        except Pending:
            return True
        except SourceFailed as failure:
            ends = {FailureReason.EXPORT_PENDING, FailureReason.EXPORTS_FULL, *NO_EXPORTS}
            return not (failure.fatal or failure.reason in ends)  # or the budget is spent
        except Exception:
            log.exception("An export failed.")
            return False
        return True

    async def advance(
        self, account: "AccountExports", key: ExportKey, piece: ExportPiece
    ) -> StoredExport | None:
        """Advance an export as far as the exchange permits, once for all answers that need it.

        Returns:
            The stored export; None if it is empty.

        Raises:
            Pending: The export is being made.
            SourceFailed: The export is unavailable now; the message has the reason.
        """
        place = key, piece.name
        task = self._tasks.get(place)
        if task is None:
            task = asyncio.create_task(
                self._advance(account, key, piece), name=f"export {piece.name}"
            )
            self._tasks[place] = task
            task.add_done_callback(lambda done: self._ended(place, done))
        return await asyncio.shield(task)

    def _ended(
        self, place: tuple[ExportKey, str], task: "asyncio.Task[StoredExport | None]"
    ) -> None:
        del self._tasks[place]
        if task.cancelled():
            return
        error = task.exception()  # retrieved: all waiters may have been cancelled
        if isinstance(error, Pending) and error.requested_at_ms is not None:
            self._unfinished[place] = error.requested_at_ms, self.clock.wall_ms()
        elif not isinstance(error, Pending):
            self._unfinished.pop(place, None)

    async def _advance(
        self, account: "AccountExports", key: ExportKey, piece: ExportPiece
    ) -> StoredExport | None:
        self._prune()
        found = await self._stored(key, piece)
        if found is not None:
            return found
        now_ms = self.clock.wall_ms()
        if piece.to_ms > now_ms:
            raise account.pending(f"exports {piece.label} only after it has ended.")
        job = await self.store.job(key.exchange, key.environment, key.owner, piece.name)
        if job is not None and job.state == ExportState.EMPTY:
            return None
        name = f"export/{key.exchange}/{key.environment}/{key.owner}/{piece.name}"
        lease = Lease(name, self._holder, now_ms + LEASE_MS)
        if not await self._leases.acquire(lease, now_ms):
            raise Pending(None if job is None else job.requested_at_ms, BUSY_S)
        try:
            return await self._advance_alone(account, key, piece)
        finally:
            await self._leases.release(lease)

    async def _advance_alone(
        self, account: "AccountExports", key: ExportKey, piece: ExportPiece
    ) -> StoredExport | None:
        """Advance an export that no other process is working on."""
        found = await self._stored(key, piece)  # by a process that held the lease before
        if found is not None:
            return found
        job = await self.store.job(key.exchange, key.environment, key.owner, piece.name)
        now_ms = self.clock.wall_ms()
        if job is not None and job.state in (ExportState.FAILED, DAMAGED):
            if now_ms - job.changed_at_ms < RETRY_MS:
                raise account.failed(job.reason)
            job = job if job.state == DAMAGED else None
        if job is not None and job.state in NO_EXPORTS:
            if now_ms - job.changed_at_ms < REFUSED_MS:
                raise SourceFailed(FailureReason(job.state), job.reason)
            job = None
        if job is not None and job.state == ExportState.TOO_EARLY:
            if now_ms - job.changed_at_ms < EARLY_MS:
                raise account.pending(f"exports {piece.label} only after it has ended.")
            job = None
        if job is None:
            job, answer = await self._apply(account, key, piece)
            if answer.state is ExportState.EMPTY:
                return None
            if answer.state is ExportState.MAKING:
                raise Pending(job.requested_at_ms)
        answer = await account.rule.status(account.session, piece, job.reference)
        if answer.state is ExportState.ABSENT:  # it was only kept for some time
            job, answer = await self._apply(account, key, piece)
            if answer.state is ExportState.EMPTY:
                return None
        if answer.state is ExportState.READY:
            return await self._download(account, key, piece, job, answer.url)
        if answer.state is ExportState.FAILED:
            why = f"could not make the export of {piece.label}; it will be requested again."
            raise await self._failed(account, job, why)
        if now_ms - job.requested_at_ms > GIVE_UP_MS:
            why = (
                f"has not finished the export of {piece.label} in "
                f"{GIVE_UP_MS // HOUR_MS} hours; it will be requested again."
            )
            raise await self._failed(account, job, why)
        raise Pending(job.requested_at_ms)

    async def _apply(
        self, account: "AccountExports", key: ExportKey, piece: ExportPiece
    ) -> tuple[ExportJobRow, ExportAnswer]:
        """Request an export, within the budget."""
        budget, now_ms = account.rule.budget, self.clock.wall_ms()
        free_ms = await self.store.spend(
            f"exports/{key.exchange}/{key.environment}/{key.owner}",
            units=budget.units - budget.left,
            period_ms=budget.period_ms,
            now_ms=now_ms,
        )
        if free_ms is not None:
            raise account.pending(
                f"makes {budget.text}; those of {piece.label} and earlier can be "
                f"requested from {iso(free_ms)}.",
                retry_after_s=(free_ms - now_ms) / SECOND_MS,
            )
        job = ExportJobRow(
            key.exchange, key.environment, key.owner, piece.name, REQUESTED, now_ms, now_ms
        )
        try:
            answer = await account.rule.apply(account.session, piece)
        except SourceFailed as failure:
            if failure.reason in NO_EXPORTS:
                state, why = failure.reason.value, failure.message
                await self.store.put(replace(job, state=state, reason=why))
            elif not failure.fatal:
                why = f"refused the export of {piece.label}: {failure.message}"
                raise await self._failed(account, job, why) from None
            raise
        if answer.state is ExportState.TOO_EARLY:
            await self.store.put(replace(job, state=ExportState.TOO_EARLY.value))
            raise account.pending(f"exports {piece.label} only after it has ended.")
        job = replace(job, reference=answer.reference)
        EXPORTS.labels(key.exchange, REQUESTED).inc()
        log.info("Requested the export of %s from %s.", piece.label, account.display)
        if answer.state is ExportState.EMPTY:
            job = replace(job, state=ExportState.EMPTY.value)
        await self.store.put(job)
        return job, answer

    async def _failed(
        self,
        account: "AccountExports",
        job: ExportJobRow,
        why: str,
        *,
        state: str = ExportState.FAILED.value,
    ) -> SourceFailed:
        """Record that an export failed, and return the failure."""
        now_ms = self.clock.wall_ms()
        await self.store.put(replace(job, state=state, changed_at_ms=now_ms, reason=why))
        EXPORTS.labels(job.exchange, FAILED).inc()
        log.warning("%s %s", account.display, why)
        return account.failed(why)

    # Files ----------------------------------------------------------------------------------

    def _prune(self) -> None:
        """Delete files that have not been used for a long time, once per process."""
        if not self._pruned:
            self._pruned = True
            self.files.prune(self.clock.wall_ms() / SECOND_MS)

    async def _stored(self, key: ExportKey, piece: ExportPiece) -> StoredExport | None:
        """The file of an export; None if it is absent."""
        path = self.files.path(key.exchange, key.environment, key.owner, piece.name)
        try:
            return await asyncio.to_thread(self.files.open, path, await self._key())
        except ExportFileError as error:
            log.warning("%s is damaged and will be downloaded again: %s", path, error)
            path.unlink(missing_ok=True)
            return None

    async def _key(self) -> bytes | None:
        """The data key of encrypted files, generated if needed."""
        try:
            if self._sealed:
                return await self._vault.make_data_key(DATA_KEY)
            return await self._vault.data_key(DATA_KEY)
        except ConfigError as error:
            raise SourceFailed(FailureReason.COLLECTION_UNREADABLE, error.message) from None

    async def _download(
        self,
        account: "AccountExports",
        key: ExportKey,
        piece: ExportPiece,
        job: ExportJobRow,
        url: str,
    ) -> StoredExport | None:
        """Download an export, verify it, and store it."""
        path = self.files.path(key.exchange, key.environment, key.owner, piece.name)
        data_key = await self._key()
        try:
            self.files.make_room()
            for last in (False, True):
                try:
                    await self._load(account, piece, url, path, data_key)
                    break
                except (_LinkGone, BadExport) as error:
                    if last:
                        raise await self._failed(
                            account, job, _unusable(piece, error), state=DAMAGED
                        ) from None
                # For a new link
                answer = await account.rule.status(account.session, piece, job.reference)
                if answer.state is not ExportState.READY:
                    raise Pending(job.requested_at_ms)
                url = answer.url
        except ExportsFull as error:
            log.warning("%s", error)
            EXPORTS.labels(key.exchange, FULL).inc()
            raise SourceFailed(FailureReason.EXPORTS_FULL, str(error), retryable=True) from None
        except OSError as error:
            why = f"The directory of exports cannot be written: {error.strerror or error}."
            log.warning("%s", why)
            EXPORTS.labels(key.exchange, FULL).inc()
            raise SourceFailed(FailureReason.EXPORTS_FULL, why, retryable=True) from None
        if job.state != REQUESTED:
            await self.store.put(replace(job, state=REQUESTED, reason=""))
        EXPORTS.labels(key.exchange, STORED).inc()
        EXPORT_BYTES.set(self.files.used_bytes())
        found = await self._stored(key, piece)
        rows_count = 0 if found is None else found.rows
        log.info("Stored %s's export of %s: %d rows.", account.display, piece.label, rows_count)
        return found

    async def _load(
        self,
        account: "AccountExports",
        piece: ExportPiece,
        url: str,
        path: Path,
        data_key: bytes | None,
    ) -> None:
        """Download a file and store its rows.

        Raises:
            _LinkGone: The link has expired.
            BadExport: The file is damaged.
        """
        part = self.files.part()
        try:
            await self._fetch(account, piece, url, part)
            key = data_key if self._sealed else None
            rows = account.rule.rows(part)
            await asyncio.to_thread(self.files.write, path, rows, account.rule.at_ms, key)
        finally:
            part.unlink(missing_ok=True)

    async def _fetch(
        self, account: "AccountExports", piece: ExportPiece, url: str, part: Path
    ) -> None:
        """Download a file, with retries.

        Raises:
            _LinkGone: The link has expired.
            SourceFailed: The file cannot be downloaded.
        """
        if not account.may_load_from(url):
            raise account.failed(f"gave a link to the export of {piece.label} that is not HTTPS.")
        for number in range(1, DOWNLOAD_TRIES + 1):
            try:
                async with asyncio.timeout(DOWNLOAD_S):
                    return await self._copy(account, piece, url, part)
            except (httpx.TransportError, httpx.InvalidURL, TimeoutError) as error:
                log.debug("export of %s: %s", piece.label, type(error).__name__)
            if number < DOWNLOAD_TRIES:
                await self.clock.sleep(DOWNLOAD_WAIT_S * number)
        raise account.failed(
            f"stored the export of {piece.label} on a host that cannot be reached."
        )

    async def _copy(
        self, account: "AccountExports", piece: ExportPiece, url: str, part: Path
    ) -> None:
        async with self._http.stream("GET", url) as response:
            status = response.status_code
            if response.is_redirect:
                raise account.failed(
                    f"gave a link to the export of {piece.label} on an unknown host; the link is "
                    "not followed."
                )
            if status in (401, 403, 404, 410):
                raise _LinkGone
            if status >= 500 or status == 429:
                raise httpx.RemoteProtocolError(f"HTTP {status}")
            if status != 200:
                raise account.failed(f"returned HTTP {status} for the export of {piece.label}.")
            size = 0
            with part.open("wb") as file:
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > DOWNLOAD_BYTES_MAX:
                        raise account.failed(
                            f"sent an export of {piece.label} of more than "
                            f"{DOWNLOAD_BYTES_MAX >> 20} MB."
                        )
                    file.write(chunk)


def _unusable(piece: ExportPiece, error: Exception) -> str:
    if isinstance(error, BadExport):
        return f"sent a damaged export of {piece.label}: {error}."
    return f"gives links to the export of {piece.label} that do not work."


class ExportPage(Struct, frozen=True):
    """Rows of exports, newest first.

    Args:
        cursor: Cursor of the next page; "" at the end.
        lack: Why rows are missing.
        lack_before_ms: Unix ms before which rows are missing.
    """

    rows: list[Row]
    cursor: str
    lack: SourceFailed | None = None
    lack_before_ms: int | None = None


class AccountExports:
    """The exports of one account, for one client request.

    Args:
        session: Requests to the exchange; see `AccountSession`.
        display: The exchange's name for people.
        from_ms: The oldest time of the request.
        to_ms: The newest time.
        patient: Whether to wait until exports are made.
        link_host: The address of the file host, if the operator sets another one.
    """

    def __init__(
        self,
        jobs: ExportJobs,
        rule: ExportRule,
        session: Any,
        *,
        exchange: str,
        display: str,
        environment: str,
        from_ms: int,
        to_ms: int,
        patient: bool = False,
        link_host: str = "",
    ) -> None:
        self.rule = rule
        self.session = session
        self.display = display
        self.waiting: dict[str, PendingExport] = {}
        self._jobs = jobs
        self._exchange = exchange
        self._environment = environment
        self._from_ms = from_ms
        self._to_ms = to_ms
        self._patient = patient
        self._link_host = link_host
        self._key: asyncio.Task[ExportKey] | None = None
        self._tried: Mapping[str, asyncio.Event] = {}
        self._found: dict[str, asyncio.Task[StoredExport | None]] = {}
        self._look_s = LOOK_S
        self._refused: SourceFailed | None = None

    def failed(self, why: str) -> SourceFailed:
        """The failure of an export."""
        return SourceFailed(FailureReason.EXPORT_FAILED, f"{self.display} {why}", retryable=True)

    def pending(self, why: str, *, retry_after_s: float | None = None) -> SourceFailed:
        """An export that will be available later."""
        return SourceFailed(
            FailureReason.EXPORT_PENDING,
            f"{self.display} {why}",
            retryable=True,
            retry_after_s=retry_after_s,
        )

    def may_load_from(self, url: str) -> bool:
        """Whether a file may be downloaded from an address."""
        if self._link_host and url.startswith(self._link_host.rstrip("/") + "/"):
            return True
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            return False
        return parsed.scheme == "https" and any(each.isalpha() for each in parsed.host)

    async def close(self) -> None:
        """Stop waiting; work on exports continues."""
        tasks: list[asyncio.Task[Any]] = [*self._found.values()]
        tasks += [] if self._key is None else [self._key]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def page(self, from_ms: int, to_ms: int, cursor: str) -> ExportPage:
        """The rows of a range, newest first, page by page."""
        rule = self.rule
        now_ms = self._jobs.clock.wall_ms()
        pieces = rule.pieces(from_ms - rule.after_ms, to_ms + rule.before_ms, now_ms)
        name, _, block = cursor.partition(":")
        lack: SourceFailed | None = None
        lack_before_ms: int | None = None
        for piece in pieces:
            try:
                stored = await self._file(piece)
            except SourceFailed as failure:
                if failure.reason not in LACKS:
                    raise
                if lack is None:
                    lack, lack_before_ms = failure, min(to_ms, piece.to_ms + rule.after_ms)
                continue
            if stored is None or (name and piece.name > name):
                continue
            for number in range(int(block) if piece.name == name else 0, len(stored.blocks)):
                place = stored.blocks[number]
                if place.oldest_ms >= to_ms or place.newest_ms < from_ms:
                    continue
                rows = [r for r in self._read(stored, number) if from_ms <= rule.at_ms(r) < to_ms]
                if rows:
                    return ExportPage(rows, f"{piece.name}:{number + 1}", lack, lack_before_ms)
        return ExportPage([], "", lack, lack_before_ms)

    def _read(self, stored: StoredExport, number: int) -> list[Row]:
        try:
            return stored.read(number)
        except ExportFileError as error:
            log.warning("%s is damaged: %s", stored.path, error)
            stored.path.unlink(missing_ok=True)
            raise self.failed("must make an export again, because its file is damaged.") from None

    async def _file(self, piece: ExportPiece) -> StoredExport | None:
        task = self._found.get(piece.name)
        if task is None:
            task = asyncio.create_task(self._wait(piece), name=f"wait for {piece.name}")
            self._found[piece.name] = task
        return await asyncio.shield(task)

    async def _wait(self, piece: ExportPiece) -> StoredExport | None:
        """Wait for the file of an export; return it, or the reason why it is unavailable."""
        key = await self._owner_key()
        clock = self._jobs.clock
        try:
            while True:
                try:
                    if self._refused is not None:
                        raise self._refused
                    return await self._looked(key, piece)
                except SourceFailed as failure:
                    if failure.reason in NO_EXPORTS:
                        self._refused = failure
                    raise
                except Pending as pending:
                    self.waiting[piece.name] = PendingExport(
                        self._exchange, self.display, piece.label, pending.requested_at_ms
                    )
                    if not self._patient:
                        raise self._being_made(piece, pending) from None
                    wait_s = pending.wait_s
                await clock.sleep(wait_s)
        finally:
            if self._patient:
                self.waiting.pop(piece.name, None)

    async def _looked(self, key: ExportKey, piece: ExportPiece) -> StoredExport | None:
        """Advance an export; an impatient answer waits only for a limited total time."""
        begun_s = self._jobs.clock.monotonic()
        try:
            async with asyncio.timeout(None if self._patient else self._look_s):
                if piece.name in self._tried:
                    await self._tried[piece.name].wait()
                return await self._jobs.advance(self, key, piece)
        except TimeoutError:
            raise Pending(None) from None
        finally:
            self._look_s = max(0.0, self._look_s - (self._jobs.clock.monotonic() - begun_s))

    def _being_made(self, piece: ExportPiece, pending: Pending) -> SourceFailed:
        if pending.requested_at_ms is None:
            return self.pending(f"is being asked to export {piece.label}; retry later.")
        at = iso(pending.requested_at_ms)
        return self.pending(
            f"is making the export of {piece.label}, requested at {at}; retry later."
        )

    async def _owner_key(self) -> ExportKey:
        if self._key is None:
            self._key = asyncio.create_task(self._find_key(), name="owner of exports")
        return await asyncio.shield(self._key)

    async def _find_key(self) -> ExportKey:
        owner = await self.rule.owner(self.session)
        key = ExportKey(self._exchange, self._environment, owner)
        now_ms = self._jobs.clock.wall_ms()
        pieces: Sequence[ExportPiece] = self.rule.pieces(
            self._from_ms - self.rule.after_ms, self._to_ms + self.rule.before_ms, now_ms
        )
        self._tried = self._jobs.sweep(self, key, [p for p in pieces if p.to_ms <= now_ms])
        return key
