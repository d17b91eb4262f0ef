"""The cold tier: sealed segments move to a directory or an object store and are read from there
(docs/reference/format.md#cold-tier).
"""

from storage.segments.tiering.directory import DirectoryStore
from storage.segments.tiering.named import NamedObject, NamedTier
from storage.segments.tiering.open import open_store, open_tier
from storage.segments.tiering.store import ColdError, ColdMissing, ColdStore, ColdUnavailable
from storage.segments.tiering.tier import TOPIC_FILE, ColdTier, Tier

__all__ = [
    "TOPIC_FILE",
    "ColdError",
    "ColdMissing",
    "ColdStore",
    "ColdTier",
    "ColdUnavailable",
    "DirectoryStore",
    "NamedObject",
    "NamedTier",
    "Tier",
    "open_store",
    "open_tier",
]
