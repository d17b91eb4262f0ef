"""Segments: the records of a log once they have left the write-ahead log. docs/format.md gives the bytes."""
