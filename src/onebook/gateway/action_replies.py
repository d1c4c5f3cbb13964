"""Replies of the action family: their fields, what they mean, one example each."""

from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType

from onebook.gateway.commands import about
from onebook.gateway.fields import Text, Timestamp

Exchange = Annotated[str, about("The exchange of the action.", "bybit")]
Total = Annotated[int, about("How many records there are.", 250)]
StartTime = Annotated[int, about("Begin of the range, Unix ms.", 1_700_000_000_000)]
EndTime = Annotated[int, about("End of the range, Unix ms.", 1_700_600_000_000)]
Cursor = Annotated[str | None, about("Give it back for the next page; null at the end.")]
Partial = Annotated[bool, about("Whether records are missing; `coverage` says which.")]


class ExchangesResponse(Struct, tag="exchanges_response", forbid_unknown_fields=True):
    """The exchanges of the transaction interface."""

    exchanges: Annotated[
        list[dict[str, Any]], about("Name, transaction types, testnet: endpoint 4 has the same.")
    ]
    timestamp: Timestamp


class ValidationResponse(Struct, tag="validation_response", forbid_unknown_fields=True):
    """Whether the exchange accepts the operator's credentials: the body of endpoint 6."""

    success: Annotated[bool, about("Whether the credentials are accepted.")]
    message: Text
    exchange: Exchange
    timestamp: Timestamp
    error: Annotated[str | UnsetType, about("`authentication_failed` where not.")] = UNSET
    credentials_source: Annotated[str | UnsetType, about("Always `internal`.")] = UNSET
    account_info: Annotated[
        dict[str, Any] | UnsetType, about("Account type, status, what cannot be read.")
    ] = UNSET


class TransactionProgress(Struct, tag="transaction_progress", forbid_unknown_fields=True):
    """How far a transaction subscription has come."""

    exchange: Exchange
    total_transactions: Annotated[int, about("Records so far.", 120)]
    came_to: Annotated[int, about("Everything newer is read, Unix ms.", 1_700_300_000_000)]
    start_time: StartTime
    end_time: EndTime
    waiting_s: Annotated[float, about("Seconds waited for the exchange's rate limit.", 0.0)]
    timestamp: Timestamp


class TransactionResponse(Struct, tag="transaction_response", forbid_unknown_fields=True):
    """The records, newest first: the body of endpoint 10."""

    success: bool
    message: Text
    exchange: Exchange
    total_transactions: Total
    processing_time: Annotated[float, about("Seconds.", 0.8)]
    transactions: Annotated[list[dict[str, Any]], about("The records, as of endpoint 10.")]
    summary: Annotated[dict[str, Any], about("Counts by type, and the range of dates.")]
    filters_applied: Annotated[dict[str, Any], about("The range, types and limit in force.")]
    partial: Partial
    errors: Annotated[list[dict[str, Any]], about("Why a type is not whole.")]
    coverage: Annotated[list[dict[str, Any]], about("What was read of each type.")]
    next_cursor: Cursor


class TransactionComplete(Struct, tag="transaction_complete", forbid_unknown_fields=True):
    """A transaction subscription is over."""

    exchange: Exchange
    success: bool
    total_transactions: Total
    partial: Partial
    next_cursor: Cursor
    timestamp: Timestamp


class TransactionUnsubscribeResponse(
    Struct, tag="transaction_unsubscribe_response", forbid_unknown_fields=True
):
    """How many transaction subscriptions of this connection were stopped."""

    success: Annotated[bool, about("Whether any was.")]
    message: Text
    timestamp: Timestamp
