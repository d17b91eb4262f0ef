"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, for topics, groups and this broker.

Source: docs/guides/kafka.md#protocol-versions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.auth import ADMIN, READ, Scopes
from broker.content import in_slices
from broker.kafka import cluster, group_settings, settings
from broker.kafka.apis import ApiKey
from broker.kafka.broker_settings import broker_settings
from broker.kafka.call import Call, Handler, decoded
from broker.kafka.changes import change, check
from broker.kafka.errors import ErrorCode
from broker.kafka.group_access import denial, may_use_share_group
from broker.kafka.group_settings import GROUP_SETTINGS, GroupConfig, GroupSetting
from broker.kafka.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsAlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.kafka.refusals import Refused, refusal
from broker.kafka.settings import Setting
from broker.kafka.spread import spread
from storage import TopicConfig

if TYPE_CHECKING:
    from broker.kafka.messages.configs import AlterConfigsResource, IncrementalAlterConfigsAlterConfigsResource
    from broker.kafka.node import Cells


class Resource(enum.IntEnum):
    """The types of resources with configs."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


#: Sources of a value.
_OF_TOPIC, _OF_BROKER, _DEFAULT, _OF_GROUP = 1, 4, 5, 8
#: A resource has some thirty settings: what it counts in a slice, and how many make a large list.
_RESOURCE_BYTES: Final = 16 * 1024
_FEW_RESOURCES: Final = 8
#: Of a node's number.
_MOST_DIGITS: Final = 10
_FORBIDDEN: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.BROKER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
}


async def describe(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe all settings, including those with default values."""
    results: list[DescribeConfigsResult] = []
    async for resource in in_slices(request.resources, each=_RESOURCE_BYTES):
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            result.configs = await _described(call, resource, request)
        except Exception as error:
            refused = refusal(error)
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


async def _described(
    call: Call, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    wanted = resource.configuration_keys
    if resource.resource_type == Resource.TOPIC:
        _allow(call, Resource.TOPIC, READ, resource.resource_name)
        config = cluster.topic(call, resource.resource_name).config
        largest = call.broker.engine.options.max_record_bytes
        found = [_of_topic(setting, config, largest, request) for setting in settings.SETTINGS.values()]
    elif resource.resource_type == Resource.BROKER:
        _allow(call, Resource.BROKER, READ)
        _check_broker(call, resource.resource_name)
        found = _of_broker(call)
    elif resource.resource_type == Resource.GROUP:
        await _allow_group(call, READ, resource.resource_name)
        config_ = call.broker.kafka_shares.configs.config_of(resource.resource_name)
        config = config_.set if config_.is_shown_to(call.access.prefixes) else {}
        found = [_of_group(setting, config, request) for setting in GROUP_SETTINGS.values()]
    else:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Resource type {resource.resource_type} has no settings.")
    return [each for each in found if not wanted or each.name in wanted]


def _of_topic(
    setting: Setting, config: TopicConfig, largest: int, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    value = settings.value_of(setting, config, largest)
    source = _DEFAULT if settings.is_default(setting, config) else _OF_TOPIC
    described = DescribeConfigsResourceResult(
        name=setting.name, value=value, config_source=source, config_type=setting.kind
    )
    if request.include_synonyms:
        described.synonyms = [DescribeConfigsSynonym(name=setting.name, value=value, source=source)]
    if request.include_documentation:
        described.documentation = setting.about
    return described


def _of_group(
    setting: GroupSetting, config: GroupConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    value = config.get(setting.name, setting.default)
    source = _OF_GROUP if setting.name in config else _DEFAULT
    described = DescribeConfigsResourceResult(
        name=setting.name, value=value, config_source=source, config_type=setting.kind
    )
    if request.include_synonyms:
        described.synonyms = [DescribeConfigsSynonym(name=setting.name, value=value, source=source)]
    if request.include_documentation:
        described.documentation = setting.about
    return described


def _of_broker(call: Call) -> list[DescribeConfigsResourceResult]:
    host, port = cluster.address(call)
    return [
        DescribeConfigsResourceResult(
            name=each.name, value=each.value, read_only=True, config_source=_OF_BROKER, config_type=each.kind
        )
        for each in broker_settings(call.broker, host, port)
    ]


async def alter(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configs of topics and groups."""
    responses: list[AlterConfigsResourceResponse] = []
    for resource in request.resources:
        given = [(each.name, each.value) for each in resource.configs]
        if resource.resource_type == Resource.GROUP:
            code, message = await _alter_group(
                call, resource.resource_name,
                lambda _, given=given: group_settings.replaced(given), dry=request.validate_only,
            )  # fmt: skip
        else:
            code, message = await _alter(
                call, resource.resource_type, resource.resource_name,
                lambda config, given=given: settings.replaced(given, config), dry=request.validate_only,
            )  # fmt: skip
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)


async def incremental(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Change individual settings of topics and groups."""
    responses: list[IncrementalAlterConfigsAlterConfigsResourceResponse] = []
    for resource in request.resources:
        given = [(each.name, each.config_operation, each.value) for each in resource.configs]
        if resource.resource_type == Resource.GROUP:
            code, message = await _alter_group(
                call, resource.resource_name,
                lambda config, given=given: group_settings.altered(given, config), dry=request.validate_only,
            )  # fmt: skip
        else:
            code, message = await _alter(
                call, resource.resource_type, resource.resource_name,
                lambda config, given=given: settings.altered(given, config), dry=request.validate_only,
            )  # fmt: skip
        responses.append(
            IncrementalAlterConfigsAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    call: Call, type_: int, name: str, changed: Callable[[TopicConfig], TopicConfig], *, dry: bool
) -> tuple[ErrorCode, str | None]:
    try:
        if type_ == Resource.BROKER:
            _allow(call, Resource.BROKER, ADMIN)
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                "Settings of the broker are environment variables, which it reads when it starts.",
            )
        if type_ != Resource.TOPIC:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Resource type {type_} has no settings.")
        _allow(call, Resource.TOPIC, ADMIN, name)
        config = cluster.topic(call, name).config
        if dry:
            check(call.broker.engine, name, changed(config))
        else:
            await change(call.broker.engine, name, changed)
    except Exception as error:
        refused = refusal(error)
        return refused.code, refused.message
    return ErrorCode.NONE, None


async def _alter_group(
    call: Call, group_id: str, changed: Callable[[GroupConfig], GroupConfig], *, dry: bool
) -> tuple[ErrorCode, str | None]:
    configs = call.broker.kafka_shares.configs
    try:
        await _allow_group(call, ADMIN, group_id)
        if dry:
            changed(configs.config_of(group_id).set)
        elif not await configs.change(group_id, call.access.prefixes, changed):
            raise Refused(_FORBIDDEN[Resource.GROUP], f"A key for more topics than this one has configured {group_id}.")
    except Exception as error:
        refused = refusal(error)
        return refused.code, refused.message
    return ErrorCode.NONE, None


async def _allow_group(call: Call, scopes: Scopes, group_id: str) -> None:
    if not group_id:
        raise Refused(ErrorCode.INVALID_REQUEST, "The group id is empty.")
    error = await denial(call, group_id, scopes)
    if error is ErrorCode.NONE and not await may_use_share_group(call, group_id):
        error = _FORBIDDEN[Resource.GROUP]
    if error is not ErrorCode.NONE:
        raise Refused(error)


def _allow(call: Call, kind: Resource, scopes: Scopes, *names: str) -> None:
    if not cluster.may(call.access, scopes, *names):
        raise Refused(_FORBIDDEN[kind])


def _check_broker(call: Call, name: str) -> None:
    here = cluster.node_id(call.broker)
    if name not in ("", str(here)):
        only = "the only broker is" if call.broker.cells is None else "this is broker"
        raise Refused(ErrorCode.INVALID_REQUEST, f"Broker {name!r} does not exist; {only} {here}.")


def _cell_of(
    cells: Cells,
    resource: DescribeConfigsResource | AlterConfigsResource | IncrementalAlterConfigsAlterConfigsResource,
) -> int:
    """The cell that has the topic, or coordinates the group, or is the node."""
    name = resource.resource_name
    if resource.resource_type == Resource.TOPIC:
        return cells.owner(name)
    if resource.resource_type == Resource.GROUP:
        return cells.home(name)
    if resource.resource_type == Resource.BROKER and name.isdecimal() and len(name) <= _MOST_DIGITS:
        return cluster.cell_of_node(cells, int(name))
    return cells.me


_describe = spread(
    ApiKey.DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    describe,
    owner=_cell_of,
    refused=lambda resource, code, message: DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    ),
    into=[("resources", "results")],
)
_alter_all = spread(
    ApiKey.ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResponse,
    alter,
    owner=_cell_of,
    refused=lambda resource, code, message: AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    ),
    into=[("resources", "responses")],
)
_incremental = spread(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    incremental,
    owner=_cell_of,
    refused=lambda resource, code, message: IncrementalAlterConfigsAlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    ),
    into=[("resources", "responses")],
)


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.DESCRIBE_CONFIGS: decoded(
        DescribeConfigsRequest, _describe, lists=lambda request: len(request.resources) > _FEW_RESOURCES
    ),
    ApiKey.ALTER_CONFIGS: decoded(AlterConfigsRequest, _alter_all),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: decoded(IncrementalAlterConfigsRequest, _incremental),
}
