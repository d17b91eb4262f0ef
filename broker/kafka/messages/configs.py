"""Settings of topics, groups and brokers."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import Bool, Int8, Int16, Int32, Message, NullableString, Part, Since, String, flexible


class DescribeConfigsResource(Part):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: list[String] | None = []


@flexible(4)
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, Since(3)] = False


class DescribeConfigsSynonym(Part):
    name: String = ""
    value: NullableString = None
    source: Int8 = 0


class DescribeConfigsResourceResult(Part):
    name: String = ""
    value: NullableString = None
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Annotated[Int8, Since(3)] = 0
    documentation: Annotated[NullableString, Since(3)] = None


class DescribeConfigsResult(Part):
    error_code: Int16 = 0
    error_message: NullableString = None
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = []


@flexible(4)
class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []


class AlterConfigsAlterableConfig(Part):
    name: String = ""
    value: NullableString = None


class AlterConfigsResource(Part):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterConfigsAlterableConfig] = []


@flexible(2)
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Part):
    error_code: Int16 = 0
    error_message: NullableString = None
    resource_type: Int8 = 0
    resource_name: String = ""


@flexible(2)
class AlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class IncrementalAlterConfigsAlterableConfig(Part):
    name: String = ""
    config_operation: Int8 = 0
    value: NullableString = None


class IncrementalAlterConfigsAlterConfigsResource(Part):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[IncrementalAlterConfigsAlterableConfig] = []


@flexible(1)
class IncrementalAlterConfigsRequest(Message):
    resources: list[IncrementalAlterConfigsAlterConfigsResource] = []
    validate_only: Bool = False


class IncrementalAlterConfigsAlterConfigsResourceResponse(Part):
    error_code: Int16 = 0
    error_message: NullableString = None
    resource_type: Int8 = 0
    resource_name: String = ""


@flexible(1)
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[IncrementalAlterConfigsAlterConfigsResourceResponse] = []


@flexible(0)
class ListConfigResourcesRequest(Message):
    resource_types: Annotated[list[Int8], Since(1)] = []


class ListConfigResourcesConfigResource(Part):
    resource_name: String = ""
    resource_type: Annotated[Int8, Since(1)] = 16


@flexible(0)
class ListConfigResourcesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ListConfigResourcesConfigResource] = []
