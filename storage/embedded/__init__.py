"""The engine as a library: values in, records out, consumers by name, with an event loop or without one."""

from storage.embedded import open_engines
from storage.embedded.background import BackgroundLoop
from storage.embedded.batch import Record, RecordBatch, first_record, records_in
from storage.embedded.entries import Entry, Value, one_record, records_of
from storage.embedded.following import MAX_BYTES, MAX_RECORDS, Following
from storage.embedded.keyed import keyed_path

__all__ = [
    "MAX_BYTES",
    "MAX_RECORDS",
    "BackgroundLoop",
    "Entry",
    "Following",
    "Record",
    "RecordBatch",
    "Value",
    "first_record",
    "keyed_path",
    "one_record",
    "open_engines",
    "records_in",
    "records_of",
]
