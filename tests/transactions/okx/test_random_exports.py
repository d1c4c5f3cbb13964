"""Random accounts of OKX over years: an oracle states every record of lists and exports.

`ONEBOOK_ACCOUNTS=500` reads more accounts than the soak does, `ONEBOOK_ACCOUNTS_FROM=7` begins at
another seed.
"""

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from databases import migrated
from onebook.store import Store
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.export_files import ExportFiles
from onebook.transactions.export_jobs import ExportJobs
from onebook.transactions.okx import OKX
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.accounting import EXACT, Answered
from transactions.bybit_support import CALLER, MASTER_KEY, NOW_MS
from transactions.collecting import SETTINGS, Passing
from transactions.okx.test_random import DAYS, TYPES, check
from transactions.okx_support import KEY
from transactions.oracle.okx.account import RandomOkx
from transactions.oracle.okx.exchange import RandomOkxExchange
from transactions.oracle.okx.exports import RandomOkxExports
from transactions.oracle.rows import DAY_MS

FROM = int(os.environ.get("ONEBOOK_ACCOUNTS_FROM", "0"))
SEEDS = range(FROM, FROM + int(os.environ.get("ONEBOOK_ACCOUNTS", "4")))
AT_ONCE = {1, 2}  # by `make test`: two of the three sizes
TRIES = 40
HOUR_S = 3_600.0


async def asked(
    account: RandomOkx, exchange: RandomOkxExchange, folder: Path, time: Passing, random: Random
) -> Answered:
    """Query again until nothing is pending."""
    clock, exports = time.clock, exchange.exports
    assert exports is not None
    async with Store(await migrated(folder)) as store:
        vault = Vault(store.credentials, MasterKeys(None, value=MASTER_KEY))
        credentials = Credentials(KEY.api_key, KEY.secret, passphrase=KEY.passphrase)
        await vault.put("okx", "mainnet", credentials, now_ms=NOW_MS)
        files = ExportFiles(folder / "exports", bytes_max=1 << 30, days=30)
        jobs = ExportJobs(
            store.exports, store.leases, files, vault, clock=clock,
            sealed=random.random() < 0.3, transport=exports,
        )  # fmt: skip
        adapter = ExchangeAdapter(
            OKX, SETTINGS, clock=clock, transport=exchange, random=Random(7), exports=jobs
        )
        service = Transactions(
            [adapter], vault, cursor_secret=b"a secret", clock=clock, settings=SETTINGS,
            exports=jobs,
        )  # fmt: skip
        try:
            for _ in range(TRIES):
                records, summary = await one(service, account)
                while jobs.working:
                    await asyncio.wait(jobs.working)
                if summary["success"] and not summary["partial"]:
                    assert summary["verification"]["holds"] is True
                    assert all(each["complete"] for each in summary["coverage"])
                    found = Answered()
                    found.add(records, summary)
                    return found
                time.passed_s += random.choice((600, HOUR_S, 3 * HOUR_S))
        finally:
            await service.close()
    raise AssertionError(f"never complete: {summary['errors']}")


async def one(service: Transactions, account: RandomOkx) -> tuple[list[Any], dict[str, Any]]:
    request = TransactionsRequest(
        exchange="okx", transaction_types=list(TYPES), start_time=account.from_ms,
        end_time=NOW_MS, verify=True,
    )  # fmt: skip
    query = service.plan(request, key_id=CALLER, streamed=True)
    chunks = [chunk async for chunk in service.stream(query, key_id=CALLER)]
    *records, summary = map(EXACT, b"".join(chunks).splitlines())
    return records, summary


@pytest.mark.parametrize(
    "seed",
    [pytest.param(each, marks=() if each in AT_ONCE else pytest.mark.soak) for each in SEEDS],
)
async def test_years_are_right_to_the_last_digit(seed: int, tmp_path: Path) -> None:
    account = RandomOkx(
        seed, from_ms=NOW_MS - DAYS * DAY_MS, to_ms=NOW_MS - 1, trading_days=DAYS - 20
    )
    account.fill((150, 40, 80)[seed % 3])
    time = Passing()
    exchange = RandomOkxExchange(account, seed, now_ms=time.now_ms)
    exchange.exports = RandomOkxExports(account, seed, now_ms=time.now_ms)
    found = await asked(account, exchange, tmp_path, time, Random(seed))
    assert exchange.violations == exchange.exports.violations == []
    assert exchange.exports.made
    check(account, found)
