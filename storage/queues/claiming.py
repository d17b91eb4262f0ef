"""Claims from their checks to their answers, waiting if they may.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.errors import InvalidRequest, ShuttingDown
from storage.queues import checks
from storage.queues.callback_outcome import CallbackOutcome
from storage.queues.claims import Claim, Claimed
from storage.queues.lease_queue import LeaseQueue
from storage.state.catalog import Topic
from storage.state.queues.job import Holder

if TYPE_CHECKING:
    from storage.queues.queues import Queues
    from storage.queues.work import Worker


class Claiming:
    """The claims of all queues."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._engine = queues.engine

    def check(self, node: str, max: int, wait_ms: int, attempt_key: str | None) -> None:
        """Raises InvalidRequest, NotReady, ShuttingDown: what a claim is refused for before its queue is looked up."""
        self._engine.check_open()
        checks.check_node(node, self._engine.options)
        checks.check_attempt_key(attempt_key)
        for field, value in (("max", max), ("wait_ms", wait_ms)):
            if value < 0:
                raise InvalidRequest(f"{field} must not be negative.", field=field)

    async def claim(
        self,
        name: str,
        node: str,
        *,
        max: int,
        lease_ms: int | None,
        wait_ms: int,
        attempt_key: str | None,
        holder: Holder | None = None,
        max_bytes: int = 0,
    ) -> Claimed:
        """See `Queues.claim`."""
        self.check(node, max, wait_ms, attempt_key)
        queue = await self._queues.open(name)
        if queue.topic.config.ttl_ms:
            # Expired jobs must not be taken and then dropped: the claim would get fewer than there are.
            await self._engine.expiry.expire_if_possible(queue.topic)
            queue = await self._queues.open(name)
        lease_ms = checks.lease_time(lease_ms, queue.topic.config.lease_ms)
        while attempt_key is not None:
            again = await self._repeated(queue, node, attempt_key)
            if again is not None:
                return again
            queue = await self._queues.open(name)  # it may have been deleted or recreated by now
            if _pending(queue, node, attempt_key) is None:
                break
        answer: asyncio.Future[Claimed] = self._engine.loop.create_future()
        claim = Claim(
            answer,
            node,
            min(max or 1, checks.MAX_JOBS),
            lease_ms,
            patient=wait_ms > 0 and not self._queues.leaving,
            attempt_key=attempt_key,
            holder=holder,
            max_bytes=max_bytes,
        )
        return await self._wait(queue, claim, answer, min(wait_ms, checks.MAX_WAIT_MS))

    def try_claim(
        self, name: str, node: str, max: int, lease_ms: int | None, on_result: Callable[..., None], max_bytes: int = 0
    ) -> bool:
        """See `Queues.try_claim`."""
        engine = self._engine
        engine.check_open()
        checks.check_node(node, engine.options)
        topic = engine.topic(name)
        table, config = checks.table_of(topic), topic.config
        lease_ms = checks.lease_time(lease_ms, config.lease_ms)
        if topic.topic_id in engine.changing or topic.paused or config.ttl_ms or config.claim_jitter_ms or max < 0:
            return False
        if topic.topic_id in engine.catalog.routes.into:
            return False  # records on their way to this topic are waited for
        ready = table.ready(topic.log.count)
        if max_bytes and min(max, ready) * topic.log.bytes > max_bytes * topic.log.count:
            return False
        if ready <= 0 or engine.shards[topic.log.shard].log.failed is not None:
            return False
        answer = CallbackOutcome(engine.loop, on_result)
        self._queues.queue_of(topic).queue_up(
            Claim(answer, node, min(max or 1, checks.MAX_JOBS), lease_ms, patient=False)
        )
        return True

    async def claim_for(self, worker: Worker, count: int, max_bytes: int) -> Claimed:
        """A claim of a worker; it waits without a limit. Raises ShuttingDown."""
        queue = await self._queues.open(worker.topic)
        if self._queues.leaving:
            raise ShuttingDown()
        answer: asyncio.Future[Claimed] = self._engine.loop.create_future()
        claim = Claim(answer, worker.node, count, worker.lease_ms, patient=True, holder=worker, max_bytes=max_bytes)
        try:
            self._refuse_when_failed(queue.topic)
            queue.queue_up(claim)
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._abandon(queue, claim, answer)
            raise

    async def _wait(self, queue: LeaseQueue, claim: Claim, answer: asyncio.Future[Claimed], wait_ms: int) -> Claimed:
        key = (claim.node, claim.attempt_key) if claim.attempt_key is not None else None
        if key is not None:
            queue.attempts[key] = answer
        try:
            self._refuse_when_failed(queue.topic)
            queue.queue_up(claim)
            if claim.patient and not answer.done():
                await asyncio.wait([answer], timeout=wait_ms / 1000)
                claim.patient = False
                queue.leave(claim)
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._abandon(queue, claim, answer)
            raise
        finally:
            if key is not None and answer.done():
                _forget(queue, key, answer)

    def _abandon(self, queue: LeaseQueue, claim: Claim, answer: asyncio.Future[Claimed]) -> None:
        """The caller is gone."""
        if answer.done():
            if not answer.cancelled() and answer.exception() is None:
                answer.result().undo()
        elif claim.dispatched and claim.attempt_key is not None:
            # Its leases will stand, for a repeat to ask for.
            key = (claim.node, claim.attempt_key)
            answer.add_done_callback(lambda done: (_forget(queue, key, done), done.cancelled() or done.exception()))
        else:
            queue.leave(claim)
            answer.cancel()

    async def _repeated(self, queue: LeaseQueue, node: str, key: str) -> Claimed | None:
        """The jobs that an earlier claim with this key was given and still holds."""
        while (pending := _pending(queue, node, key)) is not None:  # after one that got nothing, another may be next
            await asyncio.wait([pending])
        jobs = queue.table.repeat(node, key, self._engine.now_ms())
        return await queue.repeat(jobs, node, key) if jobs else None

    def _refuse_when_failed(self, topic: Topic) -> None:
        shard = self._engine.shards[topic.log.shard]
        if shard.log.failed is not None:
            raise shard.log.failure()


def _pending(queue: LeaseQueue, node: str, key: str) -> asyncio.Future[Claimed] | None:
    """The pending answer of another claim with this key."""
    answer = queue.attempts.get((node, key))
    return answer if answer is not None and not answer.done() else None


def _forget(queue: LeaseQueue, key: tuple[str, str], answer: asyncio.Future[Claimed]) -> None:
    """The answer is there. The next claim with this key may have replaced it, and then forgets its own."""
    if queue.attempts.get(key) is answer:
        del queue.attempts[key]
