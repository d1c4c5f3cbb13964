"""How reading one source of an exchange can fail, in our words.

An exchange's own message is never passed on: some repeat the signed string, which holds the API
key.
"""

from enum import StrEnum


class FailureReason(StrEnum):
    """Why, as a code for machines."""

    AUTHENTICATION_FAILED = "authentication_failed"
    PERMISSION_DENIED = "permission_denied"
    RATE_LIMITED = "rate_limited"
    UNREACHABLE = "exchange_unreachable"
    EXCHANGE_ERROR = "exchange_error"
    UNREADABLE = "unreadable_answer"
    BUDGET_SPENT = "retry_budget_spent"
    CIRCUIT_OPEN = "circuit_open"
    NO_CREDENTIALS = "no_credentials"
    NOT_OFFERED = "not_offered"  # this kind of account has no such path
    LOCATION_REFUSED = "location_refused"


class SourceFailed(Exception):
    """A source cannot be read (further).

    Args:
        reason: A code for machines.
        message: A sentence for people; holds nothing of what the exchange said.
        exchange_code: The exchange's own code, where there is one.
        retryable: Whether asking again later may help.
        fatal: Whether no source of this account can be read: wrong key, bound address.
        retry_after_s: How long to wait before asking again, where it is known.
    """

    def __init__(
        self,
        reason: FailureReason,
        message: str,
        *,
        exchange_code: int | None = None,
        retryable: bool = False,
        fatal: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.exchange_code = exchange_code
        self.retryable = retryable
        self.fatal = fatal
        self.retry_after_s = retry_after_s


class CursorGone(Exception):
    """The exchange no longer accepts a cursor that it gave."""


class TooOld(Exception):
    """The exchange says that it no longer keeps what a window asks for."""
