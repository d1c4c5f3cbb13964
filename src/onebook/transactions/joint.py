"""One answer for several accounts: records are merged, everything else is listed by account."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from onebook.clock import Clock
from onebook.transactions.accounts import ALL
from onebook.transactions.adapter import Coverage, ErrorEntry, PendingExport, SourceFailed
from onebook.transactions.cursor import CursorState
from onebook.transactions.own_transfers import OwnTransfers, TransferSide
from onebook.transactions.reconciliation import OrderReport, Verification, verdict
from onebook.transactions.record import Record
from onebook.transactions.request import Query, TransactionsRequest
from onebook.transactions.run import Merging, Run, Totals, emitted, exchange_failed


class JointQuery(Struct, frozen=True, kw_only=True):
    """An executable request for several accounts.

    Args:
        parts: The query of each account.
        requested_types: The requested types, or the defaults of all accounts.
        digest: Identifies the query, the same for all its pages; cursors are bound to it.
        transfers: Undecided sides of transfers between the accounts, from the previous page.
    """

    request: TransactionsRequest
    parts: tuple[Query, ...]
    requested_types: tuple[str, ...]
    limit: int | None
    digest: str
    transfers: tuple[TransferSide, ...] = ()

    @property
    def from_ms(self) -> int:
        """Oldest record time, inclusive."""
        return min(part.from_ms for part in self.parts)

    @property
    def to_ms(self) -> int:
        """Newest record time, inclusive."""
        return max(part.to_ms for part in self.parts)

    @property
    def name(self) -> str:
        """The accounts as text, for files and messages."""
        return ALL if isinstance(self.request.exchange, str) else "+".join(self.accounts)

    @property
    def accounts(self) -> list[str]:
        """The names of the accounts."""
        return [str(part.account) for part in self.parts]


class JointRun:
    """Combines the runs of several accounts into one run.

    Args:
        runs: The runs; they share `merging`.
    """

    def __init__(
        self, query: JointQuery, runs: Sequence[Run], merging: Merging, clock: Clock
    ) -> None:
        self.query = query
        self.wallet = ""  # each record names its own
        self._runs = runs
        self._merging = merging
        self._clock = clock
        self._own = OwnTransfers(query.transfers)

    @property
    def display(self) -> str:
        """The accounts, for people."""
        return ", ".join(run.display for run in self._runs)

    @property
    def accounts(self) -> list[str] | None:
        """The names of the accounts, for the answer."""
        return self.query.accounts

    @property
    def totals(self) -> Totals:
        """Counts of the records of all accounts."""
        whole = Totals({})
        for totals in (run.totals for run in self._runs):
            whole.count += totals.count
            whole.by_type += Counter(totals.by_type)
            whole.unknown += totals.unknown
            whole.cover(totals.oldest_ms)
            whole.cover(totals.newest_ms)
        return whole

    @property
    def left_out(self) -> tuple[str, ...]:
        """Types that move money but were not requested."""
        return tuple(dict.fromkeys(kind for run in self._runs for kind in run.left_out))

    @property
    def reached_ms(self) -> int:
        """Time down to which all records have been delivered."""
        return max(run.reached_ms for run in self._runs)

    @property
    def waiting_s(self) -> float:
        """Seconds until the next request is allowed; 0 while a request is in flight."""
        return min(run.waiting_s for run in self._runs)

    @property
    def exports(self) -> list[PendingExport]:
        """Unfinished exports that this answer waits for, or omits."""
        return [each for run in self._runs for each in run.exports]

    @property
    def cut_off(self) -> bool:
        """Whether the deadline ended this answer."""
        return any(run.cut_off for run in self._runs)

    @property
    def limited_by(self) -> str:
        """The exchanges whose rate limits allowed no record before the deadline; "" if one did."""
        names = [run.limited_by for run in self._runs]
        return ", ".join(dict.fromkeys(names)) if all(names) else ""

    @property
    def uncollected(self) -> bool:
        """Whether the answer is empty because nothing of it was ever collected."""
        return all(run.uncollected for run in self._runs)

    async def records(self, deadline_s: float) -> AsyncGenerator[list[Record]]:
        """The records in order, in batches, until the limit, the end or the deadline."""
        async with aclosing(
            emitted(
                self._runs,
                self._merging,
                limit=self.query.limit,
                deadline_s=deadline_s,
                clock=self._clock,
            )
        ) as batches:
            async for batch in batches:
                for record in batch:
                    self._own.add(record)
                yield batch

    def own_transfers(self) -> dict[str, Any]:
        """The transfers between the accounts, as far as they are decided on this page."""
        return self._own.finish(last=self._ended)

    @property
    def undecided_transfers(self) -> list[TransferSide]:
        """The records whose other side may be on the next page."""
        return self._own.carried

    @property
    def _ended(self) -> bool:
        """Whether no page follows."""
        return all(run.state("") is None for run in self._runs)

    def nothing_but_failure(self) -> SourceFailed | None:
        """The failure of the answer if no account could be read; else None."""
        failures = [run.nothing_but_failure() for run in self._runs]
        return None if None in failures else failures[0]

    def raise_if_nothing(self) -> None:
        """Raise if nothing could be read.

        Raises:
            ExchangeFailed: See `nothing_but_failure`.
        """
        failure = self.nothing_but_failure()
        if failure is not None:
            raise exchange_failed(failure)

    def coverage(self) -> list[Coverage]:
        """Coverage of the range, by account and type."""
        return [
            replace(entry, account=str(run.query.account))
            for run in self._runs
            for entry in run.coverage()
        ]

    def errors(self) -> list[ErrorEntry]:
        """Errors, by account and type."""
        return [
            replace(entry, account=str(run.query.account))
            for run in self._runs
            for entry in run.errors()
        ]

    def verification(self) -> Verification | None:
        """The verification of each account, if it was requested.

        `unproven` names the records that could be a transfer between the accounts.
        """
        found = {str(run.query.account): run.verification() for run in self._runs}
        proofs = {name: proof for name, proof in found.items() if proof is not None}
        if not proofs:
            return None
        checks = tuple(check for proof in proofs.values() for check in proof.checks)
        holds = verdict(checks)
        if any(proof.holds is None for proof in proofs.values()):
            holds = None if holds else holds
        self._own.finish(last=self._ended)
        unproven = tuple(self._own.unclear)
        return Verification(holds, (), unproven, (), OrderReport(0, True, (), 0), (), proofs)

    def states(self, key_id: str) -> dict[str, CursorState] | None:
        """State of the next page of each account; None if all have been read completely."""
        if self._ended:
            return None
        states = {str(run.query.account): run.state(key_id, always=True) for run in self._runs}
        return {name: state for name, state in states.items() if state is not None}

    async def close(self) -> None:
        """Stop all requests."""
        await asyncio.gather(*(run.close() for run in self._runs))
