"""Takes samples: every 10 seconds for the history, and every 2 seconds while somebody watches.

All streams share one sample.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from broker.overview import figures as figures_
from broker.overview.busiest import Busiest
from broker.overview.figures import Figures, Named
from broker.overview.history import INTERVAL_S, MAX_TOPICS, TOPIC_INTERVAL_S, History, TopicHistory, TopicPoint

if TYPE_CHECKING:
    from pathlib import Path

    from broker.pressure import Pressure
    from broker.telemetry import HttpMetrics
    from storage import Engine

_log = structlog.get_logger("broker")

#: The time between two events of a stream.
EVENT_S: Final = 2.0
#: A walk over topics takes at most this share of the time: the next one waits for as long as it has to.
MAX_SHARE: Final = 0.005
_NAMES: Final = ("oldest_job_ms", "consumer_lag", "router_lag")


class Overview:
    """The figures of one broker."""

    def __init__(
        self,
        engine: Engine,
        pressure: Pressure,
        http: HttpMetrics,
        *,
        data_dir: Path,
        uptime_ms: Callable[[], int],
        streams: Callable[[], int],
    ) -> None:
        self._engine, self._pressure, self._http = engine, pressure, http
        self._data_dir = str(data_dir)
        self._uptime_ms, self._streams = uptime_ms, streams
        self.history, self.topics = History(), TopicHistory()
        self._busiest = Busiest()
        self._walked: Figures | None = None
        self._walk_again_at = 0.0
        self._sampling, self._sharing = asyncio.Lock(), asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        #: The sample that all streams share, and when it was taken.
        self._shared: tuple[float, Figures] | None = None

    def start(self) -> None:
        """Begin the history."""
        self._task = asyncio.create_task(self._run(), name="overview")

    def stop(self) -> None:
        """End the history."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        topics_at = loop.time()
        while True:
            now = loop.time()
            try:
                self.history.add(await self.sample())
                if now >= topics_at:
                    topics_at = now + TOPIC_INTERVAL_S - 0.5
                    self.topics.add(self._engine.now_ms(), self.points())
            except Exception as error:
                _log.error("sample_failed", exc_info=error)
            await asyncio.sleep(max(0.0, now + INTERVAL_S - loop.time()))

    def points(self) -> Iterator[TopicPoint]:
        """A point of the history of each topic, in the order of names, up to the limit."""
        for topic in islice(self._engine.logs.catalog.named("", ""), MAX_TOPICS):
            queue = topic.log.queue
            ready = 0 if queue is None else queue.ready(topic.log.count)
            head = topic.log.head + sum(other.log.head for other in topic.others)
            yield TopicPoint(topic.name, topic.log.epoch, head, ready)

    async def sample(self) -> Figures:
        """The figures now. What takes a walk over topics may be older, so that walks cost little."""
        engine, loop = self._engine, asyncio.get_running_loop()
        async with self._sampling:
            walked = self._walked
            if walked is None or loop.time() >= self._walk_again_at:
                begun = loop.time()
                walked = Figures(ts=engine.now_ms(), ready=engine.ready)
                if engine.ready:
                    await figures_.collect(engine, walked, self._busiest)
                walked.disk_free_bytes, walked.disk_bytes = await asyncio.to_thread(figures_.disk, self._data_dir)
                self._walked = walked
                self._walk_again_at = begun + max(EVENT_S / 2, (loop.time() - begun) / MAX_SHARE)
            found = msgspec.structs.replace(walked, ts=engine.now_ms(), ready=engine.ready)
        figures_.quick(engine, self._pressure, self._http, found)
        found.uptime_ms, found.streams = self._uptime_ms(), self._streams()
        return found

    async def shared(self) -> Figures:
        """A sample that is at most `EVENT_S` old, for any number of streams."""
        loop = asyncio.get_running_loop()
        async with self._sharing:
            if self._shared is None or loop.time() - self._shared[0] >= EVENT_S * 0.9:
                self._shared = loop.time(), await self.sample()
            return self._shared[1]

    async def follow(self, prefixes: tuple[str, ...]) -> AsyncGenerator[bytes]:
        """Samples as JSON, forever."""
        while True:
            yield msgspec.json.encode(visible(await self.shared(), prefixes))
            await asyncio.sleep(EVENT_S)


def visible(figures: Figures, prefixes: tuple[str, ...]) -> Figures:
    """The figures for a key with these prefixes: names that they do not cover are left out. () = any name."""
    if not prefixes:
        return figures
    hidden: dict[str, Any] = {
        name: Named(value.value) for name in _NAMES if not _covered(value := getattr(figures, name), prefixes)
    }
    hidden["busiest"] = [busy for busy in figures.busiest if busy.topic.startswith(prefixes)]
    return msgspec.structs.replace(figures, **hidden)


def _covered(named: Named, prefixes: tuple[str, ...]) -> bool:
    return all(name is None or name.startswith(prefixes) for name in (named.topic, named.router))
