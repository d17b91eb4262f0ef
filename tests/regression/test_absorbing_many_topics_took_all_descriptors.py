"""The active segment of each topic was kept open for writing. With thousands of topics no other file could be
opened."""

from __future__ import annotations

from storage import Durability, TopicConfig
from storage.segments import names
from tests.support.crash_run import SMALL
from tests.support.crash_session import Session
from tests.support.sim_disk import SimDisk

TOPICS = 1000
#: Two files for each segment of a round and for each one kept open between rounds, and the files of the log.
MOST_OPEN = 2 * (512 + 256) + 64


async def test_few_segments_are_kept_open() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    config = TopicConfig(durability=Durability.DISK)
    for number in range(TOPICS):
        await session.append(f"t-{number}", config=config)
    await session.mark_flushed()
    assert all(topic.log.held.flushed == 1 for topic in session.engine.catalog.topics.values())
    opened = closed = most = 0
    for call in session.disk.calls:
        if call.path.endswith((f".{names.DATA}", f".{names.IDX}")):
            opened += call.op == "open"
            closed += call.op == "close"
            most = max(most, opened - closed)
    assert opened >= 2 * TOPICS
    assert 0 < most <= MOST_OPEN
    await session.append("t-0", 2)
    await session.mark_flushed()
    assert session.engine.topic("t-0").log.held.flushed == 3
    assert not session.refusals
