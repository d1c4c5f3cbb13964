"""Initial rows for the tests of the store."""

from onebook.model import KeyStatus, Tier
from onebook.store import AccountRow, KeyRow, SessionRow, Store, UsageCell

ACTIVE, SUSPENDED = KeyStatus.ACTIVE, KeyStatus.SUSPENDED
ALICE = AccountRow("id-alice", "alice", ACTIVE, 1_000, 1_000, "root", "new")
KEY = KeyRow(
    key_id="key_1",
    account_id="id-alice",
    username="alice",
    account_status=ACTIVE,
    tier=Tier.PREMIUM,
    status=ACTIVE,
    prefix="ob_live_abcd",
    created_at_ms=2_000,
    expires_at_ms=9_000,
    last_used_at_ms=None,
    changed_at_ms=2_000,
    changed_by="root",
    reason="",
)
JANUARY = UsageCell("key_1", 0)


async def session_of(store: Store, digest: bytes) -> SessionRow | None:
    """The session that a token's digest opens."""
    return (await store.sessions.find([digest])).get(digest)
