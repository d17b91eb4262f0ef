"""The project's files, as the rules see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The folder of the distribution topics-client, which contains the package `topics_client`.
CLIENT = "clients/python"
CODE_FOLDERS = (
    "broker",
    "clients",
    "console",
    "demo",
    "examples",
    "kernel",
    "loadtest",
    "pipeline",
    "schemas",
    "storage",
    "tests",
)
# Made by tools, or data: not part of the project.
NOT_OURS = {".git", ".venv", "venv", "build", "dist", "data", "node_modules", "static", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Source:
    """One text file: its path from the project's root with forward slashes, and its text."""

    path: str
    text: str

    @property
    def folder(self) -> str:
        """The top-level folder, '' for a file beside the README. That of the client's package is `topics_client`."""
        path = self._from_path
        return path.partition("/")[0] if "/" in path else ""

    @property
    def module(self) -> str:
        """The dotted name of a Python file."""
        return self._from_path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def _from_path(self) -> str:
        """The path from the folder at which an import begins."""
        return self.path.removeprefix(f"{CLIENT}/")


def walk(folder: Path) -> Iterator[Path]:
    """Files below `folder`, sorted, without caches and files made by tools."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            hidden = entry.name.startswith(".") and entry.name != ".ci"
            if not hidden and entry.name not in NOT_OURS and not entry.name.endswith(".egg-info"):
                yield from walk(entry)
        elif entry.is_file() and entry.name not in NOT_OURS:  # in a worktree of Git, .git is a file
            yield entry


@lru_cache(maxsize=1)
def text_files() -> tuple[Source, ...]:
    """Every file of the project that is UTF-8 text. Golden files may have any bytes and are left out, and so are
    pictures and the compiled kernel."""
    sources: list[Source] = []
    for path in walk(ROOT):
        if path.suffix in (".bin", ".so", ".webp"):
            continue
        sources.append(Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
    return tuple(sources)


@lru_cache(maxsize=1)
def python_files() -> tuple[Source, ...]:
    """Every Python file of the project."""
    return tuple(source for source in text_files() if source.path.endswith(".py"))
