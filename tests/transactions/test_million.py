"""Walks of long ledgers need no more memory than short ones, with their joins and their proof.

`ONEBOOK_BIG=1` reads a million rows of each exchange; the suite reads as many as it has time for.
"""

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter, ExchangeDefinition
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.okx import OKX
from onebook.transactions.reconciliation import Verification
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
DEADLINE_S = 1e7  # in virtual time: a million rows take a key of Kraken a day
GROWN_MAX = 2 * MIB  # from the middle of the walk to its end
SECRET = "a3Jha2VuLXNlY3JldC1vZi10aGUtdGVzdHM="


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def walked(
    definition: ExchangeDefinition, exchange: Endless, credentials: Credentials
) -> tuple[int, list[int], Verification]:
    """Records of a whole account, memory after each eighth of them, and the proof."""
    name = definition.entry.name
    vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
    await vault.put(name, "mainnet", credentials, now_ms=NOW_MS)
    adapter = ExchangeAdapter(definition, SETTINGS, clock=CLOCK, transport=exchange)
    service = Transactions(
        [adapter], vault, cursor_secret=b"a secret", clock=CLOCK, settings=SETTINGS
    )
    types = [kind for kind in definition.entry.types if (name, kind) != ("kraken", "futures")]
    ask = TransactionsRequest(exchange=name, transaction_types=types, start_time=0, verify=True)
    count, memory = 0, []
    expected = ROWS * 3 // 2  # a line for each row, and a record for each trade
    try:
        query = service.plan(ask, key_id=CALLER, streamed=True)
        async with service.run(query, key_id=CALLER) as found:
            async for batch in found.records(DEADLINE_S):
                before, count = count, count + len(batch)
                if before * SAMPLES // expected != count * SAMPLES // expected:
                    memory.append(resident())
            assert found.errors() == []
            proof = found.verification()
    finally:
        await service.close()
    assert proof is not None
    return count, memory, proof


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
    count, memory, proof = run(walked(definition, exchange, credentials))
    print(f"{definition.entry.name}: {count:,} records, {[n // MIB for n in memory]} MiB")
    assert proof.holds is True, [check for check in proof.checks if check.state != "holds"]
    assert count >= ROWS * 3 // 2
    assert len(memory) == SAMPLES
    middle = memory[SAMPLES // 2 - 1]
    assert max(memory[SAMPLES // 2 :]) - middle < GROWN_MAX
