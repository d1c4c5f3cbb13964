"""Every field of every recorded or documented OKX body is in ours, with the same type.

The bodies stay where they are (`ONEBOOK_SAMPLES`). A field of a sample is a path into it, where
places in lists are a star; ours are collected over a whole account.
"""

import asyncio
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory
from onebook.simulator.accounts.okx.keys import REFUSALS
from simulator.accounts.okx_client import ACCOUNT, NOW_MS, OkxClient, okx

ROOT = Path(__file__).parents[3].parent / "shared" / "samples"
SAMPLES = Path(os.environ.get("ONEBOOK_SAMPLES") or ROOT) / "okx"
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded samples are not here")

# Bodies of what the simulated account does not have: not part of a ledger, or of other accounts.
NOT_SERVED = (
    "account_subaccount_balances", "asset_subaccount_balances",
    "asset_subaccount_managed-subaccount-bills", "asset_monthly-statement",
    "asset_deposit-lightning", "asset_withdrawal-lightning", "asset_non-tradable-assets",
    "asset_deposit-withdraw-status", "account_quick-margin-borrow-repay-history",
    "copytrading_", "tradingBot_", "rfq_trades", "sprd_trades", "public_delivery-exercise-history",
    "public_settlement-history", "finance_flexible-loan_interest-accrued",
    "finance_flexible-loan_loan-info",
)  # fmt: skip
# Elements that are objects only where orders with stops are open.
EMPTY_HERE = {
    "account/positions": ("data.*.closeOrderAlgo.*",),
    "users/subaccount/list": ("data.*.frozenFunc.*",),
}
Shape = dict[str, set[str]]


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return {str: "text", dict: "object", list: "list", type(None): "null"}[type(value)]


def shape(value: Any, path: str = "") -> Shape:
    """The types at each path of a body."""
    found: Shape = defaultdict(set)
    found[path].add(kind(value))
    parts = value.items() if isinstance(value, dict) else [("*", each) for each in value] if (
        isinstance(value, list)
    ) else ()  # fmt: skip
    for name, each in parts:
        merge(found, shape(each, f"{path}.{name}".lstrip(".")))
    return found


def merge(into: Shape, other: Shape) -> None:
    for path, kinds in other.items():
        into[path] |= kinds


def endpoint(name: str) -> str:
    """The endpoint of a sample's name."""
    stem = name.split(".")[0].removeprefix("api_v5_").removesuffix("_POST")
    first, _, rest = stem.partition("_")
    return f"{first}/{rest.replace('_', '/')}"


def samples() -> list[str]:
    names = sorted(path.name for path in SAMPLES.glob("api_v5_*.json")) if SAMPLES.is_dir() else []
    return [name for name in names
            if not name.removeprefix("api_v5_").startswith(NOT_SERVED)]  # fmt: skip


async def bodies() -> dict[str, list[Any]]:
    """The responses of the simulated accounts, every page of each list."""
    short = OkxAccount(OkxHistory(NOW_MS - 20 * DAY_MS, NOW_MS, rows=400, seed=11))
    for what in ("position", "easy convert", "one-click repay"):
        short.happen(what, NOW_MS)
    found: dict[str, list[Any]] = defaultdict(list)
    for account in (ACCOUNT, short):
        client = OkxClient(okx(account, limited=False, archive_days=9_999))
        for name in sorted({endpoint(name) for name in samples()}):
            kinds = ("SPOT", "MARGIN", "SWAP", "FUTURES", "OPTION")
            several = [{"instType": each} for each in kinds] if name.startswith("trade/") else [{}]
            if name == "asset/transfer-state":
                recent = max(account.lists["transfers"])
                several = [{"transId": 754_000 + recent.seq}]
            if name == "account/bills-history-archive":
                body = {"year": "2026", "quarter": "Q3"}
                found[name].append((await client.send(name, "POST", body)).json())
                several = [body]
            for fields in several:
                found[name].append((await client.send(name, **fields)).json())
        for days in (0, 100, 700, 1_500):  # rows of several years
            for page in range(4):
                at = NOW_MS - (days + 6 * page) * DAY_MS
                rows = (await client.send("account/bills-archive", end=at)).json()
                found["account/bills"].append(rows)
                found["account/bills-archive"].append(rows)
        await client.http.aclose()
    return found


@pytest.fixture(scope="module")
def ours() -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for name, several in asyncio.run(bodies()).items():
        shapes: Shape = defaultdict(set)
        for body in several:
            merge(shapes, shape(body))
        found[name] = shapes
    return found


@pytest.mark.parametrize("name", samples())
def test_a_sample_has_no_field_that_we_lack(ours: dict[str, Shape], name: str) -> None:
    place = endpoint(name)
    mine, lacking = ours[place], {}
    theirs = shape(json.loads((SAMPLES / name).read_text()))
    for path, kinds in theirs.items():
        if not kinds <= mine.get(path, set()) and not path.startswith(EMPTY_HERE.get(place, ())):
            lacking[path] = (sorted(kinds), sorted(mine.get(path, set())))
    assert lacking == {}


def test_rows_of_real_accounts_have_no_field_that_we_lack(ours: dict[str, Shape]) -> None:
    """Those that ccxt printed in comments: bills, deposits, withdrawals, fills, conversions."""
    places = {
        "fetch_my_trades": "trade/fills-history", "fetch_ledger": "account/bills-archive",
        "fetch_deposits": "asset/deposit-history", "fetch_withdrawals": "asset/withdrawal-history",
        "fetch_transfer": "asset/transfer-state", "fetch_convert_trade": "asset/convert/history",
        "fetch_balance": "account/balance",
    }  # fmt: skip
    checked = 0
    for each in json.loads((SAMPLES / "rows.ccxt-comments.json").read_text()):
        place = places.get(each["printed_in"])
        if place is None:
            continue
        body = each["body"]
        first = body["data"][0]
        if place == "account/balance" and "details" not in first:
            place = "asset/balances"
        if place == "account/bills-archive" and "instType" not in first:
            place = "asset/bills"
        names = {path for path in shape(body) if path.startswith("data.*.")}
        assert names <= ours[place].keys(), each["printed_in"]
        checked += 1
    assert checked > 7


def test_errors_are_those_that_were_seen() -> None:
    seen = {each["body"]["code"]: each for each in json.loads(
        (SAMPLES / "errors.collected.json").read_text())}  # fmt: skip
    for code in ("50119", "50102", "50113"):
        assert REFUSALS[code] == (seen[code]["http"], seen[code]["body"]["msg"])


def test_what_is_not_served_is_named_by_samples() -> None:
    names = [path.name.removeprefix("api_v5_") for path in SAMPLES.glob("api_v5_*.json")]
    assert all(any(name.startswith(each) for name in names) for each in NOT_SERVED)
    assert len(samples()) > 50
