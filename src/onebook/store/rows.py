"""The values that go into the store and come out of it; nothing here knows SQL."""

from typing import NamedTuple

from msgspec import Struct

from onebook.model import KeyStatus, Tier


class AccountRow(Struct, frozen=True):
    """A user: its last change of status and the reason, and how often it was suspended."""

    account_id: str
    username: str
    status: KeyStatus
    created_at_ms: int
    changed_at_ms: int
    changed_by: str
    reason: str
    suspensions: int = 0


class KeyRow(Struct, frozen=True):
    """A key with the fields of its account; never the key itself.

    `suspensions` counts how often the key or its account left the status active. `allowance_bytes`
    is the key's own monthly allowance; None is that of the settings.
    """

    key_id: str
    account_id: str
    username: str
    account_status: KeyStatus
    tier: Tier
    status: KeyStatus
    prefix: str
    created_at_ms: int
    expires_at_ms: int | None
    last_used_at_ms: int | None
    changed_at_ms: int
    changed_by: str
    reason: str
    suspensions: int = 0
    allowance_bytes: int | None = None


class SecretRow(Struct, frozen=True):
    """One of a key's secrets: the key behind a digest, and until when the digest opens it."""

    key: KeyRow
    retires_at_ms: int | None


class PepperRow(Struct, frozen=True):
    """A pepper that the database knows by its id; never the pepper itself."""

    pepper_id: str
    current_from_ms: int
    retired_at_ms: int | None


class Rehashed(NamedTuple):
    """A text's digest under an older pepper, and the one under the pepper with this id."""

    before: bytes
    after: bytes
    pepper_id: str


class SessionRow(Struct, frozen=True):
    """A REST session; never its token."""

    session_id: str
    key_id: str
    created_at_ms: int
    expires_at_ms: int


class AuditedChange(NamedTuple):
    """An audited change: its author, time and reason."""

    now_ms: int
    by: str
    reason: str


class ChangeRow(Struct, frozen=True):
    """One entry of the audit trail: who changed what, when and why."""

    changed_at_ms: int
    changed_by: str
    action: str
    subject: str
    before: str
    after: str
    reason: str


class UsageCell(NamedTuple):
    """Where bytes are counted: a key in one of its periods."""

    key_id: str
    period_start_ms: int


class CredentialsRow(Struct, frozen=True):
    """Encrypted credentials of one exchange environment, and the id of the key they are under."""

    exchange: str
    environment: str
    kek_id: str
    ciphertext: bytes
    nonce: bytes
    created_at_ms: int
