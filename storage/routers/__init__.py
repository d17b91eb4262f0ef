"""Routers copy records from one topic to another, each record exactly once even across crashes.

`routers.py` has the operations, `forwarder.py` copies. The pure state is in `storage.state.routers`.
"""

from typing import TYPE_CHECKING

from storage.routers.admin import check_router_name
from storage.routers.metrics import collect_routers
from storage.routers.routers import Routers
from storage.state.routers import RouterState

if TYPE_CHECKING:
    from storage.routers.waiting import Waited

__all__ = [
    "RouterState",
    "Routers",
    "Waited",
    "check_router_name",
    "collect_routers",
]
