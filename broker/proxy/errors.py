"""Refusals of the proxy, `{"error_code", "message"}`: the three digits of the status, followed by two more.

    ProxyError               status  code
      TopicMissing              404  40401
      PartitionMissing          404  40402
      InstanceMissing           404  40403
      FormatMismatch            406  40601
      NotOffered                406  406     Accept leaves out everything there is
      InstanceExists            409  40902
      IllegalState              409  40903   subscribed and assigned, or neither
      Unprocessable             422  422     a field of the body or query is wrong
      InvalidConsumerConfig     422  42204
    of v3 alone
      ClusterMissing            404  404
      TopicPartitionMissing     404  40403
      GroupMissing              404  40403
      ConsumerMissing           404  40403
      ConfigMissing             404  40403
      BadRequest                400  40002

Every other error keeps its status on /v0 and takes its number from a table here.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from broker.auth import Unauthorized
from broker.content import JSON, Answer, Headers, errors
from storage import InvalidRequest, StorageError, TopicNotFound, Unavailable

#: The number for Kafka errors in an answer about single records.
KAFKA_ERROR: Final = 50002
KAFKA_RETRIABLE: Final = 50003

#: Code of /v0 → number of the proxy, if it is not the status.
_NUMBERS: Final = {"unauthorized": 40101, "forbidden": 40301, "internal": 500}
_V2_JSON: Final = b"application/vnd.kafka.v2+json"


class ProxyError(Exception):
    """A refusal of the proxy."""

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
    """The instance is not in a state for this."""

    status, number = 409, 40903

    def __init__(self, message: str) -> None:
        super().__init__(f"Illegal state: {message}")


class Unprocessable(ProxyError):
    """A field is wrong."""

    status, number = 422, 422


class InvalidConsumerConfig(ProxyError):
    """A setting of a consumer instance is wrong."""

    status, number = 422, 42204

    def __init__(self, message: str) -> None:
        super().__init__(f"Invalid consumer configuration: {message}")


class ClusterMissing(ProxyError):
    """There is no cluster of that id here."""

    status, number = 404, 404


class TopicPartitionMissing(ProxyError):
    """This server does not host this topic-partition."""

    status, number = 404, 40403


class GroupMissing(ProxyError):
    """There is no such consumer group."""

    status, number = 404, 40403


class ConsumerMissing(ProxyError):
    """There is no such consumer in that group."""

    status, number = 404, 40403


class ConfigMissing(ProxyError):
    """There is no such setting."""

    status, number = 404, 40403


class BadRequest(ProxyError):
    """The request cannot be carried out as it stands."""

    status, number = 400, 40002


def number_of(error: StorageError) -> int:
    """The number for a record that was not written, in an answer about single records: whether a retry is sensible."""
    return KAFKA_RETRIABLE if isinstance(error, Unavailable) or error.code == "throttled" else KAFKA_ERROR


def answer_v2(error: Exception, *, request_id: str) -> Answer:
    """The answer to a request of v2 that ended in `error`. Never raises."""
    if isinstance(error, TopicNotFound):
        error = TopicMissing()
    return _answer(error, request_id, invalid=422, content_type=_V2_JSON)


def answer_v3(error: Exception, *, request_id: str) -> Answer:
    """The answer to a request of v3 that ended in `error`; there, a wrong field is a 400. Never raises."""
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
