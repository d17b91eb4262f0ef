"""Shows the broker's console while the demonstration runs: its address, and a browser where there is one."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Mapping

_PATIENCE_S = 5.0
#: Variables that a graphical session sets. Without one, only browsers for terminals could open.
_GRAPHICAL = ("DISPLAY", "WAYLAND_DISPLAY")


def is_built(address: str) -> bool:
    """Whether the broker has the console at this address."""
    try:
        with urllib.request.urlopen(address, timeout=_PATIENCE_S) as answer:
            return answer.status == 200
    except urllib.error.HTTPError:
        return False


def open_browser(address: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Open the address in the browser of this session. Returns whether there is one."""
    if not any(environment.get(name) for name in _GRAPHICAL):
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
