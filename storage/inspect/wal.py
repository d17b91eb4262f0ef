"""Reads the log files of one shard and decides how each file ends: correctly, torn by a crash, or damaged.

    earlier files with frames         must end exactly at the end of a frame
    the last file with frames         may end with zeros or a torn frame or batch; this is damage if a later SyncPoint
                                      says that the torn bytes were synced
    the next file that is not zeros   may be torn at byte 0; this is damage if the last file with frames has bytes
                                      after its frames
    all further files                 must be empty or zeros

A live broker may append, rotate and trim during the check. So bytes are read again before they are reported as damage.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from storage.inspect.directory import DataDirectory, WalPath, chunk_entries
from storage.inspect.frames import Counts, FrameChecks
from storage.inspect.manifest import NamedSegments
from storage.log import FrameStream, find_sync_point
from storage.platform import File

_CHUNK_BYTES = 1 << 20
_PEEK_BYTES = 1 << 16
DAMAGE = "This is damage: a start refuses, unless TOPICS_RECOVERY=salvage."
_WRONG = {
    "": "the file ends",
    "zero": "zeros lie where a frame should begin",
    "length": "a frame begins with contradictory lengths",
    "checksum": "a frame begins with a wrong checksum",
    "overrun": "a frame begins that would exceed the file",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A report about a file. A problem makes `verify` fail, a note does not."""

    path: str
    offset: int | None
    problem: bool
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEnd:
    """Where the frames of a file end.

    `offset` is the start of the first incomplete frame or batch; `scanned` is the end of the last complete frame.
    `what` describes the bytes at the end. `stray` is the number of bytes from `offset` to the last byte that is not
    zero. `synced_to` is the durable end according to a SyncPoint after `offset` (0: no SyncPoint was found).
    """

    wal: WalPath
    offset: int
    scanned: int
    size: int
    what: str
    stray: int
    synced_to: int

    @property
    def exact(self) -> bool:
        return self.offset == self.size

    @property
    def damaged(self) -> bool:
        return self.synced_to > self.offset


class ShardWalk:
    """Checks the files of a shard once. Calls `report` with each finding and `advance` with the number of bytes read.

    `segments` collects the segments of the shard's logs.
    """

    def __init__(
        self,
        directory: DataDirectory,
        counts: Counts,
        names: dict[int, str],
        report: Callable[[Finding], None],
        advance: Callable[[int], None],
        segments: NamedSegments,
    ) -> None:
        self._directory = directory
        self._report = report
        self._advance = advance
        self._path = ""
        self._checks = FrameChecks(self._complain, counts, names, segments)
        #: The last file with a frame so far, and the files after it.
        self._last: FileEnd | None = None
        self._behind: list[FileEnd] = []

    def run(self, files: list[WalPath]) -> FileEnd | None:
        """Check the files in order. Returns where the shard's log ends; None if it has no frame."""
        for wal in files:
            try:
                with self._directory.open(wal.path) as file:
                    self._walk(wal, file)
            except FileNotFoundError:
                self._vanished(wal)
        self._judge_end()
        return self._last

    def _vanished(self, wal: WalPath) -> None:
        """A listed file is gone. A live broker trims the oldest files; any other missing file is a problem."""
        left = self._directory.wal_files(wal.path.rpartition("/")[0], wal.shard)
        if left and left[0].number > wal.number:
            self._checks.forget()
            self._last, self._behind = None, []
        else:
            self._say(
                wal.path,
                None,
                "The file vanished during the check, although older files still exist.",
            )

    def _walk(self, wal: WalPath, file: File) -> None:
        if any(FrameStream(file, 0, _PEEK_BYTES).chunks()):
            self._judge_not_last()
            self._last = self._feed_from(wal, file, 0)
            self._behind = []
        else:
            stream = FrameStream(file)
            self._behind.append(_end_of(wal, file, stream, None))
            self._advance(stream.size)

    def _feed_from(self, wal: WalPath, file: File, start: int) -> FileEnd:
        """Feed the frames from `start` to the checks. Returns where they end; if bytes follow, they are read twice."""
        self._path = wal.path
        while True:
            stream = FrameStream(file, start)
            for chunk in stream.chunks():
                for entry in chunk_entries(chunk):
                    self._checks.feed(entry, wal.number)
                self._advance(len(chunk.bytes))
            end = _end_of(wal, file, stream, self._checks.open_batch_offset)
            if end.stray == 0 or stream.end == start:
                return end
            start = stream.end

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _judge_not_last(self) -> None:
        """Judge the ends of the files so far: a later file with frames follows."""
        last = self._last
        if last is not None and not last.exact:
            last = self._look_again(last)
            if last is not None and not last.exact:
                self._say(
                    last.wal.path,
                    last.offset,
                    f"Here {last.what}, {last.size - last.offset} bytes before the end of the file, although "
                    f"later files hold frames. {DAMAGE}",
                )
        self._checks.drop_open_batch()
        for end in self._behind:
            if end.stray:
                self._say(
                    end.wal.path,
                    0,
                    f"{_capital(end.what)} at the start of the file, although later files hold frames. {DAMAGE}",
                )

    def _look_again(self, end: FileEnd) -> FileEnd | None:
        """Where the file ends now that a later file is in use; None if the file was trimmed."""
        try:
            with self._directory.open(end.wal.path) as file:
                return self._feed_from(end.wal, file, end.scanned)
        except FileNotFoundError:
            self._checks.forget()
            return None

    def _judge_end(self) -> None:
        """Judge the ends of the last files: no file with frames follows."""
        last = self._last
        if last is not None:
            self._judge_tear(last)
        may_tear = last is None or last.exact
        for end in self._behind:
            if may_tear and end.stray:
                self._judge_tear(end)
                may_tear = False
            elif end.stray:
                self._say(
                    end.wal.path,
                    0,
                    f"The file has {end.stray} bytes, but the log ends in an earlier file, "
                    f"so no frame can have been written here yet. {DAMAGE}",
                )

    def _judge_tear(self, end: FileEnd) -> None:
        if end.damaged:
            self._say(
                end.wal.path,
                end.offset,
                f"Here {end.what}, but a later SyncPoint says that everything below offset "
                f"{end.synced_to} was synced. The rest of the file was not checked. {DAMAGE}",
            )
        elif end.stray:
            self._say(
                end.wal.path,
                end.offset,
                f"The log ends here: {end.what}. A crash or a write in progress leaves such an end; "
                f"the next start copies the last {end.stray} bytes to quarantine/ and removes them here.",
                problem=False,
            )

    def _complain(self, offset: int, text: str) -> None:
        self._say(self._path, offset, text)

    def _say(self, path: str, offset: int | None, text: str, *, problem: bool = True) -> None:
        self._report(Finding(path=path, offset=offset, problem=problem, text=text))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _broken_batch(stream: FrameStream) -> str:
    why = f" (at offset {stream.end} {_WRONG[stream.reason]})" if stream.reason else ""
    return f"an incomplete batch begins{why}"


def _end_of(wal: WalPath, file: File, stream: FrameStream, open_batch: int | None) -> FileEnd:
    """Where and how an exhausted stream ends."""
    offset = stream.end if open_batch is None else open_batch
    size = file.size()
    stray = _stray_bytes(file, offset, size)
    point = find_sync_point(file, wal.number, offset) if stray else None
    return FileEnd(
        wal=wal,
        offset=offset,
        scanned=stream.end,
        size=size,
        what=_WRONG[stream.reason] if open_batch is None else _broken_batch(stream),
        stray=stray,
        synced_to=point.offset if point else 0,
    )


def _stray_bytes(file: File, start: int, size: int) -> int:
    """The number of bytes from `start` to the last byte that is not zero, inclusive."""
    last = start
    offset = start
    while offset < size:
        chunk = file.pread(min(_CHUNK_BYTES, size - offset), offset)
        if not chunk:
            break
        content = chunk.rstrip(b"\0")
        if content:
            last = offset + len(content)
        offset += len(chunk)
    return last - start
