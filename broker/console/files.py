"""Reads the built files. Each is there as it is, and once more with `.gz` behind its name.

Names of all files but the page contain a hash of their content, so a browser may keep them forever.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final, NamedTuple

#: The name of the page.
PAGE: Final = "index.html"
_FOLDER: Final = "static"
_TYPES: Final = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
}


class ConsoleFile(NamedTuple):
    """One file. `packed`: its gzip."""

    body: bytes
    packed: bytes
    content_type: bytes


class ConsoleFiles:
    """The files of one build, read at the first use. Only what is in the folder can be asked for."""

    def __init__(self) -> None:
        self._found: dict[str, ConsoleFile] | None = None

    def find(self, name: str) -> ConsoleFile | None:
        """The file with this name; None: there is none, or the console was not built."""
        if self._found is None:
            self._found = _read()
        return self._found.get(name)


def _read() -> dict[str, ConsoleFile]:
    folder = files(__package__ or "").joinpath(_FOLDER)
    if not folder.is_dir():
        return {}
    bodies = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}
    return {
        name: ConsoleFile(body, bodies[f"{name}.gz"], _TYPES[name.rpartition(".")[2]])
        for name, body in bodies.items()
        if f"{name}.gz" in bodies
    }
