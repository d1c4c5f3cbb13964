"""Every field of every recorded or documented Kraken body is in ours, with the same type.

The bodies stay where they are (`ONEBOOK_SAMPLES`). A field of a sample is a path into it, where the
names of rows (ids, assets) and places in lists are a star; ours are collected over a whole account.
"""

import asyncio
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from onebook.simulator.accounts.kraken import KrakenAccount, KrakenHistory
from simulator.accounts.kraken_client import (
    ACCOUNT,
    HISTORY,
    NOW_MS,
    FuturesClient,
    SpotClient,
    futures,
    spot,
)

ROOT = Path(__file__).parents[3].parent / "shared" / "samples"
SAMPLES = Path(os.environ.get("ONEBOOK_SAMPLES") or ROOT) / "kraken"
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded samples are not here")

# The object at each of these paths is keyed by ids or assets.
KEYED = {
    "Ledgers": ("result.ledger",), "QueryLedgers": ("result",), "TradesHistory": ("result.trades",),
    "QueryTrades": ("result",), "ClosedOrders": ("result.closed",), "OpenPositions": ("result",),
    "Balance": ("result",), "BalanceEx": ("result",), "Assets": ("result",),
    "AssetPairs": ("result",), "accounts": ("accounts.cash.balances",
                                            "accounts.flex.currencies", "accounts.fi_*.balances"),
}  # fmt: skip
# What a sample says otherwise, with the reason.
OTHERWISE = {
    "hand-made": {
        "0_private_Ledgers.all.rotki.json": "a balance as number",
        "0_private_Ledgers.kfee.rotki.json": "a balance as number",
        "0_private_Ledgers.deposit.rotki.json": "times as text",
        "0_private_Ledgers.withdrawal.rotki.json": "times as text",
        "0_private_TradesHistory.rotki.json": "times as text, postxid as number",
        "0_private_BalanceEx.jkorf.json": "numbers; the documentation has text",
        "0_private_DepositStatus.settled_then_success.support.json": "two bodies, retold",
        "errors.collected.json": "errors, see test_kraken_server",
    },
}
# Fields that one sample alone has, and no maintained client reads.
NOT_SERVED = {
    "ClosedOrders": {"result.closed.*.trigger", "result.closed.*.refid"},
    "DepositStatus": {"result.[].type"},
    "account-log": {"logs.[].collateral"},
    "accounts": {"accounts.flex.currencies.*.collateralValue"},
    "TradesHistory": set(),
}
Shape = dict[str, set[str]]


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return {str: "text", dict: "object", list: "list", type(None): "null"}[type(value)]


def shape(value: Any, keyed: tuple[str, ...], path: str = "") -> Shape:
    """The types at each path of a body."""
    found: Shape = defaultdict(set)
    found[path].add(kind(value))
    if isinstance(value, dict):
        for name, each in value.items():
            name = "fi_*" if path == "accounts" and name[:3] in ("fi_", "fv_") else name
            name = "*" if path in keyed else name
            merge(found, shape(each, keyed, f"{path}.{name}".lstrip(".")))
    elif isinstance(value, list):
        for each in value:
            merge(found, shape(each, keyed, f"{path}.[]"))
    return found


def merge(into: Shape, other: Shape) -> None:
    for path, kinds in other.items():
        into[path] |= kinds


def endpoint(name: str) -> str:
    """The endpoint of a sample's name."""
    stem = name.split(".")[0]
    for prefix in ("0_private_", "0_public_", "api_history_v3_", "derivatives_api_v3_"):
        stem = stem.removeprefix(prefix)
    return stem.replace("Earn_", "Earn/")


async def bodies() -> dict[str, list[Any]]:
    """The responses of the simulated account, every page of each list."""
    short = KrakenAccount(KrakenHistory(NOW_MS - 30 * 86_400_000, NOW_MS, rows=300, seed=11))
    short.happen("margin position", NOW_MS)
    short.happen("coin withdrawal", NOW_MS)
    found: dict[str, list[Any]] = defaultdict(list)
    for account, history in ((ACCOUNT, HISTORY), (short, short.history)):
        client = SpotClient(spot(account, limited=False))
        for name in ("Ledgers", "TradesHistory", "ClosedOrders"):
            for offset in range(0, history.rows, 50):
                body = await client.send(name, ofs=offset)
                found[name].append(body.json())
        for name in ("DepositStatus", "WithdrawStatus"):
            found[name].append((await client.send(name)).json())
            found[name].append((await client.send(name, cursor="true", limit=3)).json())
            found[name].append((await client.send(name, cursor="true", limit=500)).json())
        for name in ("OpenPositions", "Balance", "BalanceEx", "TradeBalance", "Earn/Allocations",
                     "Earn/Strategies", "GetApiKeyInfo"):  # fmt: skip
            found[name].append((await client.send(name)).json())
        rows = list(found["Ledgers"][-3]["result"]["ledger"])[:5]
        found["QueryLedgers"].append((await client.send("QueryLedgers", id=",".join(rows))).json())
        trades = list(found["TradesHistory"][0]["result"]["trades"])[:20]
        queried = await client.send("QueryTrades", txid=",".join(trades))
        found["QueryTrades"].append(queried.json())
        for name in ("Assets", "AssetPairs", "SystemStatus"):
            found[name].append((await client.http.get(f"/0/public/{name}")).json())
        other = FuturesClient(futures(account, limited=False))
        for path in ("account-log?count=100000", "executions?count=20", "positions"):
            response = await other.send(f"/api/history/v3/{path.partition('?')[0]}",
                                        path.partition("?")[2])  # fmt: skip
            found[path.partition("?")[0]].append(response.json())
        for name in ("accounts", "fills", "openpositions"):
            found[name].append((await other.send(f"/derivatives/api/v3/{name}")).json())
        await client.http.aclose()
        await other.http.aclose()
    return found


@pytest.fixture(scope="module")
def ours() -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for name, several in asyncio.run(bodies()).items():
        shapes: Shape = defaultdict(set)
        for body in several:
            merge(shapes, shape(body, KEYED.get(name, ())))
        found[name] = shapes
    return found


def samples() -> list[str]:
    return sorted(path.name for path in SAMPLES.glob("*.json")) if SAMPLES.is_dir() else []


@pytest.mark.parametrize("name", samples())
def test_a_sample_has_no_field_that_we_lack(ours: dict[str, Shape], name: str) -> None:
    if name in OTHERWISE["hand-made"]:
        pytest.skip(OTHERWISE["hand-made"][name])
    place = endpoint(name)
    mine, lacking = ours[place], {}
    ignored = NOT_SERVED.get(place, set())
    theirs = shape(json.loads((SAMPLES / name).read_text()), KEYED.get(place, ()))
    for path, kinds in theirs.items():
        if path in ignored:
            continue
        if not kinds <= mine.get(path, set()):
            lacking[path] = (sorted(kinds), sorted(mine.get(path, set())))
    assert lacking == {}


def test_every_sample_is_known() -> None:
    assert set(OTHERWISE["hand-made"]) <= set(samples())
    assert len(samples()) > 50
