"""Consumer groups for REST v3: their members, of all APIs, and the partitions of each.

For Kafka clients, all instances of the proxy are one member; here the instances replace that member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from broker.kafka.groups import State, consumer_protocol
from broker.proxy.assignment import Partition
from broker.proxy.group_member import CLIENT_ID, PROTOCOL

if TYPE_CHECKING:
    from broker.proxy.node import ProxyNode

_STATES: Final = {
    State.EMPTY: "EMPTY",
    State.PREPARING: "PREPARING_REBALANCE",
    State.COMPLETING: "COMPLETING_REBALANCE",
    State.STABLE: "STABLE",
    State.DEAD: "DEAD",
}


class MemberView(NamedTuple):
    """A member. `id`: for an instance of the proxy, its name."""

    id: str
    client_id: str
    instance_id: str | None
    assignments: list[Partition]


class GroupView(NamedTuple):
    """A group. `assignor`: "" while it has no members. `simple`: it has only ever committed offsets."""

    state: str
    assignor: str
    simple: bool
    members: list[MemberView]

    def member(self, id: str) -> MemberView | None:
        return next((each for each in self.members if each.id == id), None)

    def owners(self) -> dict[Partition, MemberView]:
        """The owner of each partition."""
        return {partition: each for each in self.members for partition in each.assignments}


def group_view(broker: ProxyNode, group_id: str) -> GroupView | None:
    """The group; None if it does not exist."""
    described = broker.kafka_groups.describe(group_id)
    proxied = broker.proxy.groups().get(group_id)
    members = [
        MemberView(
            each.member_id, each.client_id, each.instance_id, sorted(consumer_protocol.assigned(each.assignment))
        )
        for each in described.members
        if proxied is None or each.client_id != CLIENT_ID
    ]
    for name, each in sorted({} if proxied is None else proxied.members.items()):
        members.append(MemberView(name, name, None, sorted(each.instance.positions)))
    if described.state is State.DEAD and not members:
        return None
    state, assignor = described.state, described.protocol
    if members and state in (State.DEAD, State.EMPTY):  # it has only instances, because Kafka clients cannot connect
        state, assignor = State.STABLE, PROTOCOL
    return GroupView(
        state=_STATES[state],
        assignor=assignor if members else "",
        simple=not members and not described.protocol_type,
        members=members,
    )
