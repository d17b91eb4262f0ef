"""From an error to an answer: the only place that knows status codes.

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

The errors of `storage.errors` have codes. Any other exception is answered as `internal`, and logged with the request
id.

Source: docs/reference/errors.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from broker.auth import Unauthorized
from broker.content.answers import Answer
from schemas import UnknownField
from storage import InvalidRequest, StorageError

_log = structlog.get_logger("broker.http")


class Code(NamedTuple):
    """A code: its status, the seconds for Retry-After or None, and three texts for the documentation.

    `retry` begins with yes (the same request may succeed later) or no. `effect` says what the failed request has done;
    it begins with nothing or unknown.
    """

    status: int
    wait_s: int | None
    cause: str
    retry: str
    effect: str = "nothing"


_NO: Final = "no"
_AFTER_DELAY: Final = "yes, after Retry-After"

#: Every error code. The table of docs/reference/errors.md is made from it; a test reaches each code.
CODES: Final[dict[str, Code]] = {
    "invalid_request": Code(
        400, None, "a field, a name or the JSON is invalid; `detail.field` names it", _NO,
    ),
    "batch_too_large": Code(
        400, None, "too many records in a write, or too many seqs in an ack, nack or extend", "no; in parts",
    ),
    "record_too_large": Code(
        400, None, "a record exceeds the limit, or the topic's cap", _NO,
    ),
    "not_mine": Code(
        421, None,
        "the request came to a [cell](../cells.md#names) that does not have this topic: `detail.cell` has it, or "
        "decides about it",
        "no; at that cell, or at the broker's own address, which finds it",
    ),
    "unauthorized": Code(401, None, "the broker has [keys](#keys), and the request has none of them", "no; with a key"),
    "forbidden": Code(
        403, None,
        "the key lacks `detail.scopes`, or does not cover `detail.name`; or the broker does not accept the name "
        "`detail.host`, or requests by [pages](#pages-of-other-sites) of `detail.origin`",
        "no; with another key, or after a setting allows the host or the site",
    ),
    "topic_not_found": Code(404, None, "the topic does not exist", _NO),
    "router_not_found": Code(404, None, "the router does not exist", _NO),
    "consumer_not_found": Code(404, None, "the consumer does not exist", _NO),
    "not_found": Code(404, None, "the path, record or segment does not exist: `detail.reason`", _NO),
    "method_not_allowed": Code(
        405, None, "the path does not have this method; the header `Allow` lists its methods", _NO,
    ),
    "not_acceptable": Code(406, None, "the answer is an event stream, which `Accept` excludes", _NO),
    "request_timeout": Code(
        408, None, "the body arrived too slowly", "no; with a smaller body, or a faster connection",
    ),
    "topic_exists_incompatible": Code(
        409, None,
        "the setting, or the source or dest of a router, cannot be changed; or a queue cannot have consumers", _NO,
    ),
    "router_cycle": Code(
        409, None, "the router would make a cycle: `detail.cycle`", "no; with `allow_cycle`",
    ),
    "topic_not_empty": Code(409, None, "the topic has records, and the request has `if_empty`", "no; when it is empty"),
    "seq_conflict": Code(
        409, None,
        "`expected_seq` is not the last assigned seq", "no; read the new records, then with `detail.head_seq`",
    ),
    "epoch_conflict": Code(
        409, None,
        "the topic was created again, restored or salvaged, and the request has the former `epoch`",
        "no; read on, with `detail.epoch`",
    ),
    "idempotency_conflict": Code(
        409, None,
        "the key was used with other records, and the request has `idempotency_strict`", "no; with another key",
    ),
    "not_a_queue": Code(409, None, "the topic is not a queue", _NO),
    "lease_lost": Code(
        409, None, "with `strict`: the caller does not hold the leases of `detail.seqs`", "no; without these",
    ),
    "precondition_failed": Code(
        412, None, "the file has changed since the ETag in `If-Match`", "no; list the segments again",
    ),
    "payload_too_large": Code(
        413, None, "the body, compressed or not, exceeds `TOPICS_MAX_BODY_BYTES`; settings: 1 MiB", "no; in parts",
    ),
    "unsupported_media_type": Code(415, None, "a body must be `application/json`", _NO),
    "range_not_satisfiable": Code(416, None, "the range begins after the end: `detail.size`", _NO),
    "topic_full": Code(
        422, None,
        "a topic with `discard: reject` is at its cap", "no; after records are deleted, or the cap is raised",
    ),
    "throttled": Code(
        429, 1, "a limit of the broker: `detail.limit`, `detail.max`; or too many writes: `detail.retry_after_ms`",
        "yes, after Retry-After; for `max_topics`, `max_routers`, `max_consumers` and `max_total_bytes` only after "
        "something was deleted; not for `max_partitions`",
    ),
    "header_too_large": Code(
        431, None, "target and header fields exceed `TOPICS_MAX_HEADER_BYTES`, or there are more than 100", _NO,
    ),
    "internal": Code(
        500, None, "a defect of the broker; its log has details under the request id", "no; first check what was done",
        "unknown",
    ),
    "segment_corrupt": Code(
        500, None,
        "the checksum of a stored record fails: `detail` has topic, seq, file, offset; a file of a segment is missing"
        " or cut off: no record from `from_seq` to `to_seq`, both inclusive, can be read",
        "no; reads continue after it with `skip_corrupt`",
    ),
    "not_ready": Code(503, 1, "the broker is recovering: `detail.replay_progress`", _AFTER_DELAY),
    "shutting_down": Code(
        503, 1, "the broker is stopping", "yes, after the restart",
        "nothing; with `detail.outcome` `unknown` (the grace period has ended) it may have been done",
    ),
    "wal_saturated": Code(503, 1, "the log cannot keep up", _AFTER_DELAY),
    "overloaded": Code(
        503, 1, "answers or bodies use all their memory: `detail.limit`, `detail.max`", _AFTER_DELAY,
    ),
    "storage_failed": Code(
        503, 5,
        "a write or sync failed, and a shard of the log has stopped; or the disk or the cold tier cannot be read: "
        "`detail` has topic, seq",
        "yes, after a restart, or when the disk or the cold tier works again",
        "unknown: with `detail.outcome` `unknown` a write may exist after the next start; otherwise nothing",
    ),
    "storage_full": Code(507, None, "the disk is full", "yes, when there is space; the broker resumes by itself"),
}  # fmt: skip

#: The framework's error types, in the words that the hot routes use.
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
    """This path does not exist."""

    code = "not_found"


class MethodNotAllowed(ApiError):
    """This path does not have that method."""

    code = "method_not_allowed"

    def __init__(self, allow: str) -> None:
        super().__init__(f"This path does not have that method; it has {allow}.")
        self.allow = allow


class NotAcceptable(ApiError):
    """The answer of this path is text/event-stream, which the Accept header excludes."""

    code = "not_acceptable"


class UnsupportedMediaType(ApiError):
    """A request with a body needs Content-Type: application/json."""

    code = "unsupported_media_type"


class PayloadTooLarge(ApiError):
    """The body is too large."""

    code = "payload_too_large"

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"The body exceeds {max_bytes} bytes, the limit of this request.", max=max_bytes)


class BodyTooSlow(ApiError):
    """The body arrived too slowly or incompletely; nothing was done."""

    code = "request_timeout"


class HeadTooLarge(ApiError):
    """The head of the request is too long."""

    code = "header_too_large"

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            f"Target and header fields exceed {max_bytes} bytes, or there are more than 100.", max=max_bytes
        )


class PreconditionFailed(ApiError):
    """The file has changed since the ETag in If-Match."""

    code = "precondition_failed"


class RangeNotSatisfiable(ApiError):
    """The range begins after the end."""

    code = "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        super().__init__(f"The range begins after the end: the file has {size} bytes.", size=size)
        self.size = size


def answer(error: Exception, *, request_id: str) -> Answer:
    """The answer to a request that ended in `error`. Never raises, and never shows the message of an unknown error."""
    code, message, detail = _parts(error, request_id)
    known = CODES.get(code, CODES["internal"])
    headers: list[tuple[bytes, bytes]] = []
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allow.encode()))
    if isinstance(error, RangeNotSatisfiable):
        headers += (b"accept-ranges", b"bytes"), (b"content-range", b"bytes */%d" % error.size)
    if isinstance(error, BodyTooSlow):
        headers.append((b"connection", b"close"))  # the rest of the body may still come
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    if known.wait_s is not None:
        wait_ms = detail.get("retry_after_ms", known.wait_s * 1000)
        headers.append((b"retry-after", b"%d" % max(1, -(-wait_ms // 1000))))
    return Answer(body=envelope(code, message, detail), status=known.status, headers=headers)


def envelope(code: str, message: str, detail: dict[str, Any]) -> bytes:
    """`{"error": {...}}` as JSON."""
    error: dict[str, Any] = {"code": code, "message": message}
    if detail:
        error["detail"] = detail
    return msgspec.json.encode({"error": error}, enc_hook=str)


def status_of(code: str) -> int:
    """The status that belongs to a code."""
    return CODES[code].status


def _parts(error: Exception, request_id: str) -> tuple[str, str, dict[str, Any]]:
    if isinstance(error, ApiError | StorageError) and error.code != "internal":
        if error.code not in CODES:
            _log.error("error_code_without_status", code=error.code, request_id=request_id)
        return error.code, error.message, error.detail
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        code = _BY_STATUS.get(error.status_code, "internal")
        return code, f"{error.detail}.".replace("..", "."), {}
    _log.error("request_failed", request_id=request_id, exc_info=error)
    return "internal", "Internal error; the broker's log has details under this request id.", {"request_id": request_id}


def _invalid(error: RequestValidationError) -> tuple[str, str, dict[str, Any]]:
    """Code, message and detail that name the first wrong field."""
    first = error.errors()[0]
    refusal = wrong_model(first, (), str(first["loc"][0]))
    return refusal.code, refusal.message, refusal.detail


def wrong_model(error: Mapping[str, Any], within: Sequence[str], whole: str) -> InvalidRequest:
    """A model's error as a refusal that begins with the name of the field, or with `whole` if no field is named.

    The path of the field begins after `within`, or, without that, after the part of the request, which comes first.
    """
    location = (*within, *error["loc"]) if within else error["loc"][1:]
    field = ""
    for part in location:
        field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else part
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, UnknownField):
        path = f"{field}.{cause.field}" if field else cause.field
        hint = "." if cause.nearest is None else f": did you mean {cause.nearest}?"
        return InvalidRequest(f"unknown field {path}{hint}", field=path)
    field = field or whole
    sentence = _PHRASES.get(error["type"]) or error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return InvalidRequest(f"{field}: {sentence[:1].lower()}{sentence[1:].rstrip('.')}.", field=field)
