"""Messages between the engine and a process of its own, on pipes: a header, then a pickled value.

    off  size  field
    0    8     size u64     of the value
    8    4     index u32    of the job that it belongs to
    12   1     last u8      1: nothing more comes of that job
    13   .     the value

Little-endian. Both ends are the same program, so nothing of it is checked. It is imported where a process is started
while somebody waits: it imports nothing of ours.
"""

from __future__ import annotations

import pickle
import struct
from typing import IO

_HEAD = struct.Struct("<QIB")


def send(out: IO[bytes], index: int, last: bool, value: object) -> None:
    """Send one whole message. Raises OSError."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    left = memoryview(_HEAD.pack(len(data), index, last) + data)
    while left:
        left = left[out.write(left) :]
    out.flush()


def receive(source: IO[bytes]) -> tuple[int, bool, bytes] | None:
    """(index, whether it is the job's last message, pickled value); None when no further message comes whole."""
    head = source.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    size, index, last = _HEAD.unpack(head)
    data = source.read(size)
    return (index, bool(last), data) if len(data) == size else None
