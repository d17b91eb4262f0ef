"""The .tag sidecar: loaded at first use, and made from .data when it is missing, damaged or out of date.

A sidecar is derived data. If it cannot be written, the search is answered from memory and the next search makes it
again. It records how many bytes of .data it was made from, so a sidecar of a segment that has grown since is not used.
It is written under a temporary name, synced, renamed, and the folder is synced. If a crash leaves the temporary file,
the next writer or a sweep removes it.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import kernel
from kernel import Kind, Part
from storage.format import HAS_TAG, TagFile, TagFileDamaged, TagFileUnsupported, idx_entry, tag_file
from storage.platform import FileSystem
from storage.segments import names
from storage.segments.chunks import chunks, columns
from storage.segments.errors import SegmentBroken, SegmentCorrupt
from storage.segments.files import replace_file
from storage.segments.handles import OpenSegments, SegmentFiles
from storage.segments.names import SegmentId

_LOCKS = 16


class TagSidecars:
    """Finds or makes the sidecar of an open segment. Every method may be called from any thread."""

    def __init__(self, fs: FileSystem, root: str, segments: OpenSegments) -> None:
        self._fs = fs
        self._root = root
        self._segments = segments
        # One thread at a time makes the sidecar of a segment; others would do the same work. Readers take no lock.
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        self._counting = threading.Lock()
        #: Sidecars that were made but could not be written.
        self.unwritten = 0

    def of(self, files: SegmentFiles, count: int) -> TagFile:
        """Tags of exactly the first `count` records, valid within the caller's lease.

        Raises SegmentCorrupt when a live record with a tag, or an index entry, fails its check, and OSError.
        """
        data_bytes = files.entry(count - 1).end if count else 0
        if files.tags is not None and _fits(files.tags, files.id, data_bytes):
            return files.tags
        with self._locks[hash(files.id) % _LOCKS]:
            if files.tags is not None:
                if _fits(files.tags, files.id, data_bytes):
                    return files.tags
                # The segment has grown. Others may still use the old sidecar, which stays until they have finished.
                self._segments.forget(files.id)
            path = names.path(self._root, files.id, names.TAG)
            tags = self._load(files, path, data_bytes)
            if tags is not None:
                return tags
            content = tag_file.encode(files.id.first_seq, files.id.gen, data_bytes, _pairs(files, count))
            try:
                self._write(files.id, path, content)
                tags = self._load(files, path, data_bytes)
            except (OSError, SegmentBroken):
                with self._counting:
                    self.unwritten += 1
            return tags or TagFile.open(content)

    def _load(self, files: SegmentFiles, path: str, data_bytes: int) -> TagFile | None:
        """The sidecar on disk, if it can be read, is valid and belongs to this state of the segment."""
        try:
            file = self._segments.open_file(path)
        except FileNotFoundError:
            return None
        found = False
        try:
            tags = TagFile.open(file.pread, file.size())
            if not _fits(tags, files.id, data_bytes):
                return None
            if files.tags is not None:
                return TagFile.open(file.pread(file.size(), 0))
            files.keep_tags(tags, file)
            found = True
        except (TagFileDamaged, TagFileUnsupported, OSError):
            return None  # it is rebuilt from .data
        finally:
            if not found:
                file.close()
        return tags

    def _write(self, id: SegmentId, path: str, content: bytes) -> None:
        replace_file(self._fs, path, content)
        if not self._fs.exists(names.path(self._root, id, names.IDX)):
            # The segment was removed meanwhile: .idx goes before .tag, so either this or the remover sees it.
            self._fs.unlink(path)


def _fits(tags: TagFile, id: SegmentId, data_bytes: int) -> bool:
    return (tags.first_seq, tags.gen, tags.data_bytes) == (id.first_seq, id.gen, data_bytes)


def _pairs(files: SegmentFiles, count: int) -> Iterator[tuple[bytes, int]]:
    """(tag, seq) of the live records among the first `count`. Deleted ones are left out: they never come back."""
    entries = columns(files, count)
    offsets, lens, first_seq = entries.offsets, entries.lens, files.id.first_seq
    wanted = [number for number, flags in enumerate(entries.flags) if flags & (HAS_TAG | idx_entry.DELETED) == HAS_TAG]
    for numbers, data, base in chunks(files, entries, wanted):
        for number in numbers:
            at = offsets[number] - base
            # A damaged tag would hide its record from every search, so it is an error.
            seq, end = first_seq + number, at + lens[number]
            frames, _, reason = kernel.scan(
                data, Kind.SEGMENT, at, min(end, len(data)), topic_id=files.id.topic_id, first_seq=seq
            )
            [tag] = kernel.cut(data, frames, Part.TAG) or [b""]
            if reason not in ("", "other") or (frames and frames.end != end):
                raise SegmentCorrupt(files.data_path, offsets[number], "the frame fails its check")
            if not tag:
                raise SegmentCorrupt(files.data_path, offsets[number], f"it is not record {seq} with a tag")
            yield tag, seq
