"""The handlers of all calls that the port serves."""

from __future__ import annotations

from typing import Final

from broker.kafka.apis import ApiKey
from broker.kafka.call import Handler
from broker.kafka.calls import (
    admin,
    config_resources,
    configs,
    describe_topics,
    fetch,
    group_admin,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    producers,
    sasl,
    share,
    share_admin,
    versions,
)

HANDLERS: Final[dict[int, Handler]] = {
    **admin.HANDLERS,
    **config_resources.HANDLERS,
    **configs.HANDLERS,
    **describe_topics.HANDLERS,
    **fetch.HANDLERS,
    **group_admin.HANDLERS,
    **groups.HANDLERS,
    **list_offsets.HANDLERS,
    **metadata.HANDLERS,
    **offsets.HANDLERS,
    **produce.HANDLERS,
    **producers.HANDLERS,
    **sasl.HANDLERS,
    **share.HANDLERS,
    **share_admin.HANDLERS,
}
HANDLERS[ApiKey.API_VERSIONS] = versions.handler(HANDLERS.keys())
