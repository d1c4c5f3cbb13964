"""Proofs by kind: events against the lines that name them, and a grade for each type."""

from collections.abc import Iterable
from itertools import permutations
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from onebook.transactions.adapter import AdapterEntry, Bookkeeping, CheckId, Environment
from onebook.transactions.reconciliation import (
    CheckState,
    Comparisons,
    ProofCheck,
    ProofGrade,
    Unmatched,
    grade_of,
)
from onebook.transactions.record import (
    Balance,
    Direction,
    Fee,
    Holder,
    Record,
    RecordView,
    Status,
    money,
)
from onebook.transactions.verify import EVENT_MS, Verifier
from transactions.test_record import record

HOUR_MS = 3_600_000
TYPES = ("holdings", "trades", "transfers", "ledger")
ENTRY = AdapterEntry(
    name="lynx",
    display="Lynx",
    types=TYPES,
    sources_by_type={kind: (kind,) for kind in TYPES},
    default=("trades", "transfers"),
    hosts={Environment.MAINNET: {"": "https://lynx.example"}},
    bookkeeping=Bookkeeping(lines_name_events=True),
)
AT_MS = 100 * HOUR_MS


def trade(name: str, *lines: Record, at_ms: int = AT_MS, **more: Any) -> Record:
    return record(
        **{
            "transactionId": name,
            "timestamp": at_ms,
            "type": "trades",
            "kind": "trade",
            "sentCurrency": money("EUR", "100"),
            "receivedCurrency": money("BTC", "2"),
            "fees": (Fee("EUR", "0.5", None, "trading", "fee"),),
            "related": tuple(line.transactionId for line in lines),
        }
        | more
    )


def line(name: str, event: str, coin: str, change: str, *, at_ms: int = AT_MS) -> Record:
    return record(
        transactionId=name,
        timestamp=at_ms,
        type="ledger",
        kind="trade",
        view=RecordView.LEDGER,
        account=Holder("SPOT", None),
        asset=coin,
        balance=Balance(change=change),
        related=(event,),
        related_type="trades",
    )


def events_check(*records: Record, asked: tuple[str, ...] = ("ledger", "trades")) -> Any:
    verifier = Verifier(ENTRY, below_ms=1_000 * HOUR_MS, asked=asked)
    for one in sorted(records, key=lambda each: -each.timestamp):
        verifier.add(one)
    found = verifier.report(cut=False)
    return next(check for check in found.checks if check.name == CheckId.EVENTS), found


EUR, BTC = line("l1", "t", "EUR", "-100.5"), line("l2", "t", "BTC", "2", at_ms=AT_MS - 40)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_an_event_and_its_lines_agree_in_any_order(order: tuple[int, ...]) -> None:
    records = [trade("t", EUR, BTC), EUR, BTC]
    verifier = Verifier(ENTRY, below_ms=1_000 * HOUR_MS, asked=("ledger", "trades"))
    for index in order:
        verifier.add(records[index])
    checks = {check.name: check for check in verifier.report(cut=False).checks}
    assert (checks["events"].state, checks["events"].checked) == (CheckState.HOLDS, 1)


def test_a_line_that_is_missing_is_found_though_the_rest_adds_up() -> None:
    zero = line("l3", "t", "KFEE", "0")
    assert events_check(trade("t", EUR, BTC, zero), EUR, BTC, zero)[0].state == CheckState.HOLDS
    check, _ = events_check(trade("t", EUR, BTC, zero), EUR, BTC)
    assert check.state == CheckState.BROKEN
    assert check.breaks[0].what == "one of its ledger lines is missing"


@pytest.mark.parametrize(
    ("records", "what"),
    [
        ((trade("t", EUR, BTC), EUR), "its amount in BTC is not the ledger's"),
        ((EUR, BTC), "its event is missing"),
        ((trade("t", EUR, BTC),), "it has no ledger line"),
        (
            (trade("t", EUR, BTC, fees=()), EUR, BTC),
            "its amount in EUR is not the ledger's",
        ),
        (
            (trade("t", EUR, BTC, status=Status.CANCELLED), EUR, BTC),
            "its amount in BTC is not the ledger's",
        ),
    ],
)
def test_what_does_not_agree_is_named(records: tuple[Record, ...], what: str) -> None:
    check, found = events_check(*records)
    assert check.state == CheckState.BROKEN
    assert check.breaks[0].what == what
    assert {each.transaction_type: each.grade for each in found.grades}["trades"] == (
        ProofGrade.CONTRADICTED
    )


def test_an_event_that_was_undone_moved_nothing() -> None:
    back = replace(EUR, transactionId="l4", balance=Balance(change="100.5"))
    undone = trade("t", EUR, back, status=Status.FAILED)
    assert events_check(undone, EUR, back)[0].state == CheckState.HOLDS
    pending = trade("u", status=Status.PENDING)
    assert events_check(pending, trade("t", EUR, BTC), EUR, BTC)[0].checked == 1


def test_what_took_an_event_back_may_be_outside_of_the_range() -> None:
    back = replace(EUR, transactionId="l4", balance=Balance(change="100.5"))
    undone = trade("t", EUR, back, status=Status.FAILED)
    late = replace(
        line("l5", "w", "EUR", "7"), kind="withdrawal", direction=Direction.IN
    )  # of a withdrawal before the range
    check, _ = events_check(undone, EUR, late, trade("u", BTC), replace(BTC, related=("u",)))
    assert check.breaks[0].transactionId == "u"  # EUR is missing
    assert check.broken == 1


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_parts_of_an_event_share_its_lines(order: tuple[int, ...]) -> None:
    gain = line("l6", "t", "EUR", "9.5")
    fill = trade("t", gain, sentCurrency=UNSET, receivedCurrency=UNSET)
    closed = trade(
        "t:closed", sentCurrency=UNSET, receivedCurrency=money("EUR", "13"), fees=(),
        related=("t",), related_type="trades",
    )  # fmt: skip
    funding = replace(
        closed, transactionId="t:funding", receivedCurrency=UNSET, sentCurrency=money("EUR", "3")
    )
    records = [gain, fill, closed, funding]
    assert parts_checked([records[index] for index in order]) == (CheckState.HOLDS, 1)
    lost = [records[index] for index in order if index != 2]
    assert parts_checked(lost)[0] == CheckState.BROKEN


def test_parts_that_add_up_to_nothing_may_come_after_their_event() -> None:
    gain = line("l6", "t", "EUR", "-0.5")
    fill = trade("t", gain, sentCurrency=UNSET, receivedCurrency=UNSET)
    closed = trade(
        "t:closed", sentCurrency=UNSET, receivedCurrency=money("EUR", "3"), fees=(),
        related=("t",), related_type="trades",
    )  # fmt: skip
    funding = replace(
        closed, transactionId="t:funding", receivedCurrency=UNSET, sentCurrency=money("EUR", "3")
    )
    assert parts_checked([gain, fill, closed, funding]) == (CheckState.HOLDS, 1)


def parts_checked(records: Iterable[Record]) -> tuple[CheckState, int]:
    verifier = Verifier(ENTRY, below_ms=1_000 * HOUR_MS, asked=("ledger", "trades"))
    for one in records:
        verifier.add(one)
    checks = {check.name: check for check in verifier.report(cut=False).checks}
    return checks["events"].state, checks["events"].checked


def test_a_reader_can_compare_what_the_ledger_cannot() -> None:
    books = Bookkeeping(
        trades="trades", lines_name_events=True, compared=frozenset({CheckId.SPOT_FILLS}),
        without=frozenset({CheckId.ORDERS}), reasons={CheckId.SPOT_FILLS: "Lists forget."},
    )  # fmt: skip
    compared = Comparisons()
    found = compared_check(books, compared)
    assert found.state == CheckState.NOT_CHECKED
    compared.add(CheckId.SPOT_FILLS, None)
    assert compared_check(books, compared).state == CheckState.HOLDS
    compared.add(
        CheckId.SPOT_FILLS, Unmatched(trade("t"), "not listed", "a trade", "none", certain=False)
    )
    found = compared_check(books, compared)
    assert (found.state, found.open, found.reason) == (CheckState.OPEN, 1, "Lists forget.")
    compared.add(CheckId.SPOT_FILLS, Unmatched(trade("u"), "its price", "1", "2"))
    found = compared_check(books, compared)
    assert (found.state, found.broken, found.checked) == (CheckState.BROKEN, 1, 3)


def compared_check(books: Bookkeeping, compared: Comparisons) -> ProofCheck:
    entry = replace(ENTRY, bookkeeping=books)
    verifier = Verifier(entry, below_ms=1_000 * HOUR_MS, asked=("ledger", "trades"))
    checks = {each.name: each for each in verifier.report(cut=False, compared=compared).checks}
    assert CheckId.ORDERS not in checks
    return checks[CheckId.SPOT_FILLS]


def test_an_event_without_a_trace_in_the_ledger_stays_open() -> None:
    check, found = events_check(trade("u"), trade("t", EUR, BTC), EUR, BTC)
    assert (check.state, check.open) == (CheckState.OPEN, 1)
    assert found.holds is None


def test_the_edge_of_the_range_is_not_checked() -> None:
    newest_ms = 1_000 * HOUR_MS - EVENT_MS + 1
    check, _ = events_check(trade("v", EUR, at_ms=newest_ms), trade("t", EUR, BTC), EUR, BTC)
    assert check.state == CheckState.HOLDS


def test_lines_of_types_that_were_not_requested_need_no_event() -> None:
    move = replace(line("l9", "m", "EUR", "-1"), related_type="transfers")
    assert events_check(trade("t", EUR, BTC), EUR, BTC, move)[0].state == CheckState.HOLDS
    without, found = events_check(EUR, BTC, asked=("trades",))
    assert without.state == CheckState.NOT_CHECKED
    assert found.holds is None


def check(name: CheckId, state: CheckState) -> ProofCheck:
    return ProofCheck(name, state, 1, 0, 0, ())


BOOKS = Bookkeeping(trades="trades", withheld={"transfers": "Lynx lists no transfers."})
C, S = CheckId, CheckState


@pytest.mark.parametrize(
    ("kind", "checks", "grade"),
    [
        ("ledger", {C.LEDGER_CHAIN: S.HOLDS, C.HOLDINGS: S.HOLDS}, ProofGrade.PROVEN),
        ("ledger", {C.LEDGER_CHAIN: S.HOLDS, C.HOLDINGS: S.BROKEN}, ProofGrade.CONTRADICTED),
        ("ledger", {C.LEDGER_CHAIN: S.HOLDS, C.SPOT_FILLS: S.BROKEN}, ProofGrade.PROVEN),
        ("ledger", {C.LEDGER_ARITHMETIC: S.HOLDS}, ProofGrade.PARTLY_PROVEN),
        ("trades", {C.LEDGER_CHAIN: S.HOLDS, C.SPOT_FILLS: S.HOLDS}, ProofGrade.PROVEN),
        ("trades", {C.LEDGER_CHAIN: S.BROKEN, C.SPOT_FILLS: S.HOLDS}, ProofGrade.PARTLY_PROVEN),
        (
            "trades",
            {C.LEDGER_CHAIN: S.HOLDS, C.SPOT_FILLS: S.HOLDS, C.ORDERS: S.OPEN},
            ProofGrade.PARTLY_PROVEN,
        ),
        ("trades", {C.ORDERS: S.HOLDS}, ProofGrade.PARTLY_PROVEN),
        ("trades", {C.SUMS: S.HOLDS}, ProofGrade.PROVEN),
        ("trades", {C.SUMS: S.HOLDS, C.READINGS: S.BROKEN}, ProofGrade.CONTRADICTED),
        ("trades", {C.LEDGER_CHAIN: S.HOLDS, C.EVENTS: S.HOLDS}, ProofGrade.PROVEN),
        ("trades", {C.LEDGER_CHAIN: S.HOLDS}, ProofGrade.AS_ANSWERED),
        ("transfers", {C.SUMS: S.HOLDS}, ProofGrade.AS_ANSWERED),
        ("holdings", {C.LEDGER_CHAIN: S.HOLDS, C.HOLDINGS: S.HOLDS}, ProofGrade.PROVEN),
        ("holdings", {C.LEDGER_CHAIN: S.HOLDS, C.EVENTS: S.HOLDS}, ProofGrade.AS_ANSWERED),
    ],
)
def test_grades(kind: str, checks: dict[CheckId, CheckState], grade: ProofGrade) -> None:
    found = grade_of(kind, {name: check(name, state) for name, state in checks.items()}, BOOKS)
    assert found.grade is grade
    assert (found.why is None) == (grade is not ProofGrade.AS_ANSWERED)
    if kind == "transfers":
        assert found.why == "Lynx lists no transfers."
