"""Copies what lives of a segment to its next generation, and removes a segment's files.

Nothing is believed of the new files before the caller's Segment{rewritten} frame names them; a crash before that
leaves files that the sweep removes. The old files stay as they are: their readers finish, and `remove` comes after the
frame. An active segment whose sync failed goes on the same way: its marked prefix, in the next generation.
Source: storage.md §3, §4.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from storage.format import idx_entry, segment_frame
from storage.format.idx_entry import ENTRY_SIZE, Entry, IdxDamaged
from storage.format.packed_file import Header
from storage.platform.filesystem import Buffer, File, FileSystem, Readable
from storage.segments import names
from storage.segments.data_file import open_data
from storage.segments.entries import dense_entries
from storage.segments.errors import SegmentCorrupt
from storage.segments.files import create_files, datasync, discard, write_all
from storage.segments.names import SegmentId
from storage.segments.packed import PackedWriter

_CHUNK_BYTES = 1 << 20


class Rewritten(NamedTuple):
    """The new generation. `damaged_seqs` fail their check, and were copied as they are: so they still do.

    `packed_bytes`: length of the .zdata, 0 where there is a .data.
    """

    id: SegmentId
    data_bytes: int
    damaged_seqs: list[int]
    packed_bytes: int = 0


def rewrite(
    fs: FileSystem, root: str, id: SegmentId, end_seq: int, dead_bits: int, *, packed: bool = False
) -> Rewritten:
    """Write the records of [first_seq, end_seq) that live to generation gen + 1, packed or not, durable on return.

    Dead is whose bit (seq - first_seq) is set, or who is deleted in .idx: they become entries without a record.
    Deletions that come meanwhile are for `flips.flip` on the new files, before they are named.

    SegmentCorrupt: the old .idx is damaged or .data too short. SegmentBroken, OSError: the new files could not be
    written. Whatever is raised, no new file is left, unless removing it failed too (FileExistsError the next time).
    """
    new = id._replace(gen=id.gen + 1, packed=packed)
    old_path = names.records_path(root, id)
    data_path, idx_path = names.records_path(root, new), names.path(root, new, names.IDX)
    entries = _read_entries(fs, root, id, end_seq)
    live = [entry.len > 0 and not entry.flags & idx_entry.DELETED for entry in entries]
    live = [alive and not dead_bits >> index & 1 for index, alive in enumerate(live)]
    lens = [entry.len if alive else 0 for entry, alive in zip(entries, live, strict=True)]
    damaged_seqs: list[int] = []
    with contextlib.closing(open_data(fs, root, id)) as old:
        with contextlib.suppress(FileNotFoundError):
            # Left by an attempt that wanted it the other way round. It must not lie beside what counts.
            fs.unlink(names.records_path(root, new._replace(packed=not packed)))
        data, idx = create_files(fs, root, new)
        try:
            header = Header(new.topic_id, new.first_seq, new.gen, len(entries), sum(lens))
            writer = PackedWriter(data, data_path, header) if packed else _PlainWriter(data, data_path)
            for first, run in _runs(entries, live):
                frames = _read_run(old, old_path, run)
                damaged_seqs += [id.first_seq + first + place for place in _invalid(frames, run)]
                writer.add(frames)
            writer.finish()
            datasync(data, data_path)
            content, _ = dense_entries(0, lens, [entry.ts for entry in entries], [entry.flags for entry in entries], 0)
            write_all(idx, idx_path, content, 0)
            datasync(idx, idx_path)
            fs.sync_dir(names.folder(root, id.topic_id))
        except BaseException:
            discard(fs, data, data_path)
            discard(fs, idx, idx_path)
            raise
    data.close()
    idx.close()
    return Rewritten(new, sum(lens), damaged_seqs, writer.size if packed else 0)


class _PlainWriter:
    """Writes a .data as `PackedWriter` writes a .zdata."""

    def __init__(self, file: File, path: str) -> None:
        self._file, self._path = file, path
        self.size = 0

    def add(self, data: Buffer) -> None:
        write_all(self._file, self._path, data, self.size)
        self.size += len(data)

    def finish(self) -> None:
        """There is nothing behind the records."""


def rewrite_anew(
    fs: FileSystem, root: str, id: SegmentId, end_seq: int, dead_bits: int, *, packed: bool = False
) -> Rewritten:
    """`rewrite`, also where an earlier attempt could not remove what it had begun, which no manifest names."""
    try:
        return rewrite(fs, root, id, end_seq, dead_bits, packed=packed)
    except FileExistsError:
        remove(fs, root, id._replace(gen=id.gen + 1))
        return rewrite(fs, root, id, end_seq, dead_bits, packed=packed)


def remove(fs: FileSystem, root: str, id: SegmentId) -> None:
    """Unlink the files of a segment, durably; those that are missing are fine. Raises OSError.

    Only once the frame that says so is synced.
    """
    # .tag and .len last: their makers look for .idx when they are done.
    for ext in (names.DATA, names.PACKED, names.IDX, names.TAG, names.LEN):
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(names.path(root, id, ext))
    # Also when there was nothing: a process killed after the unlinks may owe this sync.
    with contextlib.suppress(FileNotFoundError):
        fs.sync_dir(names.folder(root, id.topic_id))


def _read_entries(fs: FileSystem, root: str, id: SegmentId, end_seq: int) -> list[Entry]:
    path = names.path(root, id, names.IDX)
    file = fs.open(path, write=False)
    with contextlib.closing(file):
        content = file.pread((end_seq - id.first_seq) * ENTRY_SIZE, 0)
    try:
        entries = [*idx_entry.parse(content)]
    except IdxDamaged as error:
        raise SegmentCorrupt(path, error.index * ENTRY_SIZE, "the entry fails its check") from error
    if len(entries) < end_seq - id.first_seq:
        raise SegmentCorrupt(path, len(content), f"{len(entries)} entries, not {end_seq - id.first_seq}")
    return entries


def _runs(entries: list[Entry], live: list[bool]) -> Iterator[tuple[int, list[Entry]]]:
    """(index of the first, entries) of records that lie one behind the other, about _CHUNK_BYTES at a time."""
    run: list[Entry] = []
    for index, (entry, alive) in enumerate(zip(entries, live, strict=True)):
        ends = not alive or (run and entry.end - run[0].offset > _CHUNK_BYTES)
        if ends and run:
            yield index - len(run), run
            run = []
        if alive:
            run.append(entry)
    if run:
        yield len(entries) - len(run), run


def _read_run(file: Readable, path: str, run: list[Entry]) -> bytes:
    start, end = run[0].offset, run[-1].end
    frames = file.pread(end - start, start)
    if len(frames) < end - start:
        raise SegmentCorrupt(path, start + len(frames), f"the file ends, records go on to {end}")
    return frames


def _invalid(frames: bytes, run: list[Entry]) -> list[int]:
    """Places in the run of the frames that fail their check."""
    start = run[0].offset
    return [
        place for place, entry in enumerate(run) if not segment_frame.verify(frames, entry.offset - start, entry.len)
    ]
