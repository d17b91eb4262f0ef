"""The Range header of a request for bytes: one range, no more (RFC 9110 §14). Pure.

A header that is malformed, of another unit or asks for several ranges is ignored, as the RFC allows: the whole is sent.
"""

from __future__ import annotations

import re

from broker.content import RangeNotSatisfiable

# So many digits say more than any file has, and are still quick to read.
_ONE_RANGE = re.compile(rb"bytes=[ \t]*(\d{0,40})[ \t]*-[ \t]*(\d{0,40})[ \t]*", re.IGNORECASE)


def parse(header: bytes | None, size: int) -> tuple[int, int] | None:
    """(begin, end), end exclusive, of `size` bytes; None for all of them. Raises RangeNotSatisfiable."""
    found = _ONE_RANGE.fullmatch(header) if header is not None else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        suffix = min(int(found[2]), size)
        if not suffix:
            raise RangeNotSatisfiable(size)
        return size - suffix, size
    begin = int(found[1])
    last = int(found[2]) if found[2] else max(begin, size - 1)
    if last < begin:
        return None
    if begin >= size:
        raise RangeNotSatisfiable(size)
    return begin, min(last + 1, size)
