"""A group with its clock, and members that send requests as clients do."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from broker.kafka.errors import ErrorCode
from broker.kafka.groups.machine import Group
from broker.kafka.groups.values import Join, JoinAnswer, Limits, Protocols, Save, SyncAnswer

RANGE: Protocols = (("range", b"range of it"),)
LIMITS = Limits(min_session_ms=1_000, max_session_ms=60_000, rebalance_delay_ms=100, max_members=5)


def asking(member_id: str = "", **changes: Any) -> Join:
    values: dict[str, Any] = {
        "member_id": member_id,
        "fresh_id": "",
        "instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_ms": 10_000,
        "rebalance_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": RANGE,
        "round_trip": False,
    }
    return Join(**(values | changes))


class Bench:
    """Only `pass_ms` moves `now`. Waiting requests are known by their tokens. `saved`: every generation that was
    begun."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.group = Group("g", limits)
        self.now = 1_000_000
        self.joined: dict[int, JoinAnswer] = {}
        self.synced: dict[int, SyncAnswer] = {}
        self.saved: list[Save] = []
        self._tokens = count(1)
        self._ids = count(1)

    def join(self, member_id: str = "", **changes: Any) -> int:
        token = next(self._tokens)
        changes.setdefault("fresh_id", f"m{next(self._ids)}")
        self.group.join(token, asking(member_id, **changes), self.now)
        self.take()
        return token

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: Mapping[str, bytes] | None = None,
        instance_id: str | None = None,
    ) -> int:
        token = next(self._tokens)
        generation = self.group.generation if generation is None else generation
        self.group.sync(token, member_id, generation, instance_id, assignments or {}, self.now)
        self.take()
        return token

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        error = self.group.heartbeat(member_id, generation, instance_id, self.now)
        self.take()
        return error

    def leave(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        error = self.group.leave(member_id, instance_id, self.now)
        self.take()
        return error

    def pass_ms(self, ms: int) -> None:
        """With a tick at every deadline on the way, as the coordinator does it."""
        until = self.now + ms
        while (deadline := self.group.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.group.tick(self.now)
            self.take()
        self.now = until

    def take(self) -> None:
        for each in self.group.outbox:
            if isinstance(each, JoinAnswer):
                assert each.token not in self.joined
                # A generation is durable before any member hears of it.
                assert each.error or each.generation == self.saved[-1].generation
                self.joined[each.token] = each  # pyright: ignore[reportArgumentType]
            elif isinstance(each, SyncAnswer):
                assert each.token not in self.synced
                self.synced[each.token] = each  # pyright: ignore[reportArgumentType]
            else:
                self.saved.append(each)
        self.group.outbox.clear()

    def stable(self, members: int, **changes: Any) -> list[str]:
        """A group of members m1, m2, … with their assignments a1, a2, …"""
        tokens = [self.join(**changes) for _ in range(members)]
        self.pass_ms(LIMITS.rebalance_delay_ms)
        ids = [self.joined[token].member_id for token in tokens]
        assignments = {member_id: b"a" + member_id[1:].encode() for member_id in ids}
        for member_id in ids[1:]:
            self.sync(member_id)
        self.sync(ids[0], assignments=assignments)
        return ids
