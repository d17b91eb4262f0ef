"""The Range header of a request, and conditional requests (RFC 9110 §13 and §14). Pure.

A Range that is malformed, has another unit or asks for several ranges is ignored, as the RFC allows: the answer is
the whole file. The broker's tags are strong; a tag in a header counts only with its quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from broker.content import PreconditionFailed, RangeNotSatisfiable

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


_TAG = re.compile(rb'(W/)?("[^"]*")')


def has_it(headers: Mapping[bytes, bytes], tag: bytes) -> bool:
    """Whether the client says that it has the version `tag` (with its quotes). Raises PreconditionFailed."""
    wanted = headers.get(b"if-match")
    if wanted is not None and wanted.strip() != b"*" and (b"", tag) not in _TAG.findall(wanted):
        raise PreconditionFailed(etag=tag.decode())
    known = headers.get(b"if-none-match", b"")
    return known.strip() == b"*" or tag in (name for _, name in _TAG.findall(known))


def range_counts(headers: Mapping[bytes, bytes], tag: bytes) -> bool:
    """Whether a Range applies to the version `tag`. A client with a part of another version gets the whole."""
    return headers.get(b"if-range", tag).strip() == tag
