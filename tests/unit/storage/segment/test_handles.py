"""Open files of segments: few, shared by threads, and closed as soon as no read uses them, not before."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from storage.format import segment_frame
from storage.platform.posix import PosixFileSystem
from storage.records.values import TagMatch
from storage.segments import names
from storage.segments.handles import OpenSegments
from storage.segments.names import SegmentId
from storage.segments.reader import SegmentReader
from tests.support.sim_disk import SimDisk
from tests.unit.storage.segment.built import ROOT, TOPIC, Built, Made, build, numbered, put


class Rig:
    """A disk with segments that begin at 1, 101, 201, ..."""

    def __init__(self, segments: int = 4, max_open: int = 2) -> None:
        self.disk = SimDisk()
        self.built = [put(self.disk, build(numbered(5), first_seq=1 + 100 * number)) for number in range(segments)]
        self.ids = [built.id for built in self.built]
        self.open = OpenSegments(self.disk, ROOT, max_open)

    def use(self, number: int) -> bytes:
        with self.open.lease(self.ids[number]) as files:
            return files.read_data(0, 10)

    def times(self, op: str, number: int | None = None) -> int:
        """Calls on the .data of one segment, or of all."""
        wanted = "" if number is None else names.data_name(self.ids[number].first_seq, 0)
        return sum(call.op == op and call.path.endswith(wanted or ".data") for call in self.disk.calls)

    def all_closed(self) -> bool:
        ops = [call.op for call in self.disk.calls]
        return ops.count("close") == ops.count("open")


def in_thread(job: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=job)
    thread.start()
    return thread


def test_a_segment_is_opened_once() -> None:
    rig = Rig()
    for _ in range(5):
        rig.use(0)
    assert (rig.times("open"), rig.times("close")) == (1, 0)


def test_the_least_recently_used_segment_is_closed() -> None:
    rig = Rig()
    for number in (0, 1, 0, 2):
        rig.use(number)
    assert [rig.times("close", number) for number in range(3)] == [0, 1, 0]
    assert len(rig.open) == 2


def test_files_in_use_are_closed_by_their_last_user() -> None:
    rig = Rig(max_open=1)
    with rig.open.lease(rig.ids[0]) as first:
        with rig.open.lease(rig.ids[0]) as again:
            assert again is first
            rig.use(1)
            assert rig.times("close", 0) == 0
        assert first.read_data(0, 10) == bytes(rig.built[0].data[:10])
        assert rig.times("close", 0) == 0
    assert rig.times("close", 0) == 1
    assert len(rig.open) == 1


def test_a_forgotten_unused_segment_is_closed_at_once() -> None:
    rig = Rig()
    rig.use(0)
    rig.open.forget(rig.ids[0])
    rig.open.forget(rig.ids[0])
    assert (rig.times("close", 0), len(rig.open)) == (1, 0)


def test_a_read_in_progress_finishes_on_forgotten_and_removed_files() -> None:
    rig = Rig()
    with rig.open.lease(rig.ids[0]) as files:
        rig.open.forget(rig.ids[0])
        for ext in (names.DATA, names.IDX):
            rig.disk.unlink(names.path(ROOT, rig.ids[0], ext))
        assert files.read_data(0, 10) == bytes(rig.built[0].data[:10])
        with pytest.raises(FileNotFoundError):
            rig.use(0)
    assert rig.times("close", 0) == 1


def test_a_segment_forgotten_during_its_opening_is_not_kept_open() -> None:
    rig = Rig()
    found: list[bytes] = []
    with rig.disk.hold("open", "*.idx") as gate:
        thread = in_thread(lambda: found.append(rig.use(0)))
        gate.wait_held()
        rig.open.forget(rig.ids[0])
    thread.join(10)
    assert found == [bytes(rig.built[0].data[:10])]
    assert (len(rig.open), rig.all_closed()) == (0, True)


def test_concurrent_opens_of_a_segment_share_a_handle() -> None:
    rig = Rig()
    found: list[bytes] = []
    with rig.disk.hold("open", "*.idx") as gate:
        threads = [in_thread(lambda: found.append(rig.use(0))) for _ in range(2)]
        gate.wait_held(2)
    for thread in threads:
        thread.join(10)
    assert (rig.times("open", 0), rig.times("close", 0), len(rig.open)) == (2, 1, 1)
    assert found == [bytes(rig.built[0].data[:10])] * 2


def test_no_lock_is_held_during_a_read() -> None:
    rig = Rig(max_open=1)
    found: list[bytes] = []
    with rig.disk.hold("pread", "*.data", times=1) as gate:
        thread = in_thread(lambda: found.append(rig.use(0)))
        gate.wait_held()
        assert rig.use(0) == bytes(rig.built[0].data[:10])
        assert rig.use(1) == bytes(rig.built[1].data[:10])  # evicts the file that is being read
        rig.open.forget(rig.ids[0])
        rig.open.forget(rig.ids[1])
        assert found == []
    thread.join(10)
    assert found == [bytes(rig.built[0].data[:10])]
    assert rig.all_closed()


def test_closing_closes_all_handles_and_later_handles_after_use() -> None:
    rig = Rig()
    with rig.open.lease(rig.ids[0]):
        rig.use(1)
        rig.open.close()
        assert (rig.times("close", 0), rig.times("close", 1)) == (0, 1)
    rig.use(2)
    assert (len(rig.open), rig.all_closed()) == (0, True)


# ---- no descriptor left


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("ext", [names.DATA, names.IDX])
def test_an_open_without_free_descriptors_closes_idle_segments_and_retries(code: int, ext: str) -> None:
    rig = Rig(max_open=4)
    for number in (0, 1, 2):
        rig.use(number)
    rig.disk.fail("open", f"*.{ext}", errno=code, times=2)
    assert rig.use(3) == bytes(rig.built[3].data[:10])
    assert [rig.times("close", number) for number in range(4)] == [1, 1, 0, 0]
    assert len(rig.open) == 2


def test_without_a_descriptor_left_nor_an_idle_segment_the_error_passes_through() -> None:
    rig = Rig(max_open=4)
    with rig.open.lease(rig.ids[0]) as files:
        rig.use(1)
        rig.disk.fail("open", errno=errno.EMFILE, sticky=True)
        with pytest.raises(OSError, match="open files") as caught:
            rig.use(2)
        assert caught.value.errno == errno.EMFILE
        assert files.read_data(0, 10)
        rig.disk.clear_faults()
    assert (rig.times("close", 1), len(rig.open)) == (1, 1)
    rig.use(2)


def test_other_errors_of_open_are_raised_and_leave_no_handle() -> None:
    rig = Rig()
    rig.disk.fail("open", "*.idx", errno=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        rig.use(0)
    assert rig.times("open", 0) == rig.times("close", 0) == 1
    assert len(rig.open) == 0


def test_a_descriptor_is_freed_for_the_sidecar() -> None:
    rig = Rig()
    built = put(rig.disk, build([Made(tag=b"t")], first_seq=901))
    reader = SegmentReader(rig.disk, ROOT, 4)
    reader.tagged(built.id, built.end_seq, TagMatch(b"t"))
    reader.forget(built.id)
    reader.dead_bits(rig.ids[0], 6)
    rig.disk.fail("open", "*.tag", errno=errno.EMFILE)
    assert reader.tagged(built.id, built.end_seq, TagMatch(b"t")) == [901]
    assert reader.open_segments == 1


# ---- many threads on a real disk


def _written(root: Path, built: Built) -> Built:
    folder = Path(names.folder(str(root), TOPIC))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names.data_name(built.id.first_seq, built.id.gen)).write_bytes(built.data)
    (folder / names.idx_name(built.id.first_seq, built.id.gen)).write_bytes(built.idx)
    return built


def _some_reads(reader: SegmentReader, segments: list[Built], seed: int, rounds: int) -> None:
    random = Random(seed)
    for _ in range(rounds):
        built = random.choice(segments)
        first = random.randrange(built.id.first_seq, built.end_seq)
        match random.randrange(4):
            case 0:
                reader.forget(built.id)
            case 1:
                assert reader.tagged(built.id, built.end_seq, TagMatch(b"t")) == built.live_with(b"t")
            case _:
                found = reader.read(built.id, built.end_seq, first, 10, 1 << 20)
                for seq, entry in enumerate(found.entries, found.first_seq):
                    frame = segment_frame.decode(found.data, entry.offset - found.base)
                    made = built.made[seq - built.id.first_seq]
                    assert made is not None
                    assert (frame.seq, frame.data) == (seq, made.data)


def test_concurrent_reads_evictions_and_forgets_return_correct_data(tmp_path: Path) -> None:
    segments = [
        _written(tmp_path, build(numbered(40, tag=b"t" if number % 2 else b""), first_seq=1 + 1000 * number))
        for number in range(8)
    ]
    reader = SegmentReader(PosixFileSystem(), str(tmp_path), 2)
    failures: list[BaseException] = []

    def job(seed: int) -> None:
        try:
            _some_reads(reader, segments, seed, 300)
        except BaseException as error:
            failures.append(error)

    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    threads = [in_thread(lambda seed=seed: job(seed)) for seed in range(6)]
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert reader.open_segments <= 2
    reader.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_a_rewritten_segment_has_its_own_handle(tmp_path: Path) -> None:
    old = _written(tmp_path, build(numbered(10)))
    new = _written(tmp_path, build([*numbered(3), *[None] * 7], gen=1))
    reader = SegmentReader(PosixFileSystem(), str(tmp_path), 4)
    assert len(reader.read(old.id, 11, 1, 100, 1 << 20).data) == len(old.data)
    reader.forget(old.id)
    assert len(reader.read(SegmentId(TOPIC, 1, 1), 11, 1, 100, 1 << 20).data) == len(new.data)
    reader.close()
