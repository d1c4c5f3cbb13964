"""REST sessions: the token, how long it lives, and how it is read from a header.

A token is `obs_` and 43 base62 characters that hold 256 random bits; only its digest is stored.
Bearer credentials follow RFC 6750 section 2.1, their scheme RFC 9110 section 11.1.
"""

import re
import secrets
from typing import Final

from msgspec import Struct

from onebook.accounts.keys import SECRET_BITS, SECRET_LENGTH, Key, base62
from onebook.errors import InvalidSession, MissingAuthorization
from onebook.model import DAY_MS
from onebook.store import SessionRow

TOKEN_PREFIX: Final = "obs_"  # noqa: S105 (what every token begins with is no secret)
LIFETIME_MS: Final = DAY_MS
# An expired session is told from an unknown one as long as it is remembered.
REMEMBERED_MS: Final = 7 * DAY_MS

_TOKEN = re.compile(rf"{TOKEN_PREFIX}[0-9A-Za-z]{{{SECRET_LENGTH}}}", re.ASCII)
# RFC 9110: the scheme is case-insensitive and one or more spaces follow it.
_BEARER = re.compile(r"bearer +(\S+)", re.ASCII | re.IGNORECASE)

_UNKNOWN = "The session token is not valid; authenticate again."


class Session(Struct, frozen=True):
    """A session of a key; `token` is set only where it has just been made."""

    key: Key
    session_id: str
    token: str
    created_at_ms: int
    expires_at_ms: int

    def __repr__(self) -> str:
        return f"Session(session_id={self.session_id!r}, key_id={self.key.key_id!r})"


def is_over(session: SessionRow, now_ms: int) -> bool:
    """Whether a session has ended; one that was ended by force expired when it began."""
    return session.expires_at_ms <= max(now_ms, session.created_at_ms)


def new_token() -> str:
    """Make a session token."""
    return TOKEN_PREFIX + base62(secrets.randbits(SECRET_BITS), SECRET_LENGTH)


def token_of(header: str | None) -> str:
    """Read the token from an Authorization header.

    Raises:
        MissingAuthorization: There is no header, or an empty one.
        InvalidSession: Another scheme, or not a token.
    """
    if header is None or not header.strip():
        raise MissingAuthorization("Send the session token: Authorization: Bearer <SESSION_TOKEN>.")
    bearer = _BEARER.fullmatch(header.strip(" "))
    if bearer is None or _TOKEN.fullmatch(bearer[1]) is None:
        raise invalid_session()
    return bearer[1]


def invalid_session() -> InvalidSession:
    """The one answer to every token that is not a session."""
    return InvalidSession(_UNKNOWN)
