"""Routers and their progress, as recorded in the log. Pure."""

from storage.state.routers import section
from storage.state.routers.cycles import find_cycle
from storage.state.routers.router import MAX_HOPS, Definition, Guarantee, Router, RouterState, Start
from storage.state.routers.routes import Routes
from storage.state.routers.section import RouterSection

__all__ = [
    "MAX_HOPS",
    "Definition",
    "Guarantee",
    "Router",
    "RouterSection",
    "RouterState",
    "Routes",
    "Start",
    "find_cycle",
    "section",
]
