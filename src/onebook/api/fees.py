"""The taker fees of an API key, used by subscriptions with `fees: "key"`."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from onebook.api.bodies import NO_SESSION, AnswerBody, errors
from onebook.api.edge import Caller, Parts, body_schema, read_body
from onebook.errors import (
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    RequestTooLarge,
    ServiceUnavailable,
)
from onebook.exchanges import known_name
from onebook.fees import FEES_MAX, named_table

router = APIRouter(tags=["fees"])

_EXAMPLE = {"okx": "0.08", "*": "0.1"}
_FEES = "Taker fees in percent by exchange as decimal text, negative for a rebate; `*`: all others."


class KeyFees(AnswerBody):
    """The taker fees of a key."""

    fees: Annotated[dict[str, str], Field(description=_FEES, examples=[_EXAMPLE])]


class FeesRequest(BaseModel):
    """A table that replaces the key's."""

    model_config = ConfigDict(extra="forbid")

    fees: Annotated[
        dict[str, str], Field(max_length=FEES_MAX, description=_FEES, examples=[_EXAMPLE])
    ]


@router.get(
    "/api/v1/fees",
    summary="Taker fees of this key",
    responses=errors(*NO_SESSION, RateLimitExceeded, InternalError, ServiceUnavailable),
)
async def fees(session: Caller) -> KeyFees:
    """Return the table of the session's key; empty until one is set."""
    return KeyFees(fees=session.key.fees)


@router.put(
    "/api/v1/fees",
    summary="Replace the taker fees of this key",
    responses=errors(
        *NO_SESSION,
        InvalidRequest,
        RequestTooLarge,
        RateLimitExceeded,
        InternalError,
        ServiceUnavailable,
    ),
    openapi_extra=body_schema(FeesRequest),
)
async def replace_fees(request: Request, parts: Parts, session: Caller) -> KeyFees:
    """Replace the whole table; an empty one removes it.

    Open subscriptions with `fees: "key"` keep the fees they were opened with.
    """
    asked = await read_body(request, FeesRequest)
    try:
        table = named_table(asked.fees, known_name)
    except ValueError as error:
        raise InvalidRequest(f"fees: {error}") from None
    now_ms = parts.clock.wall_ms()
    return KeyFees(fees=await parts.accounts.change_fees(session.key, table, now_ms))
