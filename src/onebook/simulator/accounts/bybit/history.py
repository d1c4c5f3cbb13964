"""How much history a simulated account has."""

from msgspec import Struct


class History(Struct, frozen=True):
    """How much an account has seen.

    Args:
        from_ms: When it began.
        to_ms: Until when.
        executions: About how many fills and funding payments.
        deposits: How many deposits, on chain and from other users.
        withdrawals: How many withdrawals.
        transfers: How many transfers between its wallets; a tenth as many to other users.
        seed: What it is made from.
        unified_ms: When it became a unified account; 0: it always was.
        merged_ms: When inverse contracts joined its wallet (UTA 2.0); 0: they always were there.
    """

    from_ms: int
    to_ms: int
    executions: int = 2_000
    deposits: int = 60
    withdrawals: int = 60
    transfers: int = 60
    seed: int = 1
    unified_ms: int = 0
    merged_ms: int = 0
