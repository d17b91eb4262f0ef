"""The first requests of a client: versions, authentication, the id of an idempotent producer."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import Bytes, Int16, Int32, Int64, Message, NullableString, Part, Since, String, flexible


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


class SaslHandshakeRequest(Message):
    mechanism: String = ""


class SaslHandshakeResponse(Message):
    error_code: Int16 = 0
    mechanisms: list[String] = []


@flexible(2)
class SaslAuthenticateRequest(Message):
    auth_bytes: Bytes = b""


@flexible(2)
class SaslAuthenticateResponse(Message):
    error_code: Int16 = 0
    error_message: NullableString = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0


@flexible(2)
class InitProducerIdRequest(Message):
    transactional_id: NullableString = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1


@flexible(2)
class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
