"""Error codes and close codes of the gateway, and when each is sent."""

from typing import Final, Literal

from onebook.gateway.limits import (
    AUTHENTICATION_TIMEOUT_S,
    KEYLESS_MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    SLOW_TIMEOUT_S,
)

ErrorType = Literal["error", "subscription_error", "authentication_error"]

# Every error code, its message types, and when it is sent.
ERRORS: Final[dict[str, tuple[tuple[ErrorType, ...], str]]] = {
    "authentication_required": (
        ("error",),
        "A message other than authenticate or ping before authentication; also sent before "
        "close 4001, when no key arrived in time.",
    ),
    "invalid_api_key": (("authentication_error",), "The key is unknown; close 4002 follows."),
    "api_key_disabled": (
        ("authentication_error",),
        "The key is suspended or expired; close 4002 follows.",
    ),
    "connection_limit_exceeded": (
        ("error",),
        "The key has reached the connection limit of its tier; close 4004 follows.",
    ),
    "service_unavailable": (
        ("error",),
        "The key cannot be verified at the moment; close 4129 follows.",
    ),
    "invalid_message": (
        ("error",),
        "Not a JSON object, or without a type; the connection stays open.",
    ),
    "unknown_type": (("error",), "Unknown message type."),
    "invalid_parameters": (
        ("error", "subscription_error"),
        "Missing field, unknown option or invalid value; the message names the field.",
    ),
    "invalid_symbol": (
        ("error", "subscription_error"),
        "None of the requested exchanges lists the symbol.",
    ),
    "exchange_unavailable": (
        ("error", "subscription_error"),
        "None of the requested exchanges is known. With retry_after: some instrument lists, which "
        "may contain the symbol, are not loaded yet.",
    ),
    "invalid_exchange": (("error",), "Unknown exchange in get_pairs."),
    "no_subscription": (("error",), "This connection has no subscription to the symbol."),
    "subscription_limit_exceeded": (
        ("error",),
        "The connection has reached its subscription limit, or the key the view limit of its tier.",
    ),
    "rate_limit_exceeded": (("error",), "Too many messages per minute."),
    "history_not_found": (
        ("error",),
        "The requested moment was not recorded; the message says when recording ended and began.",
    ),
    "history_unavailable": (
        ("error",),
        "This node has no history of order books, cannot read it, or too much of it is being read "
        "or played.",
    ),
}

AUTHENTICATION_FAILED: Final = 4001
INVALID_ACTION: Final = 4002
MISSING_PARAMETERS: Final = 4003
EXCHANGE_ERROR: Final = 4004
RATE_LIMIT: Final = 4005

# Numbered errors of actions: code, number, and when each is sent.
ACTION_ERRORS: Final = {
    "authentication_failed": (AUTHENTICATION_FAILED, "Action before authentication."),
    "invalid_action": (INVALID_ACTION, "Unknown action."),
    "missing_parameters": (MISSING_PARAMETERS, "A required field is missing."),
    "exchange_error": (EXCHANGE_ERROR, "The exchange is unreachable."),
    "rate_limit_exceeded": (RATE_LIMIT, "Too many concurrent actions, or too many per minute."),
}


class CloseCode:
    """Close code of a connection; its first two digits say what the client should do."""

    GOING_AWAY = 1001
    PROTOCOL = 1002
    NOT_TEXT = 1003
    NOT_UTF8 = 1007
    TOO_BIG = 1009
    AUTHENTICATION_TIMEOUT = 4001
    INVALID_KEY = 4002
    DATA_LIMIT = 4003
    CONNECTION_LIMIT = 4004
    SLOW = 4108
    FLOOD = 4113
    NODE_FULL = 4129
    DRAINING = 4200


# Close codes for protocol violations.
OFFENCES: Final = frozenset(
    (
        CloseCode.PROTOCOL,
        CloseCode.NOT_TEXT,
        CloseCode.NOT_UTF8,
        CloseCode.TOO_BIG,
        CloseCode.FLOOD,
    )
)

# 40xx: do not reconnect unchanged; 41xx: back off; 42xx: reconnect at the time given.
CLOSE_CODES: Final[dict[int, str]] = {
    CloseCode.PROTOCOL: "The data violates RFC 6455.",
    CloseCode.NOT_TEXT: "A binary message; only text messages are accepted.",
    CloseCode.NOT_UTF8: "A text message is not valid UTF-8.",
    CloseCode.TOO_BIG: f"A message is longer than {MESSAGE_BYTES_MAX >> 10} KiB; before "
    f"authentication, {KEYLESS_MESSAGE_BYTES_MAX >> 10} KiB.",
    CloseCode.AUTHENTICATION_TIMEOUT: f"Not authenticated within {AUTHENTICATION_TIMEOUT_S:g} s.",
    CloseCode.INVALID_KEY: "The key is invalid, suspended or expired.",
    CloseCode.DATA_LIMIT: "The monthly data allowance is exhausted.",
    CloseCode.CONNECTION_LIMIT: "Too many connections of this key.",
    CloseCode.SLOW: f"The client read nothing for {SLOW_TIMEOUT_S:g} s, or did not answer a ping.",
    CloseCode.FLOOD: "The client kept sending after the rate limit was reached.",
    CloseCode.NODE_FULL: "The node cannot serve the request at the moment.",
    CloseCode.DRAINING: "The node shuts down or receives no books; reconnect at the given time.",
}
