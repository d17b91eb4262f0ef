"""Claims and acks of a grant: what `desk` and `settling` do with single jobs, done for all its jobs at once.

Whatever does not hold for all of them (a record that cannot be read, a claim that nobody waits for) takes the grant
apart, and goes the other way. Source: api.md §6.
"""

from __future__ import annotations

import os
import struct
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from storage.format import control
from storage.format.control import Control, Lease
from storage.lookup import Found, LookedUp
from storage.queues import reading
from storage.queues.claims import Claim, Claimed
from storage.queues.grant import Grant, rows
from storage.queues.values import ClaimedJob

if TYPE_CHECKING:
    from storage.queues.desk import Desk
    from storage.queues.queues import Queues

#: Says of a Found that it is right however far the log has been absorbed: nothing has to be looked up any more.
EVERYTHING = 1 << 62

#: As calling the type, without a call in Python.
_claimed_job = partial(tuple.__new__, ClaimedJob)


def fresh_tokens(count: int) -> tuple[int, ...]:
    """So many lease ids that nobody can guess."""
    tokens = struct.unpack(f"<{count}Q", os.urandom(8 * count))
    return tokens if all(tokens) else tuple(token or 1 for token in tokens)


def leases_of(grant: Grant, claim: Claim, now_ms: int) -> Lease:
    """The frame that leases a grant to whoever asked for it."""
    jobs = rows(grant.seqs, fresh_tokens(len(grant.seqs)), now_ms + claim.lease_ms)
    return Lease(event="claimed", jobs=jobs, attempt_key=claim.attempt_key)


def is_whole(grant: Grant, claim: Claim, found: reading.Found) -> bool:
    """Whether the grant can be handed out as it is."""
    return grant.singles is None and not claim.gone and len(found.records) >= len(grant.seqs) and not found.corrupt


def hand_out(queues: Queues, desk: Desk, claim: Claim, grant: Grant, found: reading.Found, value: Lease) -> None:
    """Answer the claim; its lease has been applied."""
    seqs = grant.seqs
    sizes = [*map(found.sizes.__getitem__, seqs)]
    for job, size in zip(grant.singles or (), sizes, strict=False):  # one of them was touched in the meantime
        job.size, job.holder = size, claim.holder
    grant.sizes, grant.holder = sizes, claim.holder
    _, lease_ids, deadlines, *_ = zip(*value.jobs, strict=True)
    records = map(found.records.__getitem__, seqs)
    given: list[ClaimedJob] = [*map(_claimed_job, zip(records, lease_ids, deadlines, repeat(1), strict=False))]
    queues.stats.claims += 1
    queues.stats.claimed += len(given)
    claimed = Claimed(desk, claim, given, desk.ready)
    if claim.answer.done():
        claimed.undo()
    else:
        claim.answer.set_result(claimed)


def deletion(desk: Desk, grant: Grant) -> tuple[list[Control], LookedUp | None]:
    """The frames of an ack of all its jobs, and the Delete with all it needs to know, if that is known."""
    request = control.Delete(bound_head=desk.topic.log.head, seqs=[*grant.seqs], ack=True)
    values: list[Control] = [request]
    if desk.topic.leases_durable:
        count = len(grant.seqs)
        values.append(Lease(event="acked", jobs=rows(grant.seqs, (0,) * count, 0)))
    if grant.sizes is None:
        return values, None
    return values, LookedUp(request, Found(EVERYTHING, [*grant.seqs], [*grant.sizes]))
