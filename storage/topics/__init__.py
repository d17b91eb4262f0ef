"""Operations on topics and their partitions: create, change, delete, expire."""

from storage.topics import partitioner
from storage.topics.admin import TopicAdmin
from storage.topics.expiry import Expiry
from storage.topics.foreign_parts import ForeignParts
from storage.topics.named_locks import NamedLocks
from storage.topics.placements import Placements
from storage.topics.placing import ENTRY_KIND, Placing, entry_cell
from storage.topics.producers import Producers
from storage.topics.remote_writes import Options as WriteOptions
from storage.topics.remote_writes import RemoteWrites
from storage.topics.states import States

__all__ = [
    "ENTRY_KIND",
    "Expiry",
    "ForeignParts",
    "NamedLocks",
    "Placements",
    "Placing",
    "Producers",
    "RemoteWrites",
    "States",
    "TopicAdmin",
    "WriteOptions",
    "entry_cell",
    "partitioner",
]
