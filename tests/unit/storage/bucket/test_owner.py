"""Engines that own a cell in a bucket in turn."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from storage import Durability, NewRecord, ReadQuery, TopicConfig
from storage.bucket import Candidate, ClockWrong, Seal, StoreBroken, keys
from storage.bucket.driver import Bucket, open_bucket
from storage.bucket.requests import Unanswered
from storage.bucket.slot import decode, encode_data
from storage.cells.owner import CellOwner, State, begin
from storage.errors import StorageFailed
from storage.options import Options
from storage.platform import SystemClock
from storage.records import TopicType
from tests.support.memory_bucket import MemoryBucket
from tests.unit.storage.cold.servers import BUCKET, credentials, s3_server

CELL = "cell-00"
TTL_S = 1.0
FSYNC = TopicConfig(durability=Durability.FSYNC)
#: Segments are filled and sealed as soon as possible.
SMALL = Options(segment_max_events=20, checkpoint_interval_ms=20)
#: Records of class disk are in no slot before something else needs one.
UNSYNCED = msgspec.structs.replace(SMALL, disk_sync_ms=3_600_000)
_numbers = itertools.count(1)


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A store with one cell, which has no data."""
    with contextlib.ExitStack() as stack:
        found: Bucket = MemoryBucket()
        if request.param == "s3":
            credentials(monkeypatch, stack.enter_context(s3_server()))
            found = open_bucket("s3", BUCKET, "clusters/one")
        begin(found, CELL, Candidate("init", "00" * 16))
        yield found


@pytest.fixture
async def owners(bucket: Bucket, tmp_path: Path) -> AsyncIterator[list[CellOwner]]:
    """Those that the test has made; they are closed behind it."""
    made: list[CellOwner] = []
    yield made
    for each in made:
        await each.close()


class Line:
    """A process's connection to the store, which may be cut."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.cut = False

    def _through(self) -> Bucket:
        if self.cut:
            raise Unanswered("cut")
        return self._bucket

    def create(self, key: str, data: bytes) -> bool:
        return self._through().create(key, data)

    def get(self, key: str) -> bytes | None:
        return self._through().get(key)

    def get_range(self, key: str, offset: int, size: int) -> bytes | None:
        return self._through().get_range(key, offset, size)

    def put(self, key: str, data: bytes) -> None:
        self._through().put(key, data)

    def stored_at(self, key: str) -> float | None:
        return self._through().stored_at(key)

    def delete(self, keys: Sequence[str]) -> None:
        self._through().delete(keys)

    def names(self, prefix: str) -> Iterable[str]:
        return self._through().names(prefix)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.02)


async def taken(
    bucket: Bucket, directory: Path, owners: list[CellOwner], machine: str | None = None, options: Options = SMALL
) -> CellOwner:
    """A new process owns the cell, as soon as it may; on a new machine, or on the one of that name."""
    number = next(_numbers)
    directory = directory if machine is None else directory / machine
    owner = CellOwner(
        bucket,
        CELL,
        str(directory if machine else directory / f"machine-{number}"),
        Candidate(f"node-{number}", f"{number:032x}"),
        options=options,
        ttl_s=TTL_S,
    )
    owners.append(owner)
    await owner.start()
    return owner


def record(value: object) -> NewRecord:
    return NewRecord(msgspec.Raw(json.dumps(value).encode()))


async def contents(owner: CellOwner, topic: str = "events") -> list[object]:
    found = await owner.engine.read(topic, ReadQuery(limit=1000))
    return [json.loads(record.data) for record in found.records]


async def test_what_an_owner_acknowledged_is_there_for_the_next_on_another_machine(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners)
    await first.engine.put_topic("events", FSYNC)
    for number in range(30):
        await first.engine.append("events", [record({"n": number})])
    await first.abandon()  # kill -9, and the machine is gone
    second = await taken(bucket, tmp_path, owners)
    assert await contents(second) == [{"n": number} for number in range(30)]
    await second.engine.append("events", [record({"n": 30})])


async def test_the_next_owner_deletes_the_signs_of_those_before_it(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    for _ in range(2):
        killed = await taken(bucket, tmp_path, owners)
        await killed.abandon()
    assert list(bucket.names("nodes/"))
    await taken(bucket, tmp_path, owners)
    await until(lambda: len(list(bucket.names("nodes/"))) == 1)


async def test_a_start_that_does_not_wait_leaves_a_living_owner_alone(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners)
    other = CellOwner(bucket, CELL, str(tmp_path / "other"), Candidate("other", "ee" * 16), ttl_s=TTL_S)
    owners.append(other)
    assert not other.may_answer()
    assert not await other.start(wait=False)
    assert (first.state, other.state) == (State.OWNER, State.CLOSED)
    assert first.generation == 2


async def test_an_owner_that_was_followed_acknowledges_nothing_more(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    line = Line(bucket)
    first = await taken(line, tmp_path, owners)
    await first.engine.put_topic("events", FSYNC)
    await first.engine.append("events", [record({"n": 0})])
    line.cut = True
    second = await taken(bucket, tmp_path, owners)
    assert not first.may_answer()
    line.cut = False
    with pytest.raises(StorageFailed):
        await first.engine.append("events", [record({"n": "lost"})])
    assert await contents(second) == [{"n": 0}]


async def test_a_base_replaces_the_log_in_front_of_it(bucket: Bucket, tmp_path: Path, owners: list[CellOwner]) -> None:
    first = await taken(bucket, tmp_path, owners)
    await first.engine.put_topic("events", FSYNC)
    sent = 0
    for _ in range(3):
        for _ in range(40):
            await first.engine.append("events", [record({"n": sent})])
            sent += 1
        await first.engine.segment_worker.flush_all()
        await first.put_base()
    while first.deleted < 40:  # only within its time, which others that use this machine may shorten
        await first.trim()
        await asyncio.sleep(0.05)
    await first.engine.append("events", [record({"n": sent})])
    await first.abandon()
    second = await taken(bucket, tmp_path, owners)
    assert await contents(second) == [{"n": number} for number in range(sent + 1)]
    # It goes on from there, and so does the one behind it.
    await second.engine.append("events", [record({"n": sent + 1})])
    await second.put_base()
    await second.abandon()
    third = await taken(bucket, tmp_path, owners)
    assert await contents(third) == [{"n": number} for number in range(sent + 2)]


async def test_an_owner_whose_time_has_run_out_goes_on_with_a_new_seal(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    line = Line(bucket)
    first = await taken(line, tmp_path, owners)
    await first.engine.put_topic("events", FSYNC)
    await until(first.may_answer)
    generation = first.generation
    line.cut = True
    await until(lambda: not first.may_answer())
    line.cut = False
    await until(first.may_answer)
    assert first.generation > generation
    await first.engine.append("events", [record({"n": 0})])
    assert await contents(first) == [{"n": 0}]


async def test_no_seq_is_assigned_again_on_a_machine_that_owned_the_cell_before(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    # The records of class disk reach no slot before their owner is gone; their reservation does.
    first = await taken(bucket, tmp_path, owners, "a", UNSYNCED)
    await first.engine.put_topic("events", FSYNC)
    await first.engine.put_topic("events", TopicConfig(durability=Durability.DISK))
    lock = tmp_path / "a" / ".lock"
    noted = lock.read_text()
    await first.abandon()
    lock.write_text(noted)  # as a process leaves it that is killed
    second = await taken(bucket, tmp_path, owners, "b", UNSYNCED)
    done = [await second.engine.append("events", [record({"n": number})]) for number in range(3)]
    await second.abandon()
    again = await taken(bucket, tmp_path, owners, "a", UNSYNCED)
    assert (await again.engine.append("events", [record({"n": 3})])).first_seq > done[-1].last_seq


async def nothing() -> None:
    """A drain with nothing to do."""


async def test_a_cell_is_handed_over_like_a_clean_stop_and_at_once(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    # Without the hand-over, the records and the lease are in no slot when the process ends.
    first = await taken(bucket, tmp_path, owners, options=UNSYNCED)
    await first.engine.put_topic("events", FSYNC)
    await first.engine.put_topic("events", TopicConfig(durability=Durability.DISK))
    await first.engine.put_topic("jobs", TopicConfig(type=TopicType.QUEUE, durability=Durability.DISK))
    await first.engine.append("jobs", [record("a"), record("b")])
    [job] = (await first.engine.queues.claim("jobs", "worker", lease_ms=3_600_000)).jobs
    # It would have to wait for an hour if the seal did not name it.
    second = CellOwner(
        bucket, CELL, str(tmp_path / "second"), Candidate("second", "2f" * 16), options=SMALL, ttl_s=3600.0
    )
    owners.append(second)

    async def more() -> None:
        for number in range(30):
            await first.engine.append("events", [record({"n": number})])

    await first.give("2f" * 16, more)
    assert (first.state, first.may_answer()) == (State.CLOSED, False)
    assert await second.start(wait=False)
    found = await second.engine.read("events", ReadQuery(limit=1000))
    assert [json.loads(each.data) for each in found.records] == [{"n": number} for number in range(30)]
    assert found.tombstone is None
    assert (await second.engine.append("events", [record({"n": 30})])).first_seq == 31
    # The worker still has its job, and nobody else gets it.
    [other] = (await second.engine.queues.claim("jobs", "other", max=2)).jobs
    assert other.record.seq != job.record.seq
    settled = await second.engine.queues.ack("jobs", "worker", [job.record.seq], lease_ids=[job.lease_id])
    assert settled.done == [job.record.seq]
    await second.abandon()
    # The next start is behind a kill: the leases are void.
    third = await taken(bucket, tmp_path, owners)
    assert other.record.seq in [
        each.record.seq for each in (await third.engine.queues.claim("jobs", "other", max=2)).jobs
    ]


async def test_anyone_may_take_over_a_cell_whose_owner_was_closed(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners)
    await first.engine.put_topic("events", FSYNC)
    await first.engine.append("events", [record({"n": 0})])
    await first.close()
    second = CellOwner(bucket, CELL, str(tmp_path / "second"), Candidate("second", "2f" * 16), ttl_s=3600.0)
    owners.append(second)
    assert await second.start(wait=False)
    assert await contents(second) == [{"n": 0}]


async def test_a_closing_owner_waits_for_a_silent_store_for_a_while_only(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    line = Line(bucket)
    first = await taken(line, tmp_path, owners)
    await first.engine.put_topic("events", FSYNC)
    line.cut = True
    await first.close(within_s=0.2)  # the steps would go on for 30 s
    second = await taken(bucket, tmp_path, owners)
    assert second.engine.state_of(second.engine.topic("events")).count == 0


async def test_what_was_in_no_slot_is_there_after_a_kill_in_the_same_directory(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners, "a", UNSYNCED)
    await first.engine.put_topic("events", FSYNC)
    await first.engine.put_topic("events", TopicConfig(durability=Durability.DISK))
    for number in range(30):
        await first.engine.append("events", [record({"n": number})])
    slots = sum("/log/" in key for key in bucket.names(f"{CELL}/log/"))
    note, lock = tmp_path / "a" / ".cell", tmp_path / "a" / ".lock"
    noted = note.read_text(), lock.read_text()
    await first.abandon()
    assert sum("/log/" in key for key in bucket.names(f"{CELL}/log/")) == slots
    lock.write_text(noted[1])  # as a process leaves it that is killed
    # Who has the lock need not wait: the process that had it is gone.
    second = CellOwner(bucket, CELL, str(tmp_path / "a"), Candidate("again", "2f" * 16), options=SMALL, ttl_s=3600.0)
    owners.append(second)
    assert await second.start(wait=False)
    assert note.read_text() == noted[0]
    found = await second.engine.read("events", ReadQuery(limit=1000))
    assert [json.loads(each.data) for each in found.records] == [{"n": number} for number in range(30)]
    assert found.tombstone is None
    # They are in slots before anything else is.
    await second.abandon()
    third = await taken(bucket, tmp_path, owners)
    assert await contents(third) == [{"n": number} for number in range(30)]


async def test_a_directory_is_made_anew_behind_another_owner(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners, "a", UNSYNCED)
    await first.engine.put_topic("events", FSYNC)
    await first.engine.append("events", [record("safe")] * 40)
    await first.engine.segment_worker.flush_all()
    await first.put_base()
    await first.engine.put_topic("others", TopicConfig(durability=Durability.DISK))
    await first.engine.append("others", [record("in no slot")])
    noted = (tmp_path / "a" / ".lock").read_text()
    await first.abandon()
    (tmp_path / "a" / ".lock").write_text(noted)
    second = await taken(bucket, tmp_path, owners, "b")
    await second.engine.append("events", [record("of another owner")])
    await second.close()
    read: list[str] = []
    again = await taken(Reads(bucket, read), tmp_path, owners, "a")
    assert await contents(again) == [*["safe"] * 40, "of another owner"]
    assert await contents(again, "others") == []
    # The segment was there already.
    assert not [key for key in read if "/segments/" in key]


async def test_a_copy_of_a_directory_is_not_the_directory(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners, "a")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    # It counts longer than the first owner may be silent on a busy machine.
    other = CellOwner(bucket, CELL, str(tmp_path / "copy"), Candidate("other", "2f" * 16), ttl_s=60)
    owners.append(other)
    assert not await other.start(wait=False)
    await first.engine.put_topic("events", FSYNC)
    assert (await first.engine.append("events", [record("of the first")])).first_seq == 1


async def test_objects_that_nothing_leads_to_are_deleted_behind_a_base(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    first = await taken(bucket, tmp_path, owners)
    await first.engine.put_topic("events", FSYNC)
    await first.engine.append("events", [record("kept")] * 40)
    await first.engine.segment_worker.flush_all()
    await first.put_base()
    for key in ("segments/none.0", f"manifest/{9:016x}.{'ee' * 16}.1", "lost-1/part-0"):
        bucket.create(f"{CELL}/{key}", b"of a base that was not completed")
    await first.close()
    second = await taken(bucket, tmp_path, owners)
    assert not await second.sweep()
    await second.put_base()
    await second.sweep()
    while second.swept < 3:  # only within its time
        await second.sweep()
    assert not [key for key in bucket.names(f"{CELL}/") if "none" in key or "ee" * 16 in key or "lost" in key]
    await second.abandon()
    assert await contents(await taken(bucket, tmp_path, owners)) == ["kept"] * 40


async def test_objects_that_nothing_leads_to_are_deleted_a_page_at_a_time(
    tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.cells.owner.SWEEP_PAGE", 2)
    monkeypatch.setattr("storage.cells.owner.SWEEP_AGAIN_S", 0.01)
    bucket = MemoryBucket()
    begin(bucket, CELL, Candidate("init", "00" * 16))
    owner = await taken(bucket, tmp_path, owners)
    rubbish = [f"{CELL}/segments/none.{number}" for number in range(5)]
    for key in rubbish:
        bucket.create(key, b"of a base that was not completed")
    await owner.put_base()
    assert await owner.sweep()
    assert (owner.swept, len([*bucket.names(f"{CELL}/segments/none")])) == (2, 3)
    await until(lambda: owner.swept == 5)  # by itself
    assert not [*bucket.names(f"{CELL}/segments/none")]


class Forgetful(MemoryBucket):
    """It carries out each create of these keys, and answers none."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: Callable[[str], bool] = lambda _: False

    def create(self, key: str, data: bytes) -> bool:
        created = super().create(key, data)
        if self.silent(key):
            raise Unanswered("lost")
        return created

    def get(self, key: str) -> bytes | None:
        if self.silent(key):
            raise Unanswered("lost")
        return super().get(key)


@pytest.fixture
async def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Forgetful, CellOwner]]:
    """A store, and the owner of its cell, who gives up soon and has put one base with a segment."""
    monkeypatch.setattr("storage.bucket.limits._TRIES", 0.03)
    monkeypatch.setattr("storage.bucket.base.TRY_S", 0.3)
    store = Forgetful()
    begin(store, CELL, Candidate("init", "00" * 16))
    owner = CellOwner(store, CELL, str(tmp_path / "one"), Candidate("one", "01" * 16), options=SMALL, ttl_s=TTL_S)
    await owner.start()
    await owner.engine.put_topic("events", FSYNC)
    await owner.engine.append("events", [record("kept")] * 40)
    await owner.engine.segment_worker.flush_all()
    await owner.put_base()
    yield store, owner
    await owner.close()


async def test_the_objects_of_a_base_that_may_be_there_are_not_deleted(
    forgetful: tuple[Forgetful, CellOwner], tmp_path: Path, owners: list[CellOwner]
) -> None:
    store, owner = forgetful
    await owner.engine.append("events", [record("kept")] * 40)
    head = keys.head(CELL, owner.bases + 1)
    store.silent = lambda key: key == head
    with pytest.raises(Unanswered):
        await owner.put_base()
    store.silent = lambda _: False
    assert head in store.objects
    assert not await owner.sweep()
    await owner.close()
    assert await contents(await taken(store, tmp_path, owners)) == ["kept"] * 80


async def test_a_base_names_what_failed_attempts_have_stored(forgetful: tuple[Forgetful, CellOwner]) -> None:
    store, owner = forgetful

    def segments() -> list[str]:
        return [key for key in store.objects if key.startswith(f"{CELL}/segments/")]

    await owner.engine.append("events", [record("kept")] * 40)
    await owner.engine.segment_worker.flush_all()
    store.silent = lambda key: key.startswith(f"{CELL}/manifest/")
    with pytest.raises(Unanswered):
        await owner.put_base()
    first = segments()
    for _ in range(2):
        with pytest.raises(Unanswered):
            await owner.put_base()
    store.silent = lambda _: False
    base = await owner.put_base()
    assert segments() == first
    assert {each.key for each in base.manifest.objects} >= set(first)
    await owner.sweep()
    assert segments() == first


async def test_a_base_that_fails_when_nobody_waits_for_it_is_not_reported_as_a_defect(
    forgetful: tuple[Forgetful, CellOwner],
) -> None:
    store, owner = forgetful
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    store.silent = lambda key: key.startswith(f"{CELL}/manifest/")
    waiting = asyncio.create_task(owner.put_base())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(Unanswered):
        await owner.put_base()  # begins when the first one has ended
    gc.collect()
    assert reported == []


async def test_a_base_is_put_when_a_takeover_would_have_much_to_apply(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.cells.owner.BASE_UNITS", 30)
    owner = await taken(bucket, tmp_path, owners)
    await owner.engine.put_topic("events", FSYNC)
    await owner.engine.append("events", [record("kept")] * 40)
    assert owner.bases == 0
    for _ in range(30):
        await owner.engine.append("events", [record("kept")])
    await until(lambda: owner.bases == 1)


async def test_a_slot_that_is_begun_too_late_is_behind_a_new_seal(
    bucket: Bucket, tmp_path: Path, owners: list[CellOwner]
) -> None:
    await (await taken(bucket, tmp_path, owners)).close()
    # It looks itself every 3 seconds.
    owner = CellOwner(bucket, CELL, str(tmp_path / "one"), Candidate("one", "1f" * 16), options=SMALL, ttl_s=60)
    owners.append(owner)
    await owner.start()
    await owner.engine.put_topic("events", FSYNC)
    before = owner.generation
    owner._time.sealed(-1e9)  # pyright: ignore[reportPrivateUsage]
    await owner.engine.append("events", [record("late")])
    data = bucket.get(keys.slot(CELL, owner.slots - 1))
    assert data is not None
    assert (decode(owner.slots - 1, data).generation, owner.generation) == (before + 1, before + 1)
    assert owner.may_answer()


async def test_an_owner_stops_when_a_slot_of_its_own_was_created_twice(tmp_path: Path) -> None:
    store = MemoryBucket()
    begin(store, CELL, Candidate("init", "00" * 16))
    lost: list[Exception] = []
    owner = CellOwner(store, CELL, str(tmp_path), Candidate("one", "01" * 16), on_lost=lost.append, ttl_s=TTL_S)
    await owner.start()
    await owner.engine.put_topic("events", FSYNC)
    await owner.check()
    assert (owner.state, lost) == (State.OWNER, [])
    last = owner.slots - 1
    key = f"{CELL}/log/{last:016x}"
    seal = Seal(last, 9, "02" * 16, "two")
    store.objects[key] = encode_data(last, seal, 1, 0, b"of another process")
    await owner.check()
    assert owner.state is State.LOST
    assert not owner.may_answer()
    await until(lambda: bool(lost))
    assert isinstance(lost[0], StoreBroken)
    await owner.close()


class WrongClock(SystemClock):
    """A clock that is a year ahead."""

    def wall_ns(self) -> int:
        return super().wall_ns() + 365 * 86_400 * 10**9


async def test_a_process_whose_clock_is_wrong_is_no_candidate(bucket: Bucket, tmp_path: Path) -> None:
    owner = CellOwner(bucket, CELL, str(tmp_path), Candidate("one", "01" * 16), clock=WrongClock(), ttl_s=TTL_S)
    with pytest.raises(ClockWrong):
        await owner.start()
    assert owner.state is State.CLOSED
    assert list(bucket.names(f"{CELL}/log/")) == [f"{CELL}/log/{0:016x}"]


class Reads(Line):
    """A connection that notes which objects are read."""

    def __init__(self, bucket: Bucket, read: list[str]) -> None:
        super().__init__(bucket)
        self._read = read

    def get(self, key: str) -> bytes | None:
        self._read.append(key)
        return super().get(key)

    def get_range(self, key: str, offset: int, size: int) -> bytes | None:
        self._read.append(key)
        return super().get_range(key, offset, size)
