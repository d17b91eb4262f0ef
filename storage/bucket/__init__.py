"""The log of a cell in an object store, and its owner: slots, seals, bases, takeover, signs of life.

The protocol consists of generators that yield requests to the store (`requests`). None of it does I/O.
"""

from __future__ import annotations

from storage.bucket.base import Named
from storage.bucket.log_file import Body, lay_out

__all__ = ["Body", "Named", "lay_out"]
