"""The Range header of a request: one range of bytes (RFC 9110 §14). Pure.

A header that is malformed, has another unit or asks for several ranges is ignored, as the RFC allows: the answer is
the whole file.
"""

from __future__ import annotations

import re

from broker.content import RangeNotSatisfiable

# This many digits exceed the size of any file, and are still quick to parse.
_ONE_RANGE = re.compile(rb"bytes=[ \t]*(\d{0,40})[ \t]*-[ \t]*(\d{0,40})[ \t]*", re.IGNORECASE)


def parse(header: bytes | None, size: int) -> tuple[int, int] | None:
    """(begin, end), end exclusive, within `size` bytes; None for all of them. Raises RangeNotSatisfiable."""
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
