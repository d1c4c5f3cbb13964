"""Bars equal the books that `onebook.history` rebuilds for the same moments."""

import csv
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import onebook
from archive.world import EPOCH_US, NAMES, SYMBOL, World, run
from onebook.archive import player as player_module
from onebook.cli.history import history_app
from onebook.clock import iso_us
from onebook.library import BookUpdate, HistoryMissing


async def recorded(root: Path, seed: int, steps: int = 400) -> World:
    world = World(root, seed)
    await world.recorder.begin()
    world.open()
    await run(world, steps)
    return world


def near(update: BookUpdate, side: str, bps: str) -> Decimal | None:
    mid = update.mid
    if mid is None:
        return None
    levels = update.bids if side == "bid" else update.asks
    return sum(
        (each.amount for each in levels if abs(each.price - mid) <= mid * Decimal(bps) / 10_000),
        Decimal(0),
    )


def cost(update: BookUpdate, direction: Any, amount: str) -> Decimal | None:
    fill = update.fill(direction, amount=amount)
    return fill.notional if fill.complete else None


def verify(row: dict[str, Any], update: BookUpdate) -> None:
    assert row["recorded"]
    assert row["exchanges"] == sum(each.shown for each in update.exchanges.values())
    bid, ask = update.best_bid, update.best_ask
    assert row["bid"] == (bid and bid.price)
    assert row["ask_amount"] == (ask and ask.amount)
    assert (row["mid"], row["spread"]) == (update.mid, update.spread)
    for bps in ("10", "250.5"):
        for side in ("bid", "ask"):
            assert row[f"{side}_depth_{bps}"] == near(update, side, bps)
    for size in ("0.5", "40000"):
        assert row[f"buy_cost_{size}"] == cost(update, "buy", size)
        assert row[f"sell_value_{size}"] == cost(update, "sell", size)
    if bid and ask:
        share = (bid.amount - ask.amount) / (bid.amount + ask.amount)
        assert row["imbalance"] == pytest.approx(float(share))
    else:
        assert row["imbalance"] is None


@pytest.mark.parametrize("every", ["100ms", "7s"])
async def test_a_bar_is_the_book_at_the_end_of_its_interval(
    tmp_path: Path, every: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player_module, "WINDOW_US", 3_000_000)
    monkeypatch.setattr(sys.modules["onebook.library.bars"], "ROWS", 100)
    world = await recorded(tmp_path, 2)
    start = world.live[10][0]
    table = onebook.bars(tmp_path, SYMBOL, every=every, start=start, within=["10", "250.5"],
                         amounts=["0.5", "40000"])  # fmt: skip
    rows = table.to_pylist()
    every_us = 100_000 if every == "100ms" else 7_000_000
    times = [round(each["time"].timestamp() * 1_000_000) for each in rows]
    first = start // every_us * every_us + every_us
    assert times == [*range(first, times[-1] + 1, every_us)]
    assert times[-1] + every_us > world.live[-1][0]
    for at in range(0, len(rows), max(1, len(rows) // 40)):
        update = onebook.history(tmp_path, SYMBOL, at=times[at], depth=500, split=True)
        verify(rows[at], update)
    assert {row["exchanges"] for row in rows} >= {2, 3}
    assert any(row["buy_cost_40000"] is None for row in rows)
    assert any(row["buy_cost_40000"] is not None for row in rows)


async def test_times_that_were_not_recorded_have_no_figures(tmp_path: Path) -> None:
    world = await recorded(tmp_path, 9, 100)
    stopped = world.clock.wall_us()
    world.recorder._stop()
    world.recorder.folder.unlock()
    world.clock.move_to(world.clock.now_s + 20)
    world.recorder = world.new_recorder()
    await world.recorder.begin()
    begun = world.clock.wall_us()
    await run(world, 100)
    rows = onebook.bars(tmp_path, SYMBOL, start=world.live[5][0]).to_pylist()
    lost = [each for each in rows if not each["recorded"]]
    assert len(lost) in (19, 20, 21)
    for row in rows:
        at_us = round(row["time"].timestamp() * 1_000_000)
        assert row["recorded"] is not (stopped < at_us < begun)
        assert row["recorded"] or (row["exchanges"], row["mid"], row["bid_depth_10"]) == (
            0,
            None,
            None,
        )
    end = stopped + 5_000_000
    cut = onebook.bars(tmp_path, SYMBOL, start=world.live[5][0], end=end).to_pylist()
    assert cut == [each for each in rows if each["time"].timestamp() * 1e6 < end]


async def test_one_exchange_and_frames_of_other_packages(tmp_path: Path) -> None:
    world = await recorded(tmp_path, 4)
    start, end = world.live[30][0], world.live[300][0]
    table = onebook.bars(tmp_path, SYMBOL, exchanges="okx", start=start, end=iso_us(end))
    assert set(table["exchanges"].to_pylist()) <= {0, 1}
    assert table["time"][-1].as_py() <= datetime.fromtimestamp(end / 1e6, UTC)
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(table)
    assert frame["mid"].to_list() == table["mid"].to_pylist()
    pandas = pytest.importorskip("pandas")
    assert isinstance(table.to_pandas(), pandas.DataFrame)
    assert len(table.to_pandas()) == len(table)


async def test_the_command_writes_csv_and_parquet(tmp_path: Path) -> None:
    world = await recorded(tmp_path / "history", 6)
    start, end = (iso_us(world.live[at][0] // 1_000 * 1_000) for at in (40, 300))
    expected = onebook.bars(tmp_path / "history", SYMBOL, start=start, end=end, amounts=["2"])
    asked = ["bars", str(tmp_path / "history"), "btc/usdt", "--from", start, "--to", end,
             "--amount", "2"]  # fmt: skip
    written = tmp_path / "bars.parquet"
    result = CliRunner().invoke(history_app, [*asked, "--format", "parquet", "-o", str(written)])
    assert result.exit_code == 0, result.output
    assert pq.read_table(written).equals(expected)
    result = CliRunner().invoke(history_app, asked)
    assert result.exit_code == 0, result.output
    rows = [*csv.DictReader(result.output.splitlines())]
    assert [*rows[0]] == expected.column_names
    assert [each["mid"] for each in rows] == [
        "" if each is None else f"{each:f}" for each in expected["mid"].to_pylist()
    ]
    result = CliRunner().invoke(history_app, [*asked, "--format", "parquet"])
    assert (result.exit_code, "--format parquet needs --output" in result.output) == (2, True)
    result = CliRunner().invoke(history_app, [*asked, "--every", "often"])
    assert (result.exit_code, "every must be like" in result.output) == (2, True)


async def test_invalid_arguments(tmp_path: Path) -> None:
    world = await recorded(tmp_path, 7, 30)
    start = world.live[5][0]
    for every in ("", "1", "0s", "-1s", "1.5s", "25h", "1d"):
        with pytest.raises(ValueError, match="every must be like"):
            onebook.bars(tmp_path, SYMBOL, every=every, start=start)
    with pytest.raises(ValueError, match="distance from the mid"):
        onebook.bars(tmp_path, SYMBOL, within=["0"])
    with pytest.raises(ValueError, match="amounts must be positive decimal text"):
        onebook.bars(tmp_path, SYMBOL, amounts=["much"])
    with pytest.raises(ValueError, match="at most 8 decimal texts"):
        onebook.bars(tmp_path, SYMBOL, within=map(str, range(1, 10)))
    with pytest.raises(TypeError, match="must be a list such as"):
        onebook.bars(tmp_path, SYMBOL, within="10")
    with pytest.raises(HistoryMissing, match="No book of DOGE/USDT was recorded"):
        onebook.bars(tmp_path, "DOGE/USDT")
    with pytest.raises(HistoryMissing, match="recorded again from"):
        onebook.bars(tmp_path, SYMBOL, start=EPOCH_US - 1)
    assert {*NAMES} == {"binance", "kraken", "okx"}
