"""Operator commands: create, suspend, resume, expire and rotate accounts and keys.

They only change the store; a running node detects the change by polling it.
"""

import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from onebook.accounts.keys import (
    ACCOUNT_MOVES,
    KEY_MOVES,
    PREFIX,
    SHOWN_LENGTH,
    following,
    new_key,
    status_at,
    stored_fees,
    well_formed,
)
from onebook.accounts.pepper import Peppers
from onebook.errors import InvalidRequest, NotFound
from onebook.model import DAY_MS, KeyStatus, Tier
from onebook.store import AccountRow, AuditedChange, KeyRow, Store

USERNAME_LENGTH_MAX: Final = 64
ALLOWANCE_MAX_BYTES: Final = 1 << 60
OVERLAP_MAX_MS: Final = 30 * DAY_MS


class NewKey(NamedTuple):
    """A key and its text, which is shown once and never stored."""

    row: KeyRow
    text: str

    def __repr__(self) -> str:
        return f"NewKey(key_id={self.row.key_id!r})"


class Admin:
    """Operator commands for accounts and keys."""

    def __init__(self, store: Store, peppers: Peppers) -> None:
        self._store = store
        self._peppers = peppers

    async def create_account(self, username: str, change: AuditedChange) -> AccountRow:
        """Create a user.

        Raises:
            InvalidRequest: The username cannot be used or is taken.
        """
        if not username.isprintable() or username != username.strip() or not username:
            raise InvalidRequest("A username must be printable text without surrounding spaces.")
        if len(username) > USERNAME_LENGTH_MAX:
            raise InvalidRequest(f"A username has at most {USERNAME_LENGTH_MAX} characters.")
        account = AccountRow(
            account_id=str(uuid4()),
            username=username,
            status=KeyStatus.ACTIVE,
            created_at_ms=change.now_ms,
            changed_at_ms=change.now_ms,
            changed_by=change.by,
            reason=change.reason,
        )
        await self._store.accounts.create_account(account)
        return account

    async def account(self, id_or_username: str) -> AccountRow:
        """Find a user.

        Raises:
            NotFound: The name is unknown.
        """
        account = await self._store.accounts.account(id_or_username)
        if account is None:
            raise NotFound(f"Unknown account {id_or_username!r}.")
        return account

    async def move_account(
        self, id_or_username: str, action: str, change: AuditedChange
    ) -> AccountRow:
        """Suspend or resume a user, and thereby all of the user's keys.

        Raises:
            InvalidRequest: The account's status does not allow this change.
        """
        account = await self.account(id_or_username)
        status = following(ACCOUNT_MOVES, account.status, action, f"User {account.username}")
        if not await self._store.accounts.move_account(
            account.account_id, (account.status, status), change
        ):
            raise _meanwhile(id_or_username)
        return await self.account(account.account_id)

    async def create_key(
        self,
        id_or_username: str,
        tier: Tier,
        change: AuditedChange,
        *,
        expires_at_ms: int | None = None,
    ) -> NewKey:
        """Issue a key to a user.

        Raises:
            InvalidRequest: The expiry date is in the past.
        """
        account = await self.account(id_or_username)
        if expires_at_ms is not None and expires_at_ms <= change.now_ms:
            raise InvalidRequest("The expiry date is in the past.")
        text = new_key()
        row = KeyRow(
            key_id=f"key_{secrets.token_hex(6)}",
            account_id=account.account_id,
            username=account.username,
            account_status=account.status,
            tier=tier,
            status=KeyStatus.ACTIVE,
            prefix=text[:SHOWN_LENGTH],
            created_at_ms=change.now_ms,
            expires_at_ms=expires_at_ms,
            last_used_at_ms=None,
            changed_at_ms=change.now_ms,
            changed_by=change.by,
            reason=change.reason,
        )
        await self._store.accounts.create_key(
            row, self._peppers.digest(text), pepper_id=self._peppers.current_id
        )
        return NewKey(row, text)

    async def key(self, id_or_text: str, now_ms: int) -> KeyRow:
        """Find a key by its id or text, with its current status.

        Raises:
            NotFound: The key is unknown.
        """
        row = await self._found(id_or_text)
        if row is None:
            raise NotFound(f"Unknown key {_shown(id_or_text)!r}.")
        return replace(row, status=status_at(row, now_ms))

    async def _found(self, id_or_text: str) -> KeyRow | None:
        if not id_or_text.startswith(PREFIX):
            return await self._store.accounts.key(id_or_text)
        if not well_formed(id_or_text):
            raise InvalidRequest("The key is incomplete or mistyped: its checksum does not match.")
        secrets = await self._store.accounts.secrets(self._peppers.digests(id_or_text))
        return next((each.key for each in secrets.values()), None)

    async def keys(self, id_or_username: str | None, now_ms: int) -> list[KeyRow]:
        """List the keys of a user, or all keys."""
        account_id = None
        if id_or_username is not None:
            account_id = (await self.account(id_or_username)).account_id
        rows = await self._store.accounts.list_keys(account_id)
        return [replace(row, status=status_at(row, now_ms)) for row in rows]

    async def move_key(self, id_or_text: str, action: str, change: AuditedChange) -> KeyRow:
        """Suspend, resume or expire a key.

        Raises:
            InvalidRequest: The key's status does not allow this change.
        """
        row = await self.key(id_or_text, change.now_ms)
        status = following(KEY_MOVES, row.status, action, f"Key {row.key_id}")
        if not await self._store.accounts.move_key(row.key_id, (row.status, status), change):
            raise _meanwhile(row.key_id)
        return await self.key(row.key_id, change.now_ms)

    async def change_key(
        self,
        id_or_text: str,
        change: AuditedChange,
        *,
        tier: Tier | None = None,
        allowance_bytes: int | None = None,
        own_allowance: bool = True,
    ) -> KeyRow:
        """Change a key's tier or monthly allowance; running nodes apply both within 2 s.

        Args:
            id_or_text: The key.
            change: The operator, the time and the reason.
            tier: The new tier; None keeps the current one.
            allowance_bytes: The key's own allowance; None keeps the current one.
            own_allowance: Whether it has its own allowance; otherwise that of the settings applies.

        Raises:
            InvalidRequest: The key is expired, or the allowance not a positive number of bytes.
        """
        if allowance_bytes is not None and not 0 < allowance_bytes <= ALLOWANCE_MAX_BYTES:
            raise InvalidRequest(f"An allowance must be 1 to {ALLOWANCE_MAX_BYTES:,} bytes.")
        row = await self.key(id_or_text, change.now_ms)
        if row.status is KeyStatus.EXPIRED:
            raise InvalidRequest("The key has expired; create a new one.")
        if allowance_bytes is None and own_allowance:
            allowance_bytes = row.allowance_bytes
        await self._store.accounts.change_key(row.key_id, tier or row.tier, allowance_bytes, change)
        return await self.key(row.key_id, change.now_ms)

    async def change_fees(
        self, id_or_text: str, fees: Mapping[str, str], change: AuditedChange
    ) -> KeyRow:
        """Replace a key's taker fees, in percent by exchange; running nodes know them within 2 s.

        Raises:
            InvalidRequest: A fee is invalid, or the key is expired.
        """
        row = await self.key(id_or_text, change.now_ms)
        if row.status is KeyStatus.EXPIRED:
            raise InvalidRequest("The key has expired; create a new one.")
        await self._store.accounts.change_fees(row.key_id, stored_fees(fees), change)
        return await self.key(row.key_id, change.now_ms)

    async def rotate_key(
        self, id_or_text: str, change: AuditedChange, *, overlap_ms: int
    ) -> NewKey:
        """Give a key a new text; the old one stays valid for `overlap_ms`.

        Its id, usage and limits stay the same, because it is the same key; its sessions end if
        there is no overlap.

        Raises:
            InvalidRequest: The key is expired, or the overlap too long.
        """
        if not 0 <= overlap_ms <= OVERLAP_MAX_MS:
            raise InvalidRequest(f"An overlap must be 0 to {OVERLAP_MAX_MS // DAY_MS} days.")
        row = await self.key(id_or_text, change.now_ms)
        if row.status is KeyStatus.EXPIRED:
            raise InvalidRequest("The key has expired; create a new one.")
        text = new_key()
        secret = (text[:SHOWN_LENGTH], self._peppers.digest(text))
        # Not `now`: a node with a slow clock would accept the old text for longer.
        retires_at_ms = change.now_ms + overlap_ms if overlap_ms else 0
        await self._store.accounts.rotate_key(
            row.key_id,
            secret,
            change,
            retires_at_ms=retires_at_ms,
            pepper_id=self._peppers.current_id,
        )
        return NewKey(await self.key(row.key_id, change.now_ms), text)


def _shown(id_or_text: str) -> str:
    """Return the name of a key for messages: at most its prefix."""
    if id_or_text.startswith(PREFIX):
        return id_or_text[:SHOWN_LENGTH] + "..."
    return id_or_text


def _meanwhile(name: str) -> InvalidRequest:
    return InvalidRequest(f"{name} was changed concurrently; check it and retry.")
