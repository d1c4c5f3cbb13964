"""Walks of long ledgers need no more memory than short ones, with their joins and their proof.

`ONEBOOK_BIG=1` reads a million rows of each exchange; the suite reads as many as it has time for.
"""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter, ExchangeDefinition
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.okx import OKX
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import (
    CALLER,
    CLOCK,
    MASTER_KEY,
    NOW_MS,
    SETTINGS,
    MemoryStore,
    loop_now_ms,
    run,
)
from transactions.endless import Endless, EndlessKraken, EndlessOkx
from transactions.okx_support import KEY as OKX_KEY

BIG = os.environ.get("ONEBOOK_BIG") == "1"
ROWS = 1_000_000 if BIG else 16_000
SAMPLES = 8
MIB = 1 << 20
GROWN_MAX = 8 * MIB  # from the middle of the walk to its end
SECRET = "a3Jha2VuLXNlY3JldC1vZi10aGUtdGVzdHM="


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def walked(
    definition: ExchangeDefinition, exchange: Endless, credentials: Credentials
) -> tuple[int, list[int], dict[str, Any]]:
    """Records of a whole account, memory after each eighth of them, and the summary."""
    name = definition.entry.name
    vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
    await vault.put(name, "mainnet", credentials, now_ms=NOW_MS)
    adapter = ExchangeAdapter(definition, SETTINGS, clock=CLOCK, transport=exchange)
    service = Transactions(
        [adapter], vault, cursor_secret=b"a secret", clock=CLOCK, settings=SETTINGS
    )
    types = [kind for kind in definition.entry.types if (name, kind) != ("kraken", "futures")]
    ask = TransactionsRequest(exchange=name, transaction_types=types, start_time=0, verify=True)
    lines, memory, tail = 0, [], b""
    expected = ROWS * 3 // 2  # a line for each row, and a record for each trade
    try:
        query = service.plan(ask, key_id=CALLER, streamed=True)
        async for chunk in service.stream(query, key_id=CALLER):
            before, lines = lines, lines + chunk.count(b"\n")
            if before * SAMPLES // expected != lines * SAMPLES // expected:
                memory.append(resident())
            tail = chunk
    finally:
        await service.close()
    return lines - 1, memory, json.decode(tail.splitlines()[-1])


@pytest.mark.parametrize(
    ("definition", "make", "credentials"),
    [
        (KRAKEN, EndlessKraken, Credentials("krakenkey0000000000", SECRET)),
        (
            OKX,
            EndlessOkx,
            Credentials(OKX_KEY.api_key, OKX_KEY.secret, passphrase=OKX_KEY.passphrase),
        ),
    ],
    ids=["kraken", "okx"],
)
def test_memory_does_not_grow_with_the_ledger(
    definition: ExchangeDefinition, make: Callable[..., Endless], credentials: Credentials
) -> None:
    exchange = make(ROWS, now_ms=loop_now_ms)
    count, memory, summary = run(walked(definition, exchange, credentials))
    print(f"{definition.entry.name}: {count:,} records, {[n // MIB for n in memory]} MiB")
    proof = summary["verification"]
    assert proof["holds"] is True, [c for c in proof["checks"] if c["state"] != "holds"]
    assert not summary["errors"]
    assert count >= ROWS * 3 // 2
    assert len(memory) == SAMPLES
    middle = memory[SAMPLES // 2 - 1]
    assert max(memory[SAMPLES // 2 :]) - middle < GROWN_MAX
