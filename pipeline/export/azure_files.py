"""pyiceberg's files in Azure, by the names that other programs know: abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/….

pyarrow's file system has the account in its settings, and takes the name of the container alone.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO


class AzureFileIO(PyArrowFileIO):
    """What pyiceberg reads and writes through (`py-io-impl`)."""

    @staticmethod
    def parse_location(location: str, properties: Any = None) -> tuple[str, str, str]:
        """Scheme, container, and path below it."""
        scheme, netloc, path = PyArrowFileIO.parse_location(location, properties or {})
        container, found, _ = netloc.partition("@")
        return (scheme, container, container + path.removeprefix(netloc)) if found else (scheme, netloc, path)
