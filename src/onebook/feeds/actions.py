"""Effects of a session, as values that its feed executes."""

from typing import Final, NamedTuple

from onebook.exchanges.kit import Fetch
from onebook.model import Reason


class Transmit(NamedTuple):
    """Send this text frame now."""

    frame: bytes


class SendPing(NamedTuple):
    """Send a WebSocket ping: nothing was received for a while."""


class Request(NamedTuple):
    """GET this and pass the body to `fetched`, or call `fetch_failed`."""

    fetch: Fetch


class End(NamedTuple):
    """Close the connection.

    `at_once`: reconnect without a wait; `abrupt`: read nothing more.
    """

    reason: Reason
    detail: str = ""
    at_once: bool = False
    abrupt: bool = False


Action = Transmit | SendPing | Request | End
PING: Final = SendPing()
