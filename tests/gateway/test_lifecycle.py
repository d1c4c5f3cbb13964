"""The state table of a connection: complete, and documented as it is."""

from pathlib import Path

import pytest

from onebook.gateway import lifecycle
from onebook.gateway.connection import ACTIONS
from onebook.gateway.lifecycle import (
    TRANSITIONS,
    Action,
    ConnectionEvent,
    ConnectionState,
    NoConnectionTransition,
    transition,
)

S, E = ConnectionState, ConnectionEvent
PAGE = Path(__file__).parents[2] / "docs/reference/connection.md"
OPEN = (S.UNAUTHENTICATED, S.VERIFYING, S.AUTHENTICATED, S.REVERIFYING)


def reached(first):
    """The states reachable from one."""
    found, new = set(), {first}
    while new:
        found |= new
        new = {row.state for (state, _), row in TRANSITIONS.items() if state in new} - found
    return found


def test_the_page_is_the_table():
    assert PAGE.read_text() == lifecycle.page(), "run make reference"


@pytest.mark.parametrize("state", S)
def test_what_the_table_does_not_list_is_an_error(state):
    missing = [event for event in E if (state, event) not in TRANSITIONS]
    assert missing
    for event in missing:
        with pytest.raises(NoConnectionTransition, match=rf"{state.name} .*{event.name}"):
            transition(state, event)


def test_every_state_is_reached_and_every_event_and_action_is_used():
    assert reached(S.HANDSHAKE) == set(S)
    assert {event for _, event in TRANSITIONS} == set(E)
    assert {action for row in TRANSITIONS.values() for action in row.actions} == set(Action)
    assert set(ACTIONS) == set(Action)


@pytest.mark.parametrize("state", [state for state in S if state is not S.CLOSED])
def test_every_state_but_the_last_ends_when_the_socket_or_the_server_does(state):
    assert transition(state, E.SOCKET_CLOSED).state is S.CLOSED
    assert Action.CLOSE_SOCKET in transition(state, E.STOPPED).actions


@pytest.mark.parametrize("state", OPEN)
def test_an_open_connection_is_released_once_and_unregistered_once(state):
    for first, then in (((E.CLOSE_SENT,), E.SOCKET_CLOSED), ((), E.SOCKET_CLOSED)):
        actions, now = [], state
        for event in (*first, then):
            row = transition(now, event)
            actions += row.actions
            now = row.state
        assert actions.count(Action.RELEASE) == 1
        assert actions.count(Action.UNREGISTER) == 1


def test_a_verdict_comes_after_any_end():
    for state in (S.CLOSING, S.DISCARDING, S.CLOSED):
        assert transition(state, E.VERDICT_RECEIVED) == (state, ())


def test_only_a_connection_without_a_key_is_counted_as_an_offender():
    counted = {
        state for (state, event), row in TRANSITIONS.items() if Action.COUNT_OFFENCE in row.actions
    }
    assert counted == {S.UNAUTHENTICATED, S.VERIFYING}
