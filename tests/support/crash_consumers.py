"""Compares the consumers of a reopened engine, and the records reclaimed behind them, with what a ledger promises.

- A consumer whose making was answered is there, one whose deletion was answered is not.
- Nothing was reclaimed that a consumer has not passed for good, unless its cursor was put back behind that.
- What all have passed goes, files and all, once the workers have had their turn.
"""

from __future__ import annotations

from storage import Engine, Retention
from storage.records.values import LossCause
from storage.state.consumers.progress import reclaimable_floor
from storage.state.manifest import HOT
from tests.support.crash_ledger import Life, Outcome
from tests.support.crash_session import ROOT, Session


def check_consumers(engine: Engine, life: Life) -> list[str]:
    """What is wrong with a topic's consumers. Operations that are open are closed by what was found."""
    life.note_consumed()  # including operations in progress at the crash
    found = {state.consumer: state for state in engine.consumers.list(life.name)} if life.readings else {}
    problems: list[str] = []
    floor = engine.topic(life.name).log.marks.floors.get(LossCause.CONSUMED, 1)
    if floor - 1 > life.consumed_to:
        problems.append(f"reclaimed up to {floor - 1}, all consumers had come to {life.consumed_to} at most")
    for reading in [each for each in life.readings if each.possible]:
        state = found.pop(reading.name, None)
        if state is None:
            if reading.certain:
                problems.append(f"consumer {reading.name} is gone, and nobody has deleted it")
            if reading.deleted is Outcome.OPEN:
                reading.deleted = Outcome.DONE
            reading.made = Outcome.REFUSED if reading.made is Outcome.OPEN else reading.made
            continue
        reading.made, reading.deleted = Outcome.DONE, None
        if state.cursor_seq > reading.upto_seq:
            problems.append(f"consumer {reading.name} is at {state.cursor_seq}, it had come to {reading.upto_seq}")
        if state.cursor_seq < floor - 1 and not reading.sought:
            problems.append(f"consumer {reading.name} is at {state.cursor_seq}, reclaimed was up to {floor - 1}")
        reading.upto_seq = state.cursor_seq
    problems += [f"consumer {name} is there, and nobody has made it (any more)" for name in sorted(found)]
    return [f"{life.name}: {problem}" for problem in problems]


async def check_reclaimed(session: Session) -> list[str]:
    """What all consumers have passed and is still there after the workers have had their turns."""
    engine, problems = session.engine, list[str]()
    topics = [topic for topic in engine.catalog.topics.values() if topic.config.retention is Retention.CONSUMED]
    if not topics:
        return []
    for _ in range(2):
        await session.mark_flushed()
    for topic in topics:
        floor = reclaimable_floor(topic.config, topic.log)
        if floor is not None:
            problems.append(f"{topic.name}: what lies below {floor} was not reclaimed")
        segments = topic.log.held.manifest.segments
        named = sorted(each.first_seq for each in segments if each.tier == HOT and each.count)
        files = _data_files(session, topic.topic_id)
        if [each for each in files if each not in {segment.first_seq for segment in segments}]:
            problems.append(f"{topic.name}: segments {files} have files, {named} are named")
        if dead := [each.first_seq for each in segments if each.sealed and not each.live]:
            problems.append(f"{topic.name}: segments {dead} are dead and were not dropped")
    return problems


def _data_files(session: Session, topic_id: int) -> list[int]:
    folder = f"{ROOT}/topics/{topic_id:016x}/"
    names = [path.removeprefix(folder) for path in session.disk.tree() if path.startswith(folder)]
    return sorted(int(name.removeprefix("seg-").split(".")[0]) for name in names if name.endswith(".data"))
