"""Who may come in: keys verified, sessions made and checked, usage reported.

Keys are cached, because every request asks for one. `watch` asks the store each second what an
operator changed, in this process or another one; while it works the cache is as fresh as that,
and when it does not, an entry serves `CACHE_TTL_MS` and no longer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar
from uuid import uuid4

from onebook.accounts.beat import every
from onebook.accounts.keys import Key, digest, key_of, require_enabled, status_at, well_formed
from onebook.accounts.limits import (
    AddressLimit,
    RateLimiter,
)
from onebook.accounts.pepper import require_same_pepper
from onebook.accounts.periods import period_at
from onebook.accounts.sessions import (
    LIFETIME_MS,
    REMEMBERED_MS,
    Session,
    invalid_session,
    is_over,
    new_token,
    token_of,
)
from onebook.accounts.shared import SharedReads
from onebook.accounts.spill import UsageFile
from onebook.accounts.usage import (
    Meter,
    UsageReport,
    stored_usage,
    usage_report,
)
from onebook.config import AccountsSettings
from onebook.errors import (
    AccountSuspended,
    ApiKeyDisabled,
    ApiKeyNotFound,
    InvalidApiKey,
    MissingApiKey,
    OnebookError,
    RateLimitExceeded,
    SessionExpired,
)
from onebook.metrics import AUTHENTICATION_FAILURES
from onebook.model import DAY_MS, MINUTE_MS, SECOND_MS, KeyStatus
from onebook.signals import Signal
from onebook.store import KeyRow, SecretRow, SessionRow, Store

CACHE_TTL_MS: Final = 5 * SECOND_MS
CACHED_MAX: Final = 100_000
POLL_INTERVAL_S: Final = 1.0
TOUCH_INTERVAL_MS: Final = MINUTE_MS
PRUNE_INTERVAL_MS: Final = 60 * MINUTE_MS
BATCHES_KEPT_MS: Final = DAY_MS
FAILED_ATTEMPTS: Final = "failed attempts"

K = TypeVar("K")
V = TypeVar("V")


class _Secret(NamedTuple):
    key_id: str
    retires_at_ms: int | None
    loaded_at_ms: int


class _Known(NamedTuple):
    key: Key
    loaded_at_ms: int


class _Opened(NamedTuple):
    session: SessionRow
    loaded_at_ms: int


def wall_clock_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class Accounts:
    """Keys, sessions, limits and usage of one node; entering it starts its two tasks.

    `on_disabled` is called with the id of a key that may no longer be used, `on_changed` with any
    other key that was changed and the fingerprints of the texts that still open it.
    """

    def __init__(
        self,
        store: Store,
        pepper: bytes,
        *,
        settings: AccountsSettings | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        usage_file: UsageFile | None = None,
    ) -> None:
        self.settings = settings or AccountsSettings()
        self.on_disabled: Signal[[str]] = Signal()
        self.on_changed: Signal[[Key, Collection[bytes]]] = Signal()
        self.limits = RateLimiter(self.settings.tiers)
        self.meter = Meter(
            store, clock_ms, allowance_bytes=self.settings.allowance_bytes, file=usage_file
        )
        self.lost_bytes = 0  # usage that could be written nowhere when it stopped
        self._store = store
        self._pepper = pepper
        self._clock_ms = clock_ms
        self._failures = AddressLimit("failures", self.settings.failures_per_minute)
        self._unknown_keys = AddressLimit("unknown", self.settings.unknown_keys_per_minute)
        self._authentications = RateLimiter(self.settings.tiers)
        self._secrets: dict[bytes, _Secret] = {}
        self._keys: dict[str, _Known] = {}
        self._sessions: dict[bytes, _Opened] = {}
        self._expiring_at_ms: dict[str, int] = {}
        self._used_at_ms: dict[str, int] = {}
        self._stamp = 0
        self._changes = 0
        self._polled_at_ms = 0
        self._touched_at_ms = 0
        self._pruned_at_ms = 0
        self._secret_reads = SharedReads(self._load_secrets)
        self._key_reads = SharedReads(self._load_keys)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await require_same_pepper(self._store, self._pepper)
        self._stamp = await self._store.newest_change()
        self._polled_at_ms = self._clock_ms()
        self._tasks = [
            asyncio.create_task(self.watch(), name="accounts-watch"),
            asyncio.create_task(self.meter.run(self.settings.flush_interval_s), name="meter"),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._secret_reads.close()
        await self._key_reads.close()
        self.lost_bytes = await self.meter.close(self.settings.final_flush_timeout_s)
        with suppress(OnebookError):  # when a key was used last is worth no delay of a stop
            await self._touch()

    async def verify_key(self, text: str, now_ms: int, *, address: str | None = None) -> Key:
        """Find the key that a text is, ready to be used.

        With an address, unknown keys count against it, and too many of them are refused. The
        limit is asked before the look-up and again before the verdict: attempts that were all
        looked up at one time get no more verdicts than the same attempts one by one.

        Raises:
            InvalidApiKey: It is no key of ours.
            ApiKeyDisabled: It is suspended or expired.
            RateLimitExceeded: The address failed too often.
        """
        try:
            return await self._counted(text, now_ms, address)
        except (InvalidApiKey, ApiKeyDisabled, RateLimitExceeded) as error:
            AUTHENTICATION_FAILURES.labels(error.code).inc()
            raise

    async def _counted(self, text: str, now_ms: int, address: str | None) -> Key:
        if address is None:
            return await self._verified(text, now_ms)
        now_s = now_ms / SECOND_MS
        self._failures.peek(address, now_s).require(FAILED_ATTEMPTS)
        try:
            key = await self._verified(text, now_ms)
        except InvalidApiKey:
            self._failures.take(address, now_s).require(FAILED_ATTEMPTS)
            raise
        except ApiKeyDisabled:  # its owner guesses nothing
            self._failures.peek(address, now_s).require(FAILED_ATTEMPTS)
            raise
        self._failures.peek(address, now_s).require(FAILED_ATTEMPTS)
        return key

    async def authenticate(self, text: str | None, *, address: str, now_ms: int) -> Session:
        """Make a session for a key; the oldest beyond the limit of a key goes.

        Raises:
            MissingApiKey: There is no key.
            InvalidApiKey: It is no key of ours.
            ApiKeyDisabled: It is suspended or expired.
            RateLimitExceeded: Too many attempts.
        """
        if text is None or not text.strip():
            raise MissingApiKey('Send the API key in the body: {"api_key": "..."}.')
        key = await self.verify_key(text, now_ms, address=address)
        attempts = self._authentications.take(key.key_id, key.tier, now_ms / SECOND_MS)
        attempts.require("authentications with this key")
        token = new_token()
        row = SessionRow(str(uuid4()), key.key_id, now_ms, now_ms + LIFETIME_MS)
        gone = await self._store.create_session(
            row,
            digest(self._pepper, token),
            secret=self.fingerprint(text),
            live_max=self.settings.sessions_per_key_max,
        )
        if gone is None:  # changed within the last second: the watch has not told us yet
            raise ApiKeyDisabled("This API key was suspended or replaced; ask the operator.")
        for ended in gone:
            self._sessions.pop(ended, None)
        return Session(key, row.session_id, token, row.created_at_ms, row.expires_at_ms)

    async def session(self, authorization_header: str | None, now_ms: int) -> Session:
        """Find the session that an Authorization header names.

        Raises:
            MissingAuthorization: There is no header.
            InvalidSession: It names no session.
            SessionExpired: The session is over: after 24 hours, or because its key was suspended
                or replaced.
            ApiKeyDisabled: The session's key is suspended or expired.
        """
        row = await self._session(digest(self._pepper, token_of(authorization_header)), now_ms)
        if row is None:
            raise invalid_session()
        key = await self._key(row.key_id, now_ms)
        require_enabled(key, now_ms)
        if is_over(row, now_ms):
            raise SessionExpired("The session is over; authenticate again.")
        self._used_at_ms[key.key_id] = now_ms
        return Session(key, row.session_id, "", row.created_at_ms, row.expires_at_ms)

    async def usage_report(self, key_text: str, *, address: str, now_ms: int) -> UsageReport:
        """Report what a key has used; counted against nothing.

        Raises:
            ApiKeyNotFound: It is no key of ours.
            AccountSuspended: The key, or its account, is suspended.
            RateLimitExceeded: The address asked for too many unknown keys.
        """
        key = await self._find(key_text, now_ms)
        if key is None:
            self._unknown_keys.take(address, now_ms / SECOND_MS).require("unknown API keys")
            raise ApiKeyNotFound("There is no such API key.")
        if status_at(key, now_ms) is KeyStatus.SUSPENDED:
            raise AccountSuspended("The account is suspended; ask the operator.")
        return await self.report(key, now_ms)

    async def report(self, key: Key, now_ms: int) -> UsageReport:
        """Report what a key has used, here and on every other node."""
        stored = await stored_usage(self._store, key, now_ms)
        # What this node has not flushed yet is in the meter, what others delivered in the store.
        used_bytes = max(stored, self.meter.used(key.key_id, now_ms))
        return usage_report(
            key, used_bytes, allowance_bytes=self.settings.allowance_bytes, now_ms=now_ms
        )

    def resets_at_ms(self, key: Key, now_ms: int) -> int:
        """When a key's allowance is renewed, Unix ms."""
        return period_at(key.created_at_ms, now_ms).end_ms

    def reachable(self, now_ms: int) -> bool:
        """Whether the store has answered the watch lately; until it does, caches run out."""
        return now_ms - self._polled_at_ms < CACHE_TTL_MS

    def writable(self) -> bool:
        """Whether the store has taken usage, or a probe, lately."""
        return self.meter.flush_age_s() < self.settings.flush_age_max_s

    async def watch(self) -> None:
        """Ask the store each second what was changed, until cancelled."""
        await every(
            self.settings.poll_interval_s,
            lambda: self.poll(self._clock_ms()),
            what="Watching the database for changed keys",
        )

    async def poll(self, now_ms: int) -> None:
        """Take over what was changed since the last poll; end keys whose date has come."""
        rows, stamp = await self._store.changed_keys(self._stamp)
        if rows:
            opened_by = await self._store.open_secrets([row.key_id for row in rows], now_ms)
            self._take_over(rows, opened_by, now_ms)
        if now_ms < self._polled_at_ms:
            self._set_back(now_ms)
        self._stamp, self._polled_at_ms = stamp, now_ms
        self._expire(now_ms)
        if now_ms - self._touched_at_ms >= TOUCH_INTERVAL_MS:
            self._touched_at_ms = now_ms
            await self._touch()
        if now_ms - self._pruned_at_ms >= PRUNE_INTERVAL_MS:
            self._pruned_at_ms = now_ms
            await self._store.prune(
                sessions_before_ms=now_ms - REMEMBERED_MS,
                batches_before_ms=now_ms - BATCHES_KEPT_MS,
            )

    def _take_over(self, rows: list[KeyRow], opened_by: set[bytes], now_ms: int) -> None:
        self._changes += 1
        changed = {row.key_id: key_of(row) for row in rows}
        for text_digest in [d for d, secret in self._secrets.items() if secret.key_id in changed]:
            del self._secrets[text_digest]
        for token_digest in [d for d, o in self._sessions.items() if o.session.key_id in changed]:
            del self._sessions[token_digest]
        for key_id, key in changed.items():
            if key_id in self._keys:
                self._learn(key, now_ms)
            if status_at(key, now_ms) is not KeyStatus.ACTIVE:
                self.on_disabled(key_id)
            else:
                self.on_changed(key, opened_by)

    def _set_back(self, now_ms: int) -> None:
        """Act on a wall clock that was set back: what came too early will come again."""
        self._touched_at_ms = min(self._touched_at_ms, now_ms)
        self._pruned_at_ms = min(self._pruned_at_ms, now_ms)
        for known in self._keys.values():
            self._await_expiry(known.key, now_ms)

    def _expire(self, now_ms: int) -> None:
        for key_id in [k for k, at_ms in self._expiring_at_ms.items() if at_ms <= now_ms]:
            del self._expiring_at_ms[key_id]
            self.on_disabled(key_id)

    async def _touch(self) -> None:
        used_at_ms, self._used_at_ms = self._used_at_ms, {}
        await self._store.touch_keys(used_at_ms)

    async def _verified(self, text: str, now_ms: int) -> Key:
        key = await self._find(text, now_ms)
        if key is None:
            raise InvalidApiKey("The API key is not valid.")
        require_enabled(key, now_ms)
        self._used_at_ms[key.key_id] = now_ms
        return key

    async def _find(self, text: str, now_ms: int) -> Key | None:
        """The key that a text opens now, whatever its status."""
        if not well_formed(text):
            return None
        text_digest = self.fingerprint(text)
        secret = self._secrets.get(text_digest)
        if secret is None or not self._fresh(secret.loaded_at_ms, now_ms):
            secret = await self._read_secret(text_digest)
        if secret is None or _retired(secret, now_ms):
            return None
        return await self._key(secret.key_id, now_ms)

    def fingerprint(self, text: str) -> bytes:
        """What tells one text of a key from another; it opens nothing."""
        return digest(self._pepper, text)

    async def _read_secret(self, text_digest: bytes) -> _Secret | None:
        while True:
            secret = await self._secret_reads.read(text_digest)
            # Between the read and our turn the watch may have heard of a change, and forgot it.
            if self._secrets.get(text_digest) is secret:
                return secret

    async def _load_secrets(self, digests: Collection[bytes]) -> dict[bytes, _Secret]:
        now_ms = self._clock_ms()
        rows = await self._settled(lambda: self._secret_rows(digests))
        for text_digest in digests:
            self._secrets.pop(text_digest, None)
        secrets = {}
        for text_digest, row in rows.items():
            self._learn(key_of(row.key), now_ms)
            secrets[text_digest] = _Secret(row.key.key_id, row.retires_at_ms, now_ms)
            _put(self._secrets, text_digest, secrets[text_digest])
        return secrets

    async def _secret_rows(self, digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        rows = await self._store.secrets(digests)
        await self.meter.open(*(key_of(row.key) for row in rows.values()))
        return rows

    async def _key(self, key_id: str, now_ms: int) -> Key:
        known = self._keys.get(key_id)
        if known is not None and self._fresh(known.loaded_at_ms, now_ms):
            return known.key
        read = await self._key_reads.read(key_id)
        assert read is not None, "secrets and sessions refer to a key, and none is ever deleted"
        known = self._keys.get(key_id)  # the watch may have heard of a change since
        return read if known is None else known.key

    async def _load_keys(self, key_ids: Collection[str]) -> dict[str, Key]:
        now_ms = self._clock_ms()
        keys = await self._settled(lambda: self._read_keys(key_ids))
        for key in keys.values():
            self._learn(key, now_ms)
        return keys

    async def _read_keys(self, key_ids: Collection[str]) -> dict[str, Key]:
        rows = await self._store.keys_by_id(key_ids)
        keys = {key_id: key_of(row) for key_id, row in rows.items()}
        await self.meter.open(*keys.values())
        return keys

    async def _settled(self, read: Callable[[], Awaitable[V]]) -> V:
        """Read, and again if the watch took over a change meanwhile: ours may be from before it.

        Without this a suspension that lands between our read and our caching of it would be seen
        by nobody, and the cache would hold the old status for as long as the watch works.
        """
        while True:
            changes = self._changes
            value = await read()
            if changes == self._changes:
                return value

    def _learn(self, key: Key, now_ms: int) -> None:
        _put(self._keys, key.key_id, _Known(key, now_ms))
        self._await_expiry(key, now_ms)

    def _await_expiry(self, key: Key, now_ms: int) -> None:
        if key.expires_at_ms is not None and status_at(key, now_ms) is KeyStatus.ACTIVE:
            self._expiring_at_ms[key.key_id] = key.expires_at_ms
        else:
            self._expiring_at_ms.pop(key.key_id, None)

    async def _session(self, token_digest: bytes, now_ms: int) -> SessionRow | None:
        opened = self._sessions.get(token_digest)
        # Not as long as `_fresh`: the watch does not hear when another node ends a session.
        if opened is not None and 0 <= now_ms - opened.loaded_at_ms < CACHE_TTL_MS:
            return opened.session
        rows = await self._settled(lambda: self._store.sessions([token_digest]))
        row = rows.get(token_digest)
        if row is not None:
            _put(self._sessions, token_digest, _Opened(row, now_ms))
        return row

    def _fresh(self, loaded_at_ms: int, now_ms: int) -> bool:
        # Who waited is asked for with the time of its question, which may be before the answer's.
        return abs(now_ms - max(loaded_at_ms, self._polled_at_ms)) < CACHE_TTL_MS


def _retired(secret: _Secret, now_ms: int) -> bool:
    return secret.retires_at_ms is not None and now_ms >= secret.retires_at_ms


def _put(cache: dict[K, V], name: K, value: V) -> None:
    """Keep a value; the one kept longest goes when there are too many."""
    cache[name] = value
    if len(cache) > CACHED_MAX:
        del cache[next(iter(cache))]
