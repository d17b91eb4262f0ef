"""Classic consumer groups: members, generations and assignments."""

from broker.kafka.groups import consumer_protocol
from broker.kafka.groups.cell_offsets import CellOffsets
from broker.kafka.groups.coordinator import Coordinator, Described
from broker.kafka.groups.offsets import Committed, Offsets, code_of_commit
from broker.kafka.groups.states import State
from broker.kafka.groups.values import Join, JoinAnswer, Limits

__all__ = [
    "CellOffsets",
    "Committed",
    "Coordinator",
    "Described",
    "Join",
    "JoinAnswer",
    "Limits",
    "Offsets",
    "State",
    "code_of_commit",
    "consumer_protocol",
]
