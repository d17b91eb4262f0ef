"""Decides whether a key may use a group. Prefixes of a key do not apply to group ids: the topics of the group decide.

    topics of the group             a key with prefixes
    the key covers all of them      may use the group
    the group has none              may use it if it has all prefixes of the key that created the group; if that key is
                                    not known, any key may use the group, and the first one counts as its creator
    otherwise                       cannot see the group, join it or commit for it

The topics of a consumer group are those with committed offsets, those that members subscribe to or are assigned, and
those of its REST Proxy instances. The topics of a share group are its queues and those that members subscribe to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.auth import READ, Access, Forbidden, Scopes
from broker.kafka.cluster import may
from broker.kafka.errors import ErrorCode
from broker.kafka.names import group_of
from storage import Unavailable

if TYPE_CHECKING:
    from broker.kafka.call import Call
    from broker.kafka.node import Node

#: The method by which a cell asks the home cell of a group.
MAY_USE: Final = "kafka_may_use_group"


def covers_all(access: Access, topics: Collection[str]) -> bool:
    """Whether the key covers all of these topics."""
    return not access.prefixes or all(name.startswith(access.prefixes) for name in topics)


def topics_of(broker: Node, group_id: str) -> set[str]:
    """All topics of a consumer group."""
    proxied = broker.proxy.groups().get(group_id)
    found = broker.kafka_offsets.topics(group_id) | broker.kafka_groups.topics(group_id)
    return found if proxied is None else found | proxied.topics()


def may_use_group(broker: Node, access: Access, group_id: str) -> bool:
    """Whether the key may use the consumer group."""
    return not access.prefixes or _may_use(broker, access, group_id, topics_of(broker, group_id))


async def require_group(broker: Node, access: Access, group_id: str) -> None:
    """Raises Forbidden if the key may not use the group; Unavailable if another cell, which may know, is away."""
    if access.prefixes and not await _home_allows(broker, access.prefixes, group_id):
        raise Forbidden("This key does not cover all topics of that group.", name=group_id[:255])


async def _home_allows(broker: Node, prefixes: Sequence[str], group_id: str) -> bool:
    """Whether a key with these prefixes may use the group, according to the cell that has its members."""
    cells = broker.cells
    if cells is not None and cells.home(group_id) != cells.me:
        return await cells.peers.call(cells.home(group_id), MAY_USE, [group_id, list(prefixes)])
    await broker.kafka_offsets.look(group_id)
    return may_use_group(broker, _Prefixed(prefixes), group_id)


def deciding(broker: Node) -> Callable[[Any], Awaitable[bool]]:
    """The handler of `MAY_USE` for other cells."""

    async def decide(argument: Any) -> bool:
        group_id, prefixes = argument
        return await _home_allows(broker, prefixes, group_id)

    return decide


class _Prefixed(Access):
    """The facts that decide which groups a key may use."""

    def __init__(self, prefixes: Sequence[str]) -> None:
        self.prefixes = tuple(prefixes)


async def require_consumer(broker: Node, access: Access, consumer: str) -> None:
    """Raises Forbidden if the consumer belongs to a group that the key may not use; Unavailable as `require_group`."""
    group_id = group_of(consumer)
    if group_id is not None:
        await require_group(broker, access, group_id)


async def denial(call: Call, group_id: str, scopes: Scopes = READ, *, look: bool = False) -> ErrorCode:
    """NONE if the key has these scopes and may use the consumer group; otherwise the error.

    In a set of cells, other cells are asked for the topics of the group if the decision needs them, or if `look`.
    """
    cells = call.broker.cells
    if cells is not None and (look or call.access.prefixes) and cells.home(group_id) == cells.me:
        try:
            await call.broker.kafka_offsets.look(group_id)
        except Unavailable:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
    allowed = may(call.access, scopes) and may_use_group(call.broker, call.access, group_id)
    return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED


async def may_use_share_group(call: Call, group_id: str) -> bool:
    """Whether the key may use the share group. Raises Unavailable if another cell, which may know, cannot be asked."""
    if call.access.prefixes:
        await call.broker.kafka_shares.look(group_id)
    return not call.access.prefixes or covers_all(call.access, call.broker.kafka_shares.topics(group_id))


def usable_groups(broker: Node, access: Access) -> Callable[[str], bool]:
    """A test for the consumer groups that the key may use; it computes the topics of all groups once."""
    if not access.prefixes:
        return lambda _: True
    committed, proxied = broker.kafka_offsets.topics_of_all(), broker.proxy.groups()

    def is_listed(group_id: str) -> bool:
        topics = committed.get(group_id, set()) | broker.kafka_groups.topics(group_id)
        if group_id in proxied:
            topics |= proxied[group_id].topics()
        return _may_use(broker, access, group_id, topics)

    return is_listed


def _may_use(broker: Node, access: Access, group_id: str, topics: Collection[str]) -> bool:
    if topics:
        return covers_all(access, topics)
    owner = broker.kafka_groups.owner(group_id)
    if owner is None:
        proxied = broker.proxy.groups().get(group_id)
        owner = None if proxied is None else proxied.owner
    return owner is None or (bool(owner) and covers_all(access, owner))
