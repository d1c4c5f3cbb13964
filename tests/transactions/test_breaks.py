"""Deliberate damage to the answers of each exchange in transit, and the checks that find it.

The healthy accounts come first: in every mode they must give no alarm.
"""

from typing import Any, Final

import pytest

from onebook.model import DAY_MS
from transactions.breaking import Breakable, proof_of, states
from transactions.bybit.breaks import BYBIT_BREAKS
from transactions.bybit_support import NOW_MS
from transactions.kraken.breaks import KRAKEN_BREAKS
from transactions.okx.breaks import OKX_BREAKS

EXCHANGES: Final = {"bybit": BYBIT_BREAKS, "kraken": KRAKEN_BREAKS, "okx": OKX_BREAKS}


def cases(table: str) -> list[Any]:
    """Each exchange with each name of one of its tables."""
    return [
        pytest.param(exchange, name, id=f"{label}: {name}")
        for label, exchange in EXCHANGES.items()
        for name in getattr(exchange, table)
    ]


@pytest.mark.parametrize(("exchange", "name"), cases("healthy"))
def test_a_healthy_account_is_proven(exchange: Breakable, name: str) -> None:
    proof = proof_of(exchange, exchange.healthy[name])
    assert proof["holds"] is True
    assert set(states(proof).values()) == {"holds"}
    assert all(check["checked"] >= 4 and not check["breaks"] for check in proof["checks"])
    assert {each["grade"] for each in proof["grades"]} == {"proven"}
    assert len(proof["unproven"]) >= 5


@pytest.mark.parametrize(
    "days", [3, 31, *(pytest.param(each, marks=pytest.mark.soak) for each in (17, 48))]
)
@pytest.mark.parametrize(("exchange", "name"), cases("parts"))
def test_a_part_of_an_account_gives_no_alarm(exchange: Breakable, name: str, days: int) -> None:
    fields = {"start_time": NOW_MS - (days + 9) * DAY_MS, "end_time": NOW_MS - 9 * DAY_MS}
    account, allowed = exchange.parts[name]
    proof = proof_of(exchange, account, None, **fields)
    assert proof["holds"] in allowed, [c for c in proof["checks"] if c["state"] != "holds"]
    assert states(proof)["holdings"] == "not_checked"  # the range ends before now


def first_of_each_kind() -> list[Any]:
    """Every break; those of a kind that another one represents run in `make soak`.

    Breaks of one kind damage the same lists in the same way and are found by the same checks.
    """
    seen: set[Any] = set()
    found = []
    for label, exchange in EXCHANGES.items():
        for name, (broken, expected) in exchange.breaks.items():
            kind = label, broken.paths, broken.change is None, frozenset(expected)
            marks = pytest.mark.soak if kind in seen else ()
            seen.add(kind)
            found.append(pytest.param(exchange, name, marks=marks, id=f"{label}: {name}"))
    return found


@pytest.mark.parametrize(("exchange", "name"), first_of_each_kind())
def test_a_break_is_found(exchange: Breakable, name: str) -> None:
    broken, expected = exchange.breaks[name]
    proof = proof_of(exchange, exchange.account, broken)
    assert proof["holds"] is False
    found = {name for name, state in states(proof).items() if state == "broken"}
    assert expected <= found
    for check in proof["checks"]:
        assert (check["state"] == "broken") == bool(check["broken"])
        assert len(check["breaks"]) >= bool(check["broken"])


@pytest.mark.parametrize(("exchange", "name"), cases("undecided"))
def test_what_cannot_be_decided_is_not_called_proven(exchange: Breakable, name: str) -> None:
    account, broken, check, why = exchange.undecided[name]
    proof = proof_of(exchange, account, broken)
    assert proof["holds"] is None
    assert states(proof)[check] == "open"
    (found,) = (one for one in proof["checks"] if one["name"] == check)
    assert found["open"] >= 1
    assert found["reason"]
    assert why in found["reason"]


@pytest.mark.parametrize("types", [("deposits",), ("trades",), ("holdings",)])
@pytest.mark.parametrize("label", EXCHANGES)
def test_nothing_compared_is_nothing_proven(label: str, types: tuple[str, ...]) -> None:
    proof = proof_of(EXCHANGES[label], EXCHANGES[label].account, None, *types)
    assert proof["holds"] is None
    assert set(states(proof).values()) == {"not_checked"}
