"""Endpoints 4, 5 and 7: what the transaction interface can do, without a session."""

from fastapi import APIRouter

from onebook.api.bodies import (
    CredentialAvailability,
    CredentialFacts,
    ExchangeEntry,
    TransactionTypes,
    errors,
)
from onebook.api.context import ByAddress, Parts
from onebook.errors import InternalError, RateLimitExceeded
from onebook.transactions.availability import Availability
from onebook.transactions.service import UNIFIED_TYPES

# Credentials that are set, whether or not the exchange accepts them.
HELD = frozenset((Availability.OPERATIONAL, Availability.REFUSED, Availability.UNREACHABLE))

router = APIRouter(
    tags=["exchanges"], dependencies=[ByAddress], responses=errors(RateLimitExceeded, InternalError)
)


@router.get("/api/v1/exchanges", summary="Exchanges with transactions")
async def exchanges(parts: Parts) -> list[ExchangeEntry]:
    """Answer the exchanges of the transaction interface. Order books have many more: see
    `get_exchanges` of the WebSocket interface.
    """
    return [ExchangeEntry(**exchange.body()) for exchange in parts.transactions.exchanges]


@router.get("/api/v1/exchanges/credentials", summary="Does the service hold credentials?")
async def credentials(parts: Parts) -> CredentialAvailability:
    """Answer for which exchanges the service holds credentials. No caller brings any.

    `testnet_available` is false here although the list of exchanges says true: the specification
    asks for both. It reads: a caller cannot bring testnet credentials.
    """
    availability = await parts.transactions.availability.all()
    held = [name for name, state in availability.items() if state in HELD]
    return CredentialAvailability(
        exchanges_with_internal_credentials=held,
        exchanges_requiring_user_credentials=[],
        details={
            name: CredentialFacts(
                has_internal_credentials=name in held,
                requires_user_credentials=False,
                can_use_without_api_keys=state is Availability.OPERATIONAL,
                testnet_available=False,
            )
            for name, state in availability.items()
        },
    )


@router.get("/api/v1/transactions/types", summary="Names of transaction types")
async def transaction_types(parts: Parts) -> TransactionTypes:
    """Answer the unified types and those of each exchange; requests may mix them."""
    return TransactionTypes(
        unified_types=dict(UNIFIED_TYPES),
        exchange_specific={e.name: list(e.types) for e in parts.transactions.exchanges},
    )
