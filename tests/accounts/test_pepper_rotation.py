"""Pepper rotation on both databases: rotate, keep older peppers in use, retire them."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from clocks import SteppedClock
from databases import KINDS, database
from onebook.accounts import Accounts, Admin, NewKey, Peppers, load_pepper
from onebook.accounts.pepper import (
    changing,
    pepper_id,
    prepare_pepper,
    require_same_pepper,
    retire_peppers,
    rotate_pepper,
)
from onebook.errors import (
    ApiKeyDisabled,
    ConfigError,
    InvalidApiKey,
    InvalidRequest,
    InvalidSession,
    SessionExpired,
)
from onebook.model import SECOND_MS, Tier
from onebook.store import AuditedChange, Store

ADDRESS = "192.0.2.1"


class Place:
    """A database with its pepper file, two nodes of it on other machines, and an operator."""

    def __init__(self, store: Store, folder: Path, clock: SteppedClock) -> None:
        self.store = store
        self.clock = clock
        self.file = folder / "pepper"
        load_pepper(self.file)
        self.files = [folder / "one", folder / "two"]
        self.copy()
        self.nodes: list[Accounts] = []

    def copy(self) -> None:
        """Copy the pepper file to every machine, as an operator does after a rotation."""
        for each in self.files:
            shutil.copy(self.file, each)

    async def start(self) -> None:
        self.nodes = []
        for each in self.files:
            peppers = load_pepper(each)
            await require_same_pepper(self.store, peppers)
            self.nodes.append(Accounts(self.store, peppers, clock=self.clock))

    @property
    def change(self) -> AuditedChange:
        return AuditedChange(self.clock.now_ms, "operator", "leaked")

    async def admin(self) -> Admin:
        peppers = load_pepper(self.file)
        await require_same_pepper(self.store, peppers)
        return Admin(self.store, peppers)

    async def key(self) -> NewKey:
        return await (await self.admin()).create_key("alice", Tier.BASIC, self.change)

    async def second(self) -> None:
        """Advance a second, so that every node has polled."""
        self.clock.now_ms += SECOND_MS
        for node in self.nodes:
            await node.poll(self.clock.now_ms)

    async def rotate(self) -> str:
        return await rotate_pepper(self.store, self.file, self.change)

    async def retire(self) -> list[str]:
        return await retire_peppers(self.store, self.file, self.change)

    async def verify(self, key: NewKey) -> list[str]:
        """The ids under which the nodes know a key."""
        now_ms = self.clock.now_ms
        return [(await node.verify_key(key.text, now_ms)).key_id for node in self.nodes]

    async def left(self) -> list[str]:
        """The keys that retiring the older peppers would revoke."""
        return [
            row.key_id
            for row in await self.store.accounts.keys_under_old_peppers(self.clock.now_ms)
        ]

    async def session(self, node: Accounts, key: NewKey) -> str:
        now_ms = self.clock.now_ms
        made = await node.authenticate(key.text, address=ADDRESS, now_ms=now_ms)
        return f"Bearer {made.token}"


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with database(request.param, tmp_path) as made:
        yield made


@pytest.fixture
async def place(url: str, tmp_path: Path, clock: SteppedClock) -> AsyncIterator[Place]:
    async with Store(url) as store:
        await store.database.upgrade()
        made = Place(store, tmp_path, clock)
        await made.start()
        await (await made.admin()).create_account("alice", made.change)
        yield made


async def test_a_key_is_rehashed_at_its_next_use_and_survives_the_end_of_the_old_pepper(
    place: Place,
) -> None:
    used, unused = await place.key(), await place.key()
    await place.rotate()
    place.copy()
    await place.second()
    assert set(await place.left()) == {used.row.key_id, unused.row.key_id}
    assert await place.verify(used) == [used.row.key_id] * 2
    await place.second()
    assert await place.left() == [unused.row.key_id]
    disabled: list[str] = []
    changed: list[str] = []
    for node in place.nodes:
        node.on_disabled.subscribe(disabled.append)
        node.on_changed.subscribe(lambda key, opened_by: changed.append(key.key_id))
    assert await place.retire() == [unused.row.key_id]
    await place.second()
    assert await place.verify(used) == [used.row.key_id] * 2
    for node in place.nodes:
        with pytest.raises(InvalidApiKey):
            await node.verify_key(unused.text, place.clock.now_ms)
    assert (disabled, changed) == ([], [unused.row.key_id] * 2)  # the gateway closes its sockets
    assert await place.left() == []
    assert load_pepper(place.file).ids == (load_pepper(place.file).current_id,)


async def test_a_revoked_key_gets_a_new_text_under_its_id(place: Place) -> None:
    lost = await place.key()
    await place.rotate()
    place.copy()
    assert await place.retire() == [lost.row.key_id]
    made = await (await place.admin()).rotate_key(lost.row.key_id, place.change, overlap_ms=0)
    await place.second()
    assert await place.verify(made) == [lost.row.key_id] * 2


async def test_every_key_opens_on_every_node_before_the_file_is_copied(place: Place) -> None:
    old = await place.key()
    await place.rotate()
    new = await place.key()
    shutil.copy(place.file, place.files[0])
    await place.second()
    one, two = place.nodes
    for _ in range(2):  # before and after the first node has rehashed it
        assert await place.verify(old) == [old.row.key_id] * 2
        await place.second()
    now_ms = place.clock.now_ms
    assert (await one.verify_key(new.text, now_ms)).key_id == new.row.key_id
    with pytest.raises(InvalidApiKey):
        await two.verify_key(new.text, now_ms)
    place.copy()
    await place.second()
    assert await place.verify(new) == [new.row.key_id] * 2


async def test_a_missing_pepper_is_logged_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    made = await place.rotate()
    for _ in range(3):
        await place.second()
    found = [each for each in caplog.records if "lacks the pepper" in each.getMessage()]
    assert len(found) == len(place.nodes)
    assert made in found[0].getMessage()


async def test_connections_from_before_stay_when_their_key_changes(place: Place) -> None:
    """The gateway compares a connection's fingerprint with the texts that open its key."""
    key = await place.key()
    await place.second()
    node = place.nodes[0]
    opened: list[frozenset[bytes]] = []
    node.on_changed.subscribe(lambda _key, opened_by: opened.append(frozenset(opened_by)))
    await place.verify(key)
    before = node.fingerprint(key.text)
    await place.rotate()
    place.copy()
    await place.second()
    await place.verify(key)
    after = node.fingerprint(key.text)
    assert before != after

    async def change(tier: Tier) -> None:
        await (await place.admin()).change_key(key.row.key_id, place.change, tier=tier)
        await place.second()

    await change(Tier.PREMIUM)  # not stored yet
    await change(Tier.DEVELOPER)
    await place.retire()
    await change(Tier.PREMIUM)
    assert all({before, after} <= each for each in opened)
    assert len(opened) == 3
    await (await place.admin()).rotate_key(key.row.key_id, place.change, overlap_ms=0)
    await place.second()
    assert not {before, after} & opened[-1]


async def test_sessions_live_on_until_the_old_pepper_is_retired(place: Place) -> None:
    key = await place.key()
    one, two = place.nodes
    before = await place.session(one, key)
    await place.rotate()
    place.copy()
    await place.second()
    after = await place.session(one, key)
    for node in place.nodes:
        for header in (before, after):
            assert (await node.session(header, place.clock.now_ms)).key.key_id == key.row.key_id
    await place.second()
    await place.retire()
    place.clock.now_ms += 2 * SECOND_MS
    with pytest.raises(SessionExpired):  # before the next poll
        await two.session(before, place.clock.now_ms)
    await place.second()
    with pytest.raises(InvalidSession):
        await two.session(before, place.clock.now_ms)
    assert (await two.session(after, place.clock.now_ms)).key.key_id == key.row.key_id


async def test_peppers_that_follow_each_other_are_all_in_use(place: Place) -> None:
    keys = []
    for _ in range(3):
        keys.append(await place.key())
        await place.rotate()
        place.copy()
        await place.second()
    for key in keys:
        assert await place.verify(key) == [key.row.key_id] * 2
    await place.second()
    assert await place.retire() == []
    await place.second()
    for key in keys:
        assert await place.verify(key) == [key.row.key_id] * 2


async def test_a_key_that_was_rotated_meanwhile_keeps_the_end_of_its_old_text(
    place: Place,
) -> None:
    old = await place.key()
    await place.rotate()
    place.copy()
    await place.second()
    await place.verify(old)  # not stored yet
    new = await (await place.admin()).rotate_key(old.row.key_id, place.change, overlap_ms=5_000)
    await place.second()
    assert await place.verify(old) == await place.verify(new)
    place.clock.now_ms += 5_000
    await place.second()
    with pytest.raises(InvalidApiKey):
        await place.verify(old)
    assert await place.verify(new) == [new.row.key_id] * 2


async def test_a_suspended_key_is_no_use_and_is_revoked(place: Place) -> None:
    key = await place.key()
    admin = await place.admin()
    await admin.move_key(key.row.key_id, "suspend", place.change)
    await place.rotate()
    place.copy()
    await place.second()
    with pytest.raises(ApiKeyDisabled):
        await place.verify(key)
    await place.second()
    assert await place.retire() == [key.row.key_id]


async def test_a_key_made_by_a_command_that_read_the_file_before_is_refused(place: Place) -> None:
    admin = await place.admin()
    await place.rotate()
    await place.retire()
    with pytest.raises(InvalidRequest, match="run the command again"):
        await admin.create_key("alice", Tier.BASIC, place.change)


# A crash between the steps


class Crash(Exception):
    """Simulate the end of the process here."""


async def test_a_rotation_that_ended_after_the_file_goes_on_with_the_same_pepper(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None:
        raise Crash

    key = await place.key()
    before = load_pepper(place.file)
    with monkeypatch.context() as patched:
        patched.setattr(place.store.accounts, "rotate_pepper", crash)
        with pytest.raises(Crash):
            await place.rotate()
    (waiting,) = set(load_pepper(place.file).ids) - set(before.ids)
    await place.start()  # a node starts with the file as it is
    assert await place.verify(key) == [key.row.key_id] * 2
    assert await place.rotate() == waiting


async def test_an_end_that_crashed_before_the_file_is_finished_by_the_next(
    place: Place,
) -> None:
    await place.rotate()
    await place.store.accounts.retire_peppers(place.change)  # and the process ends
    assert len(load_pepper(place.file).ids) == 2
    place.copy()
    await place.start()
    assert await place.retire() == []
    assert len(load_pepper(place.file).ids) == 1


async def test_a_draft_that_was_left_is_not_read(place: Place) -> None:
    place.file.with_name("pepper.0badcafe").write_text("half")
    await place.rotate()
    assert len(load_pepper(place.file).ids) == 2


async def test_the_file_is_changed_by_one_process_at_a_time(place: Place) -> None:
    with changing(place.file), pytest.raises(ConfigError, match="Another command"):
        await place.rotate()
    assert len(load_pepper(place.file).ids) == 1


async def test_the_file_keeps_its_mode_and_its_peppers(place: Place) -> None:
    first = load_pepper(place.file).current
    for _ in range(15):
        await place.rotate()
    assert place.file.stat().st_mode & 0o777 == 0o600
    assert load_pepper(place.file).ids[0] == pepper_id(first)
    with pytest.raises(ConfigError, match="retire the old ones first"):
        await place.rotate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_the_file_stays_the_service_s_when_root_rotates(place: Place) -> None:
    os.chown(place.file, 65534, 65534)
    await place.rotate()
    assert (place.file.stat().st_uid, place.file.stat().st_gid) == (65534, 65534)


async def test_a_prepared_pepper_is_not_used_before_the_rotation(place: Place) -> None:
    prepared = prepare_pepper(place.file, await place.store.accounts.list_peppers())
    assert prepare_pepper(place.file, await place.store.accounts.list_peppers()) == prepared
    place.copy()
    await place.start()
    assert {node.fingerprint("x") for node in place.nodes} == {load_pepper(place.file).digest("x")}
    assert await place.rotate() == prepared


async def test_a_node_without_an_older_pepper_in_use_does_not_start(place: Place) -> None:
    await place.rotate()
    first, second = place.file.read_text().splitlines()
    for text in (first, second):
        place.file.write_text(text)
        with pytest.raises(ConfigError, match="lacks the pepper"):
            await require_same_pepper(place.store, load_pepper(place.file))


async def test_secrets_are_in_no_trail(place: Place) -> None:
    await place.key()
    made = await place.rotate()
    await place.retire()
    rows = await place.store.audit.changes(None, since_ms=0, until_ms=1 << 60, rows_max=99)
    named = {row.action: row.subject for row in rows}
    assert named["rotate_pepper"] == made
    assert {"retire_pepper", "revoke_key_text"} <= named.keys()
    peppers = load_pepper(place.file)
    for text in (repr(rows), repr(peppers), str(peppers)):
        assert peppers.current.hex() not in text


def test_digests_of_the_current_pepper_come_first() -> None:
    peppers = Peppers(b"a" * 32, b"b" * 32)
    assert peppers.digests("x") == [peppers.digest("x")]
