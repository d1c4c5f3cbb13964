"""How Bybit books the events of an account, and what it cannot prove."""

from typing import Final

from onebook.transactions.adapter import Bookkeeping, EventType, Unproven
from onebook.transactions.reconciliation import CheckId

_MOVE_LEFT: Final = (
    "Bybit also books moves that no list has: at an upgrade, to and from bots, copy trading and "
    "other products; or the transfer between users is lost."
)
BOOKS: Final = Bookkeeping(
    trades="spot_orders",
    contracts={"linear": "futures_linear", "inverse": "futures_inverse"},
    tokens="leverage_token_trades",
    trading_wallet="UNIFIED",
    funding_wallet="FUND",
    held=frozenset({"UNIFIED", "FUND"}),
    unheld=Unproven(
        "the closing balance of the wallets CONTRACT, SPOT and OPTION",
        "Their holdings are not read; only their chains are proven.",
    ),
    unproven=(
        (
            EventType.FUTURES,
            Unproven(
                "`closedPnl` of positions without `openFee` and `closeFee`",
                "Bybit did not show them before 2025-06-24; what was gained before fees is "
                "compared instead.",
            ),
        ),
        (
            EventType.LEDGER,
            Unproven(
                "events before the ledger's coverage begins",
                "Bybit no longer shows the books of wallets that an upgrade closed.",
            ),
        ),
    ),
    reasons={
        CheckId.ORDERS: "Their orders are older than the range, or lost: Bybit finds orders by "
        "their creation.",
        CheckId.SETTLEMENTS: "Bybit does not say whether `deliveryRpl` is before fees.",
    }
    | dict.fromkeys(
        (
            CheckId.SPOT_FILLS,
            CheckId.FUTURES_FILLS,
            CheckId.TRANSFERS,
            CheckId.DEPOSITS,
            CheckId.WITHDRAWALS,
            CheckId.LEVERAGE_TOKENS,
        ),
        _MOVE_LEFT,
    ),
)
