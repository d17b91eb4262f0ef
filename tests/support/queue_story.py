"""Everything that a history says of one job, one line per operation, for finding the cause of a violation."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.queue_history import Claim, History, Observation, Operation, Pause, Produce, Purge, Redrive, Settle


def story(history: History, seq: int) -> Iterator[str]:
    """Times are ms since the history began."""
    begin = history.operations[0].invoked
    for number, era in enumerate(history.eras):
        asked = f", asked to stop at {era.asked - begin:.0f}" if era.clean else ""
        yield f"process {number}: until {era.ended - begin:.0f}{asked}"
    for operation in history.operations:
        what = _part(operation, seq, begin)
        if what:
            when = f"{operation.invoked - begin:8.0f} to {operation.answered - begin:8.0f}"
            yield f"{when}  process {operation.era}  {operation.node:6} {operation.outcome.value:7} {what}"


def _part(operation: Operation, seq: int, begin: float) -> str:
    """How it concerns the job; empty if it does not."""
    if isinstance(operation, Produce) and 0 <= seq - operation.first_seq < len(operation.names) and operation.first_seq:
        return f"produced, delay {operation.delay_ms} ms"
    if isinstance(operation, Claim):
        for lease in operation.leases:
            if lease.seq == seq:
                leased, until = lease.deadline - operation.lease_ms - begin, lease.deadline - begin
                what = (
                    f"claimed as {lease.token}, leased at {leased:.0f} until {until:.0f}, delivery {lease.deliveries}"
                )
                if operation.stream is not None:
                    what += f", pushed, {operation.stream.max} at most"
                return what + (f", key {operation.key}" if operation.key else "")
    if isinstance(operation, Settle) and seq in operation.seqs:
        what = f"{operation.act.value} under {operation.tokens[operation.seqs.index(seq)]}"
        what += ", cut" if operation.cut else ""
        if operation.strict:
            what += f", strict, lost: {sorted(operation.refused)}"
        if operation.delay_ms is None:
            what += ", backoff"
        elif operation.delay_ms:
            what += f", delay {operation.delay_ms} ms"
        if seq in operation.deadlines:
            what += f", until {operation.deadlines[seq] - begin:.0f}"
        return what + (", passed over" if seq in operation.skipped else "")
    if isinstance(operation, Observation):
        letters = sum(1 for dead in operation.dead if dead.source_seq == seq)
        return f"looked: {'there' if seq in operation.present else 'not there'}, {letters} dead letters"
    if isinstance(operation, Pause):
        return "paused" if operation.paused else "resumed"
    if isinstance(operation, Purge):
        return f"purged {operation.purged} {' and '.join(operation.states)} jobs"
    if isinstance(operation, Redrive):
        return f"redrove {operation.moved} dead letters"
    return ""
