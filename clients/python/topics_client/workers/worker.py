"""A worker: its queues and handlers, and its life from start to a graceful stop."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from topics_client.blocking import Client
from topics_client.errors import InvalidRequest, TopicsError
from topics_client.workers.backoff import Backoff
from topics_client.workers.durations import Duration, seconds
from topics_client.workers.lane import Lane
from topics_client.workers.log import log
from topics_client.workers.running import Tasks, Threads

if TYPE_CHECKING:
    from typing_extensions import Self

Handler = TypeVar("Handler", bound=Callable[..., Any])

#: How long outcomes of jobs may be on their way after the last handler has ended.
_SEND_S = 10.0
#: The broker's limits.
_MIN_LEASE_S, _MAX_LEASE_S = 0.1, 86_400.0
_MAX_NODE_BYTES = 128


class Worker:
    """Does the jobs of queues with handlers, each at least once.

        worker = Worker(Client("http://127.0.0.1:4000"))

        @worker.queue("mails", concurrency=8, lease="30s", retry=Backoff(first="1s"))
        def send(mail: Mail) -> None: ...

    `node` is its name for the broker. No two running workers may have the same name, so by default it is random.
    `grace`: how long handlers may continue once the worker stops; then their jobs are given back. The caller closes the
    client, but not before the worker has stopped.

    The worker's threads renew the leases of running jobs in time, and no job is begun whose lease may have ended. When
    the process dies, its jobs go to other workers when their leases end.
    """

    def __init__(self, client: Client, *, node: str | None = None, grace: Duration = "30s") -> None:
        self._client = client
        name = node or f"{socket.gethostname()[:80]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        if not 1 <= len(name.encode()) <= _MAX_NODE_BYTES:
            raise InvalidRequest(f"The name of a worker has 1 to {_MAX_NODE_BYTES} bytes.", detail={"field": "node"})
        self.node = name
        self._grace_s = seconds(grace)
        self._lanes: list[Lane] = []
        self._error: TopicsError | None = None
        self._stop = threading.Event()
        #: Whether the wait for handlers should end.
        self._hurry = threading.Event()
        self._started = False
        self._watcher = threading.Thread(target=self._watch, name="topics-leases", daemon=True)
        self._watching = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None

    def queue(
        self,
        queue: str,
        *,
        concurrency: int = 1,
        lease: Duration | None = None,
        retry: Backoff | None = None,
    ) -> Callable[[Handler], Handler]:
        """The decorated function does the jobs of this queue, up to `concurrency` at a time: in as many threads, or, if
        it is a coroutine function, in as many tasks of one event loop. Its first parameter is the data of the job,
        converted to the type in its annotation. An optional second one is a `JobContext`.

        `lease`: how long a job stays with this worker if the worker dies; default: the queue's `lease_ms`. `retry`: how
        long a job whose handler raised waits for its next attempt; default: the queue's backoff, and `Backoff()`
        if it has none.
        """
        if concurrency < 1:
            raise InvalidRequest("concurrency is at least 1.", detail={"field": "concurrency"})
        lease_s = None if lease is None else seconds(lease)
        if lease_s is not None and not _MIN_LEASE_S <= lease_s <= _MAX_LEASE_S:
            raise InvalidRequest("A lease lasts from 100 ms to 24 hours.", detail={"field": "lease"})
        if any(lane.queue == queue for lane in self._lanes):
            raise InvalidRequest(f"There is a handler for {queue} already.", detail={"field": "queue"})

        def register(handler: Handler) -> Handler:
            lane = Lane(
                self._client,
                self.node,
                queue,
                handler,
                concurrency=concurrency,
                lease_s=lease_s,
                retry=retry,
                failing=self._fail,
            )
            self._lanes.append(lane)
            return handler

        return register

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The queues of the worker."""
        return tuple(self._lanes)

    @property
    def stopping(self) -> bool:
        """Whether the worker is stopping, or has stopped."""
        return self._stop.is_set()

    # -- life ----------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until SIGINT, SIGTERM, `stop`, or an error that no retry resolves, which is raised. A second signal ends
        the wait for handlers. Signals are handled only in the main thread."""
        previous: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                previous[number] = signal.signal(number, self._signalled)
        try:
            self.start()
            try:
                # Signals are handled between waits.
                while not self._stop.wait(0.2):
                    pass
            finally:
                self.stop()
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def start(self) -> None:
        """Begin to claim. Returns when the broker has described the queues; raises the errors of these requests.
        Coroutine functions run in an event loop on a separate thread."""
        self._open()
        if any(is_coroutine_function(lane.handler) for lane in self._lanes):
            loop = self._loop = asyncio.new_event_loop()
            self._loop_thread = threading.Thread(target=self._run_loop, args=(loop,), name="topics-loop", daemon=True)
            self._loop_thread.start()
        self._begin()

    async def __aenter__(self) -> Self:
        """The same, but coroutine functions run in this event loop."""
        loop = self._loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._open)
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def close(self) -> None:
        """Make `run` end, from a handler or any thread. Does not wait."""
        self._stop.set()

    def stop(self) -> None:
        """Claim no more, give back jobs that have not begun, wait for handlers for the time of `grace`, give back the
        rest, and return when the broker knows all outcomes (or is away). Raises the error that ended the worker."""
        self._stop.set()
        if self._watching and self._started:
            self._end()
        if self._error is not None:
            raise self._error

    def _open(self) -> None:
        if self._started:
            raise InvalidRequest("A worker is started once.")
        if not self._lanes:
            raise InvalidRequest("A worker needs a queue: decorate a function with @worker.queue(...).")
        for lane in self._lanes:
            lane.open()
        self._started = True

    def _begin(self) -> None:
        # Logged before the first handler can log something.
        log.info("worker_started", node=self.node, queues=[lane.queue for lane in self._lanes])
        for lane in self._lanes:
            if not is_coroutine_function(lane.handler):
                Threads(lane).start()
                continue
            assert self._loop is not None, "there are coroutine functions"
            self._loop.call_soon_threadsafe(Tasks(lane, self._loop).start)
        for lane in self._lanes:
            lane.start()
        self._watcher.start()

    def _end(self) -> None:
        for lane in self._lanes:
            lane.stop()
        end = time.monotonic() + self._grace_s
        while not all(lane.idle for lane in self._lanes) and time.monotonic() < end:
            if self._hurry.wait(0.02):
                break
        for lane in self._lanes:
            lane.abandon()
        for lane in self._lanes:
            lane.close(_SEND_S)
        self._watching = False
        self._watcher.join(1.0)
        if self._loop is not None and self._loop_thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join(1.0)
        log.info("worker_stopped", node=self.node)

    def _fail(self, error: TopicsError) -> None:
        if self._error is None:
            self._error = error
        self._stop.set()

    def _watch(self) -> None:
        """Tells handlers of lost leases, even while calls of the broker hang."""
        every_s = min(lane.look_every_s for lane in self._lanes)
        while self._watching:
            for lane in self._lanes:
                lane.expire()
            time.sleep(every_s)

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=1.0))
        finally:
            loop.close()


def is_coroutine_function(handler: Callable[..., Any]) -> bool:
    """Also for callable objects."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
