"""Result of a verification: its checks, their outcomes, and what cannot be proven."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from onebook.core import show
from onebook.transactions import bookkeeping as books
from onebook.transactions.bookkeeping import Unproven
from onebook.transactions.chains import BREAKS_MAX, Break, ChainReport
from onebook.transactions.decimals import subtract
from onebook.transactions.pairs import Left

LEDGER_ARITHMETIC: Final = "ledger_arithmetic"
LEDGER_CHAIN: Final = "ledger_chain"
HOLDINGS: Final = "holdings"
ORDERS: Final = "orders"
SPOT_FILLS: Final = "spot_fills"
FUTURES_FILLS: Final = "futures_fills"
CLOSED_PNL: Final = "closed_pnl"
SETTLEMENTS: Final = "settlements"
DEPOSITS: Final = "deposits"
WITHDRAWALS: Final = "withdrawals"
TRANSFERS: Final = "transfers"
LEVERAGE_TOKENS: Final = "leverage_tokens"
# Each check and what must be asked for together, by the names of `bookkeeping`. A check of what an
# exchange does not have is left out.
CHECKS: Final[Mapping[str, tuple[str, ...]]] = {
    LEDGER_ARITHMETIC: (books.LEDGER,),
    LEDGER_CHAIN: (books.LEDGER,),
    HOLDINGS: (books.LEDGER, books.HOLDINGS),
    ORDERS: (books.TRADES,),
    SPOT_FILLS: (books.LEDGER, books.TRADES),
    FUTURES_FILLS: (books.LEDGER, books.FUTURES),
    CLOSED_PNL: (books.LEDGER, books.FUTURES),
    SETTLEMENTS: (books.LEDGER, books.FUTURES),
    DEPOSITS: (books.LEDGER, books.DEPOSITS),
    WITHDRAWALS: (books.LEDGER, books.WITHDRAWALS),
    TRANSFERS: (books.LEDGER, books.TRANSFERS),
    LEVERAGE_TOKENS: (books.LEDGER, books.TOKENS),
}


class CheckState(StrEnum):
    """What a check came to."""

    HOLDS = "holds"
    BROKEN = "broken"
    OPEN = "open"  # something is left over that the exchange's data cannot decide
    NOT_CHECKED = "not_checked"


class ProofCheck(Struct, frozen=True):
    """One check.

    Args:
        name: One of `CHECKS`.
        checked: How many comparisons were made.
        broken: How many of them fail, and how many stay open; `breaks` names the first hundred.
        reason: Why nothing was checked, or why something stays open.
    """

    name: str
    state: CheckState
    checked: int
    broken: int
    open: int
    breaks: tuple[Break, ...]
    reason: str | None = None


class OrderReport(Struct, frozen=True):
    """Orders against their fills."""

    checked: int
    holds: bool
    breaks: tuple[Break, ...]
    fills_without_order: int


class Verification(Struct, frozen=True):
    """What was proven.

    Args:
        holds: Whether everything that was compared agrees; null where nothing was compared, or
            something stays open.
    """

    holds: bool | None
    checks: tuple[ProofCheck, ...]
    unproven: tuple[Unproven, ...]
    ledger: tuple[ChainReport, ...]
    orders: OrderReport


ALWAYS_UNPROVEN: Final = (
    Unproven(
        "oldest lines of what only the ledger knows (interest, airdrops, conversions, earn), if "
        "they are lost together",
        "Nothing stands before them in their chain, and no other list has their events.",
    ),
    Unproven("orders without a fill", "They leave no trace in fills or books."),
    Unproven(
        "what is pending, cancelled or failed",
        "Only completed events are in the books, and only they are compared.",
    ),
)
LEFT_OVER: Final = "It was lost, or the exchange books what no list has."
OVERFLOWED: Final = "More is left over than can be held; ask for a shorter range."


def opening_unproven(display: str) -> Unproven:
    """Why the opening balances of an exchange are not proven."""
    return Unproven(
        "the opening balances",
        f"{display} says what is held now, never what was; a range that begins with the account "
        "opens with zero.",
    )


def check_of_left(
    name: str, checked: int, left: list[Left], reason: str = "", *, overflowed: bool = False
) -> ProofCheck:
    """A check from what is left over."""
    if overflowed:
        return ProofCheck(name, CheckState.OPEN, checked, 0, 0, (), OVERFLOWED)
    unsure = [one for one in left if not one.sure]
    breaks = [
        Break(o.record.transactionId, o.expected, o.found, _difference(o), o.what)
        for o in sorted(left, key=lambda one: not one.sure)
    ]
    found = check_of_breaks(name, checked + len(left), breaks)
    if not unsure:
        return found
    broken = len(left) - len(unsure)
    state = CheckState.BROKEN if broken else CheckState.OPEN
    return replace(found, state=state, broken=broken, open=len(unsure), reason=reason)


def _difference(left: Left) -> str:
    try:
        return show(subtract(Decimal(left.expected), Decimal(left.found)))
    except ArithmeticError:  # one of them is no figure
        return ""


def check_of_breaks(name: str, checked: int, breaks: list[Break]) -> ProofCheck:
    """A check from its breaks alone."""
    if not checked:
        reason = "There was nothing to compare."
        return ProofCheck(name, CheckState.NOT_CHECKED, 0, 0, 0, (), reason)
    state = CheckState.BROKEN if breaks else CheckState.HOLDS
    return ProofCheck(name, state, checked, len(breaks), 0, tuple(breaks[:BREAKS_MAX]))


def verdict(checks: Iterable[ProofCheck]) -> bool | None:
    """Whether all of it holds: null where nothing was compared, or something stays open."""
    states = {check.state for check in checks}
    if CheckState.BROKEN in states:
        return False
    return True if CheckState.OPEN not in states and CheckState.HOLDS in states else None
