"""One frame of the write-ahead log.

    off  size  field
    0    4     frame_len u32   bytes after this field = 42 + node_len + tag_len + data_len
    4    1     type u8         FrameType
    5    1     flags u8        FrameFlag bits 0-4; bits 5-7 hop count of a routed copy
    6    8     topic_id u64    0 for frames that belong to no log
    14   8     seq u64         0 for frames other than Append
    22   8     ts u64          ms since the epoch
    30   2     node_len u16
    32   2     tag_len u16
    34   4     data_len u32
    38   .     node, tag, data
    .    8     xxh3 u64        XXH3-64 (seed 0) over bytes [4 .. here)

Little-endian. `kernel.scan` reads them.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

import enum
import struct

from storage.format.checksum import checksum

HEADER = struct.Struct("<IBBQQQHHI")
HEADER_SIZE = HEADER.size  # 38
LENGTH = struct.Struct("<I")
REST = struct.Struct("<BBQQQHHI")  # the header without frame_len: the first bytes under the checksum
CHECKSUM = struct.Struct("<Q")
OVERHEAD = HEADER_SIZE + CHECKSUM.size  # 46: size of a frame with no node, tag or data
FIXED_LEN = OVERHEAD - LENGTH.size  # 42: frame_len of such a frame


class FrameType(enum.IntEnum):
    """Pinned on disk; zero is never valid."""

    APPEND = 1
    TOPIC_CREATE = 2
    TOPIC_DELETE = 3
    ROUTER_CREATE = 4
    ROUTER_DELETE = 5
    DELETE = 6
    EVICT_WATERMARK = 7
    CHECKPOINT_MARK = 8
    CONFIG_UPDATE = 9
    LEASE = 10
    HEAD_WATERMARK = 11
    BATCH = 12
    ROUTER_CURSOR = 13
    CONSUMER = 14
    SEGMENT = 15
    SYNC_POINT = 16
    STATE = 17
    MOVED = 18


class FrameFlag(enum.IntFlag):
    """Bits of the flags byte."""

    HAS_TAG = 1
    HAS_NODE = 2
    DURABLE = 4
    MORE = 8
    BINARY = 16


MORE = int(FrameFlag.MORE)
HOP_SHIFT = 5


class FrameError(ValueError):
    """Bytes that are not a valid frame."""


def encode(
    type: int,
    flags: int,
    topic_id: int,
    seq: int,
    ts: int,
    node: bytes = b"",
    tag: bytes = b"",
    data: bytes = b"",
) -> bytes:
    """One frame. has_tag and has_node are set from the arguments; the other flags are the caller's."""
    if tag:
        flags |= 1
    if node:
        flags |= 2
    body = REST.pack(type, flags, topic_id, seq, ts, len(node), len(tag), len(data)) + node + tag + data
    return LENGTH.pack(len(body) + 8) + body + CHECKSUM.pack(checksum(body))
