"""Segments: files that hold the records of a log after the write-ahead log was trimmed.

`Segments` is what the background parts share, `SegmentStore` opens segments for reading, `SegmentWorker` runs the
rounds of flushing and housekeeping, `Relocator` moves segments to the cold tier. The bytes are in
docs/reference/format.md.
"""

from storage.segments import check, names
from storage.segments.check import iter_frames
from storage.segments.copying import Copy, append, open_writer, read
from storage.segments.details import DetailsCache
from storage.segments.download import SegmentDownload, open_download
from storage.segments.errors import SegmentCorrupt, SegmentError
from storage.segments.files import make_folder, remove_folder, replace_file
from storage.segments.flush_plan import Plan, plan_flush
from storage.segments.flusher import Flusher
from storage.segments.housekeeping import Housekeeping
from storage.segments.io import SegmentGone, error_text, run_segment_job
from storage.segments.metrics import collect_segments
from storage.segments.names import DATA, IDX, SegmentId
from storage.segments.packed import PackedData, open_data, read_as_data
from storage.segments.pins import Pins
from storage.segments.reader import SegmentSlice
from storage.segments.segment_worker import SegmentWorker
from storage.segments.segments import Segments
from storage.segments.store import SegmentStore, id_of
from storage.segments.view import SegmentsView, durable_seq, synced_lsn, view_of
from storage.segments.writer import MAX_JUMP, ActiveSegment

__all__ = [
    "DATA",
    "IDX",
    "MAX_JUMP",
    "ActiveSegment",
    "Copy",
    "DetailsCache",
    "Flusher",
    "Housekeeping",
    "PackedData",
    "Pins",
    "Plan",
    "SegmentCorrupt",
    "SegmentDownload",
    "SegmentError",
    "SegmentGone",
    "SegmentId",
    "SegmentSlice",
    "SegmentStore",
    "SegmentWorker",
    "Segments",
    "SegmentsView",
    "append",
    "check",
    "collect_segments",
    "durable_seq",
    "error_text",
    "id_of",
    "iter_frames",
    "make_folder",
    "names",
    "open_data",
    "open_download",
    "open_writer",
    "plan_flush",
    "read",
    "read_as_data",
    "remove_folder",
    "replace_file",
    "run_segment_job",
    "synced_lsn",
    "view_of",
]
