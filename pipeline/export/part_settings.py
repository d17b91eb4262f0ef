"""The form of an export's files. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Formats of exports: two kinds of tables, and plain files with manifests beside them.
DELTA, ICEBERG, PARQUET, JSON = "delta", "iceberg", "parquet", "json"
FORMATS = (DELTA, ICEBERG, PARQUET, JSON)
TABLES = (DELTA, ICEBERG)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSettings:
    """Settings of files. `hourly`, `tagged`: a file has records of one hour, and of one tag."""

    kind: str = PARQUET
    hourly: bool = False
    tagged: bool = False
    compression: str = "zstd"
