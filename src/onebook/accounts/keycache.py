"""Keys by their id and by the digests of their texts, as fresh as the watch of the store.

`Accounts.watch` asks the store each second what was changed, by an operator or by another node, and
reports it here. While that works, what is cached is as fresh as that; when it does not, an entry
serves `CACHE_TTL_MS` and no longer.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from onebook.accounts.cache import CACHED_MAX, ReadCache, ReadStart, fresh_since
from onebook.accounts.keys import Key, key_of, status_at
from onebook.model import KeyStatus
from onebook.store import Store


class _Secret(NamedTuple):
    """One text of a key, and until when it is valid."""

    key_id: str
    retires_at_ms: int | None

    def retired(self, now_ms: int) -> bool:
        return self.retires_at_ms is not None and now_ms >= self.retires_at_ms


class KeyCache:
    """The keys of a node.

    Args:
        store: Where keys are read.
        clock_ms: Wall clock, Unix ms.
        on_read: Awaited with the keys of each read, before they are used.
        kept_max: Keys, and texts of keys, kept at most.
    """

    def __init__(
        self,
        store: Store,
        clock_ms: Callable[[], int],
        *,
        on_read: Callable[..., Awaitable[None]],
        kept_max: int = CACHED_MAX,
    ) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._on_read = on_read
        self._polled_at_ms = 0
        self._expiring_at_ms: dict[str, int] = {}
        self._secrets: ReadCache[bytes, _Secret] = ReadCache(
            self._read_secrets, clock_ms=clock_ms, fresh=self._fresh, kept_max=kept_max
        )
        self._keys: ReadCache[str, Key] = ReadCache(
            self._read_keys, clock_ms=clock_ms, fresh=self._fresh, kept_max=kept_max
        )

    @property
    def polled_at_ms(self) -> int:
        """When the store last answered the watch, Unix ms."""
        return self._polled_at_ms

    async def opened_by(self, text_digest: bytes, now_ms: int) -> Key | None:
        """Look up the key of a text that is valid now, whatever the key's status."""
        secret = await self._secrets.get(text_digest, now_ms)
        if secret is None or secret.retired(now_ms):
            return None
        return await self.by_id(secret.key_id, now_ms)

    async def by_id(self, key_id: str, now_ms: int) -> Key:
        """Find a key that a secret or a session refers to."""
        key = await self._keys.get(key_id, now_ms)
        assert key is not None, "secrets and sessions refer to a key, and none is ever deleted"
        return key

    def change(self, changed: Mapping[str, Key], now_ms: int) -> None:
        """Apply changed keys; their texts are read again."""
        self._secrets.drop(lambda secret: secret.key_id in changed)
        self._keys.change(changed, now_ms)
        for key in changed.values():
            self._await_expiry(key, now_ms)

    def polled(self, now_ms: int) -> None:
        """Note that the store answered the watch, and that every change was taken over."""
        if now_ms < self._polled_at_ms:  # the wall clock was set back
            for key in self._keys.values():
                self._await_expiry(key, now_ms)
        self._polled_at_ms = now_ms

    def expired(self, now_ms: int) -> list[str]:
        """Return, once, the ids of the keys that expired."""
        due = [key_id for key_id, at_ms in self._expiring_at_ms.items() if at_ms <= now_ms]
        for key_id in due:
            del self._expiring_at_ms[key_id]
        return due

    async def close(self) -> None:
        """Cancel reads under way."""
        await self._secrets.close()
        await self._keys.close()

    async def _read_secrets(self, digests: Collection[bytes]) -> dict[bytes, _Secret]:
        start = self._keys.start()
        rows = await self._store.accounts.secrets(digests)
        keys = {row.key.key_id: key_of(row.key) for row in rows.values()}
        await self._learn(keys.values(), start)
        self._keys.keep(keys, start)
        return {
            text_digest: _Secret(row.key.key_id, row.retires_at_ms)
            for text_digest, row in rows.items()
        }

    async def _read_keys(self, key_ids: Collection[str]) -> dict[str, Key]:
        start = self._keys.start()
        rows = await self._store.accounts.keys_by_id(key_ids)
        keys = {key_id: key_of(row) for key_id, row in rows.items()}
        await self._learn(keys.values(), start)
        return keys

    async def _learn(self, keys: Collection[Key], start: ReadStart) -> None:
        await self._on_read(*keys)
        if self._keys.current(start):
            for key in keys:
                self._await_expiry(key, start.at_ms)

    def _await_expiry(self, key: Key, now_ms: int) -> None:
        if key.expires_at_ms is not None and status_at(key, now_ms) is KeyStatus.ACTIVE:
            self._expiring_at_ms[key.key_id] = key.expires_at_ms
        else:
            self._expiring_at_ms.pop(key.key_id, None)

    def _fresh(self, read_at_ms: int, now_ms: int) -> bool:
        return fresh_since(max(read_at_ms, self._polled_at_ms), now_ms)
