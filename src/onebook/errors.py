"""Error classes: a code for programs, a message for people, an HTTP status.

Exceptions of libraries are converted to these where they are caught. Messages never contain keys,
tokens or exchange secrets.
"""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Errors of a write to a full disk; the last one is a limit of the process.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Of REST and the WebSocket: clients of the reference service may send keys of their own.
CREDENTIALS_HELD = "Omit credentials: the service uses those configured by its operator."


class OnebookError(Exception):
    """Base of the errors shown to clients and operators.

    Args:
        message: One sentence that says what to do.
        details: Extra fields of the error body, such as `supported_exchanges`.
        retry_after_s: Seconds until a retry is useful; None if unknown.
        headers: Additional header fields of the HTTP response, such as rate limit headers.
    """

    code = "internal_server_error"
    status = 500

    def __init__(
        self,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}
        self.retry_after_s = retry_after_s
        self.headers = headers or {}


class InternalError(OnebookError):
    """Internal error; it has been logged."""


class UpgradeRequired(OnebookError):
    """The path answers WebSocket upgrades only."""

    code, status = "upgrade_required", 426


class OriginNotAllowed(OnebookError):
    """The operator does not allow web pages of this origin."""

    code, status = "origin_not_allowed", 403


class MissingApiKey(OnebookError):
    """The request contains no usable API key."""

    code, status = "missing_api_key", 400


class InvalidApiKey(OnebookError):
    """The key is unknown or malformed."""

    code, status = "invalid_api_key", 401


class ApiKeyDisabled(OnebookError):
    """The key is suspended or expired."""

    code, status = "api_key_disabled", 401


class MissingAuthorization(OnebookError):
    """No Authorization header."""

    code, status = "missing_authorization", 401


class InvalidSession(OnebookError):
    """The session token is malformed or unknown."""

    code, status = "invalid_session", 401


class SessionExpired(OnebookError):
    """The session is older than 24 hours."""

    code, status = "session_expired", 401


class AccountSuspended(OnebookError):
    """The account or key behind a usage report is suspended."""

    code, status = "account_suspended", 401


class ApiKeyNotFound(OnebookError):
    """The key in the path of /data-usage is unknown; other endpoints return invalid_api_key."""

    code, status = "api_key_not_found", 404


class RateLimitExceeded(OnebookError):
    """Too many requests or attempts."""

    code, status = "rate_limit_exceeded", 429


class DataLimitReached(OnebookError):
    """The monthly allowance of the key is exhausted."""

    code, status = "data_limit_exceeded", 429


class InvalidRequest(OnebookError):
    """Malformed JSON, a wrong type, an unknown option; the message names the field."""

    code, status = "invalid_request", 400


class InvalidExchange(OnebookError):
    """Unknown exchange; `supported_exchanges` lists the known ones."""

    code, status = "invalid_exchange", 400


class InvalidTransactionTypes(OnebookError):
    """Unsupported transaction type; `supported_types` lists those of the exchange."""

    code, status = "invalid_transaction_types", 400


class InvalidDateRange(OnebookError):
    """The start is after the end, or older than the exchange's retention."""

    code, status = "invalid_date_range", 400


class NotFound(OnebookError):
    """No such path."""

    code, status = "not_found", 404


class MethodNotAllowed(OnebookError):
    """The path exists, the method does not."""

    code, status = "method_not_allowed", 405


class RequestTooLarge(OnebookError):
    """The request body is too large."""

    code, status = "request_too_large", 413


class ExchangeFailed(OnebookError):
    """An exchange failed or sent an invalid answer."""

    code, status = "exchange_error", 500


class ServiceUnavailable(OnebookError):
    """The node cannot serve the request at the moment."""

    code, status = "service_unavailable", 503


class HistoryNotFound(OnebookError):
    """The requested moment was not recorded; the message says when recording ended and began."""

    code, status = "history_not_found", 404


class HistoryUnavailable(OnebookError):
    """This node has no history of order books, or cannot read it at the moment."""

    code, status = "history_unavailable", 503


class DatabaseUnavailable(ServiceUnavailable):
    """The database failed or timed out.

    Args:
        reason: What is wrong, for the operator; may name files and hosts, so clients never see it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("The database does not answer; retry shortly.", retry_after_s=1.0)
        self.reason = reason


class ConfigError(OnebookError):
    """An invalid setting; the node does not start. One line per error."""

    code, status = "invalid_config", 500


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file name to an OSError raised by an open file, which has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in DISK_FULL:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def file_problem(error: OSError) -> str:
    """Describe which file is unusable, and why."""
    advice = " Run this as the service's account." if error.errno == errno.EACCES else ""
    return f"Cannot use {error.filename}: {error.strerror}.{advice}"
