"""Checks a whole data directory and reports each problem in a sentence, with its file and offset."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress

from storage.format import SnapshotDamaged, SnapshotUnsupported
from storage.inspect.directory import DataDirectory, FormatFile, SnapshotView, WalPath
from storage.inspect.folders import named_segments, unnamed
from storage.inspect.frames import Counts
from storage.inspect.layout import Change, change_under_way
from storage.inspect.manifest import NamedSegments
from storage.inspect.segments import Checked, check_segment
from storage.inspect.wal import DAMAGE, FileEnd, Finding, ShardWalk
from storage.platform import layout
from storage.segments import names as segment_names

_KNOWN = {layout.LOCK, layout.FORMAT, "meta", "wal", "quarantine", segment_names.TOPICS}
#: Files of meta/ beside the snapshots.
_META = (layout.RESERVE, layout.COLD_STORE, layout.LAID_OUT)
_CHUNK_BYTES = 1 << 20


class Verdict:
    """The result of `verify`. `wrong`: at least one problem was found."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.problems = 0
        self.notes = 0
        self.wal_files = 0
        self.snapshots = 0
        self.shards = 0
        self.segments = 0
        self.cold_segments = 0
        self.segment_records = 0
        self.segment_bytes = 0

    @property
    def wrong(self) -> bool:
        return self.problems > 0

    def summary(self) -> str:
        """The last line of the report."""
        counts = self.counts
        checked = (
            f"{_count(counts.frames, 'frame')} ({_count(counts.records, 'record')}, {counts.bytes} bytes) "
            f"in {_count(self.wal_files, 'log file')} of {_count(self.shards, 'shard')}, "
            f"{_count(self.snapshots, 'snapshot')}"
        )
        if self.segments:
            checked += (
                f", {_count(self.segments, 'segment')} "
                f"({_count(self.segment_records, 'record')}, {self.segment_bytes} bytes)"
            )
        if self.cold_segments:
            checked += f", {self.cold_segments} of them in the cold tier (only the index is checked)"
        verdict = _count(self.problems, "problem") if self.problems else "no problem"
        notes = f", {_count(self.notes, 'note')}" if self.notes else ""
        return f"{verdict}{notes}; checked {checked}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def verify(
    directory: DataDirectory, report: Callable[[Finding], None], progress: Callable[[int, int], None] | None = None
) -> Verdict:
    """Check every file of the directory. Calls `report` with each finding and `progress` with (done, total) bytes.

    Raises OSError if a file cannot be read: an I/O error says nothing about the data.
    """
    return _Verification(directory, report, progress).run()


class _Verification:
    def __init__(
        self,
        directory: DataDirectory,
        report: Callable[[Finding], None],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._directory = directory
        self._report = report
        self._progress = progress
        self._verdict = Verdict()
        self._names: dict[int, str] = {}
        self._valid: list[tuple[str, SnapshotView]] = []
        self._segments = NamedSegments()
        self._done = 0
        self._total = 0

    def run(self) -> Verdict:
        made = self._format()
        self._snapshots()
        self._segments = NamedSegments(self._valid[-1][1] if self._valid else None)
        self._logs(made)
        self._segment_files()
        self._packed_format()
        self._other_files()
        self._quarantine()
        return self._verdict

    def _say(self, path: str, text: str, *, offset: int | None = None, problem: bool = True) -> None:
        self._take(Finding(path=path, offset=offset, problem=problem, text=text))

    def _take(self, finding: Finding) -> None:
        self._verdict.problems += finding.problem
        self._verdict.notes += not finding.problem
        self._report(finding)

    # -- FORMAT and snapshots ----------------------------------------------------------------------------------------

    def _format(self) -> FormatFile | None:
        try:
            made = self._directory.format()
        except ValueError:
            self._say(layout.FORMAT, "The file must have three lines: format version, cluster id and shard count.")
            return None
        if made.version not in layout.FORMAT_VERSIONS:
            known = " and ".join(map(str, layout.FORMAT_VERSIONS))
            self._say(layout.FORMAT, f"The format version is {made.version}, but this program knows only {known}.")
        return made

    def _snapshots(self) -> None:
        for path in self._directory.snapshots().values():
            self._verdict.snapshots += 1
            try:
                view = self._directory.snapshot(path)
            except FileNotFoundError:
                continue  # a newer snapshot replaced it during the check
            except SnapshotUnsupported as error:
                self._say(path, f"A newer version wrote this snapshot: {error}.")
            except SnapshotDamaged as error:
                self._say(path, f"The snapshot is damaged: {error}.")
            else:
                self._valid.append((path, view))
                self._names.update((section.topic_id, section.name) for section in view.sections)

    # -- logs ----------------------------------------------------------------------------------------------------------

    def _logs(self, made: FormatFile | None) -> None:
        folders = self._directory.shard_folders()
        change = change_under_way(self._directory, [view for _, view in self._valid[-2:]])
        if change is not None:
            self._say("wal", change.describe(), problem=False)
            folders = [(shard, folder) for shard, folder in folders if folder in change.folders]
        files_in = {folder: self._files_of(change, folder, shard) for shard, folder in folders}
        self._verdict.shards = change.shards if change else len(folders)
        self._total = sum(self._directory.size(file.path) for files in files_in.values() for file in files)
        self._total += sum(map(self._directory.size, self._directory.segment_data_files()))
        bare: list[str] = []
        for shard, folder in folders:
            files = files_in[folder]
            self._verdict.wal_files += len(files)
            self._check_numbers(folder, [file.number for file in files])
            walk = ShardWalk(
                self._directory, self._verdict.counts, self._names, self._take, self._advance, self._segments
            )
            end = walk.run(files)
            if not files:
                bare.append(folder)
            if change is None:
                self._check_snapshots_of(shard, files, end)
                self._check_reserve(layout.join(folder, layout.RESERVE))
        if change is None:
            self._check_folders(made, [folder for _, folder in folders], bare)

    def _files_of(self, change: Change | None, folder: str, shard: int) -> list[WalPath]:
        files = self._directory.wal_files(folder, shard)
        return [file for file in files if change is None or file.number >= change.first]

    def _check_folders(self, made: FormatFile | None, found: list[str], bare: list[str]) -> None:
        """Check that every shard has a folder, and a log if any shard has one. Snapshots win over FORMAT."""
        count = self._valid[-1][1].body.shards if self._valid else made.shards if made else 0
        due = [layout.shard_dir("", shard, count).lstrip("/") for shard in range(count)] or found
        in_use = bool(self._verdict.counts.frames or self._verdict.snapshots)
        for folder in found:
            if folder not in due:
                self._say(
                    folder,
                    f"There are {count} shards, but this folder belongs to none of them.",
                    problem=folder not in bare,
                )
        for folder in due:
            if (folder not in found or folder in bare) and in_use:
                self._say(folder, "The log of this shard is missing.")

    def _check_snapshots_of(self, shard: int, files: list[WalPath], end: FileEnd | None) -> None:
        """Check that the log begins before the replay of each snapshot and ends after the snapshot's position."""
        lsn = (end.wal.number, end.scanned) if end else (0, 0)
        for path, view in self._valid[-2:]:  # after a crash there may be older ones; the log is not kept for them
            if not self._directory.fs.exists(layout.join(self._directory.root, path)):
                continue  # replaced during the check, and the log was trimmed
            number = view.body.redo_from[shard][0] if shard < len(view.body.redo_from) else 0
            if files and 0 < number < files[0].number:
                self._say(path, f"Its replay begins in file {number} of shard {shard}, which is gone.")
            latest = max((lsn for index, lsn in view.lsns if index == shard), default=(0, 0))
            if latest > lsn and latest[1] > 0:
                self._say(
                    path,
                    f"When it was taken, the log of shard {shard} reached offset {latest[1]} of file {latest[0]}. But "
                    f"the log ends at offset {lsn[1]} of file {lsn[0]}: synced frames are missing. {DAMAGE}",
                )

    def _check_numbers(self, folder: str, numbers: list[int]) -> None:
        for before, number in itertools.pairwise(numbers):
            if number != before + 1:
                missing = f"File {before + 1} is" if number == before + 2 else f"Files {before + 1} to {number - 1} are"
                self._say(
                    folder,
                    f"{missing} missing: {layout.wal_name(before)} is followed by {layout.wal_name(number)}.",
                )
        if numbers and numbers[0] != 1 and not self._valid:
            self._say(
                folder,
                f"The log begins with {layout.wal_name(numbers[0])}, and no snapshot tells what came before.",
            )

    def _advance(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _check_reserve(self, path: str) -> None:
        """Check that the reserve, a file that keeps space for a full disk, has only zeros."""
        try:
            with self._directory.open(path) as file:
                for offset in range(0, file.size(), _CHUNK_BYTES):
                    if file.pread(_CHUNK_BYTES, offset).strip(b"\0"):
                        self._say(
                            path,
                            "The reserve is not empty. It becomes a log file when the disk is full.",
                            problem=False,
                        )
                        return
        except FileNotFoundError:
            self._say(
                path, "There is no reserve. It was used when the disk was full, or was never created.", problem=False
            )

    # -- segments ------------------------------------------------------------------------------------------------------

    def _segment_files(self) -> None:
        """Check the segments. A segment with a problem is checked again with a newer state of the log, because a live
        broker may have changed it."""
        if self._segments.stale:
            self._segments = named_segments(self._directory)
        before = sum(map(self._directory.size, self._directory.segment_data_files()))
        suspects: list[tuple[int, int]] = []
        for topic_id, log in self._segments.logs.items():
            for segment in log.segments.values():
                checked = check_segment(self._directory, topic_id, log, segment)
                self._advance(min(before, checked.bytes))
                before -= min(before, checked.bytes)
                if checked.wrong:
                    suspects.append((topic_id, segment.first_seq))
                else:
                    self._take_segment(checked)
        self._advance(before)
        if suspects:
            self._segments = named_segments(self._directory)
        for topic_id, first_seq in suspects:
            log = self._segments.logs.get(topic_id)
            segment = log.segments.get(first_seq) if log is not None else None
            if log is not None and segment is not None:
                self._take_segment(check_segment(self._directory, topic_id, log, segment))
        unnamed(
            self._directory,
            self._segments.logs,
            self._segments.deleted,
            lambda path, text: self._say(path, text, problem=False),
        )

    def _packed_format(self) -> None:
        """If there are packed segments, check that FORMAT makes older versions refuse the directory."""
        packed = any(each.packed_bytes for log in self._segments.logs.values() for each in log.segments.values())
        if packed:
            with suppress(ValueError):
                if self._directory.format().version < layout.PACKED_FORMAT_VERSION:
                    self._say(
                        layout.FORMAT,
                        f"There are packed segments, but the format version is not {layout.PACKED_FORMAT_VERSION}: an "
                        "older program would not refuse this directory. The next start sets the version.",
                    )

    def _take_segment(self, checked: Checked) -> None:
        self._verdict.segments += 1
        self._verdict.cold_segments += checked.cold
        self._verdict.segment_records += checked.records
        self._verdict.segment_bytes += checked.bytes
        for finding in checked.findings:
            self._take(finding)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _other_files(self) -> None:
        for name in self._directory.names():
            if name not in _KNOWN:
                self._foreign_file(name)
        snapshots = set(self._directory.snapshots().values())
        for name in self._directory.names("meta"):
            if (path := layout.join("meta", name)) not in snapshots and name not in _META:
                self._foreign_file(path)
        folders = [folder for _, folder in self._directory.shard_folders()]
        for folder in sorted({"wal", *folders}):
            known = {
                layout.CURRENT,
                layout.RESERVE,
                *(file.path.rpartition("/")[2] for file in self._directory.wal_files(folder)),
            }
            for name in self._directory.names(folder):
                if name not in known and (path := layout.join(folder, name)) not in folders:
                    self._foreign_file(path)

    def _foreign_file(self, path: str) -> None:
        if path.endswith(layout.TMP_SUFFIX):
            self._say(
                path, "The writing of this file was interrupted or is in progress. The file is not used.", problem=False
            )
        else:
            self._say(path, "This file does not belong to a data directory. It is not used.", problem=False)

    def _quarantine(self) -> None:
        for name in self._directory.names("quarantine"):
            path = layout.join("quarantine", name)
            self._say(path, f"Recovery moved {self._directory.size(path)} bytes here.", problem=False)
