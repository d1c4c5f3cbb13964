"""The transaction request (endpoint 10), and its checks before any exchange request.

`TransactionsRequest` is its only definition: REST, the WebSocket gateway and `onebook transactions
fetch` all read requests through it. `plan` turns one into a `Query`: sources, range and limit.
"""

import hashlib
from typing import Annotated, Any, Final, Literal

from msgspec import Struct, json
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic_core import PydanticCustomError

from onebook.core import iso
from onebook.errors import (
    InvalidDateRange,
    InvalidExchange,
    InvalidRequest,
    InvalidTransactionTypes,
)
from onebook.model import DAY_MS
from onebook.orderbook import meant
from onebook.transactions.accounts import ALL, AccountName, account_name
from onebook.transactions.adapter import Environment
from onebook.transactions.cursor import Cursors, CursorState
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.windows import floor_ms

LIMIT_MAX: Final = 10_000
TIME_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999
LIMIT_DEFAULT: Final = 1_000
RANGE_DEFAULT_MS: Final = 30 * DAY_MS
EVERYTHING: Final = "everything"
# 1973 in milliseconds, 5138 in seconds: smaller values were meant as seconds.
SECONDS_BELOW: Final = 100_000_000_000
SECONDS_LIKELY: Final = 946_684_800  # 2000-01-01 in seconds


def _whole(value: Any) -> Any:
    """Accept a whole number with a zero fraction, such as 1.0, as JSON Schema does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _milliseconds(value: Any) -> Any:
    """Reject dates and fractions, which clients confuse with Unix milliseconds."""
    value = _whole(value)
    if value is not None and type(value) is not int:
        raise PydanticCustomError("milliseconds", "not a time")
    return value


def _flag(value: Any) -> Any:
    """Treat null as absent, as in every optional field."""
    return False if value is None else value


def _words(value: Any) -> Any:
    """Treat null as absent, for a list."""
    return [] if value is None else value


def _plain_name(value: Any) -> Any:
    """Normalise the case and spacing of a name."""
    return value.strip().lower() if isinstance(value, str) else value


def _names(value: Any) -> Any:
    """Report a wrong type of `exchange` once, not for each type that the field may have."""
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in names):
        raise PydanticCustomError("names", "not a name")
    return value


ExchangeName = Annotated[str, BeforeValidator(_plain_name)]
Flag = Annotated[
    bool,
    BeforeValidator(_flag),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
]
_Words = Annotated[
    list[str],
    BeforeValidator(_words),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
]
_Whole = Annotated[int, BeforeValidator(_whole)]
_Time = Annotated[int, BeforeValidator(_milliseconds)]
_TIMES: Final[dict[str, JsonValue]] = {"minimum": 0, "maximum": TIME_MS_MAX}


class TransactionsRequest(BaseModel):
    """The request of endpoint 10; null means absent. Credentials are the operator's."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", frozen=True)

    exchange: Annotated[ExchangeName | list[ExchangeName], BeforeValidator(_names)] = Field(
        examples=["bybit"]
    )
    """An exchange from `/api/v1/exchanges`, a named account of one (`bybit:treasury`), a list of
    several, or `all` with credentials."""
    transaction_types: _Words = Field(default=[], examples=[["deposits", "trades"]])
    """Unified and exchange-specific names in any mixture; default: all except ledger and
    holdings."""
    testnet: Flag = False
    """Use the testnet, with its own credentials."""
    demo: Flag = False
    """Use the demo account, with its own credentials, on exchanges that have one."""
    start_time: _Time | None = Field(default=None, json_schema_extra=_TIMES)
    """Oldest time, Unix ms, inclusive; default: 30 days before `end_time`."""
    end_time: _Time | None = Field(default=None, json_schema_extra=_TIMES)
    """Newest time, Unix ms, inclusive; default: now."""
    everything: Flag = False
    """Begin at the oldest time that the exchange keeps or that was collected; excludes
    `start_time`."""
    limit: _Whole | None = Field(
        default=None, json_schema_extra={"minimum": 1, "maximum": LIMIT_MAX}
    )
    """Maximum records in this answer; default: 1,000, or all in a stream."""
    cursor: str | None = None
    """`next_cursor` of the previous answer; everything else must stay the same. None or "": the
    first page."""
    include_raw: Flag = False
    """Add the exchange's own row to each record."""
    source: Literal["exchange", "collected"] | None = None
    """`collected`: only collected records, without the exchange; `exchange`: only the exchange;
    default: collected records, and the rest from the exchange."""
    verify: Flag = False
    """Compare everything that the exchange reports twice, and report what agrees, differs or is
    unproven."""


class Query(Struct, frozen=True, kw_only=True):
    """An executable request.

    Args:
        account: The account that is read.
        requested_types: The requested types, or the default.
        sources: The sources that serve them, each once.
        now_ms: Time of the request for the first page of this query, Unix ms.
        from_ms: Oldest record time, inclusive.
        to_ms: Newest record time, inclusive.
        limit: Records of this answer; None for all (streams only).
        state: State after the previous page; None for the first page.
        digest: Identifies the query, the same for all its pages; cursors are bound to it.
        joined: Whether it is part of a query for several accounts.
    """

    request: TransactionsRequest
    account: AccountName
    environment: Environment
    requested_types: tuple[str, ...]
    sources: tuple[str, ...]
    now_ms: int
    from_ms: int
    to_ms: int
    limit: int | None
    state: CursorState | None
    digest: str
    joined: bool = False

    @property
    def name(self) -> str:
        """The account as text, for files and messages."""
        return str(self.account)


def plan(
    request: TransactionsRequest,
    adapter: ExchangeAdapter,
    cursors: Cursors,
    *,
    key_id: str,
    now_ms: int,
    streamed: bool,
    state: CursorState | None = None,
    lenient: bool = False,
    joined: bool = False,
) -> Query:
    """Check a request for one account and convert it to a query.

    Args:
        state: State after the previous page, for one of several accounts.
        lenient: Whether to accept a range that the exchange no longer keeps, because it may have
            been collected.
        joined: Whether it is part of a query for several accounts; the coverage of that answer
            reports what the exchange no longer keeps.

    Raises:
        InvalidTransactionTypes, InvalidDateRange, InvalidRequest: The request cannot be executed.
    """
    types = tuple(request.transaction_types) or adapter.entry.default
    sources = expand(types, adapter)
    digest = digest_of(request, sources)
    if request.cursor:
        state = cursors.open(request.cursor, digest=digest, key_id=key_id)
    if state is None:
        from_ms, to_ms = range_of(request, now_ms)
        if not lenient and not joined:
            refuse_forgotten(to_ms, sources, adapter, now_ms)
    else:
        from_ms, to_ms = state.from_ms, state.to_ms
    return Query(
        request=request,
        account=account_name(one_of(request)),
        environment=environment_of(testnet=request.testnet, demo=request.demo),
        requested_types=types,
        sources=sources,
        now_ms=state.now_ms if state else now_ms,
        from_ms=from_ms,
        to_ms=to_ms,
        limit=limit_of(request, streamed=streamed),
        state=state,
        digest=digest,
        joined=joined,
    )


def environment_of(*, testnet: bool, demo: bool) -> Environment:
    """The environment of a request.

    Raises:
        InvalidRequest: The request names two environments.
    """
    if testnet and demo:
        raise InvalidRequest("Select either testnet or demo, not both.")
    if demo:
        return Environment.DEMO
    return Environment.TESTNET if testnet else Environment.MAINNET


def one_of(request: TransactionsRequest) -> str:
    """The only account of a request.

    Raises:
        InvalidRequest: The request names several accounts.
    """
    if isinstance(request.exchange, str) and request.exchange != ALL:
        return request.exchange
    raise InvalidRequest("Field exchange must name one account here.")


def find(adapters: dict[str, ExchangeAdapter], account: str) -> ExchangeAdapter:
    """The adapter of an account's exchange.

    Raises:
        InvalidExchange: The exchange is not supported.
        InvalidRequest: The account's label is malformed.
    """
    exchange = account_name(account).exchange
    adapter = adapters.get(exchange)
    if adapter is None:
        raise InvalidExchange(
            f"Exchange {exchange[:40]!r} is not supported; supported: {', '.join(adapters)}."
            f"{meant(exchange[:40], adapters)}",
            details={"supported_exchanges": list(adapters)},
        )
    return adapter


def expand(types: tuple[str, ...], adapter: ExchangeAdapter) -> tuple[str, ...]:
    """Return the sources of these types, each once, in the adapter's order."""
    known = adapter.entry.sources_by_type
    for word in types:
        if word not in known:
            raise InvalidTransactionTypes(
                f"{adapter.entry.display} has no transaction type {word[:40]!r}; its types: "
                f"{', '.join(known)}.",
                details={"supported_types": list(known)},
            )
    wanted = {name for word in types for name in known[word]}
    return tuple(name for name in adapter.sources if name in wanted)


def left_out(sources: tuple[str, ...], adapter: ExchangeAdapter) -> tuple[str, ...]:
    """Types that move money but were not requested: without them records do not add up."""
    served = {adapter.sources[name].type for name in sources}
    moving = {adapter.sources[name].type for name in expand(adapter.entry.summing, adapter)}
    return tuple(kind for kind in adapter.entry.types if kind in moving - served)


def range_of(request: TransactionsRequest, now_ms: int) -> tuple[int, int]:
    """The time range of a first page; without bounds the last 30 days."""
    for name, value in (("start_time", request.start_time), ("end_time", request.end_time)):
        if value is not None and not 0 <= value <= TIME_MS_MAX:
            raise InvalidRequest(f"Field {name} must be a time in Unix milliseconds.")
        if value is not None and SECONDS_LIKELY <= value < SECONDS_BELOW:
            raise InvalidRequest(
                f"Field {name} must be a time in Unix milliseconds; {value} looks like seconds, "
                f"which would be {value * 1_000}."
            )
    to_ms = min(now_ms if request.end_time is None else request.end_time, now_ms)
    from_ms = max(0, to_ms - RANGE_DEFAULT_MS) if request.start_time is None else request.start_time
    if from_ms > (now_ms if request.end_time is None else request.end_time):
        raise InvalidDateRange("start_time is after end_time, which defaults to now.")
    if from_ms > now_ms:
        raise InvalidDateRange("start_time is in the future.")
    return from_ms, to_ms


def refuse_forgotten(
    to_ms: int, sources: tuple[str, ...], adapter: ExchangeAdapter, now_ms: int
) -> None:
    """Reject a range that the exchange no longer keeps for any requested type.

    For other ranges, the coverage of the answer reports what is missing.
    """
    oldest_ms = reach_ms(sources, adapter, now_ms)
    if to_ms < oldest_ms:
        raise InvalidDateRange(
            f"{adapter.entry.display} has no records of these types before {iso(oldest_ms)} "
            f"({oldest_ms}), but end_time is earlier.",
            details={"earliest_start_time": oldest_ms},
        )


def reach_ms(sources: tuple[str, ...], adapter: ExchangeAdapter, now_ms: int) -> int:
    """The oldest time that any of these sources still has."""
    return min(floor_ms(adapter.sources[name], now_ms) for name in sources)


def limit_of(request: TransactionsRequest, *, streamed: bool) -> int | None:
    """Maximum records of this answer."""
    if request.limit is None:
        return None if streamed else LIMIT_DEFAULT
    if not 1 <= request.limit <= LIMIT_MAX:
        raise InvalidRequest(f"Field limit must be between 1 and {LIMIT_MAX:,}.")
    return request.limit


def joint_digest(request: TransactionsRequest) -> str:
    """Digest of a request for several accounts; see `digest_of`."""
    environment = environment_of(testnet=request.testnet, demo=request.demo)
    types, start = request.transaction_types, _start_of(request)
    asked = ("joint", request.exchange, environment, start, request.end_time, types)
    text = json.encode(asked if request.source is None else (*asked, request.source))
    return hashlib.sha256(text).hexdigest()[:16]


def digest_of(request: TransactionsRequest, sources: tuple[str, ...]) -> str:
    """Digest of everything that determines an answer's records; cursors are bound to it."""
    environment = environment_of(testnet=request.testnet, demo=request.demo)
    asked = (request.exchange, environment, _start_of(request), request.end_time, sources)
    text = json.encode(asked if request.source is None else (*asked, request.source))
    return hashlib.sha256(text).hexdigest()[:16]


def _start_of(request: TransactionsRequest) -> int | str | None:
    """The requested start; the oldest time of an exchange moves between the pages of a query."""
    return EVERYTHING if request.everything else request.start_time
