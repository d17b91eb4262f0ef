"""Live reading: sends records to watchers as they are committed.

Source: docs/reference/api.md#live-reading.
"""

from broker.live import cursor, frames, watch_options
from broker.live.cursor import Position
from broker.live.frames import Event
from broker.live.hub import Live
from broker.live.session import TTL_MS, Session, SessionNotFound
from broker.live.watcher import Heartbeat, Watcher

__all__ = [
    "TTL_MS",
    "Event",
    "Heartbeat",
    "Live",
    "Position",
    "Session",
    "SessionNotFound",
    "Watcher",
    "cursor",
    "frames",
    "watch_options",
]
