"""pyiceberg's files in a directory, synced before the catalog names them: a power cut loses none that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from pipeline.export.store import sync_file


class SyncedFileIO(PyArrowFileIO):
    """What pyiceberg reads and writes through (`py-io-impl`)."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write, which is durable when it is closed."""
        found = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        return _Synced(location, path, found._filesystem) if scheme == "file" else found  # pyright: ignore


class _Synced(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        return _Stream(super().create(overwrite), Path(self._path))


class _Stream:
    """An output stream that syncs its file."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream = stream
        self._path = path

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._stream.closed:
            self._stream.close()
            sync_file(self._path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
