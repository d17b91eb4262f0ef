"""The log of a cell in an object store, and its owner: slots, seals, bases, takeover, signs of life.

The protocol consists of generators that yield requests to the store (`requests`). None of it does I/O.
"""

from __future__ import annotations

from storage.bucket import keys, limits
from storage.bucket.base import (
    Base,
    BaseMissing,
    BaseTaken,
    Head,
    Manifest,
    Named,
    Trimmer,
    get_object,
    get_piece,
    head_of,
    newest_head,
    put_base,
    put_object,
    read_base,
)
from storage.bucket.checks import ClockWrong, StoreBroken, check_clock, check_slot
from storage.bucket.cluster import (
    COLD_FORMAT,
    FORMATS,
    Cluster,
    NoCluster,
    format_here,
    found,
    read_cluster,
    read_record,
    revise,
)
from storage.bucket.driver import Bucket, Driver, open_bucket
from storage.bucket.keys import sign
from storage.bucket.location import IN_BUCKET, Location, open_location, parse_location
from storage.bucket.log_file import Body, SlotFileSystem, lay_out
from storage.bucket.probe import StoreRefused, probe
from storage.bucket.quiet import signs_of_life
from storage.bucket.requests import (
    Steps,
    Unanswered,
    delete,
    get_patiently,
    get_range_patiently,
    names_patiently,
    stat_patiently,
)
from storage.bucket.signs import TTL_S, OwnTime, forget_signs, show_first, show_signs
from storage.bucket.slot import ANYONE, DamagedSlot, Seal
from storage.bucket.slots import Fenced, GivenUp, Slots
from storage.bucket.takeover import Candidate, CellMissing, Reading, Taken, begin_cell, begun_by, read_cell, take_over
from storage.bucket.times import SECONDS, RequestTimes

__all__ = [
    "ANYONE",
    "COLD_FORMAT",
    "FORMATS",
    "IN_BUCKET",
    "SECONDS",
    "TTL_S",
    "Base",
    "BaseMissing",
    "BaseTaken",
    "Body",
    "Bucket",
    "Candidate",
    "CellMissing",
    "ClockWrong",
    "Cluster",
    "DamagedSlot",
    "Driver",
    "Fenced",
    "GivenUp",
    "Head",
    "Location",
    "Manifest",
    "Named",
    "NoCluster",
    "OwnTime",
    "Reading",
    "RequestTimes",
    "Seal",
    "SlotFileSystem",
    "Slots",
    "Steps",
    "StoreBroken",
    "StoreRefused",
    "Taken",
    "Trimmer",
    "Unanswered",
    "begin_cell",
    "begun_by",
    "check_clock",
    "check_slot",
    "delete",
    "forget_signs",
    "format_here",
    "found",
    "get_object",
    "get_patiently",
    "get_piece",
    "get_range_patiently",
    "head_of",
    "keys",
    "lay_out",
    "limits",
    "names_patiently",
    "newest_head",
    "open_bucket",
    "open_location",
    "parse_location",
    "probe",
    "put_base",
    "put_object",
    "read_base",
    "read_cell",
    "read_cluster",
    "read_record",
    "revise",
    "show_first",
    "show_signs",
    "sign",
    "signs_of_life",
    "stat_patiently",
    "take_over",
]
