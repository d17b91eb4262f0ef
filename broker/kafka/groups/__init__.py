"""Classic consumer groups: members, generations and assignments."""

from broker.kafka.groups import consumer_protocol
from broker.kafka.groups.coordinator import Coordinator, Described
from broker.kafka.groups.offsets import Committed, Offsets
from broker.kafka.groups.states import State
from broker.kafka.groups.values import Join, JoinAnswer, Limits

__all__ = [
    "Committed",
    "Coordinator",
    "Described",
    "Join",
    "JoinAnswer",
    "Limits",
    "Offsets",
    "State",
    "consumer_protocol",
]
