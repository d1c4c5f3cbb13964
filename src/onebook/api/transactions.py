"""Endpoints 6 and 10: are the operator's credentials good, and the transactions themselves.

The service holds the credentials; a request that brings some is refused before anything is asked
of an exchange. Bodies of endpoint 10 are counted in the key's meter. When the client leaves,
everything that was being asked for it stops.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from msgspec import json
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from onebook.accounts import Meter, Session
from onebook.api.bodies import FailedProblem, errors
from onebook.api.context import Caller, Parts, body_schema, read_body
from onebook.errors import DataLimitExceeded
from onebook.transactions.answer import Coverage, ErrorEntry
from onebook.transactions.query import LIMIT_MAX, Ask
from onebook.transactions.record import Record

NDJSON: Final = "application/x-ndjson"
OVER: Final = "The key's monthly data allowance is used up; /api/v1/data-usage says until when."

router = APIRouter(tags=["transactions"])

T = TypeVar("T")


class ValidateRequest(BaseModel):
    """The request of endpoint 6."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    exchange: str = Field(examples=["bybit"])
    """An exchange of `/api/v1/exchanges`."""
    testnet: bool = False
    """Check the testnet credentials."""


class TransactionsRequest(BaseModel):
    """The request of endpoint 10. Credentials are the operator's: send none."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    exchange: str = Field(examples=["bybit"])
    """An exchange of `/api/v1/exchanges`."""
    transaction_types: list[str] = Field(default=[], examples=[["deposits", "trades"]])
    """Unified and exchange names, freely mixed; none: everything but ledger, orders, holdings."""
    testnet: bool = False
    """Ask the testnet, with its own credentials."""
    start_time: int | None = None
    """Oldest time, Unix ms, inclusive; none: 30 days before `end_time`."""
    end_time: int | None = None
    """Newest time, Unix ms, inclusive; none: now."""
    limit: int | None = Field(default=None, json_schema_extra={"minimum": 1, "maximum": LIMIT_MAX})
    """Records in this answer; none: 1,000, or all in a stream."""
    cursor: str | None = None
    """`next_cursor` of the answer before; everything else must stay as it was."""
    include_raw: bool = False
    """Add the exchange's own row to each record."""
    verify: bool = False
    """Prove that nothing is missing: ledger chains, fills against orders, balances."""


def inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """A JSON schema with its references written out, as OpenAPI takes it in the middle."""
    if isinstance(schema, list):
        return [inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return inlined(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
    return {name: inlined(part, definitions) for name, part in schema.items()}


def _schema_of(kind: type) -> Any:
    (reference,), definitions = json.schema_components([kind])
    return inlined(reference, definitions)


def _answer_schema() -> dict[str, Any]:
    text, number, flag = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
    return {
        "type": "object",
        "properties": {
            "success": flag,
            "message": text,
            "exchange": text,
            "total_transactions": {"type": "integer"},
            "processing_time": number,
            "transactions": {"type": "array", "items": _schema_of(Record)},
            "summary": {"type": "object"},
            "filters_applied": {"type": "object"},
            "partial": flag,
            "errors": {"type": "array", "items": _schema_of(ErrorEntry)},
            "coverage": {"type": "array", "items": _schema_of(Coverage)},
            "next_cursor": {"type": ["string", "null"]},
            "verification": {"type": "object"},
        },
        "required": ["success", "message", "exchange", "total_transactions", "transactions"],
    }


_OK: Final = {
    "description": "The records, newest first. As a stream: one record a line, then one summary "
    "line with everything else.",
    "content": {"application/json": {"schema": _answer_schema()}, NDJSON: {"schema": {}}},
}
_VALIDATED: Final = {
    "description": "What the exchange said. `success: false` is an answer too: the credentials "
    "are not good, or there are none.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "success": {"type": "boolean"},
                    "message": {"type": "string"},
                    "exchange": {"type": "string"},
                    "credentials_source": {"type": "string"},
                    "account_info": {"type": "object"},
                    "error": {"type": "string"},
                },
                "required": ["success", "message", "exchange"],
            }
        }
    },
}


@router.post(
    "/api/v1/transactions/validate-credentials",
    summary="Are the operator's credentials good?",
    responses={200: _VALIDATED, **errors(400, 401, 413, 429, 500, 503, model=FailedProblem)},
    openapi_extra=body_schema(ValidateRequest),
)
async def validate_credentials(request: Request, parts: Parts, session: Caller) -> JSONResponse:
    """Ask the exchange whether it accepts the credentials that the service holds."""
    asked = await read_body(request, ValidateRequest)
    found = await until_gone(
        request.receive, parts.transactions.validate(asked.exchange, testnet=asked.testnet)
    )
    body: dict[str, Any] = {
        "success": found.info is not None,
        "message": found.message,
        "exchange": found.exchange,
    }
    if found.info is None:
        return JSONResponse(body | {"error": "authentication_failed"})
    account = {
        "account_type": found.info.account_type,
        "status": found.info.status,
        "read_only": found.info.read_only,
        "unavailable_types": list(found.info.unavailable_types),
    }
    return JSONResponse(body | {"credentials_source": "internal", "account_info": account})


@router.post(
    "/api/v1/transactions",
    summary="Transactions of an exchange account",
    response_class=Response,
    responses={200: _OK, **errors(400, 401, 413, 429, 500, 503, model=FailedProblem)},
    openapi_extra=body_schema(TransactionsRequest),
)
async def transactions(request: Request, parts: Parts, session: Caller) -> Response:
    """Answer transactions in one exact form, newest first, and say what is covered.

    With `Accept: application/x-ndjson` they come as a stream, however many there are.
    """
    asked = await read_body(request, TransactionsRequest)
    await _refuse_over(parts.accounts.meter, session)
    fields = asked.model_dump() | {"transaction_types": tuple(asked.transaction_types)}
    key_id, streamed = session.key.key_id, _wants_lines(request)
    query = parts.transactions.plan(Ask(**fields), key_id=key_id, streamed=streamed)
    if streamed:
        lines = parts.transactions.stream(query, key_id=key_id)
        return await Lines.begun(lines, request.receive, parts.accounts.meter, key_id)
    body = await until_gone(request.receive, parts.transactions.fetch(query, key_id=key_id))
    parts.accounts.meter.add(key_id, len(body))
    return Response(body, media_type="application/json")


async def _refuse_over(meter: Meter, session: Session) -> None:
    await meter.open(session.key)
    if meter.over(session.key.key_id):
        raise DataLimitExceeded(OVER)


def _wants_lines(request: Request) -> bool:
    accepted = ",".join(request.headers.getlist("accept"))
    return any(part.split(";")[0].strip().lower() == NDJSON for part in accepted.split(","))


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of work, unless the client leaves first: then the work is stopped.

    Raises:
        ClientDisconnect: The client left.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    """Come back when the client has left; the body has been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Lines(Response):
    """A body of lines, sent as they come and counted in the meter."""

    media_type = NDJSON

    def __init__(
        self, first: bytes, rest: AsyncGenerator[bytes], meter: Meter, key_id: str
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._first = first
        self._rest = rest
        self._meter = meter
        self._key_id = key_id

    @classmethod
    async def begun(
        cls, lines: AsyncGenerator[bytes], receive: Receive, meter: Meter, key_id: str
    ) -> "Lines":
        """Wait for the first line: until then an error can still be an error status."""
        try:
            first = await until_gone(receive, _first_of(lines))
        except BaseException:
            await lines.aclose()
            raise
        return cls(first, lines, meter, key_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the body until its end, or until the client leaves."""
        async with aclosing(self._rest):
            await until_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._send_part(send, self._first)
        async for part in self._rest:
            if self._meter.over(self._key_id):
                await self._send_part(send, _CUT_OFF)
                break
            await self._send_part(send, part)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_part(self, send: Send, part: bytes) -> None:
        await send({"type": "http.response.body", "body": part, "more_body": True})
        self._meter.add(self._key_id, len(part))


async def _first_of(lines: AsyncGenerator[bytes]) -> bytes:
    return await anext(lines)


_CUT_OFF: Final = (
    json.encode(
        {"type": "summary", "success": False, "error": DataLimitExceeded.code, "message": OVER}
    )
    + b"\n"
)
