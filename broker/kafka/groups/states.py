"""The states of a group, what can happen to it, and the table of what follows. Pure.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance ──leader's sync──▶ Stable
      ▲                     │    ▲                                           │                                │
      └───nobody joined─────┘    └───────── join, leave, expiry, late sync ──┴────────────────────────────────┘

Who an event comes from has been settled before the table is asked: a member that is not known, is fenced or is of
another generation is refused whatever the state.

Source: docs/guides/kafka.md#consumer-groups, Kafka's group membership protocol.
"""

from __future__ import annotations

import enum
from typing import Final


class State(enum.StrEnum):
    """The names are those of DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(enum.Enum):
    """What can happen. For joins: which member joins."""

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
    #: Offsets of a member of this generation; of a client outside of any group.
    COMMIT = enum.auto()
    COMMIT_OUTSIDE = enum.auto()
    DELETE = enum.auto()


class Action(enum.Enum):
    """What follows; `machine.Group` does it."""

    #: The first member: the group waits a little for others.
    ADMIT_FIRST = enum.auto()
    ADMIT = enum.auto()
    ADMIT_AND_REBALANCE = enum.auto()
    REPLACE = enum.auto()
    #: Answered with the current generation, unless the protocol would change.
    REPLACE_IN_PLACE = enum.auto()
    REPLACE_AND_REBALANCE = enum.auto()
    #: It joins the barrier.
    UPDATE = enum.auto()
    UPDATE_AND_REBALANCE = enum.auto()
    #: The answer to its join was lost: it is sent again.
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
    #: The group is being deleted: a retry finds a new one.
    REFUSE_UNAVAILABLE = enum.auto()
    DIE = enum.auto()


class ImpossibleEvent(Exception):
    """An event that cannot occur in this state: a defect of the broker."""


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = State
#: A pair that is missing here cannot occur: an empty or dead group has no members that could cause it.
TABLE: Final[dict[tuple[State, Event], Action]] = {
    (_EMPTY, Event.JOIN_NEW): Action.ADMIT_FIRST,
    (_PREPARING, Event.JOIN_NEW): Action.ADMIT,
    (_COMPLETING, Event.JOIN_NEW): Action.ADMIT_AND_REBALANCE,
    (_STABLE, Event.JOIN_NEW): Action.ADMIT_AND_REBALANCE,
    (_DEAD, Event.JOIN_NEW): Action.REFUSE_UNAVAILABLE,
    (_PREPARING, Event.JOIN_REPLACED): Action.REPLACE,
    # The assignment in progress names the old member id.
    (_COMPLETING, Event.JOIN_REPLACED): Action.REPLACE_AND_REBALANCE,
    # The purpose of static members: a restart within the session costs the others nothing.
    (_STABLE, Event.JOIN_REPLACED): Action.REPLACE_IN_PLACE,
    (_PREPARING, Event.JOIN_AGAIN): Action.UPDATE,
    (_COMPLETING, Event.JOIN_AGAIN): Action.ANSWER_AGAIN,
    (_STABLE, Event.JOIN_AGAIN): Action.ANSWER_AGAIN,
    (_PREPARING, Event.JOIN_CHANGED): Action.UPDATE,
    (_COMPLETING, Event.JOIN_CHANGED): Action.UPDATE_AND_REBALANCE,
    (_STABLE, Event.JOIN_CHANGED): Action.UPDATE_AND_REBALANCE,
    (_PREPARING, Event.JOIN_LEADER): Action.UPDATE,
    (_COMPLETING, Event.JOIN_LEADER): Action.ANSWER_AGAIN,
    # The leader may have seen a change that the group cannot see, for example in partitions.
    (_STABLE, Event.JOIN_LEADER): Action.UPDATE_AND_REBALANCE,
    (_PREPARING, Event.SYNC): Action.REFUSE_REBALANCING,
    (_COMPLETING, Event.SYNC): Action.PARK,
    (_STABLE, Event.SYNC): Action.ANSWER_SYNC,
    (_PREPARING, Event.SYNC_LEADER): Action.REFUSE_REBALANCING,
    (_COMPLETING, Event.SYNC_LEADER): Action.ASSIGN,
    # Sent twice: a generation has one assignment.
    (_STABLE, Event.SYNC_LEADER): Action.ANSWER_SYNC,
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
    # Records read before the partitions are reassigned: the generation is still the one of their assignment.
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
    """The action. Raises ImpossibleEvent."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise ImpossibleEvent(f"{event.name} in a group that is {state}") from None
