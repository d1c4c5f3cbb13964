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
from onebook.transactions.service import UNIFIED_TYPES

router = APIRouter(tags=["exchanges"], dependencies=[ByAddress], responses=errors(429, 500))


@router.get("/api/v1/exchanges", summary="Exchanges with transactions")
async def exchanges(parts: Parts) -> list[ExchangeEntry]:
    """Answer the exchanges of the transaction interface. Order books have many more: see
    `get_exchanges` of the WebSocket interface.
    """
    return [
        ExchangeEntry(
            exchange_name=exchange.name,
            display_name=exchange.display,
            supported_transaction_types=list(exchange.types),
            requires_passphrase=exchange.requires_passphrase,
            testnet_available=exchange.testnet_available,
            documentation_url=f"/docs#tag-{exchange.name}",
        )
        for exchange in parts.transactions.exchanges
    ]


@router.get("/api/v1/exchanges/credentials", summary="Who needs to bring credentials?")
async def credentials(parts: Parts) -> CredentialAvailability:
    """Answer which exchanges work without credentials of the caller: all of them.

    `testnet_available` is false here although the list of exchanges says true: the specification
    asks for both. It reads: a caller cannot bring testnet credentials.
    """
    names = [exchange.name for exchange in parts.transactions.exchanges]
    facts = CredentialFacts(
        has_internal_credentials=True,
        requires_user_credentials=False,
        can_use_without_api_keys=True,
        testnet_available=False,
    )
    return CredentialAvailability(
        exchanges_with_internal_credentials=names,
        exchanges_requiring_user_credentials=[],
        details=dict.fromkeys(names, facts),
    )


@router.get("/api/v1/transactions/types", summary="Names of transaction types")
async def transaction_types(parts: Parts) -> TransactionTypes:
    """Answer the unified types and those of each exchange; requests may mix them."""
    return TransactionTypes(
        unified_types=dict(UNIFIED_TYPES),
        exchange_specific={e.name: list(e.types) for e in parts.transactions.exchanges},
    )
