"""Validation of the service's messages and answers before they are used.

A shape is a type or a tuple of types; {name: shape} for an object, where "name?" may be absent and
EVERY stands for all names; [shape] for a list; or a function that returns the fault.
"""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from types import NoneType
from typing import Any, NoReturn

from onebook.client.failures import PROTOCOL_ERROR, Unavailable
from onebook.transfers import CoinTransfer, NetworkTransfer, Transferable

EVERY = "*"
NUMBER = (int, Decimal)
MAYBE = (int, Decimal, NoneType)  # null if a side is empty
_NUMBERS = frozenset(NUMBER)
_TEXT = frozenset((str,))
WORDS = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    NUMBER: "a number",
    MAYBE: "a number or null",
    (str, NoneType): "text or null",
    (bool, NoneType): "true, false or null",
    (int, NoneType): "a whole number or null",
}


def exact(text: str | bytes) -> Any:
    """Parse JSON without binary floats.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ArithmeticError:  # from Decimal
        raise ValueError("a number is out of range") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def fault_of(value: Any, shape: Any) -> str | None:
    """Describe the first missing or mistyped part of a value; None if it is valid."""
    if isinstance(shape, dict):
        return _object_fault(value, shape)
    if isinstance(shape, list):
        if type(value) is not list:
            return " is not a list"
        return _first((f"[{at}]", fault_of(each, shape[0])) for at, each in enumerate(value))
    if isinstance(shape, type | tuple):
        known = shape if isinstance(shape, tuple) else (shape,)
        return None if type(value) in known else f" is not {WORDS[shape]}"
    return str(found) if (found := shape(value)) else None


def _object_fault(value: Any, shape: dict[str, Any]) -> str | None:
    if type(value) is not dict:
        return " is not an object"
    if EVERY in shape:
        return _first((f".{name}", fault_of(each, shape[EVERY])) for name, each in value.items())
    for name, inner in shape.items():
        field = name.removesuffix("?")
        if field in value:
            if found := fault_of(value[field], inner):
                return f".{field}{found}"
        elif field == name:
            return f".{field} is missing"
    return None


def _first(faults: Any) -> str | None:
    return next((where + fault for where, fault in faults if fault), None)


def require(kind: str, value: Any, shape: Any) -> None:
    """Validate a message of the service.

    Raises:
        Unavailable: The message is invalid.
    """
    if found := fault_of(value, shape):
        sentence = f"The service sent an invalid {kind}: {found.removeprefix('.').strip()}."
        raise Unavailable(PROTOCOL_ERROR, sentence)


def _time_fault(value: Any) -> str | None:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return " is not a time"
    return None


_STATS = {
    "best_bid": MAYBE,
    "best_ask": MAYBE,
    "spread": MAYBE,
    "spread_percent": MAYBE,
    "mid_price": MAYBE,
    "total_bid_volume": MAYBE,
    "total_ask_volume": MAYBE,
    "participating_exchanges": int,
    "crossed": bool,
}
_FILL = {
    "by": str,
    "size": NUMBER,
    "amount": NUMBER,
    "notional": NUMBER,
    "average": MAYBE,
    "worst": MAYBE,
    "complete": bool,
    "uncovered": [str],
}
_PART = {"exchange": str, "amount": NUMBER, "notional": NUMBER}
_FILLS = [{**_FILL, "levels": int, "split": [_PART]}]
_ROUTES = [
    {
        **_FILL,
        **dict.fromkeys(("fees", "net", "extra", "unplaced"), NUMBER),
        "net_average": MAYBE,
        "exact": bool,
        "oldest_ms": (int, NoneType),
        "unknown_rules": [str],
        "split": [{**_PART, "fee": NUMBER, "limit": NUMBER}],
    }
]


_MAYBE_BOOL = (bool, NoneType)
_NETWORK = {"network": str, "deposit": _MAYBE_BOOL, "withdraw": _MAYBE_BOOL, "withdraw_fee": MAYBE}
_COIN = {
    "via": str,
    "read_at_ms": int,
    "deposit": _MAYBE_BOOL,
    "withdraw": _MAYBE_BOOL,
    "networks": [_NETWORK],
}
_TRANSFERABLE = {
    "coin": str,
    "possible": _MAYBE_BOOL,
    "buy": lambda raw: None if raw is None else fault_of(raw, _COIN),
    "sell": lambda raw: None if raw is None else fault_of(raw, _COIN),
}


def transferable_of(raw: Any) -> Transferable:
    """Return whether a coin can be moved, from the JSON of a crossing.

    Raises:
        ValueError: The JSON is invalid.
    """
    if found := fault_of(raw, _TRANSFERABLE):
        raise ValueError(found)
    return Transferable(raw["coin"], raw["possible"], _coin(raw["buy"]), _coin(raw["sell"]))


def _coin(raw: Any) -> CoinTransfer | None:
    if raw is None:
        return None
    networks = tuple(NetworkTransfer(**_known(each, _NETWORK)) for each in raw["networks"])
    return CoinTransfer(**{**_known(raw, _COIN), "networks": networks})


def _known(raw: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    return {name: raw[name] for name in shape}


_CROSSING = {
    "phase": str,
    "buy": str,
    "sell": str,
    "lasted_ms": int,
    **{f"{name}?": NUMBER for name in ("amount", "buy_limit", "sell_limit")},
    **{f"{name}?": NUMBER for name in ("gross", "profit", "percent")},
    "buy_age_ms?": int,
    "sell_age_ms?": int,
    "transferable?": _TRANSFERABLE,
}
_MAYBE_INT = (int, NoneType)
_CONVERSION = {
    "symbol": str,
    "members": [str],
    "exchanges": [str],
    "stale_exchanges": [str],
    "bid": lambda raw: _best_fault(raw),
    "ask": lambda raw: _best_fault(raw),
    "age_ms": _MAYBE_INT,
    "reason": (str, NoneType),
}
_LAYER = {"exchange": _MAYBE_INT, "received": int}
_TIMES = {"top": _LAYER, "depth": _LAYER, "offset": _MAYBE_INT, "error": _MAYBE_INT}


def _fees_fault(value: Any) -> str | None:
    """Describe a fault of fees by exchange; a table may be named instead."""
    return None if value is None or type(value) is str else fault_of(value, {EVERY: str})


_ERROR = {"message": str, "error?": str, "retry_after?": NUMBER}
_DATA: dict[str, Any] = {"data": {}}


def shapes_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes of messages by type, for given subscription options.

    Parts that the client does not read may have any shape.
    """
    fills = _ROUTES if options.get("fees") else _FILLS
    extras = {
        "ages": {EVERY: int},
        "coverage": {EVERY: {"bids": MAYBE, "asks": MAYBE}},
        "fill": {"buy": fills, "sell": fills},
        "crossings": [_CROSSING],
        "times": {"merged": int, "sent": int, "exchanges": {EVERY: _TIMES}},
    }
    levels = [_level_of(split=bool(options.get("split")))]
    requested = {name: shape for name, shape in extras.items() if options.get(name)}
    if options.get("quotes"):
        requested["conversions?"] = [_CONVERSION]
    book = {
        "symbol": str,
        "timestamp": _time_fault,
        "data": {
            "bids": levels,
            "asks": levels,
            "market_stats": _STATS,
            "stale_exchanges": [str],
            **requested,
        },
    }
    short = {"symbol": str, "bid": _best_fault, "ask": _best_fault, **requested}
    update = {**book, "update_number": int, "skipped?": int}
    return {
        "aggregated_orderbook_update": update,
        "aggregated_orderbook_delta": {**update, "previous_update_number": int, "checksum": int},
        "best": short,
        "crossing": short,
        "aggregated_orderbook_data": book,
        "exchange_status": {
            "symbol": str,
            "exchange": str,
            "state": str,
            "reason?": str,
            "detail?": str,
        },
        "aggregated_subscription_response": {
            "symbol": str,
            "exchanges?": [str],
            "number?": int,
            "rejected?": [{"exchange": str, "reason": str}],
            "published_fees?": [_PUBLISHED],
            "options?": {"fees?": _fees_fault},
        },
        "server_shutdown": {"reconnect_in_ms": NUMBER},
        "exchanges_data": _DATA,
        "pairs_data": _DATA,
        "error": _ERROR,
        "authentication_error": _ERROR,
        "subscription_error": _ERROR,
        "data_limit_exceeded": _ERROR,
    }


def _day(value: Any) -> str | None:
    """Check a date, such as 2026-11-27."""
    try:
        date.fromisoformat(value)
    except (TypeError, ValueError):
        return " is not a date"
    return None


_PUBLISHED = {
    **dict.fromkeys(("exchange", "symbol", "percent", "source"), str),
    "date": _day,
    "page?": str,
    "old?": bool,
}


def _level_of(*, split: bool) -> Callable[[Any], str | None]:
    """The shape of a level, checked without a call per part because most of a message is levels."""

    def fault(raw: Any) -> str | None:
        match raw:
            case {"price": price, "amount": amount, "exchanges": [*names]}:
                amounts = raw.get("amounts")
            case [price, amount]:
                names, amounts = [], None
            case [price, amount, [*parts]]:
                try:
                    names, amounts = [name for name, _ in parts], [part for _, part in parts]
                except (TypeError, ValueError):  # a part is not a pair
                    return " is not a level"
            case _:
                return " is not a level"
        if split if amounts is None else type(amounts) is not list:
            return " is not a level"
        numbers = (price, amount, *(amounts or ()))
        if not (_TEXT.issuperset(map(type, names)) and _NUMBERS.issuperset(map(type, numbers))):
            return " is not a level"
        if amounts is not None and len(amounts) != len(names):
            return " does not have one amount per exchange"
        return None

    return fault


def _best_fault(raw: Any) -> str | None:
    """The shape of the best level of a side; null for an empty one."""
    is_level = type(raw) is list and len(raw) == 2 and _NUMBERS.issuperset(map(type, raw))
    return None if raw is None or is_level else " is not a level"


AUTHENTICATED = {"session_token": str}


FEES = {"fees": {EVERY: str}}
USAGE = {
    "username": str,
    "billing_tier": str,
    "api_key_active": bool,
    "data_usage": {"bytes_used": int, "bytes_limit": int},
    "billing_period": {"reset_date": _time_fault},
}
PAGE = {
    "transactions": [{}],
    "coverage": [{"transaction_type": str, "complete": bool, "reason": (str, NoneType)}],
    "errors": [{"message": str}],
    "partial": bool,
    "next_cursor": (str, NoneType),
    "summary": {},
}
