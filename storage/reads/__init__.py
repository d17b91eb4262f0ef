"""The read path: from a cursor to records in memory, the log or segments."""

from storage.reads.reader import ROUTING_SCAN_RECORDS, Reader
from storage.reads.scan import Read, cached

__all__ = [
    "ROUTING_SCAN_RECORDS",
    "Read",
    "Reader",
    "cached",
]
