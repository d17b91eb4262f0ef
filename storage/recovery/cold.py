"""Cold segments at a start: their .idx must be local, their .data must not. Blocking.

Source: docs/reference/format.md#segments, docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import contextlib

from storage.errors import ColdNotConfigured, OpenError
from storage.format import ENTRY_SIZE, idx_entry
from storage.segments import SegmentCorrupt, SegmentId, SegmentStore, id_of, make_folder, names, replace_file
from storage.segments.tiering import ColdMissing, ColdTier, ColdUnavailable
from storage.segments.tiering.relocation import remove_hot_data
from storage.state import Segment


def reconcile_cold(store: SegmentStore, topic_id: int, segment: Segment) -> None:
    """Make the local files of a cold segment match the manifest. Raises SegmentError, OpenError, OSError."""
    id = id_of(topic_id, segment)
    if store.cold is None:
        raise ColdNotConfigured(
            f"Segment {names.data_name(id.first_seq, id.gen)} of log {topic_id} is in the cold tier, and none is "
            "configured: start with the TOPICS_COLD_DIR that was used before."
        )
    try:
        found = store.fs.file_size(names.path(store.root, id, names.IDX))
    except FileNotFoundError:
        found = -1
    if found != segment.count * ENTRY_SIZE:
        restore_idx(store, id, segment.count)
    # The frame that made it cold is synced. A process killed before the unlink leaves this file.
    if any(store.fs.exists(names.path(store.root, id, ext)) for ext in (names.DATA, names.PACKED)):
        remove_hot_data(store.fs, store.root, id)


def restore_idx(store: SegmentStore, id: SegmentId, count: int) -> None:
    """Write a complete .idx: valid local entries stay, the others come from the .idx in the cold store.

    Raises SegmentCorrupt when the cold store lacks them too, OpenError when it cannot be read now.
    """
    path = names.path(store.root, id, names.IDX)
    if not isinstance(store.cold, ColdTier):
        # A base has an older one. The next owner with an empty directory uses it, and replays the deletions after it.
        raise SegmentCorrupt(path, 0, "the index of a cold segment is damaged: empty the directory, the bucket has it")
    key = store.cold.key(id, names.IDX)
    try:
        cold_idx = store.cold.store.get(key)
    except ColdMissing as error:
        raise SegmentCorrupt(path, 0, "the index is damaged or missing, and so is the one in the cold tier") from error
    except ColdUnavailable as error:
        raise OpenError(f"{path} is damaged, and must be read from the cold tier. {error.message}") from error
    if len(cold_idx) != count * ENTRY_SIZE:
        raise SegmentCorrupt(path, 0, f"the index in the cold tier has {len(cold_idx)} bytes, not {count * ENTRY_SIZE}")
    content = bytearray(cold_idx)
    here = _read(store, path)[: len(content)]
    here = here[: len(here) // ENTRY_SIZE * ENTRY_SIZE]
    damaged = set(idx_entry.damaged(here))
    for index in range(len(here) // ENTRY_SIZE):
        if index not in damaged:
            at = index * ENTRY_SIZE
            content[at : at + ENTRY_SIZE] = here[at : at + ENTRY_SIZE]
    if bad := idx_entry.damaged(bytes(content)):
        raise SegmentCorrupt(path, bad[0] * ENTRY_SIZE, "the entry fails its check, here and in the cold tier")
    make_folder(store.fs, store.root, id.topic_id)
    replace_file(store.fs, path, bytes(content))
    store.forget(id)


def _read(store: SegmentStore, path: str) -> bytes:
    try:
        file = store.fs.open(path, write=False)
    except FileNotFoundError:
        return b""
    with contextlib.closing(file):
        return file.pread(file.size(), 0)
