"""The members of a group: by id, static members by instance, ids not used yet; and their common protocols. Pure.

Source: docs/guides/kafka.md#consumer-groups.
"""

from __future__ import annotations

from collections import Counter

from broker.kafka.errors import ErrorCode
from broker.kafka.groups.values import Join, Listed, Member, Protocols


class Roster:
    """`members`: by id, in order of arrival. `leader`: the id of a member, or "" if there is no leader."""

    __slots__ = ("instances", "leader", "members", "pending")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        #: Member ids by group.instance.id.
        self.instances: dict[str, str] = {}
        #: When member ids that were assigned, but not used yet, expire.
        self.pending: dict[str, int] = {}
        self.leader = ""

    def identify(self, member_id: str, instance_id: str | None) -> Member | ErrorCode:
        """The member, or an error: it is unknown, or another process has its group.instance.id now."""
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return self.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    def joining(self, asked: Join) -> Member | ErrorCode | None:
        """The joining member, None for a new one, or the error if it may not join."""
        if not asked.member_id:
            return self.members.get(self.instances.get(asked.instance_id or "", ""))
        if asked.member_id in self.pending and asked.instance_id is None:
            return None
        return self.identify(asked.member_id, asked.instance_id)

    def add(self, member_id: str, asked: Join, expires_ms: int) -> Member:
        member = Member(
            member_id=member_id,
            instance_id=asked.instance_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            session_ms=asked.session_ms,
            rebalance_ms=asked.rebalance_ms,
            protocols=asked.protocols,
            expires_ms=expires_ms,
        )
        self.members[member_id] = member
        if asked.instance_id is not None:
            self.instances[asked.instance_id] = member_id
        return member

    def replace(self, old: Member, asked: Join, expires_ms: int) -> Member:
        """Give a static member a new id. It keeps its assignment."""
        was_leader = self.leader == old.member_id
        self.remove(old)
        new = self.add(asked.fresh_id, asked, expires_ms)
        new.assignment, new.synced = old.assignment, old.synced
        if was_leader:
            self.leader = new.member_id
        return new

    def remove(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = ""

    def clear(self) -> None:
        self.members.clear()
        self.instances.clear()
        self.pending.clear()
        self.leader = ""

    # -- protocols and leader ------------------------------------------------------------------------------------------

    def agrees(self, protocols: Protocols, but: str) -> bool:
        """Whether all members, except the one with the id `but`, have one of these protocols in common."""
        names = {name for name, _ in protocols}
        return bool(names & self._common(but) if self._others(but) else names)

    def bytes_with(self, protocols: Protocols, instead_of: Member | None) -> int:
        """The size of all metadata if a member with `protocols` replaced `instead_of`, or joined."""
        others = [each.protocols for each in self.members.values() if each is not instead_of]
        return sum(len(name) + len(metadata) for each in (protocols, *others) for name, metadata in each)

    def choose_protocol(self) -> str:
        """The protocol that all members support and most prefer; if votes are equal, the leader's preference."""
        common = self._common()
        votes = Counter(next(name for name, _ in each.protocols if name in common) for each in self.members.values())
        first = self.members.get(self.leader) or next(iter(self.members.values()))
        liked = {name: rank for rank, (name, _) in reversed(list(enumerate(first.protocols)))}
        return min(votes, key=lambda name: (-votes[name], liked[name]))

    def _others(self, but: str) -> list[Member]:
        return [each for each in self.members.values() if each.member_id != but]

    def _common(self, but: str = "") -> set[str]:
        common: set[str] | None = None
        for each in self._others(but):
            names = {name for name, _ in each.protocols}
            common = names if common is None else common & names
        return common or set()

    @property
    def rebalance_ms(self) -> int:
        """The longest rebalance timeout of the members; 0: no members."""
        return max((each.rebalance_ms for each in self.members.values()), default=0)

    def elect(self) -> None:
        """Keep the leader if it has joined; otherwise choose the first member that has."""
        leader = self.members.get(self.leader)
        if leader is None or not leader.joined:
            self.leader = next(each.member_id for each in self.members.values() if each.joined)

    def listed(self, protocol: str) -> list[Listed]:
        """The list of members for the leader."""
        return [Listed(each.member_id, each.instance_id, each.metadata(protocol)) for each in self.members.values()]
