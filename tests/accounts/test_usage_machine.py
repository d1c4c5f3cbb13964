"""The meter against a model, on both databases: nothing flushed is lost, nothing is doubled."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from clocks import SteppedClock
from databases import KINDS, database
from onebook.accounts import Admin, Meter
from onebook.accounts.billing import period_at
from onebook.accounts.keys import key_of
from onebook.errors import ServiceUnavailable
from onebook.model import Tier
from onebook.store import AuditedChange, Store, UsageCell

from .conftest import PEPPER, START_MS
from .test_usage import Faults

EXAMPLES = 12
STEPS = 25


class Machine(RuleBasedStateMachine):
    """One key, one node that may crash, another node, and a line to the store that may break."""

    runner: asyncio.Runner
    store: Store

    @initialize()
    def begin(self) -> None:
        self.clock = SteppedClock(START_MS)
        self.stored: Counter[UsageCell] = Counter()  # what the store must hold
        self.fresh: Counter[UsageCell] = Counter()  # counted, in no batch yet
        self.batch: Counter[UsageCell] = Counter()  # in a batch whose answer has not come
        self.batch_stored = False
        self.faults = Faults(self.store)
        self.runner.run(self._issue_key())
        self.restart()

    async def _issue_key(self) -> None:
        admin, change = Admin(self.store, PEPPER), AuditedChange(START_MS, "", "")
        account = await admin.create_account(str(uuid4()), change)
        made = await admin.create_key(account.username, Tier.BASIC, change)
        self.key = key_of(made.row)

    def restart(self) -> None:
        self.meter = Meter(self.faults, self.clock)  # type: ignore[arg-type]
        self.runner.run(self.meter.open(self.key))

    def cell(self) -> UsageCell:
        period = period_at(self.key.created_at_ms, self.clock.now_ms)
        return UsageCell(self.key.key_id, period.start_ms)

    @rule(count=st.integers(1, 10**12))
    def deliver(self, count: int) -> None:
        self.meter.add(self.key.key_id, count)
        self.fresh[self.cell()] += count

    @rule(fault=st.sampled_from(("", "", "before", "after")))
    def flush(self, fault: str) -> None:
        if fault:
            setattr(self.faults, fault, 1)
        try:
            self.runner.run(self.meter.flush())
        except ServiceUnavailable:
            assert fault
        self.faults.before = self.faults.after = 0
        for _ in range(2):
            if not self.batch:
                self.batch, self.fresh = self.fresh, Counter()
                self.batch_stored = False
            if not self.batch or fault == "before":
                return
            if not self.batch_stored:
                self.stored += self.batch
                self.batch_stored = True
            if fault == "after":
                return
            self.batch = Counter()

    @rule()
    def crash(self) -> None:
        self.fresh, self.batch = Counter(), Counter()
        self.restart()

    @rule()
    def replay_the_last_batch(self) -> None:
        number = (self.meter._node_epoch, self.meter._seq)
        if self.meter._seq and not self.batch:
            replayed = self.store.usage.apply(number, {self.cell(): 5}, 0)
            assert self.runner.run(replayed) is None

    @rule(count=st.integers(1, 10**12))
    def deliver_on_another_node(self, count: int) -> None:
        async def work() -> None:
            other = Meter(self.store, self.clock)
            await other.open(self.key)
            other.add(self.key.key_id, count)
            await other.close()

        self.runner.run(work())
        self.stored[self.cell()] += count

    @rule(before_ms=st.integers(0, 1))
    def roll_over(self, before_ms: int) -> None:
        end_ms = period_at(self.key.created_at_ms, self.clock.now_ms).end_ms
        self.clock.now_ms = end_ms - before_ms

    @invariant()
    def the_store_holds_what_the_model_says(self) -> None:
        cells = {*self.stored, self.cell()}
        for cell in cells:
            assert self.runner.run(self.store.usage.total(cell)) == self.stored[cell]

    @invariant()
    def the_meter_knows_all_that_this_node_delivered(self) -> None:
        here = self.cell()
        mine = self.fresh[here] + self.batch[here]
        used = self.meter.used(self.key.key_id, self.clock.now_ms)
        assert mine <= used <= self.stored[here] + mine


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with database(request.param, tmp_path) as address:
        yield address


def test_usage_is_the_sum_of_what_was_flushed_and_never_more(url: str) -> None:
    async def opened() -> Store:
        store = Store(url)
        await store.database.upgrade()
        return store

    with asyncio.Runner() as runner:
        store = runner.run(opened())
        machine = type("UsageMachine", (Machine,), {"runner": runner, "store": store})
        try:
            run_machine(
                machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
            )
        finally:
            runner.run(store.__aexit__(None, None, None))
