from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from clocks import SteppedClock
from databases import migrated
from onebook.accounts import Accounts, Admin, Peppers
from onebook.model import Tier
from onebook.store import AuditedChange, Store

PEPPER = Peppers(b"p" * 32)
# 2026-01-31 10:30 UTC: a creation day that most months do not have.
START_MS = 1_769_855_400_000


@dataclass
class Rig:
    """Accounts over a fresh store, the operator's side, and one key."""

    store: Store
    accounts: Accounts
    admin: Admin
    clock: SteppedClock
    key_id: str
    text: str = field(repr=False)

    def change(self) -> AuditedChange:
        return AuditedChange(self.clock.now_ms, "operator", "test")

    async def authenticate(self, text: str | None = None, address: str = "192.0.2.1") -> str:
        """The Authorization header of a new session."""
        session = await self.accounts.authenticate(
            text or self.text, address=address, now_ms=self.clock.now_ms
        )
        return f"Bearer {session.token}"


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(START_MS)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store(await migrated(tmp_path)) as opened:
        yield opened


@pytest.fixture
def statements(store: Store) -> list[str]:
    """The SQL statements sent to the database from now on."""
    heard: list[str] = []

    def executed(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        heard.append(statement)

    event.listen(store.database._engine.sync_engine, "before_cursor_execute", executed)
    return heard


@pytest.fixture
async def rig(store: Store, clock: SteppedClock) -> Rig:
    admin = Admin(store, PEPPER)
    made = AuditedChange(clock.now_ms, "operator", "test")
    await admin.create_account("alice", made)
    key = await admin.create_key("alice", Tier.BASIC, made)
    accounts = Accounts(store, PEPPER, clock=clock)
    return Rig(store, accounts, admin, clock, key.row.key_id, key.text)
