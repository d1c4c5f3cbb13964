"""Replies for clients written for the reference service; off by default.

Its published sample clients differ: some need `authentication_success` as the second message, some
need a `welcome` with the session as the first message after `authenticate`, and some authenticate
again on each `welcome`. All of them work if

- the first welcome waits briefly for an `authenticate` message and then contains the session;
- `authentication_success` follows, or comes first if the welcome was already sent;
- a repeated `authenticate` is answered with `authentication_success` alone.

`Greeting` records which of these messages a client has received.
"""

from typing import Final, Literal

from msgspec import Struct, json, to_builtins

from onebook.accounts import Key, UsageReport
from onebook.config import TierLimits
from onebook.gateway.commands import Id
from onebook.gateway.messages import with_id
from onebook.gateway.replies import AVAILABLE_COMMANDS, WelcomeSession
from onebook.streams import iso_us

TEXT: Final = "Connected to Onebook; authenticate with your API key."
_WELCOME: Final = json.encode(
    {"type": "welcome", "message": TEXT, "available_commands": AVAILABLE_COMMANDS}
)


class RateLimits(Struct, frozen=True):
    """Limits of the key's tier under their former names; there is no monthly limit."""

    requests_per_minute: int
    max_connections: int
    monthly_message_limit: int | None = None


class FormerUsage(Struct, frozen=True):
    """Usage of the allowance; one GB is 2^30 bytes."""

    used_gb: float
    limit_gb: float
    remaining_gb: float
    usage_percentage: float


class AuthenticationSuccess(Struct, frozen=True, tag="authentication_success"):
    """The key was accepted; for clients that do not read the session's `welcome`."""

    message: str
    session_id: str
    user_id: str
    user_tier: str
    tier: str
    data_usage: FormerUsage
    rate_limits: RateLimits
    status: Literal["authenticated"] = "authenticated"


class Greeting:
    """The welcome messages of one connection, each sent once."""

    __slots__ = ("_authenticated", "_welcomed")

    def __init__(self) -> None:
        self._welcomed = False
        self._authenticated = False

    def due(self) -> tuple[bytes, ...]:
        """Return the delayed welcome if no `authenticate` message has arrived."""
        if self._welcomed:
            return ()
        self._welcomed = True
        return (_WELCOME,)

    def authenticated(
        self, welcome: WelcomeSession, success: AuthenticationSuccess, message_id: Id
    ) -> tuple[bytes, ...]:
        """Return the replies to an accepted key."""
        answer = with_id(json.encode(success), message_id)
        if self._authenticated:
            return (answer,)
        first, self._welcomed = not self._welcomed, True
        self._authenticated = True
        fields = to_builtins(welcome)
        if first:
            return (json.encode(fields | {"available_commands": AVAILABLE_COMMANDS}), answer)
        return (answer, json.encode(fields))


def success_of(
    key: Key, session_id: str, limits: TierLimits, report: UsageReport
) -> AuthenticationSuccess:
    """The `authentication_success` of a key."""
    usage = report.data_usage
    return AuthenticationSuccess(
        message=f"Authenticated as {key.tier} user.",
        session_id=session_id,
        user_id=key.account_id,
        user_tier=key.tier,
        tier=key.tier,
        data_usage=FormerUsage(
            usage.used_gb, usage.limit_gb, usage.remaining_gb, usage.usage_percentage
        ),
        rate_limits=RateLimits(limits.requests_per_minute, limits.connections_max),
    )


def without_zone(wall_us: int) -> str:
    """ISO 8601 in UTC with microseconds, without the Z, which old parsers reject."""
    return iso_us(wall_us).removesuffix("Z")
