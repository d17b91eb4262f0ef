"""Requests that several cells of a set answer in part. The client gets one answer.

A broker that is a single process does not use any of this.

Source: docs/cells.md#kafka-clients.
"""

from broker.kafka.spread.asking import AWAY_AFTER_S, MAX_HOPS, METHOD, ask, passable, receiving
from broker.kafka.spread.entries import spread
from broker.kafka.spread.everywhere import all_there, from_all, from_those_there
from broker.kafka.spread.owners import Owners
from broker.kafka.spread.topics_elsewhere import FRESH_S, TopicsElsewhere, ask_others

__all__ = [
    "AWAY_AFTER_S",
    "FRESH_S",
    "MAX_HOPS",
    "METHOD",
    "Owners",
    "TopicsElsewhere",
    "all_there",
    "ask",
    "ask_others",
    "from_all",
    "from_those_there",
    "passable",
    "receiving",
    "spread",
]
