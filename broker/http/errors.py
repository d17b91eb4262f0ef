"""From an error to an answer: the only place that knows status codes (source: api.md §1).

    ApiError                     refusals that arise in the HTTP layer itself
      PathNotFound               404 not_found
      MethodNotAllowed           405 method_not_allowed     Allow
      NotAcceptable              406 not_acceptable
      UnsupportedMediaType       415 unsupported_media_type
      BodyTooSlow                408 request_timeout
      PayloadTooLarge            413 payload_too_large
      HeadTooLarge               431 header_too_large
      PreconditionFailed         412 precondition_failed
      RangeNotSatisfiable        416 range_not_satisfiable  Content-Range
      Refused                    any code: what a framework refused, by its status

Everything `storage.errors` raises carries its code; whatever else is raised is `internal`, logged with the request id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from broker.auth.access import Unauthorized
from broker.http.answers import Answer
from storage.errors import InvalidRequest, StorageError

_log = structlog.get_logger("broker.http")

#: code → (status, seconds for Retry-After or None).
STATUS: Final[dict[str, tuple[int, int | None]]] = {
    "invalid_request": (400, None),
    "batch_too_large": (400, None),
    "record_too_large": (400, None),
    "unauthorized": (401, None),
    "forbidden": (403, None),
    "topic_not_found": (404, None),
    "router_not_found": (404, None),
    "consumer_not_found": (404, None),
    "not_found": (404, None),
    "method_not_allowed": (405, None),
    "not_acceptable": (406, None),
    "request_timeout": (408, None),
    "topic_exists_incompatible": (409, None),
    "topic_not_empty": (409, None),
    "router_cycle": (409, None),
    "seq_conflict": (409, None),
    "idempotency_conflict": (409, None),
    "not_a_queue": (409, None),
    "lease_lost": (409, None),
    "precondition_failed": (412, None),
    "payload_too_large": (413, None),
    "unsupported_media_type": (415, None),
    "range_not_satisfiable": (416, None),
    "topic_full": (422, None),
    "throttled": (429, 1),
    "header_too_large": (431, None),
    "internal": (500, None),
    "segment_corrupt": (500, None),
    "not_ready": (503, 1),
    "shutting_down": (503, 1),
    "wal_saturated": (503, 1),
    "storage_failed": (503, 5),
    "storage_full": (507, None),
}

#: The framework's kinds of complaint, in the words that the hot routes use.
_PHRASES = {
    "missing": "required",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "dict_type": "expected an object",
    "int_type": "expected an integer",
    "bool_type": "expected true or false",
    "string_type": "expected a string",
}
_BY_STATUS = {400: "invalid_request", 404: "not_found", 405: "method_not_allowed", 413: "payload_too_large"}


class ApiError(Exception):
    """A refusal by the HTTP layer."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str | None = None, **detail: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.detail = detail
        super().__init__(self.message)


class PathNotFound(ApiError):
    """There is nothing at this path."""

    code = "not_found"


class MethodNotAllowed(ApiError):
    """This path does not have that method."""

    code = "method_not_allowed"

    def __init__(self, allow: str) -> None:
        super().__init__(f"This path does not have that method; it has {allow}.")
        self.allow = allow


class NotAcceptable(ApiError):
    """This path answers with text/event-stream, which the Accept header leaves out."""

    code = "not_acceptable"


class UnsupportedMediaType(ApiError):
    """A body must come with Content-Type: application/json."""

    code = "unsupported_media_type"


class PayloadTooLarge(ApiError):
    """The body is larger than this broker takes."""

    code = "payload_too_large"

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"The body is larger than {max_bytes} bytes, the most this broker takes.", max=max_bytes)


class BodyTooSlow(ApiError):
    """The rest of the body did not come, or too slowly; nothing was done."""

    code = "request_timeout"


class HeadTooLarge(ApiError):
    """The head of the request is longer than this broker takes."""

    code = "header_too_large"

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            f"Target and header fields are longer than {max_bytes} bytes, or more than 100.", max=max_bytes
        )


class PreconditionFailed(ApiError):
    """It is not any more what If-Match names."""

    code = "precondition_failed"


class RangeNotSatisfiable(ApiError):
    """The range begins behind the end."""

    code = "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        super().__init__(f"The range has none of the {size} bytes there are.", size=size)
        self.size = size


def answer(error: Exception, *, request_id: str) -> Answer:
    """The answer to a request that ended in `error`. Never raises, never leaks what an unknown error says."""
    code, message, detail = _parts(error, request_id)
    status, retry_after_s = STATUS.get(code, (500, None))
    headers: list[tuple[bytes, bytes]] = []
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allow.encode()))
    if isinstance(error, RangeNotSatisfiable):
        headers += (b"accept-ranges", b"bytes"), (b"content-range", b"bytes */%d" % error.size)
    if isinstance(error, BodyTooSlow):
        headers.append((b"connection", b"close"))  # the rest of the body may still come
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    if retry_after_s is not None:
        wait_ms = detail.get("retry_after_ms", retry_after_s * 1000)
        headers.append((b"retry-after", b"%d" % max(1, -(-wait_ms // 1000))))
    return Answer(body=envelope(code, message, detail), status=status, headers=headers)


def envelope(code: str, message: str, detail: dict[str, Any]) -> bytes:
    """`{"error": {...}}` as JSON."""
    error: dict[str, Any] = {"code": code, "message": message}
    if detail:
        error["detail"] = detail
    return msgspec.json.encode({"error": error}, enc_hook=str)


def status_of(code: str) -> int:
    """The status that belongs to a code."""
    return STATUS[code][0]


def _parts(error: Exception, request_id: str) -> tuple[str, str, dict[str, Any]]:
    if isinstance(error, ApiError | StorageError) and error.code != "internal":
        if error.code not in STATUS:
            _log.error("error_code_without_status", code=error.code, request_id=request_id)
        return error.code, error.message, error.detail
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        code = _BY_STATUS.get(error.status_code, "internal")
        return code, f"{error.detail}.".replace("..", "."), {}
    _log.error("request_failed", request_id=request_id, exc_info=error)
    return "internal", "The broker made a mistake; its log has more under this request id.", {"request_id": request_id}


def _invalid(error: RequestValidationError) -> tuple[str, str, dict[str, Any]]:
    """Names the first field that is wrong."""
    first = error.errors()[0]
    refusal = wrong_model(first, (), str(first["loc"][0]))
    return refusal.code, refusal.message, refusal.detail


def wrong_model(error: Mapping[str, Any], within: Sequence[str], whole: str) -> InvalidRequest:
    """A model's complaint as a refusal that begins with the field's name; `whole` when it is about all of it.

    Where the field stands: behind `within`, or, without that, behind the part of the request named first.
    """
    location = (*within, *error["loc"]) if within else error["loc"][1:]
    field = ""
    for part in location:
        field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else part
    field = field or whole
    sentence = _PHRASES.get(error["type"]) or error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return InvalidRequest(f"{field}: {sentence[:1].lower()}{sentence[1:].rstrip('.')}.", field=field)
