"""Compares the cold tier, a directory on the simulated disk, with the manifests."""

from __future__ import annotations

import json

from storage.format.idx_entry import ENTRY_SIZE
from storage.segments import names
from storage.segments.store import id_of
from storage.segments.tiering.directory import MARKER
from storage.state.manifest import COLD
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import SimDisk

MOUNT = "/mnt/cold"


def objects(disk: SimDisk) -> dict[str, bytes]:
    """Content by key of all files in the cold directory."""
    return {
        path.removeprefix(f"{MOUNT}/"): disk.read_file(path)
        for path in disk.tree()
        if path.startswith(f"{MOUNT}/") and not path.endswith(("/", f"/{MARKER}"))
    }


def tier_problems(session: Session) -> list[str]:
    """Differences between tier and manifests. Reading every record proves that a copy of each is there."""
    engine, disk = session.engine, session.disk
    there = objects(disk)
    expected: set[str] = set()
    problems: list[str] = []
    cold = engine.store.cold
    assert cold is not None
    for topic in engine.catalog.topics.values():
        log = topic.log
        named: list[dict[str, int]] = []
        for segment in log.held.manifest.segments:
            id = id_of(log.topic_id, segment)
            here = [ext for ext in (names.DATA, names.PACKED) if disk.exists(names.path(ROOT, id, ext))]
            if here != ([] if segment.tier == COLD else [id.records_ext]):
                problems.append(f"{id} is {segment.tier}, and here it has {here}")
            if segment.tier != COLD:
                continue
            named.append({"first_seq": segment.first_seq, "end_seq": segment.end_seq, "gen": segment.gen})
            expected |= {cold.key(id, names.DATA), cold.key(id, names.IDX)}
            index = disk.read_file(names.path(ROOT, id, names.IDX))
            if len(index) != segment.count * ENTRY_SIZE or there.get(cold.key(id, names.IDX)) != index:
                problems.append(f"{id}: the .idx there is not the one here")
            if len(there.get(cold.key(id, names.DATA), b"")) != segment.data_bytes:
                problems.append(f"{id}: the .data there is not {segment.data_bytes} bytes long")
        key = cold.topic_key(log.topic_id)
        if named or key in there:
            expected.add(key)
            if key not in there or json.loads(there[key])["segments"] != named:
                problems.append(f"topic.json of {topic.name} does not name {named}")
    problems += [f"{key} is there, and nothing names it" for key in sorted(there.keys() - expected)]
    problems += [f"{key} is not there" for key in sorted(expected - there.keys())]
    if engine.catalog.pending_deletes:
        problems.append(f"still to be deleted: {engine.catalog.pending_deletes}")
    return problems
