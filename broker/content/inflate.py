"""Decompresses gzip into a bounded number of bytes, in time that is linear in input and output. Pure.

Bodies of HTTP requests and record batches of Kafka clients both use it. A stream may have several members, one after
another (RFC 1952 §2.2). A member costs its sender 20 bytes, and the reader a decompressor of 40 kB: so the number of
members is limited, whatever they hold. zlib copies the input after the end of a member, so it gets the input in slices,
small ones first: a member never makes it copy much more than the member's own size.
"""

from __future__ import annotations

import zlib
from typing import Final

#: The most members of one stream. Blocked gzip, which genomic tools write, has one for each 64 kB.
MAX_MEMBERS: Final = 10_000
_GZIP_FORMAT: Final = 31
#: Input of the first call for a member; it doubles with each call.
_FIRST_SLICE_BYTES: Final = 512
_LARGEST_SLICE_BYTES: Final = 1 << 16
#: Most output of one call.
_CHUNK_BYTES: Final = 1 << 20


class InflateError(Exception):
    """
    InflateError
      TooLarge        more bytes than the caller takes
      TooManyMembers  more than MAX_MEMBERS
      Damaged         not gzip, or it ends too early
    """


class TooLarge(InflateError):
    """It is more than the caller takes. Nothing of it is kept."""


class TooManyMembers(InflateError):
    """It has more members than MAX_MEMBERS."""


class Damaged(InflateError):
    """It is not gzip, fails its checksum, or ends too early."""


def gunzip(data: bytes, max_bytes: int) -> bytes:
    """The contents of all members, at most `max_bytes`. Raises TooLarge, TooManyMembers, Damaged."""
    parts: list[bytes] = []
    source = memoryview(data)
    at = got = members = 0
    while at < len(source):
        members += 1
        if members > MAX_MEMBERS:
            raise TooManyMembers(f"a gzip stream has at most {MAX_MEMBERS} members")
        member = zlib.decompressobj(_GZIP_FORMAT)
        size = _FIRST_SLICE_BYTES
        left: bytes | memoryview = b""
        while not member.eof:
            if not left:
                left = source[at : at + size]
                at += len(left)
                size = min(2 * size, _LARGEST_SLICE_BYTES)
            ended = not left
            try:
                part = member.decompress(left, min(_CHUNK_BYTES, max_bytes - got + 1))
            except zlib.error as error:
                raise Damaged(str(error)) from None
            if ended and not part and not member.eof:
                raise Damaged("it ends too early")
            left = member.unconsumed_tail
            got += len(part)
            if got > max_bytes:
                raise TooLarge(f"it is more than {max_bytes} bytes")
            if part:
                parts.append(part)
        at -= len(member.unused_data)
    return b"".join(parts)
