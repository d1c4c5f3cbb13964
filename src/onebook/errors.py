"""Errors: a code for programs, a sentence for people, an HTTP status.

Exceptions of libraries are mapped to these where they are caught. No message ever holds a key, a
token or an exchange secret.
"""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# What a write to a full disk fails with; the last at a limit of the process.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Of REST and the WebSocket: clients of the reference service may send keys of their own.
CREDENTIALS_HELD = "Leave credentials out: the service uses those that its operator keeps."


class OnebookError(Exception):
    """An error that a client or an operator may see.

    Args:
        message: One sentence a person can act on.
        details: Extra fields of the error body, such as `supported_exchanges`.
        retry_after_s: Seconds until it is worth trying again; None where that is unknown.
        headers: Header fields of the HTTP answer, such as those of a rate limit.
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
    """Something went wrong on our side; it has been logged."""


class UpgradeRequired(OnebookError):
    """The path answers WebSocket upgrades only."""

    code, status = "upgrade_required", 426


class OriginNotAllowed(OnebookError):
    """A browser's page of an origin that the operator does not allow."""

    code, status = "origin_not_allowed", 403


class MissingApiKey(OnebookError):
    """The request holds no usable API key."""

    code, status = "missing_api_key", 400


class InvalidApiKey(OnebookError):
    """The key is unknown or not well formed."""

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
    """The key in the path of /data-usage is unknown; elsewhere that is invalid_api_key."""

    code, status = "api_key_not_found", 404


class RateLimitExceeded(OnebookError):
    """Too many requests or attempts."""

    code, status = "rate_limit_exceeded", 429


class DataLimitReached(OnebookError):
    """The key's monthly allowance is used up."""

    code, status = "data_limit_exceeded", 429


class InvalidRequest(OnebookError):
    """Malformed JSON, a wrong type, an unknown option; the message names the field."""

    code, status = "invalid_request", 400


class InvalidExchange(OnebookError):
    """An exchange that we do not know; details hold `supported_exchanges`."""

    code, status = "invalid_exchange", 400


class InvalidTransactionTypes(OnebookError):
    """A transaction type that the exchange does not have; details hold `supported_types`."""

    code, status = "invalid_transaction_types", 400


class InvalidDateRange(OnebookError):
    """A start after its end, or earlier than the exchange keeps."""

    code, status = "invalid_date_range", 400


class NotFound(OnebookError):
    """No such path."""

    code, status = "not_found", 404


class MethodNotAllowed(OnebookError):
    """The path exists, the method does not."""

    code, status = "method_not_allowed", 405


class RequestTooLarge(OnebookError):
    """A body over the limit."""

    code, status = "request_too_large", 413


class ExchangeFailed(OnebookError):
    """An exchange did not answer as it should."""

    code, status = "exchange_error", 500


class ServiceUnavailable(OnebookError):
    """The node cannot serve this now."""

    code, status = "service_unavailable", 503


class DatabaseUnavailable(ServiceUnavailable):
    """The database did not do what it was asked.

    Args:
        reason: What is wrong, for the operator; may name files and hosts, so clients never see it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("The database does not answer; try again in a moment.", retry_after_s=1.0)
        self.reason = reason


class ConfigError(OnebookError):
    """A setting that cannot be used; refuses to start. One line for each fault."""

    code, status = "invalid_config", 500


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file whose write failed: an OSError of an open file names none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in DISK_FULL:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def file_problem(error: OSError) -> str:
    """Write which file cannot be used, and why."""
    advice = " Run this as the account of the service." if error.errno == errno.EACCES else ""
    return f"{error.filename} cannot be used: {error.strerror}.{advice}"
