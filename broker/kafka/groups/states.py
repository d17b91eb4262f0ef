"""The states of a group, what can happen to it, and the table of what follows. Pure.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance ──leader's sync──▶ Stable
      ▲                     │    ▲                                           │                                │
      └───nobody joined─────┘    └───────── join, leave, expiry, late sync ──┴────────────────────────────────┘

Who an event comes from has been settled before the table is asked: a member that is not known, is fenced or is of
another generation is refused whatever the state. Source: kafka.md §2; Kafka's group membership protocol.
"""

from __future__ import annotations

import enum
from typing import Final


class State(enum.StrEnum):
    """Named as DescribeGroups and ListGroups say them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(enum.Enum):
    """What can happen. Of joins: who is it that joins."""

    #: Nobody that is a member yet.
    JOIN_NEW = enum.auto()
    #: A static member under a new member id: its process was started again.
    JOIN_REPLACED = enum.auto()
    #: A member, with the metadata it has; with others; the leader with those it has.
    JOIN_AGAIN = enum.auto()
    JOIN_CHANGED = enum.auto()
    JOIN_LEADER = enum.auto()
    SYNC = enum.auto()
    SYNC_LEADER = enum.auto()
    HEARTBEAT = enum.auto()
    #: A member has left, or its session has ended.
    GONE = enum.auto()
    #: Everybody has joined, or the rebalance timeout has passed.
    BARRIER = enum.auto()
    #: The rebalance timeout has passed since the barrier, and there are members that have not synced.
    SYNC_LATE = enum.auto()
    #: Offsets of a member of this generation; of somebody outside of any group.
    COMMIT = enum.auto()
    COMMIT_OUTSIDE = enum.auto()
    DELETE = enum.auto()


class Action(enum.Enum):
    """What follows: done by `machine.Group`."""

    #: The first member: others are waited for a little.
    ADMIT_FIRST = enum.auto()
    ADMIT = enum.auto()
    ADMIT_AND_REBALANCE = enum.auto()
    REPLACE = enum.auto()
    #: Answered with the generation there is, unless the protocol would be another one.
    REPLACE_IN_PLACE = enum.auto()
    REPLACE_AND_REBALANCE = enum.auto()
    #: It joins the barrier.
    UPDATE = enum.auto()
    UPDATE_AND_REBALANCE = enum.auto()
    #: The answer to its join was lost: it gets it again.
    TELL_AGAIN = enum.auto()
    #: Its sync waits for the leader's.
    PARK = enum.auto()
    ASSIGN = enum.auto()
    TELL_ASSIGNMENT = enum.auto()
    REMOVE = enum.auto()
    REMOVE_AND_REBALANCE = enum.auto()
    NEXT_GENERATION = enum.auto()
    REMOVE_LATE = enum.auto()
    ACCEPT = enum.auto()
    #: It has to join again.
    REFUSE_REBALANCING = enum.auto()
    REFUSE_UNKNOWN = enum.auto()
    REFUSE_NOT_EMPTY = enum.auto()
    #: The group is being deleted: whoever asks again finds another one.
    REFUSE_UNAVAILABLE = enum.auto()
    DIE = enum.auto()


class ImpossibleEvent(Exception):
    """Something happened that cannot happen in this state: a defect of the broker."""


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = State
#: A pair that is not here cannot come: an empty or dead group has no members that anything could come from.
TABLE: Final[dict[tuple[State, Event], Action]] = {
    (_EMPTY, Event.JOIN_NEW): Action.ADMIT_FIRST,
    (_PREPARING, Event.JOIN_NEW): Action.ADMIT,
    (_COMPLETING, Event.JOIN_NEW): Action.ADMIT_AND_REBALANCE,
    (_STABLE, Event.JOIN_NEW): Action.ADMIT_AND_REBALANCE,
    (_DEAD, Event.JOIN_NEW): Action.REFUSE_UNAVAILABLE,
    (_PREPARING, Event.JOIN_REPLACED): Action.REPLACE,
    # The assignment that is being made names the old member id.
    (_COMPLETING, Event.JOIN_REPLACED): Action.REPLACE_AND_REBALANCE,
    # The point of static members: back within its session, it costs the others nothing.
    (_STABLE, Event.JOIN_REPLACED): Action.REPLACE_IN_PLACE,
    (_PREPARING, Event.JOIN_AGAIN): Action.UPDATE,
    (_COMPLETING, Event.JOIN_AGAIN): Action.TELL_AGAIN,
    (_STABLE, Event.JOIN_AGAIN): Action.TELL_AGAIN,
    (_PREPARING, Event.JOIN_CHANGED): Action.UPDATE,
    (_COMPLETING, Event.JOIN_CHANGED): Action.UPDATE_AND_REBALANCE,
    (_STABLE, Event.JOIN_CHANGED): Action.UPDATE_AND_REBALANCE,
    (_PREPARING, Event.JOIN_LEADER): Action.UPDATE,
    (_COMPLETING, Event.JOIN_LEADER): Action.TELL_AGAIN,
    # It has seen something that members cannot see: partitions, for one.
    (_STABLE, Event.JOIN_LEADER): Action.UPDATE_AND_REBALANCE,
    (_PREPARING, Event.SYNC): Action.REFUSE_REBALANCING,
    (_COMPLETING, Event.SYNC): Action.PARK,
    (_STABLE, Event.SYNC): Action.TELL_ASSIGNMENT,
    (_PREPARING, Event.SYNC_LEADER): Action.REFUSE_REBALANCING,
    (_COMPLETING, Event.SYNC_LEADER): Action.ASSIGN,
    # Sent twice: one generation has one assignment.
    (_STABLE, Event.SYNC_LEADER): Action.TELL_ASSIGNMENT,
    (_PREPARING, Event.HEARTBEAT): Action.REFUSE_REBALANCING,
    # Clients begin to send them before they have synced.
    (_COMPLETING, Event.HEARTBEAT): Action.ACCEPT,
    (_STABLE, Event.HEARTBEAT): Action.ACCEPT,
    (_PREPARING, Event.GONE): Action.REMOVE,
    (_COMPLETING, Event.GONE): Action.REMOVE_AND_REBALANCE,
    (_STABLE, Event.GONE): Action.REMOVE_AND_REBALANCE,
    (_PREPARING, Event.BARRIER): Action.NEXT_GENERATION,
    (_COMPLETING, Event.SYNC_LATE): Action.REMOVE_LATE,
    (_STABLE, Event.SYNC_LATE): Action.REMOVE_LATE,
    # What was read before the partitions go elsewhere: the generation is still the one they were given in.
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
    """What follows. Raises ImpossibleEvent."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise ImpossibleEvent(f"{event.name} in a group that is {state}") from None
