"""Segments: the records of a log once they have left the write-ahead log. docs/reference/format.md gives the bytes."""
