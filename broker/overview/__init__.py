"""How the broker is doing: its figures at one moment, those of the last hour, and a stream of them.

Source: docs/reference/api.md#operations.
"""

from broker.overview.busiest import BUSIEST, Busiest, Busy, busiest
from broker.overview.figures import Figures, Named
from broker.overview.history import INTERVAL_S, POINTS, SERIES, TOPIC_INTERVAL_S, TOPIC_POINTS, History, TopicHistory
from broker.overview.overview import EVENT_S, Overview, visible

__all__ = [
    "BUSIEST",
    "EVENT_S",
    "INTERVAL_S",
    "POINTS",
    "SERIES",
    "TOPIC_INTERVAL_S",
    "TOPIC_POINTS",
    "Busiest",
    "Busy",
    "Figures",
    "History",
    "Named",
    "Overview",
    "TopicHistory",
    "busiest",
    "visible",
]
