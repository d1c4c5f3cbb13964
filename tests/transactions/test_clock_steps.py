"""The wall clock steps between two pages: no record is missed or repeated."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api import conftest as api
from api.conftest import NOW_MS, bearer, client_of
from onebook.model import DAY_MS, Tier
from onebook.store import Store
from transactions import conftest as support
from transactions.conftest import CREDENTIALS, PATH

HOUR_MS = DAY_MS // 24
QUERY = {
    "exchange": "bybit",
    "transaction_types": ["trades", "deposits", "withdrawals"],
    "start_time": NOW_MS - 15 * DAY_MS,
    "end_time": NOW_MS - HOUR_MS,
    "limit": 40,
}


@dataclass
class SteppedClock(api.Clock):
    """A wall clock that steps, beside a steady monotonic one."""

    step_ms: int = 0

    def now_ms(self) -> int:
        return self.ms + self.step_ms


async def records(folder: Path, steps_ms: list[int]) -> list[str]:
    """The ids of every record, page by page, with each clock step in turn."""
    async with Store(f"sqlite+aiosqlite:///{folder / 'onebook.db'}") as store:
        await store.database.upgrade()
        node = support.make_node(store)
        assert isinstance(node.clock, SteppedClock)
        await node.vault.put("bybit", "mainnet", CREDENTIALS, now_ms=NOW_MS)
        await node.admin.create_account("someone", node.change())
        key = (await node.admin.create_key("someone", Tier.PREMIUM, node.change())).text
        found, cursor, page = [], None, 0
        async with client_of(node.app) as client:
            while page == 0 or cursor:
                node.clock.step_ms = steps_ms[page % len(steps_ms)]
                node.clock.pass_ms(60_000)  # a rate may be refused for a minute after a step
                page += 1
                body: dict[str, Any] = QUERY | ({"cursor": cursor} if cursor else {})
                answer = await client.post(PATH, json=body, headers=await bearer(client, key))
                assert answer.status_code == 200, answer.text
                answered = answer.json()
                assert not answered.get("errors"), answered["errors"]
                found += [str(record) for record in answered["transactions"]]
                cursor = answered["next_cursor"]
        await node.transactions.close()
    assert page > 2
    return found


@pytest.mark.parametrize(
    "steps_ms",
    [
        pytest.param([0, -HOUR_MS], id="hour-back"),
        pytest.param([0, HOUR_MS], id="hour-forward"),
        pytest.param([0, DAY_MS], id="day-forward"),
        pytest.param([0, DAY_MS, -HOUR_MS, 12 * DAY_MS], id="to-and-fro-and-over-a-month"),
    ],
)
async def test_pages_join_to_the_same_records_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps_ms: list[int]
) -> None:
    monkeypatch.setattr(support, "Clock", SteppedClock)
    for name in ("right", "stepped"):
        (tmp_path / name).mkdir()
    expected = await records(tmp_path / "right", [0])
    assert len(expected) == len(set(expected)) > 80
    assert await records(tmp_path / "stepped", steps_ms) == expected
