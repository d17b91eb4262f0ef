"""Builds index entries for adjacent frames, as every segment file has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from storage.format import idx_entry


def dense_entries(
    offset: int, lens: Sequence[int], stamps: Iterable[int], flags: Iterable[int], last_ts: int
) -> tuple[bytes, int]:
    """Index entries of adjacent frames that begin at `offset`, and the ts of the last record."""
    offsets = accumulate(lens, initial=offset)
    stamps, flags = list(stamps), list(flags)
    if not len(lens) == len(stamps) == len(flags):
        raise ValueError(f"{len(lens)} lens, {len(stamps)} stamps and {len(flags)} flags")
    if 0 in lens:
        for index, length in enumerate(lens):
            if length:
                last_ts = stamps[index]
            else:
                stamps[index], flags[index] = last_ts, 0
    return idx_entry.build(offsets, lens, stamps, flags), stamps[-1] if stamps else last_ts
