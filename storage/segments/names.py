"""Names of segment files below a data directory.

topics/<topic_id, 16 hex>/seg-<first_seq, 20 digits>[.<gen, decimal, absent for 0>].data|.zdata|.idx|.tag|.len

Source: docs/reference/format.md#directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from storage.platform import layout

DATA = "data"
IDX = "idx"
TAG = "tag"
LEN = "len"
#: Takes the place of .data in a packed segment.
PACKED = "zdata"
TOPICS = "topics"

_NAME = re.compile(r"seg-(\d{20})(?:\.([1-9]\d{0,19}))?\.(data|zdata|idx|tag|len)", re.ASCII)
_FOLDER = re.compile(r"[0-9a-f]{16}")


class SegmentId(NamedTuple):
    """Identifies the files of a segment. A rewritten segment gets the next generation, so no id is used twice.

    `packed`: its records are in a .zdata. That does not change for a generation, as long as it is in the hot tier.
    """

    topic_id: int
    first_seq: int
    gen: int = 0
    packed: bool = False

    @property
    def plain(self) -> SegmentId:
        """The id under which the records are in a plain .data, as in the cold store and in backups."""
        return self._replace(packed=False) if self.packed else self

    @property
    def records_ext(self) -> str:
        """The extension of the file with its records."""
        return PACKED if self.packed else DATA


def topics_folder(root: str) -> str:
    return layout.join(root, TOPICS)


def folder(root: str, topic_id: int) -> str:
    """The folder with the segments of a log."""
    return layout.join(root, TOPICS, f"{topic_id:016x}")


def file_name(first_seq: int, gen: int, ext: str) -> str:
    generation = f".{gen}" if gen else ""
    return f"seg-{first_seq:020d}{generation}.{ext}"


def data_name(first_seq: int, gen: int) -> str:
    return file_name(first_seq, gen, DATA)


def idx_name(first_seq: int, gen: int) -> str:
    return file_name(first_seq, gen, IDX)


def path(root: str, id: SegmentId, ext: str) -> str:
    """One of a segment's files: `ext` is DATA, PACKED, IDX, TAG or LEN."""
    return layout.join(folder(root, id.topic_id), file_name(id.first_seq, id.gen, ext))


def records_path(root: str, id: SegmentId) -> str:
    """The file with the segment's records; `packed.open_data` reads it."""
    return path(root, id, id.records_ext)


def id_of_path(path: str) -> SegmentId | None:
    """The segment that a file belongs to, by the names of file and folder; None when it is not a segment file."""
    folder, _, name = path.rpartition("/")
    parsed = parse_name(name)
    topic_id = folder.rpartition("/")[2]
    if parsed is None or not _FOLDER.fullmatch(topic_id):
        return None
    return SegmentId(int(topic_id, 16), parsed[0], parsed[1], parsed[2] == PACKED)


def parse_name(name: str) -> tuple[int, int, str] | None:
    """(first_seq, gen, ext) of a segment file's name; None for any other name, also for another spelling."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2] or 0), match[3]) if match else None


def topic_ids(names: Iterable[str]) -> list[int]:
    """Ids of the logs that have a folder among `names`, ascending."""
    return sorted(int(name, 16) for name in names if _FOLDER.fullmatch(name))
