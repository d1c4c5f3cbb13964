"""Endpoints 4 to 7 and 10: transactions, capabilities of exchanges, validation of credentials.

Endpoints 4, 5 and 7 need no session.

The operator configures the credentials; a request that contains credentials is refused before any
call to an exchange. Bodies of endpoint 10 count against the key's allowance. When the client
disconnects, its query is cancelled.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from msgspec import json
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from onebook.accounts import Meter, RestSession
from onebook.api.bodies import (
    NO_SESSION,
    CredentialAvailability,
    CredentialFacts,
    ExchangeEntry,
    FailedProblem,
    TransactionTypes,
    errors,
)
from onebook.api.edge import ByAddress, Caller, Parts, body_schema, read_body
from onebook.api.problems import FailureRoute
from onebook.api.services import Services
from onebook.clock import iso_ms
from onebook.errors import (
    DataLimitReached,
    ExchangeFailed,
    InternalError,
    InvalidDateRange,
    InvalidExchange,
    InvalidRequest,
    InvalidTransactionTypes,
    OnebookError,
    RateLimitExceeded,
    RequestTooLarge,
    ServiceUnavailable,
)
from onebook.model import SECOND_MS
from onebook.transactions.adapter import Coverage, ErrorEntry
from onebook.transactions.availability import LOOKUP_INTERVAL_S, Availability
from onebook.transactions.export import FORMS, NDJSON, refuse_rowless
from onebook.transactions.joint import JointQuery
from onebook.transactions.metrics import UNREAD
from onebook.transactions.record import Record
from onebook.transactions.request import ExchangeName, Flag, Query, TransactionsRequest
from onebook.transactions.service import UNIFIED_TYPES

JSON: Final = "application/json"
# Formats of answers: one JSON body, lines, and files
MEDIA_TYPES: Final = {"json": JSON} | {name: form.media_type for name, form in FORMS.items()}
FILES: Final = MEDIA_TYPES.keys() - {"json", "jsonl"}
PIECE_BYTES: Final = 262_144
VARY: Final = {"Vary": "Accept"}
FILE_HEADERS: Final = ("Content-Disposition", "Onebook-Complete", "Onebook-Rows")
OVER: Final = (
    "The key's monthly data allowance is exhausted; see /api/v1/data-usage for the reset date."
)

# States with configured credentials, accepted by the exchange or not.
HELD = frozenset((Availability.OPERATIONAL, Availability.REFUSED, Availability.UNREACHABLE))

capabilities = APIRouter(
    tags=["exchanges"], dependencies=[ByAddress], responses=errors(RateLimitExceeded, InternalError)
)
router = APIRouter(tags=["transactions"], route_class=FailureRoute)
log = logging.getLogger("onebook.api")

T = TypeVar("T")

# Errors of both endpoints
_ALWAYS: Final[tuple[type[OnebookError], ...]] = (
    InvalidRequest,
    InvalidExchange,
    *NO_SESSION,
    RequestTooLarge,
    ExchangeFailed,
    InternalError,
    ServiceUnavailable,
)


@capabilities.get(
    "/api/v1/exchanges", summary="Exchanges with transactions", response_model_exclude_unset=True
)
async def exchanges(parts: Parts) -> list[ExchangeEntry]:
    """List the exchanges of the transaction interface.

    Order books are available for many more: see `get_exchanges` of the WebSocket interface.
    """
    return [ExchangeEntry(**exchange.body()) for exchange in parts.transactions.exchanges]


@capabilities.get(
    "/api/v1/exchanges/credentials",
    summary="Does the service hold credentials?",
    responses=errors(ServiceUnavailable),
)
async def credentials(parts: Parts) -> CredentialAvailability:
    """List the exchanges whose credentials are configured. Callers cannot send credentials.

    The status is 503 until the credentials have been read from the database.

    `testnet_available` is false here, although it is true in the list of exchanges, as the
    specification requires: callers cannot send testnet credentials.
    """
    availability = await parts.transactions.availability.all()
    if Availability.UNKNOWN in availability.values():
        raise ServiceUnavailable(
            "The configured credentials are unknown, because the database does not answer; try "
            "again shortly.",
            retry_after_s=LOOKUP_INTERVAL_S,
        )
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


@capabilities.get("/api/v1/transactions/types", summary="Names of transaction types")
async def transaction_types(parts: Parts) -> TransactionTypes:
    """List the unified types and those of each exchange; requests may mix them."""
    return TransactionTypes(
        unified_types=dict(UNIFIED_TYPES),
        exchange_specific={e.name: list(e.types) for e in parts.transactions.exchanges},
    )


class ValidateRequest(BaseModel):
    """The request of endpoint 6."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    exchange: ExchangeName = Field(examples=["bybit"])
    """An exchange of `/api/v1/exchanges`."""
    testnet: Flag = False
    """Check the testnet credentials."""
    demo: Flag = False
    """Check the credentials of the demo account."""


class TransactionsBody(TransactionsRequest):
    """The request of endpoint 10 over REST."""

    format: str | None = Field(default=None, json_schema_extra={"enum": [*MEDIA_TYPES, None]})
    """Format of the answer; default: by the Accept header. A file contains all records of the
    range. Without `transaction_types`, it includes every type that changes balances, `ledger`
    too."""


def inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Inline the references of a JSON schema, to embed it in OpenAPI."""
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
            "exchange": {"anyOf": [text, {"type": "array", "items": text}]},
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
    "description": (
        "The records, newest first. As a stream: one record per line, then a summary line with "
        "everything else. As a file: the header Onebook-Complete says whether it has all records."
    ),
    "content": {
        JSON: {"schema": _answer_schema()},
        NDJSON: {"schema": {}},
        **{form.media_type: {"schema": {}} for form in FORMS.values()},
    },
}
_VALIDATED: Final = {
    "description": (
        "The exchange's answer. It may be `success: false`, if the credentials are invalid or "
        "missing."
    ),
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
    summary="Are the operator's credentials valid?",
    responses={200: _VALIDATED, **errors(*_ALWAYS, RateLimitExceeded, model=FailedProblem)},
    openapi_extra=body_schema(ValidateRequest),
)
async def validate_credentials(request: Request, parts: Parts, session: Caller) -> JSONResponse:
    """Verify the operator's credentials with the exchange."""
    asked = await read_body(request, ValidateRequest)
    found = await until_gone(
        request.receive,
        parts.transactions.validate(
            asked.exchange, testnet=asked.testnet, demo=asked.demo, key_id=session.key.key_id
        ),
    )
    return JSONResponse(found.body())


@router.post(
    "/api/v1/transactions",
    summary="Transactions of an exchange account",
    response_class=Response,
    responses={
        200: _OK,
        **errors(
            *_ALWAYS,
            InvalidTransactionTypes,
            InvalidDateRange,
            RateLimitExceeded,
            DataLimitReached,
            model=FailedProblem,
        ),
    },
    openapi_extra=body_schema(TransactionsBody),
)
async def transactions(request: Request, parts: Parts, session: Caller) -> Response:
    """Return transactions in one exact format, newest first, with their coverage.

    With `Accept: application/x-ndjson`, any number of records is streamed. `format` or Accept can
    also select a file: CSV, Excel, Parquet, and formats of tax tools.
    """
    asked = await read_body(request, TransactionsBody)
    await _refuse_over(parts, session)
    form = _form_of(request, asked)
    key_id = session.key.key_id
    query = await parts.transactions.prepare(
        asked,
        key_id=key_id,
        streamed=form != "json",
        summing=bool(asked.format) or form in FILES,
    )
    meter, unread_s = parts.accounts.meter, parts.transactions.unread_s
    if form in FILES:
        work = _file(parts, query, form, key_id)
        path, headers = await until_gone(request.receive, work)
        media_type = MEDIA_TYPES[form]
        return Download(path, media_type, headers, meter, key_id, unread_s=unread_s)
    if form == "jsonl":
        lines = parts.transactions.stream(query, key_id=key_id)
        return await Lines.begun(lines, request.receive, meter, key_id, unread_s=unread_s)
    body = await until_gone(request.receive, parts.transactions.fetch(query, key_id=key_id))
    meter.add(key_id, len(body))
    return BodyInPieces(body, media_type=JSON, headers=VARY)


async def _file(
    parts: Services, query: Query | JointQuery, form: str, key_id: str
) -> tuple[Path, dict[str, str]]:
    """Write a file; return it with its headers."""
    ending = FORMS[form].ending
    handle, name = tempfile.mkstemp(ending, "onebook-export-")
    os.close(handle)
    path = Path(name)
    try:
        made = await parts.transactions.export(query, form, path, key_id=key_id)
    except BaseException:
        os.unlink(name)
        raise
    first, last = (iso_ms(at_ms)[:10] for at_ms in (query.from_ms, query.to_ms))
    lacks = "" if made.complete else "-incomplete"  # in the name, for users who do not see headers
    name = query.name.replace(":", "-")
    file = f"{name}-{form}-{first}-{last}{lacks}{ending}"
    values = f'attachment; filename="{file}"', str(made.complete).lower(), str(made.rows)
    return path, dict(zip(FILE_HEADERS, values, strict=True))


async def _refuse_over(parts: Services, session: RestSession) -> None:
    key, meter, now_ms = session.key, parts.accounts.meter, parts.clock.wall_ms()
    await meter.open(key)
    if meter.over(key.key_id):
        resets_at_ms = parts.accounts.resets_at_ms(key, now_ms)
        raise DataLimitReached(
            OVER,
            details={"reset_date": iso_ms(resets_at_ms)},
            retry_after_s=(resets_at_ms - now_ms) / SECOND_MS,
        )


def _form_of(request: Request, asked: TransactionsBody) -> str:
    """Return the format of an answer: `format`, or the client's preference (RFC 9110, 12.5.1).

    At equal weight, a named type is preferred to a wildcard, and a JSON body to lines or files. A
    client that accepts none of the formats gets the JSON body.

    Raises:
        InvalidRequest: The format is unknown, or a field is not allowed for files.
    """
    form = asked.format
    if form is None:
        accepted = ",".join(request.headers.getlist("accept"))
        form = max(MEDIA_TYPES, key=lambda name: _weight(accepted, MEDIA_TYPES[name]))
        if _weight(accepted, MEDIA_TYPES[form])[0] <= 0:
            form = "json"
    elif form not in MEDIA_TYPES:
        raise InvalidRequest(f"Field format must be one of {', '.join(MEDIA_TYPES)}.")
    if form in FILES:
        for name in ("cursor", "limit", "verify", "include_raw"):
            if getattr(asked, name):
                raise InvalidRequest(f"Field {name} is only for JSON and lines, not for files.")
        refuse_rowless(form, asked.transaction_types)
    return form


def _weight(accepted: str, media_type: str) -> tuple[float, int]:
    """Return the weight of a media type in an Accept header, and how precisely it matches."""
    names = ["*/*", media_type.partition("/")[0] + "/*", media_type]
    best = (-1, 0.0)
    for part in accepted.split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        if name in names:
            best = max(best, (names.index(name), _quality(parameters)))
    return best[1], best[0]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await a task; cancel it if the client disconnects first.

    Raises:
        ClientDisconnect: The client has disconnected.
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
    """Return when the client has disconnected; call it after reading the body."""
    while (await receive())["type"] != "http.disconnect":
        pass


class BodyInPieces(Response):
    """A body sent in pieces, because sending many megabytes at once blocks the event loop."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the body."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        body = memoryview(self.body)
        for at in range(0, len(body), PIECE_BYTES):
            piece = bytes(body[at : at + PIECE_BYTES])
            more = at + PIECE_BYTES < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})
            await asyncio.sleep(0)


class Metered(Response):
    """A body sent in parts and counted in the meter.

    A client that reads nothing for `unread_s` is disconnected, because its query occupies a slot of
    the concurrency limit.
    """

    def __init__(
        self,
        media_type: str,
        headers: dict[str, str],
        meter: Meter,
        key_id: str,
        *,
        unread_s: float,
    ) -> None:
        super().__init__(media_type=media_type, headers=VARY | headers)
        del self.headers["content-length"]
        self._meter = meter
        self._key_id = key_id
        self._unread_s = unread_s

    async def _send_start(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

    async def _send_part(self, send: Send, part: bytes) -> None:
        try:
            async with asyncio.timeout(self._unread_s):
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except TimeoutError:
            UNREAD.inc()
            log.warning(
                "Closed a transaction stream: the client read nothing for %g s.", self._unread_s
            )
            raise ClientDisconnect from None
        self._meter.add(self._key_id, len(part))

    async def _send_end(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Download(Metered):
    """A complete file, deleted after sending."""

    def __init__(
        self,
        path: Path,
        media_type: str,
        headers: dict[str, str],
        meter: Meter,
        key_id: str,
        *,
        unread_s: float,
    ) -> None:
        super().__init__(media_type, headers, meter, key_id, unread_s=unread_s)
        self.headers["content-length"] = str(path.stat().st_size)
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file until its end or until the client disconnects."""
        try:
            await until_gone(receive, self._send(send))
        finally:
            self._path.unlink()

    async def _send(self, send: Send) -> None:
        await self._send_start(send)
        with self._path.open("rb") as file:
            while part := file.read(PIECE_BYTES):
                await self._send_part(send, part)
                await asyncio.sleep(0)
        await self._send_end(send)


class Lines(Metered):
    """Streamed NDJSON body."""

    def __init__(
        self,
        first: bytes,
        rest: AsyncGenerator[bytes],
        meter: Meter,
        key_id: str,
        *,
        unread_s: float,
    ) -> None:
        super().__init__(NDJSON, {}, meter, key_id, unread_s=unread_s)
        self._first = first
        self._rest = rest

    @classmethod
    async def begun(
        cls,
        lines: AsyncGenerator[bytes],
        receive: Receive,
        meter: Meter,
        key_id: str,
        *,
        unread_s: float,
    ) -> "Lines":
        """Wait for the first line; until then an error can still set the status."""
        try:
            first = await until_gone(receive, _first_of(lines))
        except BaseException:
            await lines.aclose()
            raise
        return cls(first, lines, meter, key_id, unread_s=unread_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the body until its end or until the client disconnects."""
        async with aclosing(self._rest):
            await until_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await self._send_start(send)
        await self._send_part(send, self._first)
        async for part in self._rest:
            if self._meter.over(self._key_id):
                await self._send_part(send, _CUT_OFF)
                break
            await self._send_part(send, part)
        await self._send_end(send)


async def _first_of(lines: AsyncGenerator[bytes]) -> bytes:
    return await anext(lines)


_CUT_OFF: Final = (
    json.encode(
        {"type": "summary", "success": False, "error": DataLimitReached.code, "message": OVER}
    )
    + b"\n"
)
