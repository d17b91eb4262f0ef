"""How the hot routes of jobs are described (see `hot_operations`)."""

from __future__ import annotations

from typing import Any

from broker.api.answers import OK
from broker.api.hot_operations import TOPIC, HotOperation
from broker.api.refusals import refusals
from schemas.queues import (
    AckAnswer,
    AckRequest,
    ClaimAnswer,
    ClaimRequest,
    ExtendAnswer,
    ExtendRequest,
    NackAnswer,
    NackRequest,
)

_WRITES = ("payload_too_large", "unsupported_media_type", "wal_saturated", "storage_failed", "storage_full")
_STRICT: dict[str, Any] = {
    "name": "strict",
    "in": "query",
    "required": False,
    "description": "One lease that is lost refuses the whole call, and nothing is done.",
    "schema": {"type": "boolean", "default": False},
}
_STREAM = """\
retry: 2000

event: job
id: 1
data: {"topic":"mails","$seq":1,"lease_id":"lease_00c0ffee00c0ffee","deadline":1767225630000,"$ts":1767225600000,\
"deliveries":1,"data":{"mail":7}}

: hb 1767225615000
"""


def _settling(name: str, summary: str, description: str, request: type[Any], answer: type[Any]) -> HotOperation:
    return HotOperation(
        method="post",
        path=f"/v0/topics/{{topic}}/{name}",
        name=name,
        tag="queues",
        summary=summary,
        description=f"{description} A job counts when it is leased to the node, by that lease_id when one is given; "
        "those that do not are listed in skipped.",
        answer=answer,
        request=request,
        parameters=[TOPIC, _STRICT],
        successes={OK: "What was done, and what was not."},
        refusals=refusals(
            "invalid_request", "batch_too_large", "topic_not_found", "not_a_queue", "lease_lost", *_WRITES
        ),
    )


def _work_parameter(name: str, schema: dict[str, Any], description: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


_NUMBER = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}

QUEUE_OPERATIONS = [
    HotOperation(
        method="post",
        path="/v0/topics/{topic}/claim",
        name="claim",
        tag="queues",
        summary="Claim jobs",
        description="Given-back, expired and due jobs first, lowest seq first, then fresh ones. With wait_ms the "
        "answer is held back until there is a job. When the client leaves before its answer is sent, the jobs go back "
        "at once, unless the claim has an attempt_key: then repeat it.",
        answer=ClaimAnswer,
        request=ClaimRequest,
        parameters=[TOPIC],
        successes={OK: "The jobs; none when there are none."},
        refusals=refusals(
            "invalid_request", "topic_not_found", "not_a_queue", "throttled", "segment_corrupt", *_WRITES
        ),
    ),
    _settling("ack", "Settle jobs that are done", "They are deleted for good.", AckRequest, AckAnswer),
    _settling(
        "nack", "Give jobs back", "Others get them, after delay_ms or the queue's backoff.", NackRequest, NackAnswer
    ),
    _settling("extend", "Keep jobs for longer", "Their leases now end lease_ms from now.", ExtendRequest, ExtendAnswer),
    HotOperation(
        method="get",
        path="/v0/topics/{topic}/work",
        name="work",
        tag="queues",
        summary="Get jobs pushed",
        description="Server-sent events: `job`, whose data is a claimed job and the topic; `topic-deleted` and `error` "
        "before the end. At most max jobs are with the worker at a time: each ack or nack makes room for another one. "
        "When the connection ends, what is not settled goes back at once.",
        answer=None,
        media_type="text/event-stream",
        example=_STREAM,
        headers=("Cache-Control", "X-Accel-Buffering"),
        parameters=[
            TOPIC,
            _work_parameter("node", {"type": "string", "minLength": 1}, "Who works.", required=True),
            _work_parameter("max", _NUMBER | {"default": 1}, "At most 1000; 0 means 1."),
            _work_parameter("lease_ms", _NUMBER, "Left out: as the queue has it."),
        ],
        successes={OK: "The stream."},
        refusals=refusals("invalid_request", "topic_not_found", "not_acceptable", "not_a_queue", "throttled"),
    ),
]  # fmt: skip
