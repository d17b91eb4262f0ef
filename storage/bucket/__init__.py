"""The log of a cell in an object store, and who owns it: slots, seals, bases, takeover, signs of life.

The protocol is made of generators that say what they ask of the store (`requests`); none of it does input or output.
"""

from __future__ import annotations
