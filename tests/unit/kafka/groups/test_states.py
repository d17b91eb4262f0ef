"""The table of a group: for every pair there is a decision, or a note that it is impossible."""

from __future__ import annotations

import pytest

from broker.kafka.groups.states import TABLE, Action, Event, ImpossibleEvent, State, action

#: Such a group has no members, so it gets no requests, and it has no barrier.
_OF_MEMBERS = {
    Event.JOIN_REPLACED, Event.JOIN_AGAIN, Event.JOIN_CHANGED, Event.JOIN_LEADER, Event.SYNC, Event.SYNC_LEADER,
    Event.HEARTBEAT, Event.GONE, Event.BARRIER, Event.SYNC_LATE, Event.COMMIT,
}  # fmt: skip
_IMPOSSIBLE = {
    *((State.EMPTY, event) for event in _OF_MEMBERS),
    *((State.DEAD, event) for event in _OF_MEMBERS),
    (State.PREPARING, Event.SYNC_LATE),
    (State.COMPLETING, Event.BARRIER),
    (State.STABLE, Event.BARRIER),
}


def test_every_pair_is_decided_or_impossible() -> None:
    assert set(TABLE) | _IMPOSSIBLE == {(state, event) for state in State for event in Event}
    assert not set(TABLE) & _IMPOSSIBLE


@pytest.mark.parametrize(("state", "event"), sorted(_IMPOSSIBLE, key=str))
def test_impossible_event_error_names_event_and_state(state: State, event: Event) -> None:
    with pytest.raises(ImpossibleEvent, match=f"event {event.name} in state {state}"):
        action(state, event)


def test_every_action_is_in_the_table() -> None:
    assert set(TABLE.values()) == set(Action)
