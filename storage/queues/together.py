"""Claims and acks of a grant: what `desk` and `settling` do with single jobs, done for all its jobs at once.

Whatever does not hold for all of them (a record that cannot be read, a claim that nobody waits for) takes the grant
apart, and goes the other way. Source: api.md §6.
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
from storage.state.queues.grant import Grant, rows
from storage.state.queues.values import ClaimedTogether

if TYPE_CHECKING:
    from storage.queues.desk import Desk
    from storage.queues.queues import Queues

#: Says of a Found that it is right however far the log has been absorbed: nothing has to be looked up any more.
EVERYTHING = 1 << 62


def fresh_tokens(count: int) -> tuple[int, ...]:
    """So many lease ids that nobody can guess."""
    tokens = struct.unpack(f"<{count}Q", os.urandom(8 * count))
    return tokens if all(tokens) else tuple(token or 1 for token in tokens)


class Deal(NamedTuple):
    """A grant that is given to whoever asked for it: the tokens, and until when they are good."""

    claim: Claim
    grant: Grant
    lease_ids: tuple[int, ...]
    deadline: int

    def frame(self) -> Lease:
        """What says so in the log."""
        jobs = rows(self.grant.seqs, self.lease_ids, self.deadline)
        return Lease(event="claimed", jobs=jobs, attempt_key=self.claim.attempt_key)


def deal(grant: Grant, claim: Claim, now_ms: int) -> Deal:
    """With fresh tokens."""
    return Deal(claim, grant, fresh_tokens(len(grant.seqs)), now_ms + claim.lease_ms)


def hand_out(queues: Queues, desk: Desk, dealt: Deal, read: reading.Read) -> None:
    """Answer the claim; its leases stand."""
    claim, grant, lease_ids, deadline = dealt
    for job, size in zip(grant.singles or (), read.sizes, strict=False):  # one of them was touched in the meantime
        job.size, job.holder = size, claim.holder
    grant.sizes, grant.holder = read.sizes, claim.holder
    given = ClaimedTogether(read.records, lease_ids, deadline)
    queues.stats.claims += 1
    queues.stats.claimed += len(given)
    claimed = Claimed(desk, claim, given, desk.ready)
    if claim.answer.done():
        claimed.undo()
    else:
        claim.answer.set_result(claimed)


def deletion(desk: Desk, grant: Grant) -> tuple[control.Delete, LookedUp | None]:
    """The Delete of an ack of all its jobs, and the same with all it needs to know, if that is known."""
    request = control.Delete(bound_head=desk.topic.log.head, seqs=[*grant.seqs], ack=True)
    if grant.sizes is None:
        return request, None
    return request, LookedUp(request, Found(EVERYTHING, [*grant.seqs], [*grant.sizes]))
