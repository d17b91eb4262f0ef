"""Operations on topics and their partitions: create, change, delete, expire."""

from storage.topics import partitioner
from storage.topics.admin import TopicAdmin
from storage.topics.entries import ENTRY_KIND, entry_cell
from storage.topics.expiry import Expiry
from storage.topics.named_locks import NamedLocks
from storage.topics.placing import Placing
from storage.topics.producers import Producers
from storage.topics.states import States

__all__ = [
    "ENTRY_KIND",
    "Expiry",
    "NamedLocks",
    "Placing",
    "Producers",
    "States",
    "TopicAdmin",
    "entry_cell",
    "partitioner",
]
