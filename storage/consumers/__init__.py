"""Consumers: durable named readers of one topic each.

The engine uses `consumers`. The pure state is in `storage.state.consumers`.
"""

from storage.consumers.consumers import Consumers
from storage.consumers.metrics import collect_consumers
from storage.consumers.reclaim import Reclaim

__all__ = [
    "Consumers",
    "Reclaim",
    "collect_consumers",
]
