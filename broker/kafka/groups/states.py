"""The states of a group, the events, and the table of actions. Pure.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance ──leader's sync──▶ Stable
      ▲                     │    ▲                                           │                                │
      └───nobody joined─────┘    └───────── join, leave, expiry, late sync ──┴────────────────────────────────┘

The member is checked before the table is used: an unknown or fenced member, or one of another generation, gets an error
in any state.

Source: docs/guides/kafka.md#consumer-groups, Kafka's group membership protocol.
"""

from __future__ import annotations

import enum
from typing import Final


class State(enum.StrEnum):
    """The states, with their names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(enum.Enum):
    """Events. For joins: which member joins."""

    #: A client that is not a member yet.
    JOIN_NEW = enum.auto()
    #: A static member under a new member id: its process was restarted.
    JOIN_REPLACED = enum.auto()
    #: A member, with unchanged metadata; with changed metadata; the leader with unchanged metadata.
    JOIN_AGAIN = enum.auto()
    JOIN_CHANGED = enum.auto()
    JOIN_LEADER = enum.auto()
    SYNC = enum.auto()
    SYNC_LEADER = enum.auto()
    HEARTBEAT = enum.auto()
    #: A member has left, or its session has expired.
    GONE = enum.auto()
    #: All members have joined, or the rebalance timeout has passed.
    BARRIER = enum.auto()
    #: The rebalance timeout has passed since the barrier, and some members have not synced.
    SYNC_LATE = enum.auto()
    #: Offsets of a member of this generation; offsets of a client without membership.
    COMMIT = enum.auto()
    COMMIT_OUTSIDE = enum.auto()
    DELETE = enum.auto()


class Action(enum.Enum):
    """Actions. `machine.Group` executes them."""

    #: The first member: the group waits a little for others.
    ADMIT_FIRST = enum.auto()
    ADMIT = enum.auto()
    ADMIT_AND_REBALANCE = enum.auto()
    REPLACE = enum.auto()
    #: It is answered with the current generation, unless the protocol would change.
    REPLACE_IN_PLACE = enum.auto()
    REPLACE_AND_REBALANCE = enum.auto()
    #: It joins the barrier.
    UPDATE = enum.auto()
    UPDATE_AND_REBALANCE = enum.auto()
    #: The answer to its join was lost: send it again.
    ANSWER_AGAIN = enum.auto()
    #: Its sync waits for the leader's.
    PARK = enum.auto()
    ASSIGN = enum.auto()
    ANSWER_SYNC = enum.auto()
    REMOVE = enum.auto()
    REMOVE_AND_REBALANCE = enum.auto()
    NEXT_GENERATION = enum.auto()
    REMOVE_LATE = enum.auto()
    ACCEPT = enum.auto()
    #: It must join again.
    REFUSE_REBALANCING = enum.auto()
    REFUSE_UNKNOWN = enum.auto()
    REFUSE_NOT_EMPTY = enum.auto()
    #: The group is being deleted: a retry creates a new one.
    REFUSE_UNAVAILABLE = enum.auto()
    DIE = enum.auto()


class ImpossibleEvent(Exception):
    """The event cannot occur in this state: a defect of the broker."""


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = State
#: Pairs that are missing cannot occur: an empty or dead group has no members that could cause them.
TABLE: Final[dict[tuple[State, Event], Action]] = {
    (_EMPTY, Event.JOIN_NEW): Action.ADMIT_FIRST,
    (_PREPARING, Event.JOIN_NEW): Action.ADMIT,
    (_COMPLETING, Event.JOIN_NEW): Action.ADMIT_AND_REBALANCE,
    (_STABLE, Event.JOIN_NEW): Action.ADMIT_AND_REBALANCE,
    (_DEAD, Event.JOIN_NEW): Action.REFUSE_UNAVAILABLE,
    (_PREPARING, Event.JOIN_REPLACED): Action.REPLACE,
    # The assignment that the leader is making contains the old member id.
    (_COMPLETING, Event.JOIN_REPLACED): Action.REPLACE_AND_REBALANCE,
    # The purpose of static members: a restart within the session timeout causes no rebalance.
    (_STABLE, Event.JOIN_REPLACED): Action.REPLACE_IN_PLACE,
    (_PREPARING, Event.JOIN_AGAIN): Action.UPDATE,
    (_COMPLETING, Event.JOIN_AGAIN): Action.ANSWER_AGAIN,
    (_STABLE, Event.JOIN_AGAIN): Action.ANSWER_AGAIN,
    (_PREPARING, Event.JOIN_CHANGED): Action.UPDATE,
    (_COMPLETING, Event.JOIN_CHANGED): Action.UPDATE_AND_REBALANCE,
    (_STABLE, Event.JOIN_CHANGED): Action.UPDATE_AND_REBALANCE,
    (_PREPARING, Event.JOIN_LEADER): Action.UPDATE,
    (_COMPLETING, Event.JOIN_LEADER): Action.ANSWER_AGAIN,
    # The leader may know of a change that the group does not know, for example new partitions.
    (_STABLE, Event.JOIN_LEADER): Action.UPDATE_AND_REBALANCE,
    (_PREPARING, Event.SYNC): Action.REFUSE_REBALANCING,
    (_COMPLETING, Event.SYNC): Action.PARK,
    (_STABLE, Event.SYNC): Action.ANSWER_SYNC,
    (_PREPARING, Event.SYNC_LEADER): Action.REFUSE_REBALANCING,
    (_COMPLETING, Event.SYNC_LEADER): Action.ASSIGN,
    # A repetition: a generation has one assignment.
    (_STABLE, Event.SYNC_LEADER): Action.ANSWER_SYNC,
    (_PREPARING, Event.HEARTBEAT): Action.REFUSE_REBALANCING,
    # Clients send heartbeats before they have synced.
    (_COMPLETING, Event.HEARTBEAT): Action.ACCEPT,
    (_STABLE, Event.HEARTBEAT): Action.ACCEPT,
    (_PREPARING, Event.GONE): Action.REMOVE,
    (_COMPLETING, Event.GONE): Action.REMOVE_AND_REBALANCE,
    (_STABLE, Event.GONE): Action.REMOVE_AND_REBALANCE,
    (_PREPARING, Event.BARRIER): Action.NEXT_GENERATION,
    (_COMPLETING, Event.SYNC_LATE): Action.REMOVE_LATE,
    (_STABLE, Event.SYNC_LATE): Action.REMOVE_LATE,
    # Members commit what they have read before partitions are reassigned; their generation is still the current one.
    (_PREPARING, Event.COMMIT): Action.ACCEPT,
    (_COMPLETING, Event.COMMIT): Action.REFUSE_REBALANCING,
    (_STABLE, Event.COMMIT): Action.ACCEPT,
    (_EMPTY, Event.COMMIT_OUTSIDE): Action.ACCEPT,
    (_PREPARING, Event.COMMIT_OUTSIDE): Action.REFUSE_UNKNOWN,
    (_COMPLETING, Event.COMMIT_OUTSIDE): Action.REFUSE_UNKNOWN,
    (_STABLE, Event.COMMIT_OUTSIDE): Action.REFUSE_UNKNOWN,
    (_DEAD, Event.COMMIT_OUTSIDE): Action.REFUSE_UNAVAILABLE,
    (_EMPTY, Event.DELETE): Action.DIE,
    (_PREPARING, Event.DELETE): Action.REFUSE_NOT_EMPTY,
    (_COMPLETING, Event.DELETE): Action.REFUSE_NOT_EMPTY,
    (_STABLE, Event.DELETE): Action.REFUSE_NOT_EMPTY,
    (_DEAD, Event.DELETE): Action.REFUSE_UNAVAILABLE,
}


def action(state: State, event: Event) -> Action:
    """Look up the action. Raises ImpossibleEvent."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise ImpossibleEvent(f"event {event.name} in state {state}") from None
