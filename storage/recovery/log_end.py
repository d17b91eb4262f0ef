"""Reads a shard's files in order and decides where its log ends: evidence, then verdict.

found after the last whole unit of a file                     verdict
-----------------------------------------------------------   ---------------------------------------------
nothing: the file ends there                                  the log continues in the next file
no valid frame in the whole file, all zero or empty           skipped, wherever it is (prepared, not used)
a later file holds a valid frame                              corruption: rotation truncates and syncs files
a SyncPoint after it says that it was durable                 corruption
a second end like this                                        corruption
only zeros                                                    the end, undamaged
anything else (torn frame, part of a batch, stale bytes)      the end, damaged: quarantined and truncated

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from storage.errors import UnsupportedFormat, WalCorrupt
from storage.format import UnknownFrameType
from storage.log import READ_BYTES, BadUnit, FrameStream, UnitScan, find_sync_point, position, split
from storage.platform import File, FileSystem, layout
from storage.platform.io import backend_of
from storage.recovery.replay import Replay
from storage.recovery.salvage import Salvage

_ZEROS = bytes(READ_BYTES)
_PAGE = bytes(4096)


class LogEnd:
    """Where one shard's log ends, and how to repair its files before it continues."""

    def __init__(self, shard: int, directory: str, redo: int) -> None:
        self.shard = shard
        self.directory = directory
        self.first_file: int | None = None
        self.next_file = split(redo)[0]
        #: End of the last whole unit.
        self.lsn = redo
        #: From this offset on, the last file's bytes may be in the page cache only: write them again, then sync.
        self.rewrite_from = split(redo)[1]
        #: (file number, offset) to truncate at: the end, and prepared files that were never used.
        self.cuts: list[tuple[int, int]] = []
        #: Salvage: (file number, offset, end) of damage to fill, without an end to truncate there; and missing files.
        self.holes: list[tuple[int, int, int | None]] = []
        self.missing: list[int] = []
        self.replayed: list[int] = []
        #: Number of the file whose log ends inside a write, followed by more than zeros; 0: there is none.
        self.torn_file = 0
        #: Whether the log has frames that the snapshot does not know.
        self.beyond = False
        self.loose_frames = 0
        self.frames = 0
        self.bytes = 0
        self.last_ts = 0
        self.max_topic_id = 0


def find_end(
    fs: FileSystem,
    directory: str,
    shard: int,
    redo: int,
    replay: Replay,
    progress: Callable[[float], None],
    salvage: Salvage | None,
) -> LogEnd:
    """Replay a shard from `redo` on. Changes nothing on disk.

    Raises WalCorrupt, UnsupportedFormat, OSError.
    """
    end = LogEnd(shard, directory, redo)
    numbers = layout.wal_numbers(fs.listdir(directory)) if fs.exists(directory) else []
    end.first_file = numbers[0] if numbers else None
    if numbers:
        end.next_file = max(numbers[-1] + 1, end.next_file)
    redo_file, redo_offset = split(redo)
    gone = range(max([redo_file - 1, *numbers]) + 1, _begun(fs, directory) + 1)
    if gone:
        path = layout.join(directory, layout.wal_name(gone[0]))
        _refuse(path, 0, "the file is missing, though writing to it had begun", salvage)
        end.missing += gone
        end.next_file = gone[-1] + 1
    todo = [number for number in numbers if number >= redo_file]
    if not todo or todo[0] != redo_file:
        if redo == position(1, 0) or (not todo and redo_offset == 0):
            return end  # no files, or no evidence: the caller decides
        _refuse(layout.join(directory, layout.wal_name(redo_file)), redo_offset, "the file is missing", salvage)
    end.missing += _gaps(directory, todo, salvage)
    reader = _ShardReader(fs, directory, end, replay, progress, salvage, todo)
    reader.run(redo_offset)
    return end


def _begun(fs: FileSystem, directory: str) -> int:
    """Number of the newest file in use, as CURRENT says; 0 = none. CURRENT is written before the file's first frame."""
    path = layout.join(directory, layout.CURRENT)
    if not fs.exists(path):
        return 0
    file = fs.open(path, write=False)
    try:
        name = file.pread(file.size(), 0).decode("ascii", "replace").strip()
    finally:
        file.close()
    return max(layout.wal_numbers([name]), default=0)


def _gaps(directory: str, numbers: list[int], salvage: Salvage | None) -> list[int]:
    """Numbers missing between files: the start is refused, or salvage fills the gap."""
    missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers)) if numbers else []
    for number in missing:
        path = layout.join(directory, layout.wal_name(number))
        _refuse(path, 0, "the file is missing, though later ones are there", salvage)
    return missing


def _refuse(path: str, offset: int, what: str, salvage: Salvage | None) -> None:
    if salvage is None:
        raise WalCorrupt(
            f"{path}, offset {offset}: {what}. This had been synced, so it is damage, not an interrupted write. "
            "Restore the directory, or start once with TOPICS_RECOVERY=salvage to give up what cannot be read.",
            file=path,
            offset=offset,
        )
    salvage.damage(path, offset, what)


class _ShardReader:
    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        end: LogEnd,
        replay: Replay,
        progress: Callable[[float], None],
        salvage: Salvage | None,
        numbers: list[int],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._end = end
        self._replay = replay
        self._progress = progress
        self._salvage = salvage
        self._numbers = numbers
        self._torn = False

    def run(self, start: int) -> None:
        for index, number in enumerate(self._numbers):
            path = layout.join(self._directory, layout.wal_name(number))
            file = self._fs.open(path, write=False)
            try:
                if file.size() < start:
                    _refuse(path, file.size(), f"it ends before offset {start}, from which it is needed", self._salvage)
                self._read(file, path, index, number, start)
            finally:
                file.close()
            start = 0
            self._progress((index + 1) / len(self._numbers))

    def _read(self, file: File, path: str, index: int, number: int, start: int) -> None:
        begin: int | None = start
        while begin is not None:
            scan = self._scan(file, path, number, begin)
            if scan.frames:
                self._took(number, scan, begin)
            begin = self._judge(file, path, index, number, scan)

    def _scan(self, file: File, path: str, number: int, start: int) -> UnitScan:
        index, count, size = self._numbers.index(number), len(self._numbers), max(1, file.size())
        # Only the real disk has files that may be read from any thread.
        ahead = backend_of(self._fs) is not None
        scan = UnitScan(FrameStream(file, start), number, self._replay.known_below(number), ahead=ahead)
        try:
            for unit in scan.units():
                self._replay.apply(number, unit)
                if unit.offset & 0xFFFFF < unit.end - unit.offset:  # about every MiB
                    self._progress((index + unit.end / size) / count)
        except BadUnit as error:
            _refuse(path, error.offset, str(error), self._salvage)
            scan.reason = "bad"
        except UnknownFrameType as error:
            raise UnsupportedFormat(f"{path}: {error}; it was written by a newer version.") from error
        return scan

    def _took(self, number: int, scan: UnitScan, start: int) -> None:
        end = self._end
        if number not in end.replayed:
            end.replayed.append(number)
            end.rewrite_from = start
        end.frames += scan.frames - scan.loose_frames
        end.bytes += scan.end - start
        end.last_ts = max(end.last_ts, scan.last_ts)
        end.max_topic_id = max(end.max_topic_id, scan.max_topic_id)
        end.lsn = position(number, scan.end)
        if scan.sync_point is not None:
            end.rewrite_from = max(end.rewrite_from, scan.sync_point.offset)

    def _judge(self, file: File, path: str, index: int, number: int, scan: UnitScan) -> int | None:
        """Decide about the bytes after the last whole unit. Returns where salvage continues in this file, if it
        does."""
        if scan.reason == "":
            return None
        end = self._end
        zero = is_zero(file, scan.end)
        if zero and scan.frames == 0:
            if file.size() > 0:
                end.cuts.append((number, scan.end))  # at its first byte, or where the replay begins
            return None
        reason = self._damage(file, index, number, scan)
        if reason is not None:
            _refuse(path, scan.end, reason, self._salvage)
            assert self._salvage is not None
            self._salvage.loose(scan.loose_steps)
            resumed = self._salvage.resume(file, path, scan.end, scan.loose_end)
            end.holes.append((number, scan.end, resumed))
            return resumed
        self._torn = True
        end.cuts.append((number, scan.end))
        if not zero:
            end.torn_file = number
        end.loose_frames += scan.loose_frames
        return None

    def _damage(self, file: File, index: int, number: int, scan: UnitScan) -> str | None:
        """Why this is damage inside the log and not its end; None when a log may end like this."""
        what = _REASONS[scan.reason]
        if any(self._holds_frame(later) for later in self._numbers[index + 1 :]):
            return f"{what}, and later files continue"
        if self._torn:
            return f"{what}, and the file before is torn as well"
        point = find_sync_point(file, number, scan.end)
        if point is not None and point.offset > scan.end:
            return f"{what}, though the log was durable up to offset {point.offset} here"
        return None

    def _holds_frame(self, number: int) -> bool:
        file = self._fs.open(layout.join(self._directory, layout.wal_name(number)), write=False)
        try:
            return next(FrameStream(file, 0, 1 << 16).chunks(), None) is not None
        finally:
            file.close()


_REASONS = {
    "zero": "zeros stand where a frame should",
    "length": "a frame's lengths do not fit one another",
    "checksum": "a frame fails its checksum",
    "overrun": "a frame is longer than the file",
    "batch": "a batch is incomplete",
    "bad": "frames do not make sense together",
}


def is_zero(file: File, start: int) -> bool:
    """Whether the file has only zeros from `start` on."""
    return all(_ZEROS.startswith(data) for _, data in _pieces(file, start))


def last_nonzero(file: File, start: int) -> int | None:
    """Offset of the last byte from `start` on that is not zero."""
    found: int | None = None
    for offset, data in _pieces(file, start):
        # Files are mostly zeros. `rstrip` examines each byte by itself and takes a hundred times as long as this
        # comparison.
        if not _ZEROS.startswith(data):
            end = len(data)
            while data.endswith(_PAGE, 0, end):
                end -= len(_PAGE)
            begin = max(0, end - len(_PAGE))
            found = offset + begin + len(data[begin:end].rstrip(b"\0")) - 1
    return found


def _pieces(file: File, start: int) -> Iterator[tuple[int, bytes]]:
    offset, size = start, file.size()
    while offset < size:
        data = file.pread(min(len(_ZEROS), size - offset), offset)
        if not data:
            return
        yield offset, data
        offset += len(data)
