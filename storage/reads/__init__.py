"""The read path: from a cursor to records in memory, the log or segments."""

from storage.reads.reader import ROUTING_SCAN_RECORDS, Reader

__all__ = [
    "ROUTING_SCAN_RECORDS",
    "Reader",
]
