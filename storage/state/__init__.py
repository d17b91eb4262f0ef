"""The state that the log builds: topics, partitions, their records, segments, jobs, cursors and routers. Pure.

Every frame changes it through `storage.log.publisher.apply_unit`, on the live path and in recovery. Nothing here
waits, reads a clock or touches a file.
"""

from storage.state.catalog import Catalog, Topic, leases_durable, shard_of
from storage.state.keys import KeyColumns, KeyRing, key_digest
from storage.state.log import Log, SizedRecords
from storage.state.lookup import FoundRecords, LookedUp, look_up, plan, tag_match, tag_predicate
from storage.state.manifest import COLD, HOT, UNKNOWN, Details, Manifest, Segment, SegmentState, Times, opened
from storage.state.partition_rules import (
    check_partitions,
    check_unpartitioned,
    queue_with_dead_letter,
    refuse_dead_letter,
    refuse_dead_letters,
    refuse_partitions,
)
from storage.state.partition_sets import creation, reconcile_partitions
from storage.state.placement import CELLS, COUNTS, SPREAD, TO_TELL, Placement, ToTell, to_tell_of
from storage.state.placement import encode as encode_placement
from storage.state.producer_table import MAX_EPOCH, MAX_PRODUCER_ID, MAX_SEQUENCE, ProducerSection, ProducerTable, Sent
from storage.state.retained import Eviction, Written
from storage.state.state_table import CODEC, OFFSET, PRODUCER, OwnStates, StatesSection, StateTable
from storage.state.tail import BatchSlice, SliceColumns, consecutive_ranges
from storage.state.watermarks import LossRange

__all__ = [
    "CELLS",
    "CODEC",
    "COLD",
    "COUNTS",
    "HOT",
    "MAX_EPOCH",
    "MAX_PRODUCER_ID",
    "MAX_SEQUENCE",
    "OFFSET",
    "PRODUCER",
    "SPREAD",
    "TO_TELL",
    "UNKNOWN",
    "BatchSlice",
    "Catalog",
    "Details",
    "Eviction",
    "FoundRecords",
    "KeyColumns",
    "KeyRing",
    "Log",
    "LookedUp",
    "LossRange",
    "Manifest",
    "OwnStates",
    "Placement",
    "ProducerSection",
    "ProducerTable",
    "Segment",
    "SegmentState",
    "Sent",
    "SizedRecords",
    "SliceColumns",
    "StateTable",
    "StatesSection",
    "Times",
    "ToTell",
    "Topic",
    "Written",
    "check_partitions",
    "check_unpartitioned",
    "consecutive_ranges",
    "creation",
    "encode_placement",
    "key_digest",
    "leases_durable",
    "look_up",
    "opened",
    "plan",
    "queue_with_dead_letter",
    "reconcile_partitions",
    "refuse_dead_letter",
    "refuse_dead_letters",
    "refuse_partitions",
    "shard_of",
    "tag_match",
    "tag_predicate",
    "to_tell_of",
]
