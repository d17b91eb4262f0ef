"""Live reading: sends records to watchers as they are committed.

Source: docs/reference/api.md#live-reading.
"""

from broker.live import cursor, frames, watch_options
from broker.live.frames import Event
from broker.live.hub import Live
from broker.live.session import TTL_MS, Session
from broker.live.watcher import Heartbeat, Watcher

__all__ = [
    "TTL_MS",
    "Event",
    "Heartbeat",
    "Live",
    "Session",
    "Watcher",
    "cursor",
    "frames",
    "watch_options",
]
