"""Access to the service: verifies keys, creates and checks sessions, reports usage.

`watch` queries the store each second for changes by an operator, in any process, and notifies the
caches (`cache.py`, `sessions.py`) and the gateway.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Self

from onebook.accounts.billing import period_at
from onebook.accounts.cache import CACHE_TTL_MS, KeyCache
from onebook.accounts.keys import (
    Key,
    fees_from,
    key_of,
    require_enabled,
    status_at,
    stored_fees,
    well_formed,
)
from onebook.accounts.limits import AttemptLimits, RateLimiter
from onebook.accounts.pepper import Peppers, require_same_pepper
from onebook.accounts.periodic import every
from onebook.accounts.sessions import (
    REMEMBERED_MS,
    SESSIONS_PER_KEY_MAX,
    RestSession,
    Sessions,
    is_over,
)
from onebook.accounts.usage import Meter, UsageFile, UsageReport, stored_usage, usage_report
from onebook.clock import SYSTEM_CLOCK, Clock
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
from onebook.fees import TakerFees
from onebook.metrics import AUTHENTICATION_FAILURES
from onebook.model import DAY_MS, MINUTE_MS, SECOND_MS, KeyStatus
from onebook.signals import Signal
from onebook.store import AuditedChange, KeyRow, Rehashed, Store

POLL_INTERVAL_S: Final = 1.0  # between polls for changes by operators and other nodes
TOUCH_INTERVAL_MS: Final = MINUTE_MS
PRUNE_INTERVAL_MS: Final = 60 * MINUTE_MS
BATCHES_KEPT_MS: Final = DAY_MS
FLUSH_AGE_MAX_S: Final = 5.0  # `/readyz` fails if no database write has succeeded for longer
REHASHED_MAX: Final = 1_000  # key texts between two polls; others are rehashed at their next use


class _Opened(NamedTuple):
    """A key, and the digest by which it was found."""

    key: Key
    secret: bytes


class Accounts:
    """Keys, sessions, limits and usage of one node; entering it starts its two tasks.

    `on_disabled` is called with the id of a key that may no longer be used, `on_changed` with every
    other changed key and the fingerprints of its texts that are still valid.
    """

    def __init__(
        self,
        store: Store,
        peppers: Peppers,
        *,
        settings: AccountsSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        usage_file: UsageFile | None = None,
        limits: RateLimiter | None = None,
        poll_interval_s: float = POLL_INTERVAL_S,
        sessions_per_key_max: int = SESSIONS_PER_KEY_MAX,
    ) -> None:
        self._poll_interval_s = poll_interval_s
        self.settings = settings or AccountsSettings()
        self.on_disabled: Signal[[str]] = Signal()
        self.on_changed: Signal[[Key, Collection[bytes]]] = Signal()
        self.limits = limits or RateLimiter(self.settings.tiers)
        self.meter = Meter(
            store, clock, allowance_bytes=self.settings.allowance_bytes, file=usage_file
        )
        self.lost_bytes = 0  # usage that could not be written during shutdown
        self._store = store
        self._peppers = peppers
        self._clock = clock
        self._attempts = AttemptLimits(self.settings)
        self._keys = KeyCache(store, clock, on_read=self.meter.open)
        self._sessions = Sessions(store, peppers, per_key_max=sessions_per_key_max, clock=clock)
        self._used_at_ms: dict[str, int] = {}
        self._rehashed: dict[bytes, Rehashed] = {}  # not stored yet, by the older digest
        self._stamp = 0
        self._touched_at_ms = 0
        self._pruned_at_ms = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await require_same_pepper(self._store, self._peppers, self._clock.wall_ms())
        self._stamp = await self._store.accounts.newest_change()
        self._keys.polled(self._clock.wall_ms())
        self._tasks = [
            asyncio.create_task(self.watch(), name="accounts-watch"),
            asyncio.create_task(self.meter.run(), name="meter"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._keys.close()
        await self._sessions.close()
        self.lost_bytes = await self.meter.close(self.settings.final_flush_timeout_s)
        with suppress(OnebookError):  # no longer needed, or repeated at the next use
            await self._touch()
            await self._rehash()

    async def verify_key(self, text: str, now_ms: int, *, address: str | None = None) -> Key:
        """Look up the key with this text and require that it may be used.

        With an address, unknown keys count against its limit. The limit is checked before the
        look-up and again before the result is returned, so that concurrent attempts get no more
        results than sequential ones.

        Raises:
            InvalidApiKey: The key is unknown.
            ApiKeyDisabled: The key is suspended or expired.
            RateLimitExceeded: The address failed too often.
        """
        return (await self._opened(text, now_ms, address)).key

    async def _opened(self, text: str, now_ms: int, address: str | None) -> _Opened:
        try:
            return await self._counted(text, now_ms, address)
        except (InvalidApiKey, ApiKeyDisabled, RateLimitExceeded) as error:
            AUTHENTICATION_FAILURES.labels(error.code).inc()
            raise

    async def _counted(self, text: str, now_ms: int, address: str | None) -> _Opened:
        if address is None:
            return await self._verified(text, now_ms)
        now_s = now_ms / SECOND_MS
        self._attempts.require_verdict(address, now_s)
        try:
            opened = await self._verified(text, now_ms)
        except InvalidApiKey:
            self._attempts.failed(address, now_s)
            raise
        except ApiKeyDisabled:  # the key exists, so this is not guessing
            self._attempts.require_verdict(address, now_s)
            raise
        self._attempts.require_verdict(address, now_s)
        return opened

    async def authenticate(self, text: str | None, *, address: str, now_ms: int) -> RestSession:
        """Create a session for a key; beyond the key's limit the oldest one ends.

        Raises:
            MissingApiKey: No key was sent.
            InvalidApiKey: The key is unknown.
            ApiKeyDisabled: The key is suspended or expired.
            RateLimitExceeded: Too many attempts.
        """
        if text is None or not text.strip():
            raise MissingApiKey('Send the API key in the body: {"api_key": "..."}.')
        opened = await self._opened(text, now_ms, address)
        self._attempts.authenticated(opened.key, now_ms / SECOND_MS)
        return await self._sessions.create(opened.key, opened.secret, now_ms)

    async def session(self, authorization_header: str | None, now_ms: int) -> RestSession:
        """Look up the session named by an Authorization header.

        Raises:
            MissingAuthorization: The header is missing.
            InvalidSession: The token is unknown.
            SessionExpired: The session is over: after 24 hours, or because its key was suspended
                or replaced.
            ApiKeyDisabled: The session's key is suspended or expired.
        """
        row = await self._sessions.find(authorization_header, now_ms)
        key = await self._keys.by_id(row.key_id, now_ms)
        require_enabled(key, now_ms)
        if is_over(row, now_ms):
            raise SessionExpired("The session has ended; authenticate again.")
        self._used_at_ms[key.key_id] = now_ms
        return RestSession(key, row.session_id, "", row.created_at_ms, row.expires_at_ms)

    async def usage_report(self, key_text: str, *, address: str, now_ms: int) -> UsageReport:
        """Report the usage of a key; the request counts against no rate limit.

        Raises:
            ApiKeyNotFound: The key is unknown.
            AccountSuspended: The key, or its account, is suspended.
            RateLimitExceeded: The address sent too many unknown keys.
        """
        opened = await self._find(key_text, now_ms)
        if opened is None:
            self._attempts.unknown_key(address, now_ms / SECOND_MS)
            raise ApiKeyNotFound("Unknown API key.")
        if status_at(opened.key, now_ms) is KeyStatus.SUSPENDED:
            raise AccountSuspended("The account is suspended; ask the operator.")
        return await self.report(opened.key, now_ms)

    async def report(self, key: Key, now_ms: int) -> UsageReport:
        """Report the usage of a key on this node and all others."""
        stored = await stored_usage(self._store, key, now_ms)
        # The meter has this node's unflushed bytes, the store those delivered by other nodes.
        used_bytes = max(stored, self.meter.used(key.key_id, now_ms))
        return usage_report(
            key, used_bytes, allowance_bytes=self.settings.allowance_bytes, now_ms=now_ms
        )

    async def change_fees(self, key: Key, fees: Mapping[str, str], now_ms: int) -> TakerFees:
        """Replace a key's taker fees, which `fees: "key"` in a subscription then means.

        Open subscriptions keep the table that they were opened with.

        Raises:
            InvalidRequest: A fee is invalid, or there are too many.
        """
        change = AuditedChange(now_ms, key.username, "")
        stored = stored_fees(fees)
        await self._store.accounts.change_fees(key.key_id, stored, change)
        await self.poll(now_ms)  # so that the client's next request here finds it
        return fees_from(stored)

    def resets_at_ms(self, key: Key, now_ms: int) -> int:
        """Return when a key's allowance is renewed, Unix ms."""
        return period_at(key.created_at_ms, now_ms).end_ms

    def limits_changed(self) -> None:
        """Apply limits after the settings were changed in place."""
        self.meter.change_allowance(self.settings.allowance_bytes)

    def reachable(self, now_ms: int) -> bool:
        """Whether the store has answered the watch recently; otherwise cached entries expire."""
        return now_ms - self._keys.polled_at_ms < CACHE_TTL_MS

    def writable(self) -> bool:
        """Whether the store has recently accepted usage, or a probe."""
        return self.meter.flush_age_s() < FLUSH_AGE_MAX_S

    async def watch(self) -> None:
        """Poll the store for changes every second, until cancelled."""
        await every(
            self._poll_interval_s,
            lambda: self.poll(self._clock.wall_ms()),
            what="Watching the database for changed keys",
        )

    async def poll(self, now_ms: int) -> None:
        """Apply changes since the last poll; expire keys."""
        self._peppers.adopt(await self._store.accounts.list_peppers())
        rows, stamp = await self._store.accounts.changed_keys(self._stamp)
        if rows:
            opened_by = await self._store.accounts.open_secrets(
                [row.key_id for row in rows], now_ms
            )
            opened_by |= {
                each.after for each in self._rehashed.values() if each.before in opened_by
            }
            self._take_over(rows, opened_by, now_ms)
        self._stamp = stamp
        self._keys.polled(now_ms)
        for key_id in self._keys.expired(now_ms):
            self.on_disabled(key_id)
        # Must not be delayed by a wall clock that is set back.
        self._touched_at_ms = min(self._touched_at_ms, now_ms)
        self._pruned_at_ms = min(self._pruned_at_ms, now_ms)
        if now_ms - self._touched_at_ms >= TOUCH_INTERVAL_MS:
            self._touched_at_ms = now_ms
            await self._touch()
        await self._rehash()
        if now_ms - self._pruned_at_ms >= PRUNE_INTERVAL_MS:
            self._pruned_at_ms = now_ms
            await self._store.prune(
                sessions_before_ms=now_ms - REMEMBERED_MS,
                batches_before_ms=now_ms - BATCHES_KEPT_MS,
            )

    def _take_over(self, rows: list[KeyRow], opened_by: set[bytes], now_ms: int) -> None:
        changed = {row.key_id: key_of(row) for row in rows}
        self._keys.change(changed, now_ms)
        self._sessions.change(changed.keys())
        for key_id, key in changed.items():
            self.meter.change(key)
            if status_at(key, now_ms) is not KeyStatus.ACTIVE:
                self.on_disabled(key_id)
            else:
                self.on_changed(key, opened_by)

    async def _touch(self) -> None:
        used_at_ms, self._used_at_ms = self._used_at_ms, {}
        await self._store.accounts.touch_keys(used_at_ms)

    async def _rehash(self) -> None:
        """Store current digests of key texts that were used under an older pepper."""
        if not self._rehashed:
            return
        rehashed = tuple(self._rehashed.values())
        await self._store.accounts.rehash(rehashed, self._clock.wall_ms())
        for each in rehashed:
            self._rehashed.pop(each.before, None)

    async def _verified(self, text: str, now_ms: int) -> _Opened:
        opened = await self._find(text, now_ms)
        if opened is None:
            raise InvalidApiKey("The API key is not valid.")
        require_enabled(opened.key, now_ms)
        self._used_at_ms[opened.key.key_id] = now_ms
        newest = self.fingerprint(text)
        if opened.secret != newest and len(self._rehashed) < REHASHED_MAX:
            rehashed = Rehashed(opened.secret, newest, self._peppers.current_id)
            self._rehashed[opened.secret] = rehashed
        return opened

    async def _find(self, text: str, now_ms: int) -> _Opened | None:
        """Find the key of a currently valid text, whatever the key's status."""
        if not well_formed(text):
            return None
        for secret in self._peppers.digests(text):
            key = await self._keys.opened_by(secret, now_ms)
            if key is not None:
                return _Opened(key, secret)
        return None

    def fingerprint(self, text: str) -> bytes:
        """Return the fingerprint of a key's text, which cannot be used to authenticate."""
        return self._peppers.digest(text)
