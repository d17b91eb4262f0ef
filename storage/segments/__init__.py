"""Segments: files that hold the records of a log after the write-ahead log was trimmed.

`Segments` is what the background parts share, `SegmentStore` opens segments for reading, `SegmentWorker` runs the
rounds of flushing and housekeeping, `Relocator` moves segments to the cold tier. The bytes are in
docs/reference/format.md.
"""
