"""The blocking client: makes the calls of `calls`, with `retry` and `following`, over a `Sender`."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from topics_client import address, calls, deadlines, queue_calls, router_calls, versions
from topics_client.attempts import Instrument, Observed
from topics_client.calls import AppendOptions, Match, ReadOptions
from topics_client.consumers import Consumers
from topics_client.errors import LeaseLost, TopicsError
from topics_client.following import Follower
from topics_client.identity import identity
from topics_client.queue_calls import ClaimOptions, NackOptions, PurgeOptions, RedriveOptions
from topics_client.renewing import Holding, Renewing
from topics_client.retry import Pause, RetryBudget, RetryPolicy, exchange
from topics_client.router_values import Router, RouterDeleted, RouterOptions, RouterPut
from topics_client.values import (
    Appended,
    Claimed,
    Cluster,
    Diff,
    Health,
    Job,
    JobSummary,
    Paused,
    Purged,
    Ready,
    Record,
    RecordsDeleted,
    Redriven,
    Settled,
    Tombstone,
    TopicDeleted,
    TopicPut,
    TopicSettings,
    TopicState,
    TopicSummary,
    Watched,
)
from topics_client.watching import Watching, WatchOptions, WatchTopics
from topics_client.wire import Call, NoReply, Replay, Reply, Request
from topics_client.working import DEFAULT_LEASE_MS, Working

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Self, Unpack

    from topics_client.sending import Sender

T = TypeVar("T")

#: The timeout of one attempt, unless given.
TIMEOUT_S = 30.0
#: A single attempt, for callers that repeat it themselves.
_ONCE = RetryPolicy(total_s=0)


class Client:
    """Talks to one broker, and may be shared by threads. Close it, or use it in a `with` block.

    `timeout` (seconds) limits one attempt, `retry` all attempts of a call together, and `retry_budget` the retries of
    all calls together. `on_retry` is called before every wait for a retry, `instrument` around every attempt.
    `ca_file`: trust only the authorities in this PEM file; without it those of SSL_CERT_FILE and SSL_CERT_DIR, or else
    the usual ones. `cert` and `key`: PEM files with the client's certificate and its key, for https; without `key` the
    key is in `cert` too. `direct`: if the broker is a set of cells whose cells have ports, send requests for a topic to
    its cell; False: send all through the gateway. `http` replaces the network. `sender` replaces all of
    these: it sends the requests. Every method raises the errors of `topics_client.errors`.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:4000",
        *,
        token: str | None = None,
        timeout: float = TIMEOUT_S,
        retry: RetryPolicy | None = None,
        retry_budget: RetryBudget | None = None,
        on_retry: Callable[[Pause], None] | None = None,
        instrument: Instrument | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        direct: bool = True,
        http: httpx.BaseTransport | None = None,
        sender: Sender | None = None,
    ) -> None:
        self.url = address.base_url(url)
        self._retry = retry or RetryPolicy()
        self._budget = retry_budget or RetryBudget()
        self._on_retry = on_retry
        self._instrument = instrument
        #: Iterations of `work` in progress.
        self._workers: list[Renewing] = []
        #: Readers whose position the broker stores.
        self.consumers = Consumers(self)
        if sender is None:
            # Loaded here: the command line has a sender of its own, and does without httpx.
            from topics_client.direct_sender import DirectSender
            from topics_client.pool import Pool

            pool = Pool(self.url, token, timeout, http, ca_file, identity(self.url, cert, key))
            sender = DirectSender(pool, self.url) if direct else pool
        self._sender = sender

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._sender.close()

    def run(self, call: Call[T], *, retry: RetryPolicy | None = None) -> T:
        """Make a call of `topics_client.calls`: send it, retry it where that is safe, and return its value."""
        steps = exchange(
            call,
            retry or self._retry,
            now=time.monotonic,
            draw=random.random,
            budget=self._budget,
            ends_s=deadlines.ends_s(),
        )
        outcome: Reply | NoReply | None = None
        tries = 0
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                value: T = done.value
                return value
            if isinstance(step, Pause):
                self._pause(step)
                outcome = None
            else:
                tries += 1
                outcome = self._try(step, tries)

    def stream(self, request: Request) -> AbstractContextManager[Iterator[bytes]]:
        """The pieces of an endless answer, as they arrive. Every failure is an error of `topics_client.errors`.
        `instrument` is not called for it."""
        return self._sender.stream(request)

    def _try(self, request: Request, number: int) -> Reply | NoReply:
        if self._instrument is None:
            return self._sender.send(request)
        with Observed(self._instrument, request, number) as observed:
            return observed.end(self._sender.send(observed.request))

    def _pause(self, pause: Pause) -> None:
        if self._on_retry is not None:
            self._on_retry(pause)
        time.sleep(pause.seconds)

    def health(self) -> Health:
        """Whether the process answers at all."""
        return self.run(calls.health())

    def cluster(self) -> Cluster:
        """The cells of the set. Raises NotFound if the broker is not a set of cells."""
        return self.run(calls.cluster())

    def check_version(self) -> Health:
        """Raise BrokerTooOld if the broker is too old for some call of this client. Asks the broker once; no other call
        makes this check."""
        return versions.checked(self.run(calls.health()))

    def ready(self) -> Ready:
        """Whether the broker serves now; raises NotReady or ConnectionFailed at once when it does not."""
        return self.run(calls.ready())

    def wait_until_ready(self, within_s: float = 30.0) -> Ready:
        """Waits until the broker serves, for at most `within_s` seconds; then raises the last error."""
        return self.run(calls.ready(Replay.SAFE), retry=RetryPolicy(total_s=within_s, cap_s=0.5))

    def metrics(self) -> str:
        """The broker's metrics, as Prometheus text."""
        return self.run(calls.metrics())

    def put_topic(self, topic: str, **settings: Unpack[TopicSettings]) -> TopicPut:
        """Creates a topic or replaces its settings; omitted settings get their defaults."""
        return self.run(calls.put_topic(topic, settings))

    def change_topic(self, topic: str, **settings: Unpack[TopicSettings]) -> TopicPut:
        """Changes the given settings; all others stay. Raises TopicNotFound."""
        return self.run(calls.change_topic(topic, settings))

    def state(self, topic: str, *, touch: bool = True, complete: bool = True) -> TopicState:
        """The topic as it is now; `touch` counts as a read in last_read_ts. If a cell with partitions of the topic is
        away, the call waits for it like a retry, and raises NotReady. With `complete=False` these partitions are
        missing, and are named in `offline_partitions`."""
        return self.run(calls.state(topic, touch=touch, complete=complete))

    def list_topics(self, prefix: str = "", *, page_size: int = 1000) -> Iterator[TopicSummary]:
        """Every topic whose name begins with `prefix`, in bytewise order; pages are fetched as needed."""
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
        """Appends 1 to 10000 records, all or none, in order. Each is a Python value, a NewRecord, a Record from a
        read, or `bytes` with JSON.

        It is retried after broken connections, timeouts, 429, 503 and 507, and never stored twice: every append
        carries an idempotency key, a random one unless given. When it raises with `outcome` "unknown", appending the
        same records again with the same key of your own is safe within the topic's idempotency window.
        """
        return self.run(calls.append(topic, records, options))

    def read(self, topic: str, from_seq: int = 0, **options: Unpack[ReadOptions]) -> Diff:
        """The records after `from_seq` (exclusive), as many as fit into one answer. Continue from next_from_seq."""
        return self.run(calls.read(topic, from_seq, options))

    def tail(self, topic: str, from_seq: int = 0, **options: Unpack[ReadOptions]) -> Iterator[Record | Tombstone]:
        """Every record after `from_seq`, then each new one as it arrives, forever. A loss comes as a Tombstone,
        before the records after the gap. Raises TopicNotFound when the topic is deleted."""
        follower = Follower(topic, from_seq, options)
        while True:
            yield from self.run(follower.call())

    def watch(self, topics: WatchTopics, **options: Unpack[WatchOptions]) -> Generator[Watched]:
        """Events of the topics, forever. Topics are names (from now on), or a map of name to the seq to start after
        (None: from now on). Broken connections and restarts are bridged without losing or repeating anything;
        `last_event_id`, the id of an event, continues after it. Raises TopicNotFound when a topic does not exist.
        """
        watching = Watching(topics, options, policy=self._retry, now=time.monotonic, draw=random.random)
        while True:
            try:
                if watching.request is None:
                    for event in watching.begin(self.run(watching.session())):
                        yield event
                with self.stream(deadlines.limited(watching.stream())) as pieces:
                    for piece in pieces:
                        deadlines.check()
                        for event in watching.feed(piece):
                            yield event
                raise watching.ended()
            except TopicsError as error:
                self._pause(deadlines.in_time(watching.failed(error)))

    def get_record(self, topic: str, seq: int, *, partition: int | None = None) -> Record:
        """One record; raises NotFound, whose detail.reason says why it does not exist."""
        return self.run(calls.get_record(topic, seq, partition=partition))

    def delete_records(
        self, topic: str, *, before_seq: int | None = None, match: Match | None = None, partition: int | None = None
    ) -> RecordsDeleted:
        """Permanently deletes the records below `before_seq` or with that tag; with both, the records that match
        both."""
        return self.run(calls.delete_records(topic, before_seq=before_seq, match=match, partition=partition))

    def claim(self, topic: str, node: str, **options: Unpack[ClaimOptions]) -> Claimed:
        """Up to `max` jobs (1 unless given), leased to `node` for `lease_ms`; with `wait_ms` it waits for one.

        Every claim has an attempt_key, a random one unless given: if the answer is lost, the retry gets the same jobs.
        `ack` or `nack` them before their deadline, or others get them.
        """
        return self.run(queue_calls.claim(topic, node, options))

    def ack(
        self, topic: str, node: str, jobs: Iterable[Job | int], *, strict: bool = False, skip_lost: bool = False
    ) -> Settled:
        """The jobs are done, and are permanently deleted. Jobs are claimed ones (only while their lease lasts), or
        seqs.

        Raises LeaseLost naming the jobs that are no longer leased to `node`; the others are acked. With `skip_lost`
        these jobs are in `skipped` of the answer instead. With `strict` it raises LeaseLost and does nothing. If the
        answer of a first attempt was lost, the jobs that it acked are in `skipped` of the second, without a LeaseLost.
        """
        given = list(jobs)
        settled = queue_calls.ack(topic, node, given, strict=strict, skip_lost=skip_lost)
        return self._settle(settled, topic, node, given)

    def nack(
        self,
        topic: str,
        node: str,
        jobs: Iterable[Job | int],
        *,
        strict: bool = False,
        skip_lost: bool = False,
        **options: Unpack[NackOptions],
    ) -> Settled:
        """Gives the jobs back, to be claimed again after `delay_ms` or the queue's backoff. `penalty` False: this
        delivery does not count. `reason` is stored with a job in the dead letter topic. Lost leases: see `ack`."""
        given = list(jobs)
        settled = queue_calls.nack(topic, node, given, options, strict=strict, skip_lost=skip_lost)
        return self._settle(settled, topic, node, given)

    def extend(
        self,
        topic: str,
        node: str,
        jobs: Iterable[Job | int],
        lease_ms: int,
        *,
        strict: bool = False,
        skip_lost: bool = False,
    ) -> Settled:
        """The leases now end `lease_ms` from now: see `deadlines`. Lost leases: see `ack`."""
        return self.run(queue_calls.extend(topic, node, jobs, lease_ms, strict=strict, skip_lost=skip_lost))

    def _settle(self, call: Call[Settled], topic: str, node: str, jobs: list[Job | int]) -> Settled:
        try:
            settled = self.run(call)
        except LeaseLost as lost:
            self._end(topic, node, jobs if lost.settled is not None else lost.detail.get("seqs", ()))
            raise
        self._end(topic, node, jobs)
        return settled

    def _end(self, topic: str, node: str, jobs: Sequence[Job | int]) -> None:
        for worker in list(self._workers):
            worker.end(topic, node, jobs)

    def work(self, topic: str, node: str, *, max: int = 1, lease_ms: int | None = None) -> Generator[Job]:
        """Jobs as they become ready, forever. Each is claimed when you ask for the next one, not before, and its
        lease is renewed until it is acked or nacked, however long that takes. At most `max` are claimed at a time:
        with more than one, ask for the next while other threads of yours do the others.

        Broken connections and restarts of the broker are bridged; an ack of a job that went back meanwhile raises
        LeaseLost. Unsettled jobs go back at once when the iteration ends, and at the end of their lease when the
        process dies. Raises TopicNotFound when the queue is deleted.
        """
        if lease_ms is None:
            lease_ms = int((self.state(topic, touch=False)).config.get("lease_ms", DEFAULT_LEASE_MS))
        working = Working(topic, node, lease_ms=lease_ms, policy=self._retry, now=time.monotonic, draw=random.random)
        holding = Holding(topic, node, lease_ms, time.monotonic)
        worker = Renewing(holding, lambda call: self.run(call, retry=_ONCE))
        self._workers.append(worker)
        try:
            with worker:
                while True:
                    worker.wait_for_room(max or 1)
                    try:
                        claimed = self.run(working.call(), retry=_ONCE)
                    except TopicsError as error:
                        self._pause(deadlines.in_time(working.failed(error)))
                        continue
                    for job in working.answered(claimed):
                        worker.begin(job)
                        yield job
        finally:
            self._workers.remove(worker)
            if holding.jobs:
                # A closed client raises a RuntimeError: then the leases expire.
                with suppress(TopicsError, RuntimeError), deadlines.lifted():
                    self.run(queue_calls.nack(topic, node, holding.jobs, {}), retry=_ONCE)

    def pause(self, topic: str) -> Paused:
        """Deliver no more jobs: claims wait."""
        return self.run(queue_calls.pause(topic))

    def resume(self, topic: str) -> Paused:
        """Deliver jobs again."""
        return self.run(queue_calls.resume(topic))

    def purge(
        self, topic: str, states: Sequence[str] = ("ready", "delayed"), **options: Unpack[PurgeOptions]
    ) -> Purged:
        """Permanently deletes the jobs that are in these states now: all, or at most `max`; with `through_seq` only
        those up to that seq.

        To delete many in bounded calls, repeat with the same `max` and `through_seq` until `purged` is less than `max`.
        Jobs that were appended meanwhile then stay. After a crash some of the jobs may remain.
        """
        return self.run(queue_calls.purge(topic, states, options))

    def redrive(self, topic: str, **options: Unpack[RedriveOptions]) -> Redriven:
        """Moves jobs of this queue back from its dead letter topic, or from `source`; each is moved exactly once."""
        return self.run(queue_calls.redrive(topic, options))

    def leases(self, topic: str, state: str | None = None, *, page_size: int = 1000) -> Iterator[JobSummary]:
        """Every job of the queue that is not done, or only those in one state, by seq. Pages are fetched as needed."""
        cursor: str | None = None
        while True:
            page = self.run(queue_calls.leases_page(topic, state, page_size, cursor))
            yield from page.jobs
            cursor = page.next_cursor
            if cursor is None:
                return

    def put_router(self, router: str, source: str, dest: str, **options: Unpack[RouterOptions]) -> RouterPut:
        """Copies records appended to `source` from now on (or from the earliest record on) to `dest`, each record once.

        An existing router with that name gets these settings; its source and dest cannot be changed. Raises
        RouterCycle.
        """
        return self.run(router_calls.put_router(router, source, dest, options))

    def change_router(self, router: str, **options: Unpack[RouterOptions]) -> RouterPut:
        """Changes the given settings of a router; all others stay. Raises RouterNotFound, RouterCycle."""
        return self.run(router_calls.change_router(router, options))

    def get_router(self, router: str) -> Router:
        """The router as it is now. Raises RouterNotFound."""
        return self.run(router_calls.get_router(router))

    def list_routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None, page_size: int = 1000
    ) -> Iterator[Router]:
        """Every router whose name begins with `prefix`, with this `source` and `dest` if given. Pages are fetched as
        needed."""
        cursor: str | None = None
        while True:
            page = self.run(router_calls.routers_page(prefix, source, dest, page_size, cursor))
            yield from page.routers
            cursor = page.next_cursor
            if cursor is None:
                return

    def delete_router(self, router: str) -> RouterDeleted:
        """Deletes a router; its copies stay."""
        return self.run(router_calls.delete_router(router))
