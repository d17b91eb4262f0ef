"""ListConfigResources: the resources that have configs.

Source: docs/guides/kafka.md#protocol-versions.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.auth import READ
from broker.content import in_slices
from broker.kafka import cluster
from broker.kafka.apis import ApiKey
from broker.kafka.call import Call, Handler, decoded
from broker.kafka.calls.configs import Resource
from broker.kafka.cluster import may
from broker.kafka.errors import ErrorCode
from broker.kafka.group_access import denial, may_use_share_group
from broker.kafka.messages.configs import (
    ListConfigResourcesConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from broker.kafka.spread import all_there, from_all, passable

#: From this version on, a request names types. Older ones mean client metrics only, which the broker does not collect.
_TYPES_SINCE: Final = 1


async def _wait(call: Call, _: ListConfigResourcesRequest) -> None:
    await all_there(call)


async def resources(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the resources of all cells."""
    found = await from_all(call, request, ListConfigResourcesResponse, _resources)
    listed = sorted(
        (each for one in found for each in one.config_resources),
        key=lambda each: (each.resource_type, each.resource_name),
    )
    return found[0] if len(found) == 1 else msgspec.structs.replace(found[0], config_resources=listed)


async def _resources(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the topics, the groups with a config, and this node, as far as the key covers them: only the requested
    types, or all."""
    if not may(call.access, READ):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    found: list[ListConfigResourcesConfigResource] = []
    if call.version < _TYPES_SINCE:
        return ListConfigResourcesResponse()
    wanted = set(request.resource_types) or {Resource.TOPIC, Resource.BROKER, Resource.GROUP}
    if Resource.TOPIC in wanted:
        for page in cluster.pages(call.broker.engine, call.access):
            found += [
                ListConfigResourcesConfigResource(resource_name=topic.name, resource_type=Resource.TOPIC)
                async for topic in in_slices(page)
            ]
    if Resource.BROKER in wanted:
        found.append(
            ListConfigResourcesConfigResource(
                resource_name=str(cluster.node_id(call.broker)), resource_type=Resource.BROKER
            )
        )
    if Resource.GROUP in wanted:
        found += [
            ListConfigResourcesConfigResource(resource_name=group_id, resource_type=Resource.GROUP)
            for group_id, config_ in call.broker.kafka_shares.configs.groups()
            if config_.is_shown_to(call.access.prefixes)
            and await denial(call, group_id) is ErrorCode.NONE
            and await may_use_share_group(call, group_id)
        ]
    return ListConfigResourcesResponse(config_resources=found)


passable(ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest, _resources)
HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.LIST_CONFIG_RESOURCES: decoded(ListConfigResourcesRequest, resources, lists=lambda _: True, before=_wait)
}
