"""GET …/work: jobs as a stream of events, pushed to a worker for as long as it is connected.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker.api import events
from broker.api.operation import NUMBER, TOPIC, Operation, in_query
from broker.api.request import Request
from broker.api.routes.claims import rendered_jobs
from broker.auth import READ_WRITE, Rule
from broker.content import OK, Streamed, quoted
from broker.memory import PATIENCE_S, SMALL
from broker.service import queues
from schemas import WorkEvent
from storage import StorageError, TopicNotFound
from storage.queues import ClaimedJob

if TYPE_CHECKING:
    from broker.memory import Hold
    from storage.queues import Worker

#: Copies in memory: the claimed records, and the events made from them.
COPIES: Final = 2
#: Jobs are claimed while at most this many bytes of events wait for the client.
MAX_BUFFERED_BYTES: Final = 256 * 1024
_LINE_BREAKS: Final = bytes.maketrans(b"\r\n", b"  ")


async def work(request: Request) -> Streamed:
    events.check_accept(request)
    query = request.query
    asked = queues.Work(
        topic=request.values[0],
        node=query.text("node") or "",
        max=1 if (most := query.number("max")) is None else most,
        lease_ms=query.number("lease_ms"),
    )
    worker = queues.work(request.broker.engine, asked)
    first, rest = b"", None
    if request.scope["method"] != "HEAD":
        rest = _stream(request, asked.topic, worker)
        # Run to the first piece before answering: from then on, closing `rest` gives back its jobs.
        first = await anext(rest)
    return Streamed(
        first,
        rest,
        length=None,
        patience_s=events.PATIENCE_S,
        content_type=events.EVENT_STREAM,
        headers=events.HEADERS,
    )


async def _stream(request: Request, name: str, worker: Worker) -> AsyncGenerator[bytes]:
    """Jobs until the client leaves; the jobs that it has not acked then go back at once."""
    broker = request.broker
    engine = broker.engine
    topic = engine.topic(name)
    with request.hold_stream():
        async with worker:
            outbox = Outbox(request, name)
            worker.room_for = outbox.room_for
            filling = asyncio.create_task(outbox.fill(worker))
            try:
                yield events.RETRY
                while not outbox.ended:
                    piece = await outbox.take()
                    if piece or not outbox.ended:
                        yield piece or events.heartbeat(engine.now_ms())
                yield _last(filling.exception(), name, topic.log.head)
            finally:
                outbox.release()
                filling.cancel()
                with suppress(asyncio.CancelledError, StorageError):
                    await filling


def _last(reason: BaseException | None, topic: str, head_seq: int) -> bytes:
    """The last event, which gives the reason for the end."""
    match reason:
        case TopicNotFound():
            return events.event("topic-deleted", {"topic": topic, "head_seq": head_seq, "reason": "deleted"})
        case StorageError():
            return events.error_event(reason)
        case _:
            raise reason or AssertionError("a worker sends jobs until it ends")


class Outbox:
    """Jobs on their way from the queue to the client, as events."""

    def __init__(self, request: Request, topic: str) -> None:
        self._name = topic
        self._topic = quoted(topic)
        self._engine = request.broker.engine
        self._memory = request.broker.memory
        self._connection = request.connection
        #: The memory that its jobs hold, beyond a small part.
        self._room: Hold | None = None
        #: The memory of jobs that are being claimed, or are not yet among the frames.
        self._claiming: Hold | None = None
        self._frames: list[bytes] = []
        self._bytes = 0
        self._filled = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._over = False

    @property
    def ended(self) -> bool:
        """Whether no more jobs will come."""
        return self._over and not self._frames

    async def room_for(self, count: int) -> int:
        """How many bytes of jobs may be claimed: those ready, as far as memory allows. Waits while there is no memory
        for one job. Holds no memory for jobs that are still to come: of large ones the claim gets one.
        """
        self._let_go()
        one, size = queues.claimable_bytes(self._engine, self._name, count)
        if size * COPIES <= SMALL:
            return SMALL
        answers = self._memory.answers
        while (held := await self._memory.try_answer(self._connection, one * COPIES, PATIENCE_S)) is None:
            if self._engine.queues.leaving:
                return SMALL  # the claim raises the error
        self._claiming = held
        most = self._memory.most_for_one(size * COPIES)
        if answers.has_room(self._connection, most - held.size):
            held.resize(max(held.size, most))
        return held.size // COPIES

    def _let_go(self) -> None:
        if self._claiming is not None:
            self._claiming.release()
            self._claiming = None

    async def fill(self, jobs: AsyncIterator[ClaimedJob]) -> None:
        """Collect jobs until the worker ends, in any way."""
        try:
            async for job in jobs:
                frame = _job_event(self._topic, job)
                self._frames.append(frame)
                self._bytes += len(frame)
                if self._claiming is not None:
                    self._claiming.resize(max(0, self._claiming.size - COPIES * len(frame)))
                if self._bytes > SMALL:
                    self._count()
                self._filled.set()
                await self._memory.wait_for_room()  # claim no further job while all answers hold too much memory
                if self._bytes > MAX_BUFFERED_BYTES:
                    self._free.clear()
                    await self._free.wait()
        finally:
            self._let_go()
            self._over = True
            self._filled.set()

    async def take(self) -> bytes:
        """All events that are ready; b"" if none came within a heartbeat's time, or none will come any more."""
        if not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(events.HEARTBEAT_S):
                    await self._filled.wait()
            self._filled.clear()
        self.release()
        taken = b"".join(self._frames)
        if len(taken) > SMALL:
            self._count(len(taken))
        self._frames.clear()
        self._bytes = 0
        self._free.set()
        return taken

    def _count(self, sent: int = 0) -> None:
        size = self._bytes + sent
        if self._room is None:
            self._room = self._memory.answers.hold(self._connection, size)
        else:
            self._room.resize(size)

    def release(self) -> None:
        """Release memory: the events taken were sent, or nobody wants them any more."""
        if self._room is not None:
            self._room.release()
            self._room = None


def _job_event(topic: bytes, job: ClaimedJob) -> bytes:
    """A job as an event of the stream; `topic` is the name as JSON."""
    text = rendered_jobs([job])
    if b"\n" in text or b"\r" in text:  # only between tokens, where a space means the same; in an event they end a line
        text = text.translate(_LINE_BREAKS)
    return b'event: job\nid: %d\ndata: {"topic":%b,%b\n\n' % (job.record.seq, topic, text[1:])


_STREAM: Final = """\
retry: 2000

event: job
id: 1
data: {"topic":"mails","$seq":1,"lease_id":"lease_00c0ffee00c0ffee","deadline":1767225630000,"$ts":1767225600000,\
"deliveries":1,"data":{"mail":7}}

: hb 1767225615000
"""

OPERATIONS: Final = [
    Operation(
        method="GET",
        path="/v0/topics/{topic}/work",
        name="stream_jobs",
        handler=work,
        rule=Rule(READ_WRITE, token=True),
        tag="queues",
        summary="Stream jobs to a worker",
        description="Server-sent events: `job`, with a claimed job and the topic; `topic-deleted` and `error` "
        "before the end. The worker has at most max jobs at a time: after an ack or nack it gets "
        "another one. When the connection ends, unfinished jobs are released at once.",
        answer=None,
        events=WorkEvent,
        media_type="text/event-stream",
        example=_STREAM,
        headers=("Cache-Control", "X-Accel-Buffering"),
        parameters=(
            TOPIC,
            in_query("node", {"type": "string", "minLength": 1}, "Who works.", required=True),
            in_query("max", NUMBER | {"default": 1}, "At most 1000; 0 means 1."),
            in_query("lease_ms", NUMBER, "The default is the queue's."),
        ),
        successes={OK: "The stream."},
        refusals=("invalid_request", "topic_not_found", "not_acceptable", "not_a_queue", "throttled"),
    ),
]
