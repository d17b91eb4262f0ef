"""The independent decoder finds everything that Lease frames, acks, moves and the queue part of snapshots must not
say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from storage.format import control, wal_frame
from storage.format.wal_frame import FrameType
from storage.state.queues.section import Attempted, MovesSection, QueueSection
from tests.support.spec_decoder import SpecViolation, read_data_dir
from tests.unit.format.hand_written import (
    DURABLE,
    LOG,
    TS,
    append,
    batch,
    controlled,
    create,
    data_dir,
    section,
    snapshot_file,
)

QUEUE = {"type": "queue", "durability": "fsync", "leases_durable": True}
VOID = {**QUEUE, "leases_durable": False}
END_MS = TS + 1000
TOKEN = 77


def lease(event: str, *rows: tuple[int, ...], node: bytes = b"", **more: Any) -> bytes:
    value = control.Lease(event=event, jobs=list(rows), **more)  # type: ignore[arg-type]
    flags = DURABLE | (2 if node else 0)
    data = control.encode_control(value)
    return wal_frame.encode(FrameType.LEASE, flags, LOG, 0, TS, node=node, data=data)


def claimed(seq: int = 1, token: int = TOKEN, deliveries: int = 1, **more: Any) -> bytes:
    return lease("claimed", (seq, token, END_MS, deliveries, 0, 0), node=b"n", **more)


JOBS = create(config=QUEUE) + append(1) + append(2)
ACK = controlled(control.Delete(bound_head=2, seqs=[1], ack=True))


def of(root: Path, content: bytes) -> Any:
    return read_data_dir(data_dir(root / "d", content))


def test_the_last_frame_decides_about_a_job(tmp_path: Path) -> None:
    content = JOBS + claimed(attempt_key="k") + claimed(2, 78) + lease("extended", (1, TOKEN, END_MS + 5, 1, 0, 0))
    content += lease("released", (2, 0, 0, 1, END_MS, 1))
    jobs = of(tmp_path, content).logs[LOG].jobs
    assert jobs.jobs[1].row[:4] == (1, TOKEN, END_MS + 5, 1)
    assert (jobs.jobs[1].node, jobs.jobs[2].node, jobs.jobs[2].row.ready_at) == (b"n", b"", END_MS)
    assert jobs.standing_attempts == {(b"n", "k"): [(1, TOKEN)]}


def test_an_ack_removes_every_state_of_a_job(tmp_path: Path) -> None:
    log = of(tmp_path, JOBS + claimed() + ACK).logs[LOG]
    assert (log.jobs.jobs, sorted(log.records)) == ({}, [2])


def test_a_move_is_open_until_its_delete_or_release(tmp_path: Path) -> None:
    dead = JOBS + claimed() + lease("released", (1, 0, 0, 1, 0, 0)) + lease("dead", (1, 0, 0, 1, 0, 0), dest_id=9)
    assert of(tmp_path / "a", dead).logs[LOG].jobs.open_moves == {1: 9}
    assert of(tmp_path / "b", dead + ACK).logs[LOG].jobs.open_moves == {}
    assert of(tmp_path / "c", dead + lease("released", (1, 0, 0, 1, 0, 0))).logs[LOG].jobs.open_moves == {}


def test_copies_are_remembered(tmp_path: Path) -> None:
    assert of(tmp_path, create() + batch(append(1), first_seq=1, move=(9, 4))).logs[LOG].jobs.copies == {(9, 4)}


WRONG = [
    ("of each of them once", JOBS + lease("claimed", node=b"n")),
    ("of each of them once", JOBS + lease("claimed", *[(1, TOKEN, END_MS, 1, 0, 0)] * 2, node=b"n")),
    ("a claim by nobody", JOBS + lease("claimed", (1, TOKEN, END_MS, 1, 0, 0))),
    ("has other fields", JOBS + lease("dead", (1, 0, 0, 1, 0, 0))),
    ("has other fields", JOBS + claimed() + lease("released", (1, 0, 0, 1, 0, 0), dest_id=4)),
    ("has other fields", JOBS + claimed() + lease("extended", (1, TOKEN, END_MS, 1, 0, 0), attempt_key="k")),
    ("lease_id 0 when it is claimed", JOBS + lease("claimed", (1, 0, END_MS, 1, 0, 0), node=b"n")),
    ("when it is released", JOBS + claimed() + lease("released", (1, TOKEN, 0, 1, 0, 0))),
    ("is leased at", JOBS + lease("claimed", (1, TOKEN, TS, 1, 0, 0), node=b"n")),
    ("of them forgiven", JOBS + claimed() + lease("released", (1, 0, 0, 1, 0, 2))),
    ("was given before", JOBS + claimed() + claimed(2, TOKEN)),
    ("delivery 2 of job 1", JOBS + claimed(deliveries=2)),
    ("was never claimed", JOBS + lease("extended", (1, TOKEN, END_MS, 1, 0, 0))),
    ("under another token", JOBS + claimed() + lease("extended", (1, 5, END_MS, 1, 0, 0))),
    ("is claimed with", JOBS + claimed() + claimed(1, 78, 3)),
    ("is expired with", JOBS + claimed() + lease("expired", (1, 0, 0, 0, 0, 0))),
    ("that is no queue", create() + append(1) + claimed()),
    ("leases are not durable", create(config=VOID) + append(1) + claimed()),
    ("never given out", JOBS + claimed(3)),
    ("names a job twice", JOBS + controlled(control.Delete(bound_head=2, seqs=[1, 1], ack=True))),
    ("by seq alone", JOBS + controlled(control.Delete(bound_head=2, before_seq=2, ack=True))),
    (
        "in a batch of 3 Appends",
        create()
        + batch(append(1), append(2), append(3), controlled(control.Moved(source_id=9, seqs=[4, 5])), first_seq=1),
    ),
    (
        "a second time",
        create()
        + batch(append(1), append(2), controlled(control.Moved(source_id=9, seqs=[4, 5])), first_seq=1)
        + batch(append(3), first_seq=3, move=(9, 5)),
    ),
    ("in a batch of 2 Appends", create() + batch(append(1), append(2), first_seq=1, move=(9, 4))),
    (
        "a second time",
        create() + batch(append(1), first_seq=1, move=(9, 4)) + batch(append(2), first_seq=2, move=(9, 4)),
    ),
]


@pytest.mark.parametrize(("reason", "content"), WRONG)
def test_contradictory_frames_are_refused(tmp_path: Path, reason: str, content: bytes) -> None:
    with pytest.raises(SpecViolation, match=re.escape(reason)):
        of(tmp_path, content)


# -- snapshots -------------------------------------------------------------------------------------------------------

TOLD = JOBS + claimed(attempt_key="k")
HELD = (1, TOKEN, END_MS, 0, 1, 0)


def queue(*rows: tuple[int, int, int, int, int, int], **more: Any) -> QueueSection:
    """Rows of (seq, lease_id, deadline, ready_at, deliveries, forgiven), all held by node n."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    widths = (8, 8, 8, 8, 4, 4)
    packed = [
        b"".join(number.to_bytes(width, "little") for number in column)
        for column, width in zip(columns, widths, strict=True)
    ]
    names = ("seqs", "lease_ids", "deadlines", "ready_ats", "deliveries", "forgiven")
    values: dict[str, Any] = {
        "taken": 2,
        "lost": 0,
        "dead_lettered": 0,
        "holders": bytes(4 * len(rows)),
        "nodes": ["n"],
        "attempts": [Attempted(node="n", key="k", jobs=[(1, TOKEN)])],
        **dict(zip(names, packed, strict=True)),
    }
    return QueueSection(**{**values, **more})


def with_section(tmp_path: Path, content: bytes, *, clean: bool = False, **more: Any) -> Path:
    values: dict[str, Any] = {"head_seq": 2, "as_of": (1, len(content)), "config": QUEUE, **more}
    root = data_dir(tmp_path / "d", content)
    snapshot_file(root, section(**values), clean=clean)
    return root


def test_a_section_equal_to_the_frames_is_accepted(tmp_path: Path) -> None:
    read_data_dir(with_section(tmp_path, TOLD, queue=queue(HELD)))


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("the frames come to", {"queue": queue((1, 5, END_MS, 0, 1, 0))}),
        ("the frames come to", {"queue": queue((1, TOKEN, END_MS + 1, 0, 1, 0))}),
        ("the frames come to", {"queue": queue((1, TOKEN, END_MS, 0, 2, 0))}),
        ("held by", {"queue": queue(HELD, nodes=["other"])}),
        ("of 0", {"queue": queue(HELD, nodes=[])}),
        ("nothing of job 1", {"queue": queue(attempts=[], taken=0)}),
        ("no frame tells of job 2", {"queue": queue(HELD, (2, 0, 0, 0, 1, 0))}),
        ("to be delivered at", {"queue": queue(HELD, (2, 0, 0, END_MS, 0, 0))}),
        ("nobody will ever claim", {"queue": queue(HELD, taken=3)}),
        ("attempts are", {"queue": queue(HELD, attempts=[])}),
        ("twice", {"queue": queue(HELD, HELD)}),
        ("reasons are", {"queue": queue(HELD, reasons=[(1, "no such file")])}),
        ("'queue' does not fit", {"queue": queue(HELD, reasons=[(1, "")])}),
        ("'queue' does not fit", {"queue": queue(HELD, holders=b"")}),
        ("without its part", {}),
        ("open moves are", {"queue": queue(HELD), "moves": MovesSection(out=[(1, 9, 1, None)], came=[])}),
        ("no frame made them", {"queue": queue(HELD), "moves": MovesSection(out=[], came=[(9, 1)])}),
        ("paused is True", {"queue": queue(HELD), "paused": True}),
    ],
)
def test_a_section_different_from_the_frames_is_refused(tmp_path: Path, reason: str, more: dict[str, Any]) -> None:
    root = with_section(tmp_path, TOLD, **more)
    with pytest.raises(SpecViolation, match=re.escape(reason)):
        read_data_dir(root)


def test_leases_that_are_not_durable_are_only_in_snapshots_of_clean_stops(tmp_path: Path) -> None:
    content = create(config=VOID) + append(1) + append(2)
    read_data_dir(with_section(tmp_path / "a", content, clean=True, config=VOID, queue=queue(HELD)))
    root = with_section(tmp_path / "b", content, config=VOID, queue=queue(HELD))
    with pytest.raises(SpecViolation, match="a broker that went on"):
        read_data_dir(root)


def test_state_of_trimmed_frames_is_taken_from_the_section(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "d", TOLD, lease("extended", (1, 5, END_MS, 1, 0, 0)))
    values: dict[str, Any] = {"head_seq": 2, "as_of": (1, len(TOLD)), "live_count": 0, "live_bytes": 0}
    snapshot_file(root, section(**values, config=QUEUE, queue=queue(HELD)), redo_from=(2, 0))
    (root / "wal" / "wal-0000000000000001.log").unlink()
    with pytest.raises(SpecViolation, match="under another token"):
        read_data_dir(root)
