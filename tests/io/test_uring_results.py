"""Every completion is checked: what a file does with results that are short, wrong, or ask for a repetition."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.platform.filesystem import Read, SyncFailed
from storage.platform.io.ring import DATASYNC, LINK, OP_FSYNC, OP_READ, OP_WRITE, Entry
from storage.platform.io.submitter import RingBroken, Submitter
from storage.platform.io.uring import UringFile, UringFileSystem
from storage.platform.posix import PosixFileSystem
from tests.support.sim_uring import CallRing

DATA = b"0123456789"


class Rig:
    """A file on a ring that answers as the test says: results by opcode, then those of the calls themselves."""

    def __init__(self, path: Path) -> None:
        self.wrong: dict[int, deque[int | None]] = {OP_WRITE: deque(), OP_FSYNC: deque(), OP_READ: deque()}
        self.plain = PosixFileSystem().open(str(path), create=True)
        self.ring = CallRing({self.plain.descriptor(): self.plain}, self._amiss)
        self.file = UringFile(self.plain.descriptor(), Submitter(self.ring))
        self.steps: list[str] = []

    def _amiss(self, entry: Entry) -> int | None:
        waiting = self.wrong.get(entry.opcode)
        return waiting.popleft() if waiting else None

    def write(self, *, write: tuple[int | None, ...] = (), sync: tuple[int | None, ...] = ()) -> None:
        self.wrong[OP_WRITE].extend(write)
        self.wrong[OP_FSYNC].extend(sync)
        self.file.write_and_sync([DATA[:4], DATA[4:]], 0, lambda: 0)

    def done(self) -> list[tuple[int, int, int]]:
        """(opcode, offset, length) of the entries carried out."""
        return [(each.opcode, each.offset, each.length) for each in self.ring.done]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "f")


SYNC = (OP_FSYNC, 0, 0)
WHOLE = (OP_WRITE, 0, 10)


def test_a_write_and_its_sync_share_a_submission(rig: Rig) -> None:
    rig.write()
    assert rig.done() == [WHOLE, SYNC]
    assert [(each.flags, each.operation_flags) for each in rig.ring.done] == [(LINK, 0), (0, DATASYNC)]
    assert rig.file._submitter.submissions == 1
    assert rig.file.pread(99, 0) == DATA


def test_a_short_write_is_continued_and_then_synced(rig: Rig) -> None:
    rig.plain.pwritev([DATA[:3]], 0)  # what a result of 3 means
    rig.write(write=(3,))
    assert rig.done() == [WHOLE, (OP_WRITE, 3, 7), SYNC]
    assert rig.file.pread(99, 0) == DATA


def test_a_sync_beside_a_short_write_is_not_believed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel starts it even so, the bytes that came later are synced again."""
    ring, links = rig.ring, deque([0])
    push = ring.push
    monkeypatch.setattr(
        ring, "push", lambda entry, data: push(entry._replace(flags=links.popleft() if links else entry.flags), data)
    )
    rig.plain.pwritev([DATA[:3]], 0)
    rig.write(write=(3,))
    assert rig.done() == [WHOLE, SYNC, (OP_WRITE, 3, 7), SYNC]


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN, errno.ECANCELED])
def test_eagain_repeats_the_entry(rig: Rig, code: int) -> None:
    rig.write(write=(-code, -code), sync=(-code, -code))
    assert rig.done() == [WHOLE, WHOLE, WHOLE, SYNC, SYNC, SYNC]
    assert rig.file.pread(99, 0) == DATA
    rig.wrong[OP_FSYNC].extend([-code])
    rig.file.datasync()
    assert rig.done()[6:] == [SYNC, SYNC]


def test_endless_eagain_is_an_error(rig: Rig) -> None:
    with pytest.raises(SyncFailed):
        rig.write(sync=(-errno.EAGAIN,) * 5000)
    with pytest.raises(OSError, match="not taken"):
        rig.write(write=(-errno.EAGAIN,) * 5000)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failed_write_raises_its_error_without_a_sync(rig: Rig, code: int) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011
        rig.write(write=(-code,))
    assert (type(caught.value), caught.value.errno) == (OSError, code)
    assert rig.done() == [WHOLE]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_sync_after_a_write_raises_sync_failed(rig: Rig, code: int) -> None:
    with pytest.raises(SyncFailed) as caught:
        rig.write(sync=(-code,))
    assert caught.value.errno == code
    rig.wrong[OP_FSYNC].append(-code)
    with pytest.raises(OSError) as plain:  # noqa: PT011
        rig.file.datasync()
    assert plain.value.errno == code


def test_an_error_after_a_short_write_is_an_error_of_the_write(rig: Rig) -> None:
    with pytest.raises(OSError, match="No space") as caught:
        rig.write(write=(3, -errno.ENOSPC))
    assert not isinstance(caught.value, SyncFailed)


def test_a_write_of_zero_bytes_is_an_error(rig: Rig) -> None:
    with pytest.raises(OSError, match="not taken"):
        rig.write(write=(0,))


def test_a_write_split_from_its_sync_is_synced_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    submit: Callable[[int], int] = rig.ring.submit
    monkeypatch.setattr(rig.ring, "submit", lambda _: submit(1))
    rig.write()
    assert rig.done() == [WHOLE, SYNC, SYNC]


def test_a_file_on_a_broken_ring_keeps_its_descriptor_open(rig: Rig) -> None:
    def broken(_: int) -> int:
        raise OSError(errno.EFAULT, "broken")

    rig.ring.submit = broken  # type: ignore[method-assign]
    number = rig.plain.descriptor()
    with pytest.raises(RingBroken):
        rig.write()
    rig.file.close()
    assert rig.plain.descriptor() == number
    rig.plain.pwritev([b"still open"], 0)
    with pytest.raises(OSError, match="Bad file"):
        rig.file.datasync()


# ---- reads


class Reads:
    """A file system whose rings answer as the test says."""

    def __init__(self, path: Path) -> None:
        self.wrong: deque[int | None] = deque()
        self.rings: list[CallRing] = []
        self.fs = UringFileSystem(self._make)
        self.file = self.fs.open(str(path), create=True)
        self.file.pwritev([bytes(range(200))], 0)
        plain = PosixFileSystem().open(str(path))
        for ring in self.rings:
            ring.files[self.file.descriptor()] = plain

    def _make(self, _: int) -> CallRing:
        self.rings.append(CallRing({}, lambda entry: self.wrong.popleft() if self.wrong else None))
        return self.rings[-1]

    def read(self, count: int, *wrong: int | None) -> list[bytes]:
        self.wrong.extend(wrong)
        return self.fs.read_many([Read(self.file, 10, 10 * number) for number in range(count)])


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    return Reads(tmp_path / "f")


def expected(count: int) -> list[bytes]:
    return [bytes(range(10 * number, 10 * number + 10)) for number in range(count)]


def test_many_reads_are_as_few_submissions_as_the_ring_allows(reads: Reads) -> None:
    assert reads.read(19) == expected(19)
    assert len(reads.rings[1].done) == 1 + 19  # the first one tested the ring
    assert reads.fs._reads.submissions == 1 + 3
    assert reads.fs._writes.submissions == 1


def test_a_single_read_is_a_plain_read(reads: Reads) -> None:
    assert reads.read(1) == expected(1)
    assert len(reads.rings[1].done) == 1


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN, errno.ECANCELED])
def test_an_interrupted_read_is_repeated(reads: Reads, code: int) -> None:
    assert reads.read(3, None, -code) == expected(3)


def test_a_short_read_is_continued(reads: Reads) -> None:
    reads.wrong.clear()
    ring = reads.rings[1]
    carried_out = ring._result

    def short(entry: Entry) -> int:
        return carried_out(entry._replace(length=4))

    ring._result = short  # type: ignore[method-assign]
    assert reads.read(3) == expected(3)


def test_an_error_of_a_read_is_raised(reads: Reads) -> None:
    with pytest.raises(OSError, match="Input/output"):
        reads.read(3, None, -errno.EIO)
