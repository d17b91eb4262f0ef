"""The data of an Append frame: one JSON object, {"data":…} or {"data":…,"meta":…}, further keys behind.

It is made by joining what the client sent and served by slicing, never parsed but here. Source: storage.md §2.
"""

from __future__ import annotations

import msgspec

PLAIN_OVERHEAD = len(b'{"data":}')
_FURTHER = (b',"meta":', b',"deliver_at":', b',"ct":', b',"h":')


class StoredBody(msgspec.Struct):
    """A stored object taken apart; `data` and `meta` verbatim."""

    data: msgspec.Raw
    #: Empty when absent. (`Raw | None` would take nothing but null: msgspec lets the None win.)
    meta: msgspec.Raw = msgspec.Raw()


_decoder = msgspec.json.Decoder(StoredBody)


def split_body(body: bytes) -> StoredBody:
    """Take a stored object apart."""
    return _decoder.decode(body)


class FurtherKeys:
    """Where in `data`, which holds many records, a key other than the first may be: none of those before it has one."""

    __slots__ = ("_data", "_found", "_nearest")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._found = [-1 if data.rfind(key) >= 0 else len(data) for key in _FURTHER]
        self._nearest = -1

    def next_from(self, at: int) -> int:
        """Offset, `at` or later, of the next one; the end of the data when there is none."""
        if self._nearest < at:
            for index, key in enumerate(_FURTHER):
                if self._found[index] < at:
                    place = self._data.find(key, at)
                    self._found[index] = place if place >= 0 else len(self._data)
            self._nearest = min(self._found)
        return self._nearest


def payload_size(data: bytes, begin: int, end: int) -> int:
    """Bytes of data and meta, as they were sent, of the object at data[begin:end]."""
    for key in _FURTHER:
        if data.find(key, begin, end) >= 0:
            body = _decoder.decode(data[begin:end])
            return len(body.data) + len(body.meta)
    return end - begin - PLAIN_OVERHEAD
