"""Values that the store takes and returns; without SQL."""

from typing import NamedTuple

from msgspec import Struct

from onebook.model import KeyStatus, Tier


class AccountRow(Struct, frozen=True):
    """A user, with its last status change, the reason, and the number of suspensions."""

    account_id: str
    username: str
    status: KeyStatus
    created_at_ms: int
    changed_at_ms: int
    changed_by: str
    reason: str
    suspensions: int = 0


class KeyRow(Struct, frozen=True):
    """A key with the fields of its account; without the secret.

    `suspensions` counts how often the key or its account left the status active. `allowance_bytes`
    is the key's own monthly allowance; None: that of the settings. `fees` are its taker fees, a
    JSON object of percentages by exchange.
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
    fees: str = "{}"


class SecretRow(Struct, frozen=True):
    """A secret of a key: the digest's key and expiry."""

    key: KeyRow
    retires_at_ms: int | None


class PepperRow(Struct, frozen=True):
    """A pepper; the database has only its id."""

    pepper_id: str
    current_from_ms: int
    retired_at_ms: int | None


class Rehashed(NamedTuple):
    """A secret's digest under an older pepper, and its digest under the pepper `pepper_id`."""

    before: bytes
    after: bytes
    pepper_id: str


class SessionRow(Struct, frozen=True):
    """A REST session, without its token."""

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
    """A key and one of its billing periods, for which bytes are counted."""

    key_id: str
    period_start_ms: int


class CredentialsRow(Struct, frozen=True):
    """Encrypted credentials of one exchange environment, and the id of the encryption key."""

    exchange: str
    environment: str
    kek_id: str
    ciphertext: bytes
    nonce: bytes
    created_at_ms: int


class DataKeyRow(Struct, frozen=True):
    """A data key, encrypted with the master key of this id."""

    name: str
    kek_id: str
    wrapped: bytes


class ListRow(Struct, frozen=True):
    """A collected list of an account, and the number of its records."""

    list_id: int
    account: str
    environment: str
    name: str
    scope: str
    records: int


class RangeRow(Struct, frozen=True):
    """A completely read time range; `state` is the reason if records are missing."""

    from_ms: int
    to_ms: int
    state: str = ""


class CollectedRow(Struct, frozen=True):
    """A collected record: its position and its body, encrypted if sealed."""

    record_id: str
    at_ms: int
    type: str
    pending: bool
    sealed: bool
    body: bytes


class ReadingRow(Struct, frozen=True):
    """Holdings of an account at a time; the body is encrypted if sealed."""

    at_ms: int
    sealed: bool
    body: bytes


class ExportJobRow(Struct, frozen=True):
    """An export job: a file that an exchange creates on request, and its state there.

    Args:
        owner: Digest of the user at the exchange.
        name: Name of the export, such as a quarter.
        requested_at_ms: When the export was requested.
        changed_at_ms: When the state last changed.
        reason: Why it failed, in a sentence.
        reference: The exchange's id of the export; "" if it has none.
    """

    exchange: str
    environment: str
    owner: str
    name: str
    state: str
    requested_at_ms: int
    changed_at_ms: int
    reason: str = ""
    reference: str = ""
