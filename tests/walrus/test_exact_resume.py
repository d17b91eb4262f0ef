"""A process is killed with half of everything read: the next one finds every unread entry, at the exact position."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import BlockingEngine, Consistency
from tests.walrus.programs import line_of, program

PERSIST_EVERY = 10
READER = """
import sys
from storage import BlockingEngine, Consistency, Durability, TopicConfig

path, topics, entries, consistency, durability = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
engine = BlockingEngine.open(path)
for topic in range(topics):
    name = f"t{topic}"
    engine.put_topic(name, TopicConfig(durability=Durability(durability)))
    engine.append_batch(name, [b"%d/%d" % (topic, number) for number in range(entries)])
    engine.put_consumer(name, "c", consistency=Consistency(consistency), persist_every=10)
half = entries // 2
for topic in range(topics):
    handed = 0
    while handed < half - 3:
        batch = engine.read_batch(f"t{topic}", "c", max_records=half - 3 - handed)
        assert [record.value for record in batch] == [b"%d/%d" % (topic, handed + at) for at in range(len(batch))]
        handed += len(batch)
    while handed < half:
        assert engine.read_next(f"t{topic}", "c").value == b"%d/%d" % (topic, handed)
        handed += 1
    assert engine.unread(f"t{topic}", "c") == entries - half
print("half", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
@pytest.mark.parametrize("consistency", list(Consistency))
def test_unread_entries_are_read_exactly_after_a_kill(
    data_dir: Path, consistency: Consistency, durability: str, soak_mode: bool
) -> None:
    strict = consistency is Consistency.STRICTLY_AT_ONCE
    topics, entries = (100, 100) if soak_mode or (not strict and durability == "disk") else (20, 50)
    with program(READER, data_dir, topics, entries, consistency, durability) as process:
        assert line_of(process) == "half"
    with BlockingEngine.open(data_dir) as engine:
        for topic in range(topics):
            name = f"t{topic}"
            resumed = engine.consumer_state(name, "c").cursor_seq
            again = entries // 2 - resumed
            assert again == 0 if strict else 0 <= again <= PERSIST_EVERY
            assert engine.unread(name, "c") == entries - resumed
            found = [record.value for record in engine.follow(name, "c", wait_ms=0)]
            assert found == [b"%d/%d" % (topic, number) for number in range(resumed, entries)]
