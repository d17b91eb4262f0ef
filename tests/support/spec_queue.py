"""What Lease frames, acks and moves say about the jobs of a log, one after another. From the specification alone.

Readings, where the specification leaves a choice (docs/reference/format.md decides):

- A row of a Lease frame says how the job is from there on: lease_id 0: not leased, ready_at 0: claimable at once.
  `claimed` and `extended` leave it leased, everything else does not.
- A claim adds one delivery; nothing takes any away, and no more are forgiven than there were.
- The node of a Lease frame is the holder; who gave the leases back may be named by it, too.
- No token is given twice in a log, whoever holds it. It stays the same while the lease is extended.
- Lease frames of a queue without durable leases tell of moves only, since they alone have to outlast a crash there.
- `acked` says what the Delete in the same batch does, which may stand before it.
- An open move is a `dead` with dest_id. It ends with the Delete of the job, or when a `released` calls it off. The log
  it leads from may be of any type: dead letters that are redriven come out of a log.
- A copy is one Append in a Batch with `move`, or one of those in a batch with a Moved frame, which names as many
  records. A record is copied once into a log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.spec_control import ControlViolation


class Row(NamedTuple):
    """As in a Lease frame."""

    seq: int
    lease_id: int
    deadline: int
    deliveries: int
    ready_at: int
    forgiven: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecJob:
    """A job that some frame is about."""

    row: Row
    node: bytes = b""
    #: The target of its move.
    dest_id: int | None = None
    reason: str | None = None


@dataclass(slots=True)
class Jobs:
    """The jobs of one log, and the copies in it. `partial`: frames about jobs are no longer in the log."""

    jobs: dict[int, SpecJob] = field(default_factory=dict[int, SpecJob])
    tokens: set[int] = field(default_factory=set[int])
    #: (node, attempt key) to the (seq, token) of its answer.
    attempts: dict[tuple[bytes, str], list[tuple[int, int]]] = field(
        default_factory=dict[tuple[bytes, str], list[tuple[int, int]]]
    )
    #: Whether leases are durable, so that every step is in the log.
    lasting: bool = False
    #: (source topic_id, source seq) of records that were copied into this log.
    copies: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    partial: bool = False

    @property
    def leased(self) -> dict[int, SpecJob]:
        return {seq: job for seq, job in self.jobs.items() if job.row.lease_id}

    @property
    def open_moves(self) -> dict[int, int]:
        """Seq to dest_id."""
        return {seq: job.dest_id for seq, job in self.jobs.items() if job.dest_id is not None}

    @property
    def standing_attempts(self) -> dict[tuple[bytes, str], list[tuple[int, int]]]:
        """The jobs whose leases are still in force."""
        current = {(seq, job.row.lease_id) for seq, job in self.leased.items()}
        return {key: jobs for key, jobs in self.attempts.items() if current.intersection(jobs)}

    def take_over(self, rows: dict[int, tuple[Row, str]], out: dict[int, int], came: set[tuple[int, int]]) -> None:
        """Take over what a snapshot's section says of jobs where frames no longer do."""
        self.jobs = {
            seq: SpecJob(row=row, node=node.encode(), dest_id=out.get(seq)) for seq, (row, node) in rows.items()
        }
        for seq in out.keys() - rows.keys():
            self.jobs[seq] = SpecJob(row=Row(seq, 0, 0, 0, 0, 0), dest_id=out[seq])
        self.tokens |= {row.lease_id for row, _ in rows.values()} - {0}
        self.copies |= came
        self.partial = False

    def take(self, fields: dict[str, Any], node: bytes, ts: int) -> None:
        """A Lease frame. Raises Wrong."""
        event = fields["event"]
        rows = [Row(*row) for row in fields["jobs"]]
        if not rows or len({row.seq for row in rows}) < len(rows):
            raise ControlViolation("a Lease frame tells of jobs, of each of them once")
        if event == "claimed" and not node:
            raise ControlViolation("a claim by nobody")
        if (event == "dead") != ("dest_id" in fields) or ("attempt_key" in fields and event != "claimed"):
            raise ControlViolation(f"a Lease that says {event} has other fields")
        for row in rows:
            self._row(event, row, ts)
            before = self.jobs.get(row.seq)
            if event == "acked":
                self.jobs.pop(row.seq, None)
                continue
            holder = node if event == "claimed" else before.node if before and event == "extended" else b""
            self.jobs[row.seq] = SpecJob(
                row=row, node=holder, dest_id=fields.get("dest_id"), reason=fields.get("reason")
            )
        if "attempt_key" in fields:
            self.attempts[node, fields["attempt_key"]] = [(row.seq, row.lease_id) for row in rows]

    def _row(self, event: str, row: Row, ts: int) -> None:
        if (event in ("claimed", "extended")) != (row.lease_id != 0):
            raise ControlViolation(f"job {row.seq} has lease_id {row.lease_id} when it is {event}")
        if row.lease_id and (row.deadline <= ts or row.ready_at):
            raise ControlViolation(f"job {row.seq} is leased at {ts} to {row.deadline}, ready at {row.ready_at}")
        if row.forgiven > row.deliveries or (event == "claimed" and not row.deliveries):
            raise ControlViolation(f"job {row.seq} has {row.deliveries} deliveries, {row.forgiven} of them forgiven")
        self._step(event, row)

    def _step(self, event: str, row: Row) -> None:
        """Check against its state before, as far as that is known."""
        before = self.jobs.get(row.seq)
        if not self.lasting:
            if event not in ("dead", "released"):
                raise ControlViolation(f"job {row.seq} is {event} in a log whose leases are not durable")
            return
        if event == "claimed":
            if row.lease_id in self.tokens:
                raise ControlViolation(f"token {row.lease_id:x} of job {row.seq} was given before")
            self.tokens.add(row.lease_id)
        if before is None:
            if not self.partial and event in ("extended", "expired"):
                raise ControlViolation(f"job {row.seq} is {event}, and was never claimed")
            if not self.partial and event == "claimed" and row.deliveries != 1:
                raise ControlViolation(f"delivery {row.deliveries} of job {row.seq}, and nothing tells of one before")
            return
        if event == "extended" and row.lease_id != before.row.lease_id:
            raise ControlViolation(f"job {row.seq} is extended under another token than it was claimed with")
        if event in ("extended", "expired") and not before.row.lease_id:
            raise ControlViolation(f"job {row.seq} is {event}, and was not leased")
        if row.deliveries != before.row.deliveries + (event == "claimed") or row.forgiven < before.row.forgiven:
            raise ControlViolation(f"job {row.seq} is {event} with {row}, it was {before.row}")

    def delete(self, seqs: list[int] | None, below: int | None) -> None:
        """Their records are gone for good. A lease on them may end in a frame of its own."""
        for seq in [seq for seq, job in self.jobs.items() if (seqs and seq in seqs) or (below and seq < below)]:
            if seqs or not self.jobs[seq].row.lease_id:
                del self.jobs[seq]

    def copies_of(self, moves: list[list[int]], appends: int) -> None:
        """A batch of copies, and the records that were copied, in order. Raises Wrong."""
        if appends != len(moves):
            raise ControlViolation(f"copies of {len(moves)} records in a batch of {appends} Appends")
        for source_id, seq in moves:
            if (source_id, seq) in self.copies:
                raise ControlViolation(f"record {seq} of log {source_id} is copied here a second time")
            self.copies.add((source_id, seq))
