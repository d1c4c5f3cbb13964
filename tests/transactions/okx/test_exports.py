"""Exports of OKX: years of history, of which the exchange's lists have three months."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from databases import migrated
from onebook.model import DAY_MS
from onebook.store import Store
from onebook.transactions.okx import OKX
from transactions.accounting import by_currency, summed
from transactions.bybit_support import NOW_MS
from transactions.okx.exporting import ExportWorld
from transactions.okx.test_accounts import held

EVERYTHING = OKX.entry.types
HOUR_S = 3_600.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store(await migrated(tmp_path)) as opened:
        yield opened


async def test_years_are_exported_to_the_last_digit(store: Store, tmp_path: Path) -> None:
    world = ExportWorld(store, tmp_path / "exports")
    async with world.service() as here:
        records, summary = await here.ask(*EVERYTHING)
        coverage = {each["transaction_type"]: each for each in summary["coverage"]}
        assert coverage["trades"]["reason"] == "export_pending"
        assert NOW_MS - 90 * DAY_MS < coverage["trades"]["from"] < NOW_MS - 80 * DAY_MS
        assert coverage["deposits"]["complete"]
        assert summary["partial"]
        assert {each["error"] for each in summary["errors"]} == {"export_pending"}
        assert min(each["timestamp"] for each in records) < NOW_MS - 700 * DAY_MS
        await here.settled()
        world.time.passed_s += HOUR_S
        records, summary = await here.ask(*EVERYTHING, verify=True)
    assert summary["errors"] == []
    assert not summary["partial"]
    assert all(each["complete"] for each in summary["coverage"])
    truth = held(world.account)
    assert summed(records) == by_currency(truth)
    assert summary["verification"]["holds"] is True
    posts = world.api.posts()
    assert len(posts) == len({(each["year"], each["quarter"]) for each in posts}) == 9
