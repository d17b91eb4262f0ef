"""Errors of the proxy, `{"error_code", "message"}`. The code is the status, or the status and two more digits.

    ProxyError               status  code
      TopicMissing              404  40401
      PartitionMissing          404  40402
      InstanceMissing           404  40403
      FormatMismatch            406  40601
      NotOffered                406  406     Accept excludes all offered media types
      InstanceExists            409  40902
      IllegalState              409  40903   both subscribed and assigned, or neither
      Unprocessable             422  422     a field of the body or query is invalid
      InvalidConsumerConfig     422  42204
    only v3
      ClusterMissing            404  404
      TopicPartitionMissing     404  40403
      GroupMissing              404  40403
      ConsumerMissing           404  40403
      ConfigMissing             404  40403
      BadRequest                400  40002

All other errors have the status that they have under /v0, and a number from the table here.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from broker.auth import Unauthorized
from broker.content import JSON, Answer, Headers, errors
from storage import InvalidRequest, StorageError, TopicNotFound, Unavailable

#: The number of Kafka errors in answers about individual records.
KAFKA_ERROR: Final = 50002
KAFKA_RETRIABLE: Final = 50003

#: Numbers of the proxy by code of /v0, if the number is not the status.
_NUMBERS: Final = {"unauthorized": 40101, "forbidden": 40301, "internal": 500}
_V2_JSON: Final = b"application/vnd.kafka.v2+json"


class ProxyError(Exception):
    """An error of the proxy."""

    status: ClassVar[int] = 500
    number: ClassVar[int] = 500

    def __init__(self, message: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        super().__init__(self.message)


class TopicMissing(ProxyError):
    """Topic not found."""

    status, number = 404, 40401


class PartitionMissing(ProxyError):
    """Partition not found."""

    status, number = 404, 40402


class InstanceMissing(ProxyError):
    """Consumer instance not found."""

    status, number = 404, 40403


class FormatMismatch(ProxyError):
    """The requested embedded data format does not match the deserializer for this consumer instance"""

    status, number = 406, 40601


class NotOffered(ProxyError):
    """HTTP 406 Not Acceptable"""

    status, number = 406, 406


class InstanceExists(ProxyError):
    """Consumer with specified consumer ID already exists in the specified consumer group."""

    status, number = 409, 40902


class IllegalState(ProxyError):
    """The state of the instance does not allow this."""

    status, number = 409, 40903

    def __init__(self, message: str) -> None:
        super().__init__(f"Illegal state: {message}")


class Unprocessable(ProxyError):
    """A field is invalid."""

    status, number = 422, 422


class InvalidConsumerConfig(ProxyError):
    """A setting of a consumer instance is invalid."""

    status, number = 422, 42204

    def __init__(self, message: str) -> None:
        super().__init__(f"Invalid consumer configuration: {message}")


class ClusterMissing(ProxyError):
    """This server has no cluster with that id."""

    status, number = 404, 404


class TopicPartitionMissing(ProxyError):
    """This server does not host this topic-partition."""

    status, number = 404, 40403


class GroupMissing(ProxyError):
    """The consumer group does not exist."""

    status, number = 404, 40403


class ConsumerMissing(ProxyError):
    """The consumer does not exist in that group."""

    status, number = 404, 40403


class ConfigMissing(ProxyError):
    """The setting does not exist."""

    status, number = 404, 40403


class BadRequest(ProxyError):
    """The request is invalid."""

    status, number = 400, 40002


def number_of(error: StorageError) -> int:
    """The number of an error in an answer about individual records. It tells whether to retry."""
    return KAFKA_RETRIABLE if isinstance(error, Unavailable) or error.code == "throttled" else KAFKA_ERROR


def answer_v2(error: Exception, *, request_id: str) -> Answer:
    """The answer to a v2 request that failed with `error`. Never raises."""
    if isinstance(error, TopicNotFound):
        error = TopicMissing()
    return _answer(error, request_id, invalid=422, content_type=_V2_JSON)


def answer_v3(error: Exception, *, request_id: str) -> Answer:
    """The answer to a v3 request that failed with `error`; in v3, an invalid field is a 400. Never raises."""
    if isinstance(error, TopicNotFound):
        error = TopicPartitionMissing()
    if isinstance(error, InvalidRequest) and error.detail.get("field") != "body":
        error = BadRequest(error.message)
    return _answer(error, request_id, invalid=400, content_type=JSON)


def _answer(error: Exception, request_id: str, *, invalid: int, content_type: bytes) -> Answer:
    if isinstance(error, ProxyError):
        return _made(error.status, error.number, error.message, content_type)
    common = errors.answer(error, request_id=request_id)
    message, code = _said(common)
    status = common.status
    if code == "invalid_request" and _is_of_a_field(error):
        status = invalid
    number = _NUMBERS.get(code, status)
    if isinstance(error, Unavailable):
        number = KAFKA_RETRIABLE
    elif isinstance(error, StorageError) and status == 500:
        number = KAFKA_ERROR
    headers = common.headers
    if isinstance(error, Unauthorized):
        headers = [(b"www-authenticate", b'Basic realm="topics"')]
    return _made(status, number, message, content_type, headers)


def _is_of_a_field(error: Exception) -> bool:
    """Whether the error is about a field of valid JSON; otherwise the body is not JSON."""
    return not (isinstance(error, InvalidRequest) and error.detail.get("field") == "body")


def _said(common: Answer) -> tuple[str, str]:
    said = msgspec.json.decode(common.body)["error"]
    return said["message"], said["code"]


def _made(status: int, number: int, message: str, content_type: bytes, headers: Headers = ()) -> Answer:
    body = msgspec.json.encode({"error_code": number, "message": message})
    return Answer(body, status=status, content_type=content_type, headers=headers)
