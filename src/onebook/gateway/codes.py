"""Error codes and close codes of the gateway, and when each is sent."""

from typing import Final, Literal

ErrorType = Literal["error", "subscription_error", "authentication_error"]

# Every error code, the types it comes with, and when.
ERRORS: Final[dict[str, tuple[tuple[ErrorType, ...], str]]] = {
    "authentication_required": (
        ("error",),
        "Anything but authenticate and ping before authenticating; with code 4001 before the "
        "close when no key came in time.",
    ),
    "invalid_api_key": (("authentication_error",), "The key is unknown; close 4002 follows."),
    "api_key_disabled": (
        ("authentication_error",),
        "The key is suspended or expired; close 4002 follows.",
    ),
    "connection_limit_exceeded": (
        ("error",),
        "The key has all the connections of its tier; close 4004 follows.",
    ),
    "service_unavailable": (
        ("error",),
        "The key cannot be verified now; close 4129 follows.",
    ),
    "invalid_message": (("error",), "Not a JSON object, or without a type; nothing is closed."),
    "unknown_type": (("error",), "A type that is not in the list of client messages."),
    "invalid_parameters": (
        ("error", "subscription_error"),
        "A missing field, an unknown option or a bad value; the message names it.",
    ),
    "invalid_symbol": (("error", "subscription_error"), "None of the exchanges trades the symbol."),
    "exchange_unavailable": (
        ("error", "subscription_error"),
        "All of the exchanges are unknown; with retry_after, their lists could not be read yet and "
        "may have the symbol.",
    ),
    "invalid_exchange": (("error",), "get_pairs of an unknown exchange."),
    "no_subscription": (("error",), "The symbol is not subscribed on this connection."),
    "subscription_limit_exceeded": (
        ("error",),
        "The connection has all its subscriptions, or the key all the views of its tier.",
    ),
    "rate_limit_exceeded": (("error",), "Too many messages in a minute."),
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
    CloseCode.PROTOCOL: "The bytes are not RFC 6455.",
    CloseCode.NOT_TEXT: "A binary message; only text is understood.",
    CloseCode.NOT_UTF8: "A text message that is not UTF-8.",
    CloseCode.TOO_BIG: "A message that is too long; before authentication the limit is smaller.",
    CloseCode.AUTHENTICATION_TIMEOUT: "Not authenticated in time.",
    CloseCode.INVALID_KEY: "The key is invalid, suspended or expired.",
    CloseCode.DATA_LIMIT: "The monthly data allowance is used up.",
    CloseCode.CONNECTION_LIMIT: "Too many connections of this key.",
    CloseCode.SLOW: "Nothing was read for too long.",
    CloseCode.FLOOD: "Too many messages after the rate limit.",
    CloseCode.NODE_FULL: "The node cannot serve this now.",
    CloseCode.DRAINING: "The node drains, or receives no books; return at the time given.",
}
