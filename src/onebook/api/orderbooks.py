"""The merged order book of a past moment, from the history of the node."""

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from onebook.api.bodies import NO_SESSION, errors
from onebook.api.edge import Caller, Parts
from onebook.errors import (
    HistoryNotFound,
    HistoryUnavailable,
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    ServiceUnavailable,
)
from onebook.exchanges.kit.listing import SYMBOL_CHARACTERS_MAX
from onebook.streams import ViewOptions
from onebook.streams.past import moment_us

router = APIRouter(tags=["orderbooks"])

UNUSED: Final = frozenset(("encoding", "interval_ms", "mode", "on"))  # options of updates
LISTS: Final = frozenset(("exchanges", "quotes"))  # separated by commas
OBJECTS: Final = frozenset(("fees", "fill"))  # as JSON; fees may also be a word


def _parameters() -> list[dict[str, Any]]:
    """Describe the options of a view as query parameters."""
    names = "Exchange names separated by commas; `-name` excludes one. Absent: all."
    found = [_parameter("exchanges", names, {"type": "string", "example": "okx,kraken"})]
    schema = msgspec.json.schema_components([ViewOptions])[1]["ViewOptions"]["properties"]
    for name, each in schema.items():
        if name in UNUSED:
            continue
        simple = {key: each[key] for key in ("type", "minimum", "maximum") if key in each}
        text = each["description"]
        text += " As JSON." if name in OBJECTS else ""
        text += " Separated by commas." if name in LISTS else ""
        kind = simple if simple.get("type") in ("integer", "boolean") else {"type": "string"}
        found.append(_parameter(name, text, kind))
    return found


def _parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


_BODY: Final = {
    "description": "The book, as `aggregated_orderbook_data` of the WebSocket.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}


@router.get(
    "/api/v1/orderbooks/{base}/{quote}",
    summary="Merged order book of a past moment",
    response_class=Response,
    responses={
        200: _BODY,
        **errors(
            *NO_SESSION,
            InvalidRequest,
            HistoryNotFound,
            RateLimitExceeded,
            InternalError,
            ServiceUnavailable,
            HistoryUnavailable,
        ),
    },
    openapi_extra={"parameters": _parameters()},
)
async def book_at(
    request: Request,
    parts: Parts,
    session: Caller,
    base: Annotated[str, Path(max_length=SYMBOL_CHARACTERS_MAX, examples=["BTC"])],
    quote: Annotated[str, Path(max_length=SYMBOL_CHARACTERS_MAX, examples=["USDT"])],
    as_of: Annotated[
        str,
        Query(
            max_length=SYMBOL_CHARACTERS_MAX,
            description="ISO 8601, UTC if without a zone, or microseconds since 1970.",
            examples=["2026-11-27T14:03:00"],
        ),
    ],
) -> Response:
    """Return the book as it was shown then: levels, checksum, and each exchange's state and age.

    The node must record a history (`history.dir`).
    """
    query: dict[str, object] = {}
    for name, value in request.query_params.multi_items():
        if name == "as_of":
            continue
        if name in query or name in UNUSED:
            raise InvalidRequest(f"{name}: is given twice, or is no option of a single book.")
        query[name] = _value(name, value)
    symbol = f"{base}/{quote}".upper()
    at_us = moment_us("as_of", as_of)
    found = await parts.book_at(symbol, query, at_us, session.key.fees)
    return Response(found, media_type="application/json")


def _value(name: str, text: str) -> object:
    """Convert the text of a parameter."""
    if name in LISTS:
        names = [each.strip() for each in text.split(",")]
        return "all" if names == ["all"] else names
    if name in OBJECTS and text.startswith("{"):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise InvalidRequest(f"{name}: is not JSON.") from None
    return text
