"""The log of a cell in an object store, and who owns it: slots, seals, bases, takeover, signs of life.

The protocol is made of generators that say what they ask of the store (`requests`); none of it does input or output.
"""

from __future__ import annotations

from storage.bucket.base import Named
from storage.bucket.log_file import Body, lay_out

__all__ = ["Body", "Named", "lay_out"]
