"""Collected records of accounts, read in addition to the exchange or instead of it.

The unit of collection is a *list*: one query, or the queries of an exchange whose rows are joined.
The store keeps the records of each list and the time ranges that were read completely. An answer
reads a list from the store up to the time at which its events are settled, and from the exchange
after that. If the store has a gap that the exchange can fill, everything is read from the exchange,
and the store adds only what the exchange no longer keeps. An event found in both counts once.

Bodies are compressed JSON. Sealed bodies are encrypted (AES-256-GCM) with a data key under the
master key of the credentials, and bound to their account, list and record.
"""

import hashlib
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import UNSET, MsgspecError, Struct, json
from msgspec.structs import replace

from onebook.errors import ConfigError
from onebook.model import DAY_MS
from onebook.store.collected import CollectedStore
from onebook.store.database import FactStore
from onebook.store.rows import CollectedRow, ListRow, RangeRow, ReadingRow
from onebook.transactions.accounts import AccountName
from onebook.transactions.adapter import (
    Environment,
    FailureReason,
    Page,
    Source,
    SourceFailed,
    Window,
)
from onebook.transactions.credentials import NONCE_BYTES, Vault
from onebook.transactions.metrics import COLLECTION_UNREADABLE
from onebook.transactions.reconciliation import HoldingsReading
from onebook.transactions.record import Record, Status, encode
from onebook.transactions.windows import floor_ms

OLDER_NOT_KEPT: Final = "older_not_kept"
FORGOTTEN: Final = "forgotten"  # deleted by the operator, and not collected again
NOT_COLLECTED: Final = FailureReason.NOT_COLLECTED.value
ENDS: Final = (OLDER_NOT_KEPT, FORGOTTEN)  # states of ranges that have no records
DATA_KEY: Final = "collected transactions"
REREAD_MS: Final = 60 * 60_000  # overlap with what was read before, for rows that appeared late
PENDING_MS: Final = 30 * DAY_MS  # how far back unfinished events are read again
PAGE_ROWS: Final = 200  # decoded per turn of the event loop, 3 ms
COMPRESSION: Final = 1
WALK: Final = "collected/"
ALWAYS_MS: Final = 1 << 62
HOLDINGS: Final = "holdings"
FORGET_ROWS: Final = 5_000  # deleted in one transaction
READINGS_MAX: Final = 800  # per verification: a month of hourly ones
DAMAGED: Final = "A collected record is damaged, or its data key is missing."
_decoder = json.Decoder(Record, float_hook=Decimal)
_reading = json.Decoder(list[Record], float_hook=Decimal)


def list_name(source: Source) -> str:
    """The list of a source."""
    return source.joint or source.query


def query_name(source: Source) -> str:
    """The query behind a source, regardless of its branch."""
    return source.query.rpartition("/")[0] if source.branch else source.query


def part_name(source: Source) -> str:
    """The name of a query's part of its list."""
    return f"{list_name(source)}/{query_name(source)}"


class StoredRanges(Struct, frozen=True):
    """The time ranges that one query has read from a list, oldest first."""

    ranges: tuple[RangeRow, ...] = ()

    @property
    def to_ms(self) -> int | None:
        """The newest time that was read; None if nothing was read."""
        return self.ranges[-1].to_ms if self.ranges else None

    @property
    def forgotten_to_ms(self) -> int:
        """The time up to which the operator deleted everything; -1: nothing was deleted."""
        return max((each.to_ms for each in self.ranges if each.state == FORGOTTEN), default=-1)

    def gaps(self, from_ms: int, to_ms: int) -> list[RangeRow]:
        """The parts of a range that are not here, newest first; both ends inclusive."""
        found: list[RangeRow] = []
        for each in self.ranges:
            if each.to_ms < from_ms or each.from_ms > to_ms or each.state == FORGOTTEN:
                continue
            if each.from_ms > from_ms:
                found.append(RangeRow(from_ms, each.from_ms - 1))
            from_ms = each.to_ms + 1
        if from_ms <= to_ms:
            found.append(RangeRow(from_ms, to_ms))
        return found[::-1]

    def reach(self, from_ms: int, to_ms: int) -> tuple[int | None, str | None]:
        """The oldest time from which the store is complete up to a time, and why it is not the
        start."""
        at_ms, flaw = to_ms, None
        for each in reversed(self.ranges):
            if each.from_ms > at_ms:
                continue
            if each.to_ms < at_ms or each.state in ENDS:
                lost = each.to_ms >= at_ms
                # Between collected ranges, records were dropped before they were collected.
                hole = each.state == OLDER_NOT_KEPT and any(
                    one.to_ms < each.from_ms and one.state not in ENDS for one in self.ranges
                )
                known = lost and not hole
                return _after(at_ms, to_ms), each.state if known else NOT_COLLECTED
            flaw = flaw or each.state or None
            at_ms = each.from_ms - 1
            if at_ms < from_ms:
                return from_ms, flaw
        return (from_ms, flaw) if at_ms < from_ms else (_after(at_ms, to_ms), NOT_COLLECTED)


class StoredList(Struct, frozen=True):
    """A list of an account in the store.

    Args:
        row: Its row.
        parts: What each of its queries has read, by `part_name`.
        part_ids: The row ids of these parts.
        pending_ms: The time of the oldest event that may still change.
    """

    row: ListRow
    parts: Mapping[str, StoredRanges]
    part_ids: Mapping[str, int]
    pending_ms: int | None = None

    @property
    def to_ms(self) -> int | None:
        """The newest time up to which every query was read; None if nothing was read."""
        return min((each.to_ms for each in self.parts.values() if each.to_ms), default=None)

    @property
    def settled_ms(self) -> int | None:
        """The time before which nothing needs to be read again; None if nothing was read."""
        if self.to_ms is None:
            return None
        settled_ms = self.to_ms + 1 - REREAD_MS
        return settled_ms if self.pending_ms is None else min(settled_ms, self.pending_ms)

    @property
    def forgotten_to_ms(self) -> int:
        """The time up to which the operator deleted everything; -1: nothing was deleted."""
        return max((each.forgotten_to_ms for each in self.parts.values()), default=-1)

    def of(self, source: Source) -> StoredRanges:
        """The part that a source's query has read."""
        return self.parts.get(part_name(source), StoredRanges())


def _after(at_ms: int, to_ms: int) -> int | None:
    return at_ms + 1 if at_ms < to_ms else None


class Seal:
    """Encrypts and decrypts bodies; without a key it only reads unencrypted bodies.

    Args:
        why_not: Why the key is missing.
    """

    def __init__(
        self, account: str, environment: str, key: bytes | None, why_not: str = DAMAGED
    ) -> None:
        self._why_not = why_not
        self._bound = f"onebook collected v1|{account}|{environment}"
        self._cipher = None if key is None else AESGCM(key)

    def close(self, plaintext: bytes, place: str, *, sealed: bool) -> bytes:
        """Encode a body for the store."""
        body = zlib.compress(plaintext, COMPRESSION)
        if not sealed:
            return body
        assert self._cipher is not None
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, body, self._to(place))

    def open(self, body: bytes, place: str, *, sealed: bool) -> bytes:
        """Decode a body from the store.

        Raises:
            SourceFailed: The body is damaged, or its key is missing.
        """
        try:
            if sealed:
                if self._cipher is None:
                    raise unreadable(self._why_not)
                nonce, body = body[:NONCE_BYTES], body[NONCE_BYTES:]
                body = self._cipher.decrypt(nonce, body, self._to(place))
            return zlib.decompress(body)
        except (InvalidTag, zlib.error):
            raise unreadable() from None

    def _to(self, place: str) -> bytes:
        return f"{self._bound}|{place}".encode()


def unreadable(why: str = DAMAGED) -> SourceFailed:
    """The failure of a collection that cannot be decrypted."""
    COLLECTION_UNREADABLE.inc()
    return SourceFailed(FailureReason.COLLECTION_UNREADABLE, why)


class StoredAccount:
    """The stored records of an account, read for one answer.

    Args:
        lists: Its lists by name.
        only: Whether only the store is read.
        include_raw: Whether records contain the exchange's rows.
    """

    def __init__(
        self,
        store: CollectedStore,
        lists: Mapping[str, StoredList],
        seal: Seal,
        account: AccountName,
        environment: Environment,
        *,
        only: bool = False,
        include_raw: bool = False,
    ) -> None:
        self.lists = lists
        self.only = only
        self._store = store
        self._seal = seal
        self._account = account
        self._environment = environment
        self._include_raw = include_raw
        self._to_ms = ALWAYS_MS

    @property
    def to_ms(self) -> int | None:
        """The newest time up to which every list was read; None if nothing was read."""
        return min((each.to_ms for each in self.lists.values() if each.to_ms), default=None)

    @property
    def from_ms(self) -> int | None:
        """The oldest time of which anything was read; None if nothing was read."""
        starts = [
            part.from_ms
            for each in self.lists.values()
            for ranges in each.parts.values()
            for part in ranges.ranges
            if part.state not in ENDS
        ]
        return min(starts, default=None)

    def of(self, source: Source) -> StoredList | None:
        """The list of a source, if any of it is stored."""
        found = self.lists.get(list_name(source))
        return found if found is not None and found.to_ms is not None else None

    def boundary_ms(self, sources: Iterable[Source], from_ms: int, now_ms: int) -> int | None:
        """The time from which a list is read from the exchange; None if from the start.

        Args:
            sources: All sources of the list.
            from_ms: The oldest time of the answer.
        """
        if self.only:
            return ALWAYS_MS
        found = None
        for source in sources:
            found = self.of(source)
            if found is None or found.settled_ms is None:
                return None
            part, oldest_ms = found.of(source), max(from_ms, floor_ms(source, now_ms))
            if source.needs and not part.ranges:
                continue  # its key is absent, so it was never read
            if part.gaps(oldest_ms, found.settled_ms - 1):
                return None
        return found.settled_ms if found else None

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Read one page; see `PageReader`."""
        if not source.window_ms:
            return await self._holdings(source)
        found = self.lists[source.walk.removeprefix(WALK)]
        below = None
        if cursor:
            at_ms, _, record_id = cursor.partition(":")
            below = int(at_ms), record_id
        rows = await self._store.page(
            found.row.list_id,
            types=source.views or (source.type,),
            from_ms=window.from_ms,
            to_ms=window.to_ms,
            below=below,
            limit=source.page_rows,
        )
        records = [self._record(each, found.row.name) for each in rows]
        following = f"{rows[-1].at_ms}:{rows[-1].record_id}" if rows else ""
        return Page(records, len(rows), following)

    def _record(self, row: CollectedRow, name: str) -> Record:
        body = self._seal.open(row.body, f"{name}|{row.record_id}", sealed=row.sealed)
        try:
            record = _decoder.decode(body)
        except MsgspecError:
            raise unreadable() from None
        return record if self._include_raw else replace(record, raw=UNSET)

    async def readings(self, from_ms: int, to_ms: int) -> list[HoldingsReading]:
        """Our own readings of the holdings in a range, newest first.

        Raises:
            SourceFailed: They cannot be decrypted.
        """
        found = await self._store.readings(
            str(self._account),
            self._environment,
            from_ms=from_ms,
            to_ms=to_ms,
            limit=READINGS_MAX,
        )
        return [
            HoldingsReading(each.at_ms, tuple(opened_reading(each, self._seal))) for each in found
        ]

    async def _holdings(self, source: Source) -> Page:
        readings = await self._store.readings(
            str(self._account), self._environment, from_ms=0, to_ms=ALWAYS_MS, limit=1
        )
        if not readings:
            why = "The holdings of this account have never been read."
            raise SourceFailed(FailureReason.NOT_COLLECTED, why)
        records = opened_reading(readings[0], self._seal)
        if not self._include_raw:
            records = [replace(each, raw=UNSET) for each in records]
        return Page([each for each in records if each.type == source.type], len(records), "")


def opened_reading(reading: ReadingRow, seal: Seal) -> list[Record]:
    """The holdings of a reading.

    Raises:
        SourceFailed: It cannot be decrypted.
    """
    body = seal.open(reading.body, f"reading|{reading.at_ms}", sealed=reading.sealed)
    try:
        return _reading.decode(body)
    except MsgspecError:
        raise unreadable() from None


def from_store(source: Source) -> Source:
    """A source as read from the store: in order, from one table, without the exchange's limits."""
    name = HOLDINGS if not source.window_ms else list_name(source)
    return replace(
        source,
        walk=WALK + name,
        window_ms=ALWAYS_MS if source.window_ms else 0,
        grain_ms=1,
        lag_ms=0,
        keeps_ms=None,
        begins_ms=0,
        ends_ms=None,
        page_rows=PAGE_ROWS,
        page_rows_least=PAGE_ROWS,
        untimed=False,
        oldest_first=False,
        ranged=True,
        cursor_lasts=False,
        needs="",
        sized=False,
        join_ms=0,
        joint="",
        branched=False,
    )


class CollectedIdentity(Struct, frozen=True):
    """The account that is collected under a name.

    Args:
        key: Fingerprint of the API key that read it last.
        owner: The exchange's id of the account; "" if the exchange states none.
        doubtful: Whether the key was replaced without evidence that the account is the same.
    """

    key: str
    owner: str = ""
    doubtful: bool = False

    def differs(self, other: "CollectedIdentity") -> bool:
        """Whether the other one is certainly another account."""
        return bool(self.owner and other.owner and self.owner != other.owner)


def fingerprint(api_key: str) -> str:
    """A digest that identifies an API key without revealing it."""
    return hashlib.blake2b(api_key.encode(), digest_size=16, person=b"onebook key").hexdigest()


class Collection:
    """The collected transactions of an installation.

    Args:
        store: The storage.
        vault: Contains the data key of sealed records.
        sealed: Whether new records are encrypted.
    """

    def __init__(self, store: CollectedStore, vault: Vault, *, sealed: bool = False) -> None:
        self.store = store
        self.sealed = sealed
        self.facts = FactStore(store.database)
        self._vault = vault

    async def seal(self, account: AccountName, environment: Environment) -> Seal:
        """Encrypts and decrypts the bodies of an account; creates the data key if needed.

        Raises:
            ConfigError: The master key of the data key is missing.
        """
        if self.sealed:
            key: bytes | None = await self._vault.make_data_key(DATA_KEY)
        else:
            key = await self._vault.data_key(DATA_KEY)
        return Seal(str(account), environment.value, key)

    async def readable(self) -> None:
        """Check that the data key of sealed records, if there is one, can be decrypted.

        Raises:
            ConfigError: The master key of the data key is missing.
        """
        await self._vault.data_key(DATA_KEY)

    async def identity(
        self, account: AccountName, environment: Environment
    ) -> CollectedIdentity | None:
        """The account that is collected under a name; None before the first collection."""
        kept = await self.facts.get(identity_fact(account, environment))
        return None if kept is None else json.decode(kept, type=CollectedIdentity)

    async def keep_identity(
        self, account: AccountName, environment: Environment, identity: CollectedIdentity
    ) -> None:
        """Remember whose account is collected under a name."""
        text = json.encode(identity).decode()
        await self.facts.put(identity_fact(account, environment), text)

    async def lists(
        self, account: AccountName, environment: Environment, now_ms: int
    ) -> dict[str, StoredList]:
        """The stored lists of an account by name."""
        rows = await self.store.lists(str(account), environment.value)
        ranges = await self.store.ranges([row.list_id for row in rows]) if rows else {}
        found: dict[str, StoredList] = {}
        for row in rows:
            if "/" in row.name:
                continue
            pending_ms = await self.store.oldest_pending_ms(row.list_id, now_ms - PENDING_MS)
            mine = [each for each in rows if each.name.startswith(f"{row.name}/")]
            found[row.name] = StoredList(
                row,
                {each.name: StoredRanges(tuple(ranges[each.list_id])) for each in mine},
                {each.name: each.list_id for each in mine},
                pending_ms,
            )
        return found

    async def account(
        self,
        account: AccountName,
        environment: Environment,
        *,
        now_ms: int,
        only: bool,
        include_raw: bool,
    ) -> StoredAccount:
        """The stored records of an account."""
        key, why_not = None, DAMAGED
        try:
            key = await self._vault.data_key(DATA_KEY)
        except ConfigError as error:
            why_not = error.message  # unsealed records are still readable
        seal = Seal(str(account), environment.value, key, why_not)
        return StoredAccount(
            self.store,
            await self.lists(account, environment, now_ms),
            seal,
            account,
            environment,
            only=only,
            include_raw=include_raw,
        )


def identity_fact(account: AccountName, environment: Environment) -> str:
    """The name of the fact that says whose account is collected under a name."""
    return f"collected_identity/{environment.value}/{account}"


def rows_of(
    records: Iterable[Record], name: str, seal: Seal, *, sealed: bool
) -> list[CollectedRow]:
    """Convert records of a list to rows of the store."""
    return [
        CollectedRow(
            record.transactionId,
            record.timestamp,
            record.type,
            record.status is Status.PENDING,
            sealed,
            seal.close(encode(record), f"{name}|{record.transactionId}", sealed=sealed),
        )
        for record in records
    ]


def reading_of(records: Sequence[Record], at_ms: int, seal: Seal, *, sealed: bool) -> ReadingRow:
    """Convert holdings read at a time to a row of the store."""
    plaintext = b"[" + b",".join(encode(record) for record in records) + b"]"
    return ReadingRow(at_ms, sealed, seal.close(plaintext, f"reading|{at_ms}", sealed=sealed))
