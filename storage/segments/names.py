"""Names of segment files below a data directory, and nothing else.

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
#: In the place of .data where a segment is packed.
PACKED = "zdata"
TOPICS = "topics"

_NAME = re.compile(r"seg-(\d{20})(?:\.([1-9]\d{0,19}))?\.(data|zdata|idx|tag|len)", re.ASCII)
_FOLDER = re.compile(r"[0-9a-f]{16}")


class SegmentId(NamedTuple):
    """Names a segment for good: what is rewritten gets the next generation.

    `packed`: its records are in a .zdata here. It goes with the generation, as long as that is in the hot tier.
    """

    topic_id: int
    first_seq: int
    gen: int = 0
    packed: bool = False

    @property
    def plain(self) -> SegmentId:
        """What the segment is called where its records are as they are in a .data."""
        return self._replace(packed=False) if self.packed else self

    @property
    def records_ext(self) -> str:
        """Ending of the file that its records are in."""
        return PACKED if self.packed else DATA


def topics_folder(root: str) -> str:
    return layout.join(root, TOPICS)


def folder(root: str, topic_id: int) -> str:
    """Where the segments of a log are."""
    return layout.join(root, TOPICS, f"{topic_id:016x}")


def file_name(first_seq: int, gen: int, ext: str) -> str:
    generation = f".{gen}" if gen else ""
    return f"seg-{first_seq:020d}{generation}.{ext}"


def data_name(first_seq: int, gen: int) -> str:
    return file_name(first_seq, gen, DATA)


def idx_name(first_seq: int, gen: int) -> str:
    return file_name(first_seq, gen, IDX)


def tag_name(first_seq: int, gen: int) -> str:
    return file_name(first_seq, gen, TAG)


def path(root: str, id: SegmentId, ext: str) -> str:
    """One of a segment's files: `ext` is DATA, PACKED, IDX, TAG or LEN."""
    return layout.join(folder(root, id.topic_id), file_name(id.first_seq, id.gen, ext))


def records_path(root: str, id: SegmentId) -> str:
    """The file that the segment's records are in: `data_file.open_data` reads it."""
    return path(root, id, id.records_ext)


def id_of_path(path: str) -> SegmentId | None:
    """The segment whose file this is, by its name and that of its folder; None: it is no segment's."""
    folder, _, name = path.rpartition("/")
    parsed = parse_name(name)
    topic_id = folder.rpartition("/")[2]
    if parsed is None or not _FOLDER.fullmatch(topic_id):
        return None
    return SegmentId(int(topic_id, 16), parsed[0], parsed[1], parsed[2] == PACKED)


def parse_name(name: str) -> tuple[int, int, str] | None:
    """(first_seq, gen, ext) of a segment file's name; None for any other, one spelled differently included."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2] or 0), match[3]) if match else None


def topic_ids(names: Iterable[str]) -> list[int]:
    """Ids of the logs that have a folder among `names`, ascending."""
    return sorted(int(name, 16) for name in names if _FOLDER.fullmatch(name))
