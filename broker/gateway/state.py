"""The state of a cell when the gateway last asked."""

from __future__ import annotations

import enum


class State(enum.StrEnum):
    """`down`: the cell accepts no connection. `starting`: it answers, but is not ready."""

    DOWN = "down"
    STARTING = "starting"
    READY = "ready"
