"""The data of an Append frame: one JSON object, {"data":…} or {"data":…,"meta":…}, further keys behind.

It is made by joining what the client sent and served by slicing, never parsed but here. That of raw bytes is another:
see `storage.format.binary`.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter

import msgspec

from storage.format.binary import as_json

#: What stands in front of the data of an object.
DATA = b'{"data":'
PLAIN_OVERHEAD = len(DATA + b"}")
META, DELIVER_AT, CT, H = b',"meta":', b',"deliver_at":', b',"ct":', b',"h":'
_DELIVER_AT_MAX = len(DELIVER_AT) + 21
#: Where one of these is, the object is more than data and what counts with it.
FURTHER = (META, DELIVER_AT)
#: How bodies end that have nothing behind data or meta, but where the last of these is a number or a list: all that is
#: stored for others than readers ends in a digit or a bracket, and the brace.
SURE_ENDS = frozenset(b'"}el')
_OBJECT = b"{"
_SPACE = b" \t\r\n"
_AT_DATA, _BEFORE_END = itemgetter(len(DATA)), itemgetter(-2)
#: One of these is in any body that is more than data, or than data and spaces around it.
_NOT_ALONE = (META, DELIVER_AT, CT, H)


class StoredBody(msgspec.Struct):
    """A stored object taken apart; `data` and `meta` verbatim."""

    data: msgspec.Raw
    #: Empty when absent. (`Raw | None` would take nothing but null: msgspec lets the None win.)
    meta: msgspec.Raw = msgspec.Raw()


_decoder = msgspec.json.Decoder(StoredBody)


def split_body(body: bytes) -> StoredBody:
    """Take a stored object apart; of raw bytes what JSON readers see of them."""
    return _decoder.decode(as_json(body))


def data_end(body: bytes, text: bytes) -> int:
    """Where the data of a stored object ends, as it was sent: `text`, as a decoder gives it, and the spaces behind."""
    end = body.index(text, len(DATA)) + len(text)
    rest = body[end:]
    return end + len(rest) - len(rest.lstrip(_SPACE))


def are_data_alone(bodies: Sequence[bytes]) -> bool:
    """Whether stored bodies are surely all `{"data":…}` and no more, without spaces around the value; False also where
    data only looks as if there were more. Asked of all at once: a look at each would cost more than what follows."""
    if not bodies or min(map(len, bodies)) <= PLAIN_OVERHEAD or not all(map(bytes.startswith, bodies, repeat(DATA))):
        return False
    around = {*map(_AT_DATA, bodies), *map(_BEFORE_END, bodies)}
    if not around.isdisjoint(_SPACE):
        return False
    all_bodies = b"".join(bodies)
    return not any(all_bodies.rfind(each) >= 0 for each in _NOT_ALONE)  # four times as fast as from the front


def delivered_at(data: bytes, begin: int, end: int) -> int:
    """Before which time, ms since the epoch, the object at data[begin:end] is not to be handed out as a job; 0: any.

    It is the last key, a number; nothing in data or meta can stand in that place. Raw bytes are never delayed.
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
    """Bytes that the body at data[begin:end] counts for: data and meta as they were sent, and `ct` and `h` with all
    that they add to an object. A MessagePack map counts as an object with as much in it. Raises msgspec.DecodeError.
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
    """`payload_size` of bodies that have neither meta nor deliver_at, whatever is in their data: from lengths alone."""
    lengths = array("I", map(len, bodies))
    if lengths and lengths[:1] * len(lengths) == lengths:
        return array("I", [max(0, lengths[0] - PLAIN_OVERHEAD)]) * len(lengths)
    return array("I", [max(0, each - PLAIN_OVERHEAD) for each in lengths])
