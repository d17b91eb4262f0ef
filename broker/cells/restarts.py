"""How often the supervisor has restarted each process of a set. The supervisor writes a file, and gateways read it.

Source: docs/cells.md#processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "restarts.json"


def write_restarts(folder: Path, restarts: Mapping[str, int]) -> None:
    """Replace the file in the folder of the sockets. `restarts`: the number for each process name. Raises OSError."""
    temporary = folder / f"{_FILE}.tmp"
    temporary.write_bytes(msgspec.json.encode(restarts))
    temporary.replace(folder / _FILE)


def read_restarts(folder: Path) -> dict[str, int]:
    """Read the file. Empty if there is none, or if it cannot be read."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}
