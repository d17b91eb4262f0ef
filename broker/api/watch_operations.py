"""How the routes of live reading are described that the framework does not serve (see `hot_operations`)."""

from __future__ import annotations

from typing import Any

from broker.api.answers import OK
from broker.api.hot_operations import HotOperation
from broker.api.refusals import refusals

_WID: dict[str, Any] = {
    "name": "wid",
    "in": "path",
    "required": True,
    "description": "The session's id.",
    "schema": {"type": "string", "examples": ["wid_9vKX3Zb1Qm0Rr2Tt4Yy6Ug"]},
}
_LAST_EVENT_ID: dict[str, Any] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The id of the last event that was seen, of whatever stream: go on behind it.",
    "schema": {"type": "string"},
}
_STREAM = """\
retry: 2000

event: record
id: eyJvcmRlcnMiOnsiZXBvY2giOjEsInNlcSI6MX19
data: {"topic":"orders","records":[{"$seq":1,"$ts":1767225600000,"data":{"id":7}}],"from_seq":0,"to_seq":1,\
"head_seq":1}

event: caught-up
id: eyJvcmRlcnMiOnsiZXBvY2giOjEsInNlcSI6MX19
data: {"topic":"orders","head_seq":1}

: hb 1767225615000
"""
_MESSAGES = """\
> {"type":"subscribe","request_id":1,"topic":"orders","from_seq":0}
< {"type":"subscribed","request_id":1,"topics":{"orders":{"from_seq":0,"head_seq":1,"earliest_seq":1}}}
< {"type":"record","topic":"orders","records":[{"$seq":1,"$ts":1767225600000,"data":{"id":7}}],"from_seq":0,\
"to_seq":1,"head_seq":1}
< {"type":"caught_up","topic":"orders","head_seq":1}
> {"type":"publish","request_id":2,"topic":"orders","records":[{"data":{"id":8}}]}
< {"type":"ack","request_id":2,"topic":"orders","first_seq":2,"last_seq":2,"head_seq":2,"count":1,"created":false,\
"deduped":false}
"""

WATCH_OPERATIONS = [
    HotOperation(
        method="get",
        path="/v0/watch/{wid}",
        name="watch",
        tag="watch",
        summary="Stream what a session watches",
        description="Server-sent events: `record`, `tombstone`, `caught-up`, `topic-deleted`, and `error` before the "
        "end, of the stream or of the topic that it names. Their ids say how far the client is in every topic. Without "
        "Last-Event-ID the stream goes on behind what this session was handed out last. Each stream of a session gets "
        "everything.",
        answer=None,
        media_type="text/event-stream",
        example=_STREAM,
        headers=("Cache-Control", "X-Accel-Buffering"),
        parameters=[_WID, _LAST_EVENT_ID],
        successes={OK: "The stream."},
        refusals=refusals("not_found", "not_acceptable", "throttled", "shutting_down"),
    ),
    HotOperation(
        method="get",
        path="/v0/ws",
        name="websocket",
        tag="watch",
        summary="Watch and write over a WebSocket",
        description="JSON text messages. In: `subscribe`, `unsubscribe`, `publish`, `ping`, each with a `request_id` "
        "if it is to be given back. Out: `subscribed`, `unsubscribed`, `ack`, `pong`, `record`, `caught_up`, "
        "`tombstone`, `topic_deleted`, `error`. The example shows both directions.",
        answer=None,
        media_type="application/json",
        example=_MESSAGES,
        parameters=[],
        successes={OK: "In truth 101: the connection is a WebSocket from there on."},
        refusals=refusals("invalid_request", "throttled", "shutting_down"),
    ),
]  # fmt: skip
