"""Conditional requests: If-Match, If-None-Match, If-Range (RFC 9110 §13). Pure.

The broker's tags are strong. A tag in a header counts only with its quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from broker.content import PreconditionFailed

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
