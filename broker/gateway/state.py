"""How a cell was found when the gateway looked last."""

from __future__ import annotations

import enum


class State(enum.StrEnum):
    """`down`: it accepts no connection. `starting`: it answers, but is not ready."""

    DOWN = "down"
    STARTING = "starting"
    READY = "ready"
