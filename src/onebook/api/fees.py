"""The taker fees of an API key, used by subscriptions with `fees: "key"`."""

import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
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
from onebook.exchanges.kit.listing import SYMBOL_CHARACTERS_MAX
from onebook.exchanges.kit.published import PUBLISHED_OLD_DAYS
from onebook.fees import FEES_MAX, named_table

router = APIRouter(tags=["fees"])

_EXAMPLE = {"okx": "0.08", "*": "0.1"}
_FEES = "Taker fees in percent by exchange as decimal text, negative for a rebate; `*`: all others."


class KeyFees(AnswerBody):
    """The taker fees of a key."""

    fees: Annotated[dict[str, str], Field(description=_FEES, examples=[_EXAMPLE])]


class StatedFeeBody(AnswerBody):
    """The base taker fee of a pair that the exchange states itself."""

    exchange: str
    symbol: str
    percent: Annotated[str, Field(description="The fee in percent.", examples=["0.4"])]
    source: Annotated[
        Literal["instruments", "page"],
        Field(description="The exchange's list of pairs, read hourly, or a page of its site."),
    ]
    date: Annotated[
        datetime.date, Field(description="The day of that reading, or the date of the page.")
    ]
    page: Annotated[str | None, Field(description="The address of the page.")] = None
    old: Annotated[bool, Field(description=f"Whether that is over {PUBLISHED_OLD_DAYS} days ago.")]


class PublishedFees(AnswerBody):
    """The published taker fees of a symbol."""

    symbol: str
    fees: list[StatedFeeBody]
    unknown_fee: Annotated[
        list[str], Field(description="Exchanges that trade it and have no published fee.")
    ]


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


@router.get(
    "/api/v1/fees/published",
    summary="Published taker fees of a symbol",
    responses=errors(
        *NO_SESSION, InvalidRequest, RateLimitExceeded, InternalError, ServiceUnavailable
    ),
)
async def published_fees(
    parts: Parts,
    session: Caller,
    symbol: Annotated[str, Query(max_length=SYMBOL_CHARACTERS_MAX, examples=["BTC/USDT"])],
) -> PublishedFees:
    """Return the fees that subscriptions with `fees: "published"` use.

    Both lists are empty for a symbol that no exchange lists.
    """
    name = symbol.strip().upper()
    known, unknown = parts.published_fees(name)
    fees = [StatedFeeBody(**fee._asdict() | {"page": fee.page or None}) for fee in known]
    return PublishedFees(symbol=name, fees=fees, unknown_fee=list(unknown))


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
