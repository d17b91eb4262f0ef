"""The cold tier: sealed segments move to a directory or an object store and are read from there
(docs/reference/format.md#cold-tier).
"""
