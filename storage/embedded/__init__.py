"""The engine as a library: values in, records out, consumers by name."""

from storage.embedded import directories
from storage.embedded.batch import Record, RecordBatch, first_record, records_in
from storage.embedded.directories import keyed_path
from storage.embedded.entries import Entry, Value, one_record, records_of
from storage.embedded.following import MAX_BYTES, MAX_RECORDS, Following

__all__ = [
    "MAX_BYTES",
    "MAX_RECORDS",
    "Entry",
    "Following",
    "Record",
    "RecordBatch",
    "Value",
    "directories",
    "first_record",
    "keyed_path",
    "one_record",
    "records_in",
    "records_of",
]
