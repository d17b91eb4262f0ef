"""The cold store of a data directory, decoded from the specification and docs/reference/format.md alone.

Objects are given as key → a function that gives the bytes, as files are. Readings, where a choice is left:

- `.data` is put before the log says so, and is exactly what was sealed; it may also be here still, left over.
- The `.idx` there may lack deletions that the one here has, and differs in nothing else.
- topic.json may be behind: it names objects that are all there, of segments that the log has or had. Records below its
  end_seq are in the segments it names, or gone: so none lives in another segment, or in the log alone.
- There is none of a log that has not moved a segment yet; a crash may come between the segment and its topic.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tests.support.spec_frames import SpecViolation
from tests.support.spec_segment import SegmentIndexEntry, SegmentViolation, decode_idx
from tests.support.spec_snapshot import are_renewals

Objects: TypeAlias = Mapping[str, Callable[[], bytes]]

_KEYS = {"cluster_id", "name", "partition", "partitions", "epoch", "floors", "loss", "segments", "end_seq"}
#: And this one, which older files do not have.
_SINCE = {"topic"}
#: This one is left out when it is empty.
_MAYBE = {"renewals"}
_OF_A_LOG = re.compile(r"topics/[0-9a-f]{16}/(?:seg-[0-9]{20}(?:\.[1-9][0-9]*)?\.(?:data|idx)|topic\.json)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFile:
    """A topic.json: [first_seq, end_seq) and gen of the segments that count."""

    name: str
    key: str
    partition: int
    segments: tuple[tuple[int, int, int], ...]
    end_seq: int


class ColdStore:
    """What a cluster has in the store. `store` may contain the folders of other clusters too."""

    def __init__(self, store: Objects, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        prefix = f"{cluster_id}/"
        self._objects = {key.removeprefix(prefix): get for key, get in store.items() if key.startswith(prefix)}
        if ".topics-cold" in self._objects and self._objects[".topics-cold"]() != f"{cluster_id}\n".encode():
            raise SpecViolation(f"{prefix}.topics-cold", 0, "it is not the cluster id and a newline")
        for key in self._objects.keys() - {".topics-cold"}:
            if not _OF_A_LOG.fullmatch(key) and not key.endswith(".tmp"):
                raise SpecViolation(prefix + key, 0, "the specification knows no such object")

    def get(self, path: str) -> bytes:
        """The object of a file that is named as in the data directory. Raises SpecViolation."""
        if path not in self._objects:
            raise SpecViolation(f"{self._cluster_id}/{path}", 0, "the log says that it is in the cold store")
        return self._objects[path]()

    def judge_idx(self, path: str, here: bytes) -> None:
        """Compare the .idx there with the one here."""
        try:
            pairs = zip(decode_idx(self.get(path), path), decode_idx(here, path), strict=True)
            wrong = [index for index, (there, mine) in enumerate(pairs) if there not in (mine, _undeleted(mine))]
        except (SegmentViolation, ValueError) as error:
            raise SpecViolation(f"{self._cluster_id}/{path}", 0, str(error)) from error
        if wrong:
            raise SpecViolation(f"{self._cluster_id}/{path}", 20 * wrong[0], "the entry here says something else")

    def topic_file(self, topic_id: int) -> TopicFile | None:
        """Compare the log's topic.json with the objects. Raises SpecViolation."""
        folder = f"topics/{topic_id:016x}"
        key = f"{folder}/topic.json"
        if key not in self._objects:
            return None
        fields: dict[str, Any] = json.loads(self._objects[key]())
        key = f"{self._cluster_id}/{key}"
        if fields.keys() - _SINCE - _MAYBE != _KEYS or fields["cluster_id"] != self._cluster_id:
            raise SpecViolation(key, 0, f"{sorted(fields)}, of {fields.get('cluster_id')}")
        if "renewals" in fields and not are_renewals(fields["renewals"]):
            raise SpecViolation(key, 0, f"no renewals: {fields['renewals']}")
        segments: list[tuple[int, int, int]] = []
        for each in fields["segments"]:
            if each.keys() != {"first_seq", "end_seq", "gen"} or each["first_seq"] >= each["end_seq"]:
                raise SpecViolation(key, 0, f"no segment: {each}")
            if segments and each["first_seq"] < segments[-1][1]:
                raise SpecViolation(key, 0, f"{each} does not come behind {segments[-1]}")
            stem = f"seg-{each['first_seq']:020d}" + (f".{each['gen']}" if each["gen"] else "")
            for ending in ("data", "idx"):
                self.get(f"{folder}/{stem}.{ending}")
            segments.append((each["first_seq"], each["end_seq"], each["gen"]))
        return TopicFile(
            name=fields["name"],
            key=key,
            partition=fields["partition"],
            segments=tuple(segments),
            end_seq=fields["end_seq"],
        )


def _undeleted(entry: SegmentIndexEntry) -> SegmentIndexEntry:
    return replace(entry, deleted=False)
