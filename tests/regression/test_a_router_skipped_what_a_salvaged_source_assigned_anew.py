"""A router of another cell went on where it had been in a source that salvage had shortened, if the source was longer
than that again when it was asked. What had been appended in between was not copied.

Now the router knows the epoch that its position is of, and the source's cell knows where each epoch began.
"""

from __future__ import annotations

import msgspec
import pytest

from storage import Durability, NewRecord, ReadQuery, Recovery, TopicConfig
from storage.state.routers import Definition, Start
from tests.crash.test_spread_stories import Lossless
from tests.support.cell_pair import CellPair
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, run

CONFIG = TopicConfig(durability=Durability.FSYNC)
#: Each sync is recorded in the log, so that damage before it is no end of the log.
NORMAL = msgspec.structs.replace(SMALL, sync_point_bytes=1)
SALVAGE = msgspec.structs.replace(NORMAL, recovery=Recovery.SALVAGE)


async def append(pair: CellPair, *words: str, topic: str = "a") -> None:
    records = [NewRecord(data=msgspec.Raw(b'"%b"' % word.encode())) for word in words]
    assert await pair.ask(0, lambda engine: engine.append(topic, records)) is not None


async def words_in(pair: CellPair, cell: int, topic: str) -> list[str]:
    engine = (await pair.up(cell)).engine
    return [msgspec.json.decode(record.data) for record in (await engine.read(topic, ReadQuery())).records]


def kill(pair: CellPair, cell: int) -> None:
    process = pair.processes[cell]
    assert process is not None
    pair.cut_power(cell)
    pair.disks[cell] = Cut(End.KILL).of(process.disk)
    pair.processes[cell] = None


async def salvage(pair: CellPair, word: str) -> None:
    """Kill cell 0, damage the last batch of the topic, which has this word, and start the cell again."""
    for _ in range(2):
        await append(pair, "later", topic="other")  # the log says that the batch was synced
    kill(pair, 0)
    disk = pair.disks[0]
    found = [(path, disk.read_file(path).find(word.encode())) for path in disk.tree() if "/wal-" in path]
    path, offset = next((path, offset) for path, offset in found if offset >= 0)
    disk.flip_byte(path, offset)
    pair.options = SALVAGE
    await pair.up(0)
    pair.options = NORMAL


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_all_that_is_appended_behind_a_salvage_is_copied(times: int, snapshot: bool) -> None:
    async def story() -> None:
        pair = CellPair(Lossless(), {"a": 0, "other": 0, "b": 1}, NORMAL)
        await pair.start()
        await pair.ask(0, lambda engine: engine.put_topic("a", CONFIG))
        await pair.ask(1, lambda engine: engine.put_topic("b", CONFIG))
        definition = Definition(source="a", dest="b", start=Start.EARLIEST)
        await pair.ask(0, lambda engine: engine.routers.put("ab", definition))
        await append(pair, "one", "two")
        await append(pair, "three", "four", "five")
        await pair.pass_time(2_000)
        assert await words_in(pair, 1, "b") == ["one", "two", "three", "four", "five"]
        kill(pair, 1)
        await salvage(pair, "three")
        assert await words_in(pair, 0, "a") == ["one", "two"]
        await append(pair, "new three")
        await append(pair, "new four", "new five", "new six")
        if times == 2:
            await salvage(pair, "new four")
            await append(pair, "newer four", "newer five", "newer six")
        if snapshot:
            await pair.ask(0, lambda engine: engine.snapshotter.take())
        kill(pair, 0)
        await pair.up(0)
        there = await words_in(pair, 0, "a")
        assert len(there) == 6
        await pair.pass_time(2_000)
        assert await words_in(pair, 1, "b") == ["one", "two", "three", "four", "five", *there[2:]]
        kill(pair, 1)
        await append(pair, "seven")
        await pair.pass_time(2_000)
        assert (await words_in(pair, 1, "b"))[-2:] == [there[-1], "seven"]

    run(story())
