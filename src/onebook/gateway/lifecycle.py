"""State machine of one client connection, from the upgrade request to the closed socket.

A table of states and events, without I/O. An event that is not listed for the present state is a
bug and raises an exception. `page` renders the table for docs/reference/connection.md.
"""

from enum import Enum
from typing import Final, NamedTuple


class ConnectionState(Enum):
    """State of a connection; the value is its line in the reference page."""

    HANDSHAKE = "the upgrade request is being read"
    DELAYED = "the upgrade request is delayed because of an earlier offence of its address"
    REFUSED = "the upgrade was refused with an HTTP error; the socket closes once it is written"
    UNAUTHENTICATED = "open, without a key; ends at the authentication timeout"
    VERIFYING = "the first key is being verified; input waits"
    AUTHENTICATED = "open, with a key"
    REVERIFYING = "another key is being verified; input waits"
    CLOSING = "a close frame was sent; waits for the peer's until the close timeout"
    DISCARDING = "as CLOSING, but the peer sent too much, so its socket is no longer read"
    CLOSED = "the socket is closed"


class ConnectionEvent(Enum):
    """Events of a connection."""

    UPGRADE_DELAYED = "the answer to the upgrade request is delayed"
    UPGRADE_REFUSED = "the upgrade request was refused with an HTTP error"
    UPGRADE_ACCEPTED = "the upgrade request was answered with 101"
    KEY_RECEIVED = "the client sent an API key, in a message or in the query"
    VERDICT_RECEIVED = "verification of the key ended, or failed"
    KEY_ACCEPTED = "the key is valid and below its connection limit"
    DEADLINE_PASSED = "the deadline of the state passed"
    CLOSE_SENT = "a close frame was sent, ours or the reply to the peer's"
    CLOSE_RECEIVED = "the peer answered our close frame"
    INPUT_EXCEEDED = "more than 64 KiB arrived after our close frame"
    STOPPED = "the HTTP server stops"
    SOCKET_CLOSED = "the socket is closed"


class Action(Enum):
    """Actions of a connection on a transition, in this order."""

    REGISTER = "count the connection, send welcome and ping, start the authentication timeout"
    HOLD_INPUT = "stop reading from the socket"
    RESUME_INPUT = "read again, and process the input received meanwhile"
    APPLY_VERDICT = "reply to the key; raises KEY_ACCEPTED or CLOSE_SENT"
    DROP_DEADLINE = "remove the deadline"
    REFUSE_LATE = "send authentication_required and close 4001; raises CLOSE_SENT"
    SEND_DRAINING = "close 4200; raises CLOSE_SENT"
    COUNT_OFFENCE = "if the close code is an offence, delay the next upgrade of the address"
    RELEASE = "end the subscriptions and unanswered book requests"
    AWAIT_CLOSE = "start the close timeout"
    CLOSE_SOCKET = "close the socket once all written bytes are sent"
    ABORT = "close the socket at once"
    UNREGISTER = "charge the last bytes; count and log the end"


class Transition(NamedTuple):
    """A row of the table: the next state and the actions."""

    state: ConnectionState
    actions: tuple[Action, ...] = ()


S, E, A, T = ConnectionState, ConnectionEvent, Action, Transition
_KEYLESS_CLOSE: Final = (A.COUNT_OFFENCE, A.RELEASE, A.AWAIT_CLOSE)

TRANSITIONS: Final[dict[tuple[ConnectionState, ConnectionEvent], Transition]] = {
    (S.HANDSHAKE, E.UPGRADE_DELAYED): T(S.DELAYED, (A.HOLD_INPUT,)),
    (S.HANDSHAKE, E.UPGRADE_REFUSED): T(S.REFUSED, (A.CLOSE_SOCKET,)),
    (S.HANDSHAKE, E.UPGRADE_ACCEPTED): T(S.UNAUTHENTICATED, (A.REGISTER,)),
    (S.HANDSHAKE, E.STOPPED): T(S.REFUSED, (A.CLOSE_SOCKET,)),
    (S.HANDSHAKE, E.SOCKET_CLOSED): T(S.CLOSED),
    (S.DELAYED, E.UPGRADE_REFUSED): T(S.REFUSED, (A.CLOSE_SOCKET,)),
    (S.DELAYED, E.UPGRADE_ACCEPTED): T(S.UNAUTHENTICATED, (A.REGISTER, A.RESUME_INPUT)),
    (S.DELAYED, E.STOPPED): T(S.REFUSED, (A.CLOSE_SOCKET,)),
    (S.DELAYED, E.SOCKET_CLOSED): T(S.CLOSED),
    (S.REFUSED, E.STOPPED): T(S.REFUSED, (A.CLOSE_SOCKET,)),
    (S.REFUSED, E.SOCKET_CLOSED): T(S.CLOSED),
    (S.UNAUTHENTICATED, E.KEY_RECEIVED): T(S.VERIFYING, (A.HOLD_INPUT,)),
    (S.UNAUTHENTICATED, E.DEADLINE_PASSED): T(S.UNAUTHENTICATED, (A.REFUSE_LATE,)),
    (S.UNAUTHENTICATED, E.CLOSE_SENT): T(S.CLOSING, _KEYLESS_CLOSE),
    (S.UNAUTHENTICATED, E.STOPPED): T(S.UNAUTHENTICATED, (A.SEND_DRAINING, A.CLOSE_SOCKET)),
    (S.UNAUTHENTICATED, E.SOCKET_CLOSED): T(S.CLOSED, (A.RELEASE, A.UNREGISTER)),
    (S.VERIFYING, E.VERDICT_RECEIVED): T(S.VERIFYING, (A.APPLY_VERDICT,)),
    (S.VERIFYING, E.KEY_ACCEPTED): T(S.AUTHENTICATED, (A.DROP_DEADLINE, A.RESUME_INPUT)),
    (S.VERIFYING, E.DEADLINE_PASSED): T(S.VERIFYING, (A.REFUSE_LATE,)),
    (S.VERIFYING, E.CLOSE_SENT): T(S.CLOSING, (*_KEYLESS_CLOSE, A.RESUME_INPUT)),
    (S.VERIFYING, E.STOPPED): T(S.VERIFYING, (A.SEND_DRAINING, A.CLOSE_SOCKET)),
    (S.VERIFYING, E.SOCKET_CLOSED): T(S.CLOSED, (A.RELEASE, A.UNREGISTER)),
    (S.AUTHENTICATED, E.KEY_RECEIVED): T(S.REVERIFYING, (A.HOLD_INPUT,)),
    (S.AUTHENTICATED, E.CLOSE_SENT): T(S.CLOSING, (A.RELEASE, A.AWAIT_CLOSE)),
    (S.AUTHENTICATED, E.STOPPED): T(S.AUTHENTICATED, (A.SEND_DRAINING, A.CLOSE_SOCKET)),
    (S.AUTHENTICATED, E.SOCKET_CLOSED): T(S.CLOSED, (A.RELEASE, A.UNREGISTER)),
    (S.REVERIFYING, E.VERDICT_RECEIVED): T(S.REVERIFYING, (A.APPLY_VERDICT,)),
    (S.REVERIFYING, E.KEY_ACCEPTED): T(S.AUTHENTICATED, (A.RESUME_INPUT,)),
    (S.REVERIFYING, E.CLOSE_SENT): T(S.CLOSING, (A.RELEASE, A.AWAIT_CLOSE, A.RESUME_INPUT)),
    (S.REVERIFYING, E.STOPPED): T(S.REVERIFYING, (A.SEND_DRAINING, A.CLOSE_SOCKET)),
    (S.REVERIFYING, E.SOCKET_CLOSED): T(S.CLOSED, (A.RELEASE, A.UNREGISTER)),
    (S.CLOSING, E.VERDICT_RECEIVED): T(S.CLOSING),
    (S.CLOSING, E.CLOSE_RECEIVED): T(S.CLOSING, (A.CLOSE_SOCKET,)),
    (S.CLOSING, E.INPUT_EXCEEDED): T(S.DISCARDING, (A.HOLD_INPUT,)),
    (S.CLOSING, E.DEADLINE_PASSED): T(S.CLOSING, (A.DROP_DEADLINE, A.ABORT)),
    (S.CLOSING, E.STOPPED): T(S.CLOSING, (A.CLOSE_SOCKET,)),
    (S.CLOSING, E.SOCKET_CLOSED): T(S.CLOSED, (A.UNREGISTER,)),
    (S.DISCARDING, E.VERDICT_RECEIVED): T(S.DISCARDING),
    (S.DISCARDING, E.DEADLINE_PASSED): T(S.DISCARDING, (A.DROP_DEADLINE, A.ABORT)),
    (S.DISCARDING, E.STOPPED): T(S.DISCARDING, (A.CLOSE_SOCKET,)),
    (S.DISCARDING, E.SOCKET_CLOSED): T(S.CLOSED, (A.UNREGISTER,)),
    (S.CLOSED, E.VERDICT_RECEIVED): T(S.CLOSED),
}

# States in which input is read and processed.
READING: Final = frozenset((S.HANDSHAKE, S.UNAUTHENTICATED, S.AUTHENTICATED, S.CLOSING))
BEFORE_OPEN: Final = frozenset((S.HANDSHAKE, S.DELAYED, S.REFUSED))


class NoConnectionTransition(Exception):
    """The table has no row for this event in this state: a bug."""


def transition(state: ConnectionState, event: ConnectionEvent) -> Transition:
    """The row of a state and an event.

    Raises:
        NoConnectionTransition: There is no such row.
    """
    row = TRANSITIONS.get((state, event))
    if row is None:
        raise NoConnectionTransition(f"{state.name} has no transition for {event.name}")
    return row


def page() -> str:
    """The reference page of the state machine, in Markdown."""
    return "\n".join(
        (
            "# States of a client connection",
            "",
            "Every state and event of a client's WebSocket connection, and every transition between"
            " states.",
            "",
            "Written by `make reference` from `onebook/gateway/lifecycle.py`. An event that the"
            " table does not",
            "list for a state is an error.",
            "",
            *_list("State", ConnectionState),
            *_list("Event", ConnectionEvent),
            *_list("Action", Action),
            "| State | Event | Next state | Actions |",
            "|---|---|---|---|",
            *(
                f"| {state.name} | {event.name} | {row.state.name} |"
                f" {', '.join(each.name for each in row.actions)} |"
                for (state, event), row in TRANSITIONS.items()
            ),
            "",
        )
    )


def _list(title: str, members: type[Enum]) -> list[str]:
    rows = [f"| {each.name} | {each.value} |" for each in members]
    return [f"| {title} | Meaning |", "|---|---|", *rows, ""]
