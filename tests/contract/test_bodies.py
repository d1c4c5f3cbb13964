"""HTTP responses of a hostile server on loopback: each client stays within its limits.

Each client is a process (`bodies.py`), whose peak memory and longest stall are measured.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from contract.bodies import ANSWERS, BODY_BYTES_MAX, JSON
from onebook.client.rest import BODY_BYTES_MAX as SDK_BYTES_MAX
from onebook.transactions.client import BODY_BYTES_MAX as TRANSACTIONS_BYTES_MAX

PROGRAM: Final = Path(__file__).with_name("bodies.py")
PATIENCE_S: Final = 110.0
TOOK_MAX_S: Final = 25.0  # of a loaded machine; without a bound some never end
STALL_MAX_S: Final = 1.5  # inflating 32 times the bound took longer
OVERHEAD_BYTES: Final = 24 << 20  # beside the body itself and its copy


class Client(NamedTuple):
    """A client, its limit, and its messages for a good, an unusable and an oversized body."""

    bytes_max: int
    read: str
    unreadable: str
    too_long: str


CLIENTS: Final = {
    "rest": Client(
        BODY_BYTES_MAX, repr(JSON), "ExchangeFailed: ", f"more than {BODY_BYTES_MAX} bytes"
    ),
    "transactions": Client(
        # The body is read, and is no answer of Bybit.
        *(TRANSACTIONS_BYTES_MAX, "answer is not JSON", "SourceFailed: ", "exceeds the size limit")
    ),
    "sdk": Client(SDK_BYTES_MAX, '{"a": 1}', "ServiceError: no_answer: ", "answer_too_large"),
}
READ: Final = ("plain", "identity", "gzip", "zlib", "length_too_short")
TOO_LONG: Final = ("gzip_bomb", "endless", "endless_of_nothing", "endless_without_length")
# They end with the time of a whole request, which only the caller of `rest` sets.
SLOW: Final = ("single_byte_chunks", "trickle", "trickle_of_headers", "endless_early_hints")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded as Linux does it")
@pytest.mark.timeout(PATIENCE_S + 10)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_hostile_answer_is_one_error_within_its_bounds(client: str) -> None:
    answers = [each for each in ANSWERS if client == "rest" or each not in SLOW]
    done = subprocess.run(
        [sys.executable, PROGRAM, client, *answers],
        env={**os.environ, "PYTHONDEVMODE": "", "PYTHONPATH": str(PROGRAM.parents[1])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["answer"] for each in found] == answers
    wrong = [each for each in found if not as_declared(CLIENTS[client], **each)]
    assert not wrong, "\n".join(map(str, wrong))


def as_declared(
    client: Client, answer: str, outcome: str, bytes: int, took_s: float, stall_s: float
) -> bool:
    """Whether a response was read or refused as expected, within the cost limit."""
    if answer in READ:
        right = client.read in outcome
    elif answer in TOO_LONG:
        right = client.too_long in outcome
    else:
        right = outcome.startswith(client.unreadable)
    small = bytes < 2 * client.bytes_max + OVERHEAD_BYTES
    return right and small and took_s < TOOK_MAX_S and stall_s < STALL_MAX_S
