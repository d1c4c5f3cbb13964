"""Port of an exchange's REST API: facts, signatures, replies. Pure.

An `ExchangeApi` turns a call and credentials into what goes over the wire, and an answer into a
`Reply`: a value or a failure, and what the client does about it. Connections, limits, retries, the
circuit and the clock are the client's (`client`), so they are right for every exchange at once.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

from msgspec import Struct

from onebook.transactions.budget import Rate
from onebook.transactions.credentials import Credentials
from onebook.transactions.failures import FailureReason, SourceFailed

CONNECTIONS_MAX: Final = 20
BODY_BYTES_MAX: Final = 8 * 1024 * 1024  # an instrument list of one category is about 1 MB


class ApiFacts(Struct, frozen=True, kw_only=True):
    """What an exchange documents about asking it.

    Args:
        name: Its id, in metrics and in the name of the logger.
        display: Its name in sentences.
        rates: The limit of each path (or `Call.rate`), counted for one account.
        address_rate: The limit of all requests of this address together.
        circuit_s: For how long nothing is asked after a rate-limit breach or a ban.
        rising: Whether the stamp of each request of a key must be higher than the one before it
            (a nonce): then they are sent strictly one after the other.
        connections_max: Connections that are open at once.
        body_bytes_max: A longer answer is refused.
    """

    name: str
    display: str
    rates: Mapping[str, Rate]
    address_rate: Rate
    circuit_s: float
    rising: bool = False
    connections_max: int = CONNECTIONS_MAX
    body_bytes_max: int = BODY_BYTES_MAX


class Call(Struct, frozen=True):
    """One request.

    Args:
        path: Its path below the address of the environment.
        query: Its query string, quoted.
        rate: The limit it counts in, a key of `ApiFacts.rates`; "": the path.
    """

    path: str
    query: str = ""
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] = {}
    rate: str = ""


class Then(StrEnum):
    """What the client does about a failure that an answer states."""

    RAISE = "raise"
    RETRY = "retry"  # after a backoff
    RETRY_NOW = "retry_now"  # the limit (`block_s`) or the corrected clock makes the difference
    STOP = "stop"  # open the circuit
    TOO_OLD = "too_old"
    CURSOR_GONE = "cursor_gone"  # the cursor of an earlier answer has expired


class Reply(Struct, frozen=True, kw_only=True):
    """An answer as the client needs it.

    Args:
        value: What it holds, decoded; where `failure` is None.
        server_ms: The exchange's time, Unix ms; 0 where it did not say.
        clock_ms: The exchange's time where it refused ours; None otherwise.
        limit: The exchange's own figure for the limit of the path; None where it did not say.
        block_s: For how long nothing more may be asked of the path.
        failure: What went wrong.
        then: What the client does about it.
    """

    value: Any = None
    server_ms: int = 0
    clock_ms: int | None = None
    limit: int | None = None
    block_s: float = 0.0
    failure: SourceFailed | None = None
    then: Then = Then.RAISE


class ExchangeApi(Protocol):
    """How one exchange is asked and how it answers."""

    @property
    def facts(self) -> ApiFacts:
        """Its limits and rules."""
        ...

    def sign(self, call: Call, credentials: Credentials, *, stamp: int) -> Call:
        """A call with its authentication.

        Args:
            call: With its query string as it goes over the wire.
            stamp: The time of the request by the exchange's clock, Unix ms; where stamps must
                rise, higher than that of any request of this key before.
        """
        ...

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """Interpret an answer."""
        ...


class Outcome(Struct, frozen=True):
    """What a status or an error code of an exchange means to a reader of history.

    Args:
        message: A sentence for people; holds nothing of what the exchange said.
        retryable: Whether asking again may help.
        fatal: Whether nothing of this account can be read.
    """

    reason: FailureReason
    message: str
    retryable: bool = False
    fatal: bool = False

    def failure(self, code: int | None = None) -> SourceFailed:
        """It as the failure of a source, with the exchange's own code."""
        return SourceFailed(
            self.reason,
            self.message,
            exchange_code=code,
            retryable=self.retryable,
            fatal=self.fatal,
        )

    def reply(self, code: int | None = None, **more: Any) -> Reply:
        """It as an answer: tried again where that may help."""
        then = Then.RETRY if self.retryable else Then.RAISE
        return Reply(failure=self.failure(code), then=then, **more)
