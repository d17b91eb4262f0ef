"""The queue part of a snapshot's section, and what must agree with the log. From the specification alone.

Readings, where the specification leaves a choice:

- A row a job that was touched: claimed at some time, or delayed. A delay that is over may still be there.
- In a queue whose leases are not durable the section of a running broker holds delays alone: all else is void after it.
- `came` are copies whose source may still be there, so a part of all that were ever made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.spec_control import ControlViolation, is_map, is_u64
from tests.support.spec_queue import Row
from tests.support.spec_replay import Log

_COLUMNS = {
    "seqs": 8,
    "lease_ids": 8,
    "deadlines": 8,
    "ready_ats": 8,
    "deliveries": 4,
    "forgiven": 4,
    "holders": 4,
}
_COUNTERS = ("taken", "lost", "dead_lettered")


class Held(NamedTuple):
    """A row of the section; `node` of a leased job."""

    row: Row
    node: str


def is_queue_section(value: Any) -> bool:
    """Columns of one length, counters, the nodes that `holders` refers to, and attempts."""
    names = {*_COLUMNS, *_COUNTERS, "nodes", "attempts"}
    if not is_map(value) or value.keys() - {"reasons"} != names or not all(is_u64(value[name]) for name in _COUNTERS):
        return False
    if not all(isinstance(value[name], bytes) for name in _COLUMNS):
        return False
    if len({len(value[name]) / width for name, width in _COLUMNS.items()}) != 1 or len(value["seqs"]) % 8:
        return False
    reasons = value.get("reasons", [])
    if ("reasons" in value and not reasons) or not all(
        len(pair) == 2 and is_u64(pair[0]) and _is_node(pair[1]) for pair in reasons
    ):
        return False
    return all(map(_is_node, value["nodes"])) and all(map(_is_attempt, value["attempts"]))


def _is_node(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_attempt(value: Any) -> bool:
    return (
        is_map(value)
        and value.keys() == {"node", "key", "jobs"}
        and _is_node(value["node"])
        and _is_node(value["key"])
        and all(len(job) == 2 and is_u64(job[0]) and is_u64(job[1]) for job in value["jobs"])
    )


def is_moves_section(value: Any) -> bool:
    """`out`: [seq, dest_id, deliveries, reason]; `came`: [source topic_id, source seq]."""
    return (
        is_map(value)
        and value.keys() == {"out", "came"}
        and all(
            len(move) == 4 and all(map(is_u64, move[:3])) and (move[3] is None or isinstance(move[3], str))
            for move in value["out"]
        )
        and all(len(move) == 2 and all(map(is_u64, move)) for move in value["came"])
    )


def rows_of(section: dict[str, Any]) -> dict[int, Held]:
    """By seq. Raises Wrong."""
    columns = [
        [int.from_bytes(section[name][at : at + width], "little") for at in range(0, len(section[name]), width)]
        for name, width in _COLUMNS.items()
    ]
    rows: dict[int, Held] = {}
    for seq, lease_id, deadline, ready_at, deliveries, forgiven, holder in zip(*columns, strict=True):
        if seq in rows or not seq:
            raise ControlViolation(f"job {seq} twice, or a job 0")
        if lease_id and holder >= len(section["nodes"]):
            raise ControlViolation(f"job {seq} is held by node {holder} of {len(section['nodes'])}")
        row = Row(seq, lease_id, deadline, deliveries, ready_at, forgiven)
        rows[seq] = Held(row, section["nodes"][holder] if lease_id else "")
    return rows


def judge_volatile(fields: dict[str, Any]) -> None:
    """For a snapshot that is not of a clean stop. Raises Wrong."""
    section = fields.get("queue")
    if section is None or fields["config"].get("leases_durable"):
        return
    if section["attempts"] or any(held.row.lease_id or held.row.deliveries for held in rows_of(section).values()):
        raise ControlViolation("leases that are not durable are in the snapshot of a broker that went on")


def meet_jobs(log: Log, fields: dict[str, Any]) -> None:
    """Compare the section with what the frames below it say of jobs, and take over what they no longer say. Raises
    Wrong."""
    section, moves = fields.get("queue"), fields.get("moves") or {"out": [], "came": []}
    if (section is not None) != (fields["config"]["type"] == "queue"):
        raise ControlViolation("a queue without its part of the section, or that of something else")
    rows = {} if section is None else rows_of(section)
    out = {seq: dest_id for seq, dest_id, *_ in moves["out"]}
    came = {(source, seq) for source, seq in moves["came"]}
    if section is not None:
        taken = section["taken"]
        if stranded := [seq for seq in log.records if seq < taken and seq not in rows]:
            raise ControlViolation(
                f"jobs {stranded} lie below taken {taken} without a row: nobody will ever claim them"
            )
    if log.jobs.partial:
        log.jobs.take_over(rows=dict(rows), out=out, came=came)
        return
    if out != log.jobs.open_moves:
        raise ControlViolation(f"open moves are {out}, the frames come to {log.jobs.open_moves}")
    if not came <= log.jobs.copies:
        raise ControlViolation(f"copies of {came - log.jobs.copies} are remembered, and no frame made them")
    if section is not None and fields["config"].get("leases_durable"):
        _compare(log, rows, section)


def _compare(log: Log, rows: dict[int, Held], section: dict[str, Any]) -> None:
    told = log.jobs.jobs
    for seq, held in rows.items():
        row = held.row
        if seq not in told:
            if (row.lease_id, row.deliveries, row.forgiven) != (0, 0, 0):
                raise ControlViolation(f"{held}, and no frame tells of job {seq}")
            delay = log.records[seq].extra.get("deliver_at", 0) if seq in log.records else row.ready_at
            if row.ready_at not in (0, delay):
                raise ControlViolation(f"{held}, and its record is to be delivered at {delay}")
            continue
        wanted = told[seq].row
        if row._replace(ready_at=0) != wanted._replace(ready_at=0) or row.ready_at not in (0, wanted.ready_at):
            raise ControlViolation(f"{held}, the frames come to {wanted}")
        if held.node.encode() != told[seq].node:
            raise ControlViolation(f"{held}, the frames say it is held by {told[seq].node}")
    wanted_reasons = {
        seq: told[seq].reason
        for seq, held in rows.items()
        if seq in told and told[seq].reason and not held.row.lease_id
    }
    if (reasons := dict(section.get("reasons", []))) != wanted_reasons:
        raise ControlViolation(f"reasons are {reasons}, the frames come to {wanted_reasons}")
    for seq, job in told.items():
        if seq not in rows and (job.row.lease_id or seq in log.records):
            raise ControlViolation(f"nothing of job {seq}, the frames come to {job}")
    found = {(one["node"].encode(), one["key"]): [tuple(job) for job in one["jobs"]] for one in section["attempts"]}
    if found != log.jobs.standing_attempts:
        raise ControlViolation(f"attempts are {found}, the frames come to {log.jobs.standing_attempts}")
