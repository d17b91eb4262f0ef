"""Stored bodies, made by hand."""

from __future__ import annotations

import struct

from storage.format.binary import OPENING


def binary_body(value: bytes) -> bytes:
    """The stored body of a record of raw bytes."""
    return OPENING + struct.pack(">I", len(value)) + value
