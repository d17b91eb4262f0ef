"""Opens the source of a read: a broker, the directory of a stopped one, or a cold tier."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Protocol

from pipeline.broker import Broker
from pipeline.local import ColdOrigin, DirectoryOrigin, is_data_directory
from pipeline.planning import Catalogue
from pipeline.split_reader import Origin


class FullOrigin(Origin, Catalogue, Protocol):
    """An origin for both planning and reading in a task."""


@contextmanager
def open_origin(
    *, url: str = "", token: str | None = None, path: str = "", cold_path: str = ""
) -> Generator[FullOrigin]:
    """Open the origin at a URL or a path for the block. Raises PipelineError."""
    if url:
        with closing(Broker(url, token)) as broker:
            yield broker
    elif is_data_directory(path):
        with closing(DirectoryOrigin(path, cold_path)) as directory:
            yield directory
    else:
        with closing(ColdOrigin(path)) as cold:
            yield cold
