"""The blocking client. Everything it knows beyond httpx and sleeping is in `calls`, `retry` and `following`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from client import calls, transport
from client.calls import AppendOptions, Match, ReadOptions
from client.following import Follower
from client.retry import Pause, RetryPolicy, exchange
from client.values import (
    Appended,
    Diff,
    Health,
    Ready,
    Record,
    RecordsDeleted,
    Tombstone,
    TopicDeleted,
    TopicPut,
    TopicSettings,
    TopicState,
    TopicSummary,
)
from client.wire import Call, NoReply, Replay, Reply, Request

T = TypeVar("T")


class Client:
    """Talks to one broker; may be shared by threads. Close it, or use it in a `with` block.

    `timeout` (seconds) bounds one try; `retry` bounds all tries of a call together. `on_retry` is told of every wait
    before a repetition. `http` stands in for the network. Every method raises the errors of `client.errors`.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:4000",
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        on_retry: Callable[[Pause], None] | None = None,
        http: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = transport.base_url(url)
        self._timeout = timeout
        self._retry = retry or RetryPolicy()
        self._on_retry = on_retry
        self._http = transport.opened(httpx.Client, self.url, token, timeout, http)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def run(self, call: Call[T], *, retry: RetryPolicy | None = None) -> T:
        """Makes a call of `client.calls`: sends it, repeats it where that is safe, and gives its value."""
        steps = exchange(call, retry or self._retry, now=time.monotonic, draw=random.random)
        outcome: Reply | NoReply | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return done.value
            outcome = self._pause(step) if isinstance(step, Pause) else self._send(step)

    def _pause(self, pause: Pause) -> None:
        if self._on_retry is not None:
            self._on_retry(pause)
        time.sleep(pause.seconds)

    def _send(self, request: Request) -> Reply | NoReply:
        try:
            response = self._http.request(
                request.method,
                self.url + request.target,
                content=request.body,
                headers=dict(request.headers),
                timeout=transport.time_limits(request, self._timeout),
            )
        except httpx.HTTPError as error:
            return transport.no_reply(error, self.url, self._timeout)
        return transport.reply(response)

    def health(self) -> Health:
        """Whether the process answers at all."""
        return self.run(calls.health())

    def ready(self) -> Ready:
        """Whether the broker serves at this moment; raises NotReady or ConnectionFailed at once when it does not."""
        return self.run(calls.ready())

    def wait_until_ready(self, within_s: float = 30.0) -> Ready:
        """Waits until the broker serves, for at most `within_s` seconds; then raises what stood in the way."""
        return self.run(calls.ready(Replay.SAFE), retry=RetryPolicy(total_s=within_s, cap_s=0.5))

    def metrics(self) -> str:
        """The broker's metrics, as Prometheus text."""
        return self.run(calls.metrics())

    def put_topic(self, topic: str, **settings: Unpack[TopicSettings]) -> TopicPut:
        """Creates a topic or replaces its settings; those not given take their defaults."""
        return self.run(calls.put_topic(topic, settings))

    def state(self, topic: str, *, touch: bool = True) -> TopicState:
        """The topic as it is now; `touch` counts as a read in last_read_ts."""
        return self.run(calls.state(topic, touch=touch))

    def list_topics(self, prefix: str = "", *, page_size: int = 1000) -> Iterator[TopicSummary]:
        """Every topic whose name begins with `prefix`, sorted bytewise; pages are fetched as they are needed."""
        cursor: str | None = None
        while True:
            page = self.run(calls.topics_page(prefix, page_size, cursor))
            yield from page.topics
            cursor = page.next_cursor
            if cursor is None:
                return

    def delete_topic(self, topic: str, *, if_empty: bool = False) -> TopicDeleted:
        """Deletes a topic with everything in it. `if_empty`: raises Conflict when it still holds records."""
        return self.run(calls.delete_topic(topic, if_empty=if_empty))

    def append(self, topic: str, records: Iterable[Any], **options: Unpack[AppendOptions]) -> Appended:
        """Appends 1 to 10000 records, all or none, in order. Each is a Python value, a NewRecord, a Record read
        elsewhere, or `bytes` that are JSON already.

        It is repeated after broken connections, timeouts, 429, 503 and 507, and never stored twice: every append
        carries an idempotency key, a random one unless given. When it raises with `outcome` "unknown", appending the
        same records again with the same key of your own is safe within the topic's idempotency window.
        """
        return self.run(calls.append(topic, records, options))

    def read(self, topic: str, from_seq: int = 0, **options: Unpack[ReadOptions]) -> Diff:
        """The records behind `from_seq` (exclusive), as many as fit into one answer. Read on from next_from_seq."""
        return self.run(calls.read(topic, from_seq, options))

    def tail(self, topic: str, from_seq: int = 0, **options: Unpack[ReadOptions]) -> Iterator[Record | Tombstone]:
        """Every record behind `from_seq`, then each new one as it arrives, for ever. What is lost comes as a
        Tombstone, before the records behind the gap. Raises TopicNotFound when the topic is deleted.
        """
        follower = Follower(topic, from_seq, options)
        while True:
            yield from self.run(follower.call())

    def get_record(self, topic: str, seq: int) -> Record:
        """One record; raises NotFound, detail.reason says why it is not there."""
        return self.run(calls.get_record(topic, seq))

    def delete_records(
        self, topic: str, *, before_seq: int | None = None, match: Match | None = None
    ) -> RecordsDeleted:
        """Deletes for good the records below `before_seq` and with that tag; given both, those that fit both."""
        return self.run(calls.delete_records(topic, before_seq=before_seq, match=match))
