"""A stored body as readers of JSON see it."""

from __future__ import annotations

import kernel


def shown(body: bytes) -> bytes:
    """The object with data and meta that a read returns."""
    text = kernel.render_records([(0, 0, b"", b"", body)])
    return b"{" + text.removeprefix(b'{"$seq":0,"$ts":0,')
