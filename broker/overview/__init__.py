"""How the broker is doing: its figures at one moment, those of the last hour, and a stream of them.

Source: docs/reference/api.md#operations.
"""

from broker.overview.figures import Figures, Named
from broker.overview.history import INTERVAL_S, POINTS, SERIES, TOPIC_INTERVAL_S, TOPIC_POINTS, History, TopicHistory
from broker.overview.overview import EVENT_S, Overview, visible

__all__ = [
    "EVENT_S",
    "INTERVAL_S",
    "POINTS",
    "SERIES",
    "TOPIC_INTERVAL_S",
    "TOPIC_POINTS",
    "Figures",
    "History",
    "Named",
    "Overview",
    "TopicHistory",
    "visible",
]
