"""Every way to change a single byte, and every way to cut bytes short."""

from __future__ import annotations

from collections.abc import Iterator


def one_byte_changes(original: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes with the byte there changed), for every offset and all of its 255 other values."""
    for offset, value in enumerate(original):
        changed = bytearray(original)
        for other in range(256):
            if other != value:
                changed[offset] = other
                yield offset, bytes(changed)


def truncations(original: bytes) -> Iterator[bytes]:
    """Every proper prefix, including the empty one."""
    for size in range(len(original)):
        yield original[:size]
