"""The figures of the broker, now, in the last hour, and as a stream; and what the caller's key may do.

Source: docs/reference/api.md#operations.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from broker.api import events
from broker.api.control import ControlOperations, Current, TopicName, performance
from broker.api.operation import Operation, Owner
from broker.api.refusals import refusals
from broker.api.request import Request
from broker.auth import ADMIN, NOTHING, READ, KeyAccess, Rule
from broker.content import OK, Streamed
from broker.overview import EVENT_S, INTERVAL_S, TOPIC_INTERVAL_S, visible
from schemas import HistoryAnswer, KeyEntry, KeysAnswer, OverviewAnswer, OverviewEvent, TopicHistoryAnswer

operations = ControlOperations(tag="operations", owner=Owner.ALL)


@operations.get(
    "/v0/overview",
    Rule(READ),
    summary="Get the figures of the broker",
    description="Rates, jobs, lag, disk and pressure, in one answer. A sample may be two seconds old.",
)
async def get_overview(current: Current) -> OverviewAnswer:
    found = visible(await current.broker.overview.shared(), current.access.prefixes)
    return OverviewAnswer(**msgspec.to_builtins(found), performance=performance(current))


@operations.get(
    "/v0/overview/history",
    Rule(READ),
    summary="Get the figures of the last hour",
    description="One point every 10 seconds, from memory: a restart begins anew.",
)
async def get_overview_history(current: Current) -> HistoryAnswer:
    history = current.broker.overview.history
    return HistoryAnswer(
        interval_ms=INTERVAL_S * 1000,
        until_ts=history.until_ts,
        series=history.series(),
        performance=performance(current),
    )


@operations.get(
    "/v0/topics/{topic}/history",
    Rule(READ),
    owner=Owner.TOPIC,
    summary="Get the last hour of a topic",
    description="One point every minute, from memory, of the first 1000 topics by name.",
    responses=refusals("invalid_request", "topic_not_found"),
)
async def get_topic_history(current: Current, topic: TopicName) -> TopicHistoryAnswer:
    current.broker.engine.topic(topic)
    topics = current.broker.overview.topics
    appended, ready = topics.of(topic)
    return TopicHistoryAnswer(
        topic=topic,
        interval_ms=TOPIC_INTERVAL_S * 1000,
        until_ts=topics.until_ts,
        appended=appended,
        ready=ready,
        performance=performance(current),
    )


@operations.get(
    "/v0/keys",
    Rule(NOTHING),
    owner=Owner.ANY,
    summary="List keys and what they may do",
    description="With the scope admin, all keys; otherwise the caller's alone. No answer contains a key.",
)
async def list_keys(current: Current) -> KeysAnswer:
    gate, access = current.broker.gate, current.access
    callers: list[KeyAccess] = []
    if gate is not None and isinstance(access, KeyAccess):
        callers = [*gate.callers()] if access.grant.allows(ADMIN) else [access]
    return KeysAnswer(
        required=gate is not None,
        current=access.number if isinstance(access, KeyAccess) else None,
        keys=[
            KeyEntry.model_validate(
                {
                    "key": each.number,
                    "scopes": sorted(scope.value for scope in each.grant.scopes),
                    "prefixes": [*each.prefixes],
                }
            )
            for each in callers
        ],
        rest_prefix=current.broker.settings.kafka_rest_prefix or "",
        performance=performance(current),
    )


async def stream(request: Request) -> Streamed:
    events.check_accept(request)
    first, rest = b"", None
    if request.scope["method"] != "HEAD":
        rest = _stream(request)
        # Run to the first piece before answering: from then on, closing `rest` ends the stream.
        first = await anext(rest)
    return Streamed(
        first,
        rest,
        length=None,
        patience_s=events.PATIENCE_S,
        content_type=events.EVENT_STREAM,
        headers=events.HEADERS,
    )


async def _stream(request: Request) -> AsyncGenerator[bytes]:
    with request.hold_stream():
        yield events.RETRY
        async for sample in request.broker.overview.follow(request.access.prefixes):
            yield b"event: overview\ndata: %b\n\n" % sample


_EXAMPLE: Final = """\
retry: 2000

event: overview
data: {"ts":1767225600000,"ready":true,"appended_records":120000,"ready_jobs":6}

"""

OPERATIONS: Final = [
    Operation(
        method="GET",
        path="/v0/overview/stream",
        name="stream_overview",
        handler=stream,
        rule=Rule(READ),
        owner=Owner.ALL,
        tag="operations",
        summary="Stream the figures of the broker",
        description=f"Server-sent events: `overview` every {EVENT_S:.0f} seconds, with the fields of GET /v0/overview.",
        answer=None,
        events=OverviewEvent,
        media_type="text/event-stream",
        example=_EXAMPLE,
        headers=("Cache-Control", "X-Accel-Buffering"),
        successes={OK: "The stream."},
        refusals=("not_acceptable", "throttled", "shutting_down"),
    ),
]
