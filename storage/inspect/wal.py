"""Walks the log files of one shard and decides how each one ends: as it should, torn by a crash, or damaged.

    file before the last with frames    ends exactly with a frame            anything else is damage
    last file with frames               whole frames, then zeros or a tear   damage if a SyncPoint behind it
                                                                             calls the torn place synced
    the next one that is not all zeros  torn at byte 0                       damage if the last one with frames goes on
                                                                             behind its frames
    further files                       zeros or empty                       anything else is damage

A live broker may append, rotate and trim meanwhile, so the bytes are read again before they are called damage.

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
    "length": "a frame begins whose lengths do not fit each other",
    "checksum": "a frame begins whose checksum does not match its bytes",
    "overrun": "a frame begins that would pass the end of the file",
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

    `offset` is the start of the first frame or batch that is not whole, `scanned` the end of the last whole frame.
    `what` says in words what is there; `stray` counts the bytes from `offset` to the last one that is not zero;
    `synced_to` is the durable end according to a SyncPoint behind `offset` (0: none found).
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
    """One walk over a shard's files. Findings go to `report`, progress (bytes read) to `advance`.

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
        #: The last file with a frame, and the files behind it.
        self._last: FileEnd | None = None
        self._behind: list[FileEnd] = []

    def run(self, files: list[WalPath]) -> FileEnd | None:
        """Check the files in order; returns where the shard's log ends (None when there is no frame)."""
        for wal in files:
            try:
                with self._directory.open(wal.path) as file:
                    self._walk(wal, file)
            except FileNotFoundError:
                self._vanished(wal)
        self._judge_end()
        return self._last

    def _vanished(self, wal: WalPath) -> None:
        """A listed file is gone: trimmed by a live broker, oldest first, or something is wrong."""
        left = self._directory.wal_files(wal.path.rpartition("/")[0], wal.shard)
        if left and left[0].number > wal.number:
            self._checks.forget()
            self._last, self._behind = None, []
        else:
            self._say(
                wal.path,
                None,
                "The file vanished while the directory was being checked, although older ones are there.",
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
        """Feed the frames from `start` to the checks; returns where they end, checked twice if bytes follow."""
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
        """A file with frames follows those seen so far."""
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
        """Where the file ends, now that a later one is in use; None when it has been trimmed."""
        try:
            with self._directory.open(end.wal.path) as file:
                return self._feed_from(end.wal, file, end.scanned)
        except FileNotFoundError:
            self._checks.forget()
            return None

    def _judge_end(self) -> None:
        """No file with frames follows."""
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
                    f"The file holds {end.stray} bytes, but the log ends in an earlier file, "
                    f"so that nothing can have been written here yet. {DAMAGE}",
                )

    def _judge_tear(self, end: FileEnd) -> None:
        if end.damaged:
            self._say(
                end.wal.path,
                end.offset,
                f"Here {end.what}; yet a SyncPoint behind it says that everything below offset "
                f"{end.synced_to} had been synced. The rest of the file was not checked. {DAMAGE}",
            )
        elif end.stray:
            self._say(
                end.wal.path,
                end.offset,
                f"The log ends here: {end.what}. A crash leaves such an end, and so does a write under way "
                f"right now; the next start sets the last {end.stray} bytes aside and cuts them off.",
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
    return f"a batch begins that does not come to its end{why}"


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
    """Bytes from `start` up to and including the last one that is not zero."""
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
