"""Cache of exchanges' descriptions of API keys: permissions, visible dates, expiry.

A description costs a request, which matters where a key has few. It is requested again when it is
old, and when the exchange refuses the key or one of its permissions.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import json

from onebook.clock import Clock
from onebook.transactions.adapter import FailureReason
from onebook.transactions.credentials import Credentials

KEY_MAX_AGE_S: Final = 300.0  # after which changes that the owner made at the exchange are seen
REFUSALS: Final = frozenset({FailureReason.AUTHENTICATION_FAILED, FailureReason.PERMISSION_DENIED})


class DescribedKeys:
    """The descriptions of an exchange's keys, by credentials."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, tuple[float, Any]] = {}

    async def get(
        self, owner: str, fetch: Callable[[], Awaitable[Any]], *, fresh: bool = False
    ) -> Any:
        """Return the description of a key.

        Concurrent first requests each fetch it: waiting for the request of another client, or of
        the background, could take longer than fetching it.

        Args:
            owner: See `owner_of`.
            fetch: Requests it.
            fresh: Whether to request it in any case.
        """
        now_s = self._clock.monotonic()
        known = self._found.get(owner)
        if not fresh and known is not None and now_s - known[0] < KEY_MAX_AGE_S:
            return known[1]
        # Its age counts from before the request: a change during the request may be missing.
        answer = await fetch()
        recent = {
            name: each
            for name, each in self._found.items()
            if now_s - each[0] < KEY_MAX_AGE_S and name != owner
        }
        self._found = recent | {owner: (now_s, answer)}
        return answer

    def forget(self, owner: str) -> None:
        """Request the description again when it is next needed."""
        self._found.pop(owner, None)


def owner_of(environment: str, credentials: Credentials) -> str:
    """A digest of credentials and their environment; other credentials have another one."""
    text = json.encode([environment, credentials.fields], order="sorted")
    return hashlib.blake2b(text, digest_size=16, person=b"onebook owner").hexdigest()
