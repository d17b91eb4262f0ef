"""Operations on topics and their partitions: create, change, delete, expire."""

from storage.topics import partitioner
from storage.topics.admin import TopicAdmin
from storage.topics.expiry import Expiry
from storage.topics.producers import Producers
from storage.topics.states import States

__all__ = [
    "Expiry",
    "Producers",
    "States",
    "TopicAdmin",
    "partitioner",
]
