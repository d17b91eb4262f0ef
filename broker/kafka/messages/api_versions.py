"""ApiVersions."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import Int16, Int32, Message, Part, Since, String, flexible


@flexible(3)
class ApiVersionsRequest(Message):
    client_software_name: Annotated[String, Since(3)] = ""
    client_software_version: Annotated[String, Since(3)] = ""


class ApiVersion(Part):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


@flexible(3)
class ApiVersionsResponse(Message):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
