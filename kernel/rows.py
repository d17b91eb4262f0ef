"""Frames by reference: where each frame is in a buffer, and the fields of its header, as columns of numbers.

There is one row per frame, in the machine's own byte order, so that compiled code reads and writes only rows:

    off  size  field
    0    8     offset u64       of the frame in the buffer
    8    8     topic_id u64
    16   8     seq u64
    24   8     ts u64           ms since the epoch
    32   4     size u32         bytes of the whole frame
    36   4     data_len u32
    40   2     node_len u16
    42   2     tag_len u16
    44   1     type u8          FrameType; of a segment's frame always Append
    45   1     flags u8         FrameFlag bits and the hop count
    46   1     delete_byte u8   0 in the log
    47   1     header_len u8    bytes in front of the node: 38 in the log, 37 in a segment

Rows never reach a disk or another machine.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

import struct

ROW = struct.Struct("=QQQQIIHHBBBB")
ROW_SIZE = ROW.size  # 48
#: Where in a row the flags are.
FLAGS_AT = 45
