"""The request of endpoint 10, as clients send it and as `onebook transactions fetch` makes it."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic_core import PydanticCustomError

LIMIT_MAX: Final = 10_000
TIME_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999


def _whole(value: Any) -> Any:
    """Accept a whole number with an empty fraction, such as 1.0, as JSON Schema does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _milliseconds(value: Any) -> Any:
    """Refuse a date or a fraction: clients confuse Unix milliseconds with both."""
    value = _whole(value)
    if value is not None and type(value) is not int:
        raise PydanticCustomError("milliseconds", "not a time")
    return value


def _flag(value: Any) -> Any:
    """Null means absent, as of every field that may be absent."""
    return False if value is None else value


def _words(value: Any) -> Any:
    """The same of a list."""
    return [] if value is None else value


def _plain_name(value: Any) -> Any:
    """A name in the case and spacing that we write."""
    return value.strip().lower() if isinstance(value, str) else value


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

    exchange: ExchangeName = Field(examples=["bybit"])
    """An exchange of `/api/v1/exchanges`."""
    transaction_types: _Words = Field(default=[], examples=[["deposits", "trades"]])
    """Unified and exchange names, freely mixed; none: every type but ledger and holdings."""
    testnet: Flag = False
    """Ask the testnet, with its own credentials."""
    start_time: _Time | None = Field(default=None, json_schema_extra=_TIMES)
    """Oldest time, Unix ms, inclusive; none: 30 days before `end_time`."""
    end_time: _Time | None = Field(default=None, json_schema_extra=_TIMES)
    """Newest time, Unix ms, inclusive; none: now."""
    limit: _Whole | None = Field(
        default=None, json_schema_extra={"minimum": 1, "maximum": LIMIT_MAX}
    )
    """Records in this answer; none: 1,000, or all in a stream."""
    cursor: str | None = None
    """`next_cursor` of the answer before; everything else must stay as it was. None or "": the
    first page."""
    include_raw: Flag = False
    """Add the exchange's own row to each record."""
    verify: Flag = False
    """Compare all that the exchange reports twice: what holds, what does not, what is unproven."""
