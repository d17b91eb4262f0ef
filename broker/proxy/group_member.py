"""The proxy as a member of a consumer group among Kafka clients: one member for all instances of the group.

    join → (leader: assign) → sync → heartbeat … → a rebalance, or other topics → join …

The proxy distributes the partitions that the coordinator assigns to it among the instances. While the group has no
other members, the proxy has all partitions, and nobody waits for the coordinator. All methods run on the loop.

Source: docs/guides/kafka.md#consumer-groups, docs/guides/rest-proxy.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from broker.kafka import ErrorCode
from broker.kafka.groups import Join, JoinAnswer, consumer_protocol
from broker.proxy.assignment import Partition, by_range

if TYPE_CHECKING:
    from broker.kafka.groups import Coordinator

_log = structlog.get_logger("broker.proxy")

CLIENT_ID: Final = "rest-proxy"
PROTOCOL: Final = "range"
#: How often the member asks the coordinator for a rebalance, and retries a refused join.
HEARTBEAT_S: Final = 0.5
SESSION_MS, REBALANCE_MS = 30_000, 60_000


class ProxyGroupMember:
    """See the module. `subscriptions`: the topics that instances subscribe to; `count`: the number of partitions of a
    topic; `prefixes`: of the key that created the group."""

    def __init__(
        self,
        coordinator: Coordinator,
        group: str,
        *,
        subscriptions: Callable[[], set[str]],
        count: Callable[[str], int],
        changed: Callable[[], None],
        prefixes: Sequence[str],
    ) -> None:
        self._coordinator = coordinator
        self._group = group
        self._subscriptions = subscriptions
        self._count = count
        self._changed = changed
        self._prefixes = tuple(prefixes)
        self._member_id = ""
        #: The id of a join whose answer is not there yet: the group has it as a member already.
        self._joining = ""
        #: The partitions that are assigned to the proxy; None: all.
        self.assigned: frozenset[Partition] | None = None
        if coordinator.describe(group).members:
            self.assigned = frozenset()
        self._task = asyncio.create_task(self._run(), name=f"proxy-group-{group}")

    async def stop(self) -> None:
        """Leave the group."""
        self._task.cancel()
        await asyncio.wait((self._task,))
        for member_id in {self._member_id, self._joining} - {""}:
            self._coordinator.leave(self._group, member_id, None)

    async def _run(self) -> None:
        while True:
            topics = self._topics()
            try:
                join_answer = await self._join(topics)
                generation = None if join_answer is None else await self._sync(join_answer, topics)
                while generation is not None:
                    await asyncio.sleep(HEARTBEAT_S)
                    error = self._coordinator.heartbeat(self._group, self._member_id, generation, None)
                    if error is not ErrorCode.NONE or self._topics() != topics:
                        break
                else:
                    await asyncio.sleep(HEARTBEAT_S)
            except Exception as error:
                _log.warning("proxy_group_not_joined", group=self._group, error=str(error))
                await asyncio.sleep(HEARTBEAT_S)

    def _topics(self) -> dict[str, int]:
        return {topic: self._count(topic) for topic in sorted(self._subscriptions())}

    async def _join(self, topics: Mapping[str, int]) -> JoinAnswer | None:
        """Join the group. None: it was refused, for example because the others use another assignment protocol."""
        asked = Join(
            member_id=self._member_id,
            fresh_id=self._coordinator.fresh_id(CLIENT_ID, None),
            instance_id=None,
            client_id=CLIENT_ID,
            client_host="",
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=((PROTOCOL, consumer_protocol.subscription(topics)),),
            round_trip=False,
        )
        self._joining = asked.member_id or asked.fresh_id
        join_answer = await self._coordinator.join(self._group, asked, self._prefixes)
        self._joining = ""
        if join_answer.error is ErrorCode.NONE:
            self._member_id = join_answer.member_id
            return join_answer
        self._member_id = ""
        if join_answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            self._on_assigned(frozenset())  # the others use an assignment protocol that the proxy does not know
        return None

    async def _sync(self, join_answer: JoinAnswer, topics: Mapping[str, int]) -> int | None:
        leads = join_answer.leader == join_answer.member_id
        assignments = self._assignments(join_answer, topics) if leads else {}
        synced = await self._coordinator.sync(
            self._group, join_answer.member_id, join_answer.generation, None, assignments
        )
        if synced.error is not ErrorCode.NONE:
            return None
        alone = leads and len(join_answer.members) == 1
        self._on_assigned(None if alone else frozenset(consumer_protocol.assigned(synced.assignment)))
        return join_answer.generation

    def _assignments(self, join_answer: JoinAnswer, topics: Mapping[str, int]) -> dict[str, bytes]:
        subscriptions = {each.member_id: consumer_protocol.subscribed(each.metadata) for each in join_answer.members}
        subscriptions[join_answer.member_id] = set(topics)
        counts = {topic: range(self._count(topic)) for wanted in subscriptions.values() for topic in wanted}
        return {name: consumer_protocol.assignment(mine) for name, mine in by_range(subscriptions, counts).items()}

    def _on_assigned(self, assigned: frozenset[Partition] | None) -> None:
        if assigned != self.assigned:
            self.assigned = assigned
            self._changed()
