"""Watching topics: POST /v0/watch makes a session, GET /v0/watch/{wid} streams its events.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Final

from fastapi import Query

from broker.api import events
from broker.api.control import ControlOperations, Current
from broker.api.operation import Operation, Owner, in_header, in_path
from broker.api.refusals import refusals
from broker.api.request import Request
from broker.auth import READ, Rule
from broker.content import OK, Shape, Streamed, status_of
from broker.live import TTL_MS, Event, Heartbeat, Session, Watcher, cursor, watch_options
from broker.service import routers
from schemas import QueryFlag, RoutedPerformance, WatchAnswer, WatchedTopic, WatchEvent, WatchRequest, WatchStart

DEFAULT_LIMIT: Final = 256
DEFAULT_BATCH_BYTES: Final = 262_144
SLOW_READER: Final = "slow_reader"
TOO_SLOW: Final = "The client has not read for too long. Reconnect, and continue from the last event."

operations = ControlOperations(tag="watch", owner=Owner.ALL)


@operations.post(
    "/v0/watch",
    Rule(READ),
    summary="Create a watch session",
    description="The session defines what its streams send. It is only in memory, and ends session_ttl_ms after "
    "its last stream.",
    responses=refusals("invalid_request", "topic_not_found", "throttled"),
    response_model_exclude_unset=True,
)
async def create_watch(
    current: Current,
    body: WatchRequest,
    lenient: Annotated[QueryFlag, Query(description="Ignore topics that do not exist.")] = False,
) -> WatchAnswer:
    live = current.broker.live
    named = {name: start_of(start) for name, start in body.topics.items()}
    watch_options.check_topics(named)
    current.access.require(READ, named)
    starts = watch_options.addressed(live.engine, named, lenient=lenient)
    strong = body.consistency == "strong"
    options = watch_options.Options(
        limit=watch_options.clamped(body.limit, DEFAULT_LIMIT, watch_options.MAX_LIMIT),
        max_batch_bytes=watch_options.clamped(body.max_batch_bytes, DEFAULT_BATCH_BYTES, watch_options.MAX_BATCH_BYTES),
        shape=Shape(tags=body.include_tags, meta=body.include_meta, data=body.include_data),
        exclude_nodes=watch_options.nodes(body.node),
        strong=strong,
        skip_corrupt=body.skip_corrupt,
    )
    waited_ms = await routers.all_caught_up(live.engine, starts)
    opened = watch_options.open_topics(live.engine, starts, lenient=lenient, strong=strong)
    session = live.sessions.make(
        watch_options.StreamOptions(options=options, heartbeat_ms=watch_options.heartbeat_ms(body.heartbeat_ms)),
        {name: each.position for name, each in opened.items()},
        current.access.owner,
        live.now_ms(),
    )
    answer = WatchAnswer(
        wid=session.wid,
        stream_url=f"/v0/watch/{session.wid}",
        session_ttl_ms=TTL_MS,
        topics={name: WatchedTopic.model_validate(each) for name, each in watch_options.by_topic(opened).items()},
        performance=RoutedPerformance(server_total_ms=round(current.elapsed_ms(), 3)),
    )
    if waited_ms is not None:
        answer.performance.router_wait_ms = round(waited_ms, 3)
    return answer


def start_of(given: WatchStart | None) -> watch_options.Start:
    """Where to start, from the client's fields."""
    if given is None:
        return watch_options.Start()
    # tail wins over from_seq. true means the same as no tail: start after the head. It does not mean the number 1.
    tail = None if isinstance(given.tail, bool) else given.tail
    from_seq = given.from_seq if given.tail is None or given.tail is False else None
    if given.partitions is None:
        return watch_options.Start(from_seq=from_seq, tail=tail, partitions=(given.partition or 0,))
    one = () if given.partition is None else (given.partition,)
    numbers = tuple(dict.fromkeys((*one, *given.partitions)))
    return watch_options.Start(from_seq=from_seq, tail=tail, partitions=numbers, field="partitions")


async def stream(request: Request) -> Streamed:
    events.check_accept(request)
    live = request.broker.live
    session = live.sessions.find(request.values[0], request.access.owner, live.now_ms())
    watcher: Watcher[bytes] = Watcher(
        live, encode=_encode, failure=events.error_event, positions=session.positions, closes=True
    )
    first, rest = b"", None
    if request.scope["method"] != "HEAD":
        rest = _stream(request, session, watcher)
        # Run to the first piece before answering: from then on, closing `rest` ends the watching.
        first = await anext(rest)
    return Streamed(
        first,
        rest,
        length=None,
        patience_s=events.PATIENCE_S,
        content_type=events.EVENT_STREAM,
        headers=events.HEADERS,
        attach=watcher.attach,
        last_words=lambda: _last_words(watcher),
    )


async def _stream(request: Request, session: Session, watcher: Watcher[bytes]) -> AsyncGenerator[bytes]:
    live = request.broker.live
    given = cursor.decode(request.headers.get(b"last-event-id", b""))
    with request.hold_stream():
        live.enter(watcher)
        live.sessions.opened(session)
        try:
            yield events.RETRY
            await routers.all_caught_up(live.engine, session.positions)
            for name, last in list(session.positions.items()):
                watcher.watch(name, session.options.options, given.get(cursor.key(name), last))
            heartbeat = Heartbeat(session.options.heartbeat_ms / 1000, lambda: events.heartbeat(live.engine.now_ms()))
            async for piece in watcher.pieces(heartbeat):
                yield piece
        finally:
            live.sessions.closed(session, live.now_ms())
            live.exit(watcher)


def _encode(watcher: Watcher[bytes], event: Event) -> bytes:
    if len(watcher.delivered) > 1:
        return event.with_id(watcher.id())
    [name] = watcher.delivered
    return event.alone(b'"%b"' % cursor.key(name).encode())


def _last_words(watcher: Watcher[bytes]) -> bytes:
    watcher.live.figures.slow_closed += 1
    return events.event("error", {"code": status_of("throttled"), "error": TOO_SLOW, "reason": SLOW_READER})


_WID: Final = in_path("wid", {"type": "string", "examples": ["wid_9vKX3Zb1Qm0Rr2Tt4Yy6Ug"]}, "The session's id.")
_LAST_EVENT_ID: Final = in_header(
    "Last-Event-ID", "The id of the last received event of any stream. The stream continues after it."
)
_STREAM: Final = """\
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

OPERATIONS: Final = [
    Operation(
        method="GET",
        path="/v0/watch/{wid}",
        name="stream_watch",
        handler=stream,
        rule=Rule(READ, token=True),
        owner=Owner.ALL,
        tag="watch",
        summary="Stream the events of a session",
        description="Server-sent events: `record`, `tombstone`, `caught-up`, `topic-deleted`, and `error` before "
        "the end of the stream, or of the topic that it names. An id contains the position in each "
        "topic. Without Last-Event-ID the stream continues after the last event that the session "
        "sent. Each stream of a session gets all events.",
        answer=None,
        events=WatchEvent,
        media_type="text/event-stream",
        example=_STREAM,
        headers=("Cache-Control", "X-Accel-Buffering"),
        parameters=(_WID, _LAST_EVENT_ID),
        successes={OK: "The stream."},
        refusals=("not_found", "not_acceptable", "throttled", "shutting_down"),
    ),
]
