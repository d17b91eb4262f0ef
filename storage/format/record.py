"""The data of an Append frame: one JSON object, {"data":…} or {"data":…,"meta":…}, with further keys after them.

It is built by joining the client's bytes and served by slicing; only this module parses it. Raw bytes are stored in
another form: see `storage.format.binary`.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter

import msgspec

from storage.format.binary import as_json

#: The bytes before the data of an object.
DATA = b'{"data":'
PLAIN_OVERHEAD = len(DATA + b"}")
META, DELIVER_AT, CT, H = b',"meta":', b',"deliver_at":', b',"ct":', b',"h":'
_DELIVER_AT_MAX = len(DELIVER_AT) + 21
#: An object with one of these keys has more than data and the keys that count as part of data.
FURTHER = (META, DELIVER_AT)
#: The possible last bytes before the brace of bodies that certainly end with data or meta. Numbers and lists are not
#: among them: all keys that are not for readers end in a digit or a bracket before the brace.
SURE_ENDS = frozenset(b'"}el')
_OBJECT = b"{"
_SPACE = b" \t\r\n"
_AT_DATA, _BEFORE_END = itemgetter(len(DATA)), itemgetter(-2)
#: Every body with more than data (and spaces around it) contains one of these.
_NOT_ALONE = (META, DELIVER_AT, CT, H)


class StoredBody(msgspec.Struct):
    """A stored object taken apart; `data` and `meta` verbatim."""

    data: msgspec.Raw
    #: Empty when absent. (`Raw | None` would accept only null: in msgspec, None wins.)
    meta: msgspec.Raw = msgspec.Raw()


_decoder = msgspec.json.Decoder(StoredBody)


def split_body(body: bytes) -> StoredBody:
    """Take a stored object apart. For raw bytes, take their JSON form apart."""
    return _decoder.decode(as_json(body))


def data_end(body: bytes, text: bytes) -> int:
    """Where the data of a stored object ends, as it was sent: `text`, as a decoder returns it, and the spaces after."""
    end = body.index(text, len(DATA)) + len(text)
    rest = body[end:]
    return end + len(rest) - len(rest.lstrip(_SPACE))


def are_data_alone(bodies: Sequence[bytes]) -> bool:
    """Whether all stored bodies are certainly just `{"data":…}`, without spaces around the value. False also if
    data only looks like further keys. Checks all bodies at once: checking each costs more than the work it saves."""
    if not bodies or min(map(len, bodies)) <= PLAIN_OVERHEAD or not all(map(bytes.startswith, bodies, repeat(DATA))):
        return False
    around = {*map(_AT_DATA, bodies), *map(_BEFORE_END, bodies)}
    if not around.isdisjoint(_SPACE):
        return False
    all_bodies = b"".join(bodies)
    return not any(all_bodies.rfind(each) >= 0 for each in _NOT_ALONE)  # four times as fast as from the front


def delivered_at(data: bytes, begin: int, end: int) -> int:
    """The time, ms since the epoch, before which the object at data[begin:end] must not be delivered as a job; 0: none.

    It is the last key, a number; nothing in data or meta can be in that position. Raw bytes are never delayed.
    """
    if not data.startswith(_OBJECT, begin):
        return 0
    at = data.rfind(DELIVER_AT, max(begin, end - _DELIVER_AT_MAX), end)
    digits = data[at + len(DELIVER_AT) : end - 1] if at >= 0 else b""
    return int(digits) if digits.isdigit() else 0


class _Counted(StoredBody):
    ct: msgspec.Raw = msgspec.Raw()
    h: msgspec.Raw = msgspec.Raw()


_counted = msgspec.json.Decoder(_Counted)


def payload_size(data: bytes, begin: int, end: int) -> int:
    """Payload bytes of the body at data[begin:end]: data and meta as they were sent, and `ct` and `h` with everything
    they add to an object. A MessagePack map counts as an object with the same contents. Raises msgspec.DecodeError.
    """
    if data.startswith(_OBJECT, begin):
        for key in FURTHER:
            if data.find(key, begin, end) >= 0:
                body = _counted.decode(data[begin:end])
                size = len(body.data) + len(body.meta)
                return size + (len(CT) + len(body.ct) if body.ct else 0) + (len(H) + len(body.h) if body.h else 0)
        return end - begin - PLAIN_OVERHEAD
    if begin == end:
        raise msgspec.DecodeError("a record without a body")
    return max(0, end - begin - PLAIN_OVERHEAD)


def payload_sizes(bodies: Sequence[bytes]) -> array[int]:
    """`payload_size` of each of these bodies."""
    all_bodies = b"".join(bodies)
    if any(all_bodies.rfind(key) >= 0 for key in FURTHER):  # four times as fast as from the front
        return array("I", [payload_size(body, 0, len(body)) for body in bodies])
    return body_sizes(bodies)


def body_sizes(bodies: Sequence[bytes]) -> array[int]:
    """`payload_size` of bodies that have neither meta nor deliver_at, whatever their data: from lengths alone."""
    lengths = array("I", map(len, bodies))
    if lengths and lengths[:1] * len(lengths) == lengths:
        return array("I", [max(0, lengths[0] - PLAIN_OVERHEAD)]) * len(lengths)
    return array("I", [max(0, each - PLAIN_OVERHEAD) for each in lengths])
