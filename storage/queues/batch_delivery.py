"""Claims and acks of a batch: what `queue` and `settling` do with single jobs, done for all its jobs at once.

Whatever does not hold for all of them (a record that cannot be read, a claim that nobody waits for) splits the batch
apart, and goes the other way.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from storage.format import control
from storage.format.control import Lease
from storage.queues import reading
from storage.queues.claims import Claim, Claimed
from storage.state.lookup import Found, LookedUp
from storage.state.queues.lease_batch import LeaseBatch, lease_entries
from storage.state.queues.values import ClaimedBatch

if TYPE_CHECKING:
    from storage.queues.lease_queue import LeaseQueue
    from storage.queues.queues import Queues

#: Says of a Found that it is right however far the log has been flushed: nothing has to be looked up any more.
EVERYTHING = 1 << 62


def fresh_tokens(count: int) -> tuple[int, ...]:
    """So many lease ids that nobody can guess."""
    tokens = struct.unpack(f"<{count}Q", os.urandom(8 * count))
    return tokens if all(tokens) else tuple(token or 1 for token in tokens)


class BatchDelivery(NamedTuple):
    """A batch of jobs that is delivered to a claim: the tokens, and until when they are good."""

    claim: Claim
    batch: LeaseBatch
    lease_ids: tuple[int, ...]
    deadline: int

    def frame(self) -> Lease:
        """What says so in the log."""
        jobs = lease_entries(self.batch.seqs, self.lease_ids, self.deadline)
        return Lease(event="claimed", jobs=jobs, attempt_key=self.claim.attempt_key)


def new_delivery(batch: LeaseBatch, claim: Claim, now_ms: int) -> BatchDelivery:
    """With fresh tokens."""
    return BatchDelivery(claim, batch, fresh_tokens(len(batch.seqs)), now_ms + claim.lease_ms)


def complete_claim(queues: Queues, queue: LeaseQueue, delivery: BatchDelivery, read: reading.Read) -> None:
    """Answer the claim; its leases stand."""
    claim, batch, lease_ids, deadline = delivery
    for job, size in zip(batch.separate or (), read.sizes, strict=False):  # one of them was touched in the meantime
        job.size, job.holder = size, claim.holder
    batch.sizes, batch.holder = read.sizes, claim.holder
    given = ClaimedBatch(read.records, lease_ids, deadline)
    queues.stats.claims += 1
    queues.stats.claimed += len(given)
    claimed = Claimed(queue, claim, given, queue.ready)
    if claim.answer.done():
        claimed.undo()
    else:
        claim.answer.set_result(claimed)


def deletion(queue: LeaseQueue, batch: LeaseBatch) -> tuple[control.Delete, LookedUp | None]:
    """The Delete of an ack of all its jobs, and the same with all it needs to know, if that is known."""
    request = control.Delete(bound_head=queue.topic.log.head, seqs=[*batch.seqs], ack=True)
    if batch.sizes is None:
        return request, None
    return request, LookedUp(request, Found(EVERYTHING, [*batch.seqs], [*batch.sizes]))
