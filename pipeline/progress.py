"""The lag of a stream, from the progress that Spark reports for a query. Pure.

Spark gives sources in Python no place in `sources[].metrics`, but reports their offsets.

Source: docs/guides/spark.md#progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pipeline.admission import Offsets, waiting_seqs


def lag(source: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """The durable seqs that a stream has not read yet, by topic and partition.

    `source`: one of `query.lastProgress["sources"]`. Deleted records count, because only their seqs are known.
    """
    return waiting_seqs(_offsets(source.get("endOffset")), _offsets(source.get("latestOffset")))


def _offsets(given: Any) -> Offsets:
    """Spark reports offsets as objects or as JSON text, and null before the first batch."""
    if isinstance(given, str):
        given = msgspec.json.decode(given)
    return msgspec.convert(given, Offsets) if given else {}


__all__ = ["lag"]
