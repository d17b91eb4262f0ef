"""All calls that the port serves: each area has a dict of its own, and this joins them."""

from __future__ import annotations

from typing import Final

from broker.kafka.apis import ApiKey
from broker.kafka.call import Handler
from broker.kafka.calls import admin, configs, groups, metadata, offsets, sasl, versions

HANDLERS: Final[dict[int, Handler]] = {
    **metadata.HANDLERS,
    **admin.HANDLERS,
    **configs.HANDLERS,
    **groups.HANDLERS,
    **offsets.HANDLERS,
    **sasl.HANDLERS,
}
HANDLERS[ApiKey.API_VERSIONS] = versions.handler(HANDLERS.keys())
