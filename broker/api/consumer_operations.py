"""How the hot routes of consumers are described (see `hot_operations`)."""

from __future__ import annotations

from typing import Any

from broker.api.answers import OK
from broker.api.hot_operations import PARTITION, TOPIC, HotOperation
from broker.api.refusals import refusals
from schemas.consumers import CommitRequest, ConsumerAnswer, ConsumerReadAnswer, ConsumerReadRequest
from schemas.names import CONSUMER_NAME_PATTERN

_CONSUMER: dict[str, Any] = {
    "name": "consumer",
    "in": "path",
    "required": True,
    "description": "The consumer's name.",
    "schema": {"type": "string", "pattern": CONSUMER_NAME_PATTERN, "examples": ["billing"]},
}
_COMMON = (
    "invalid_request", "topic_not_found", "topic_exists_incompatible", "consumer_not_found", "payload_too_large",
    "unsupported_media_type", "wal_saturated", "storage_failed", "storage_full",
)  # fmt: skip

CONSUMER_OPERATIONS = [
    HotOperation(
        method="post",
        path="/v0/topics/{topic}/consumers/{consumer}/read",
        name="read_consumer",
        tag="consumers",
        summary="Read what comes next",
        description="The cursor passes what is handed out, and readers of one consumer are served one after another: "
        "none is given what another was. With checkpoint false only a commit moves it. With wait_ms the answer is held "
        "back until there is something to give. When the client leaves before its answer is sent, the cursor goes "
        "back, unless the read has an attempt_key: then repeat it.",
        answer=ConsumerReadAnswer,
        request=ConsumerReadRequest,
        body_required=False,
        parameters=[TOPIC, _CONSUMER, PARTITION],
        successes={OK: "What there is."},
        refusals=refusals(*_COMMON, "throttled", "segment_corrupt"),
    ),
    HotOperation(
        method="post",
        path="/v0/topics/{topic}/consumers/{consumer}/commit",
        name="commit",
        tag="consumers",
        summary="Say what is done",
        description="Durably: the cursor is at this seq, and reads go on behind it.",
        answer=ConsumerAnswer,
        request=CommitRequest,
        parameters=[TOPIC, _CONSUMER, PARTITION],
        successes={OK: "Where the consumer is."},
        refusals=refusals(*_COMMON),
    ),
]
