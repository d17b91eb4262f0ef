"""Records as JSON, a whole stretch of them at once: with next to no Python a record (see `render`).

A row is four pieces: what stands in front of the last digits of the seq, these digits, the time, and the body behind
its brace. Each kind of piece is made as one column, and all of them are joined in one go.
Source: architecture.md (what speed costs here).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.stretch import Stretch

_AT_ONCE: Final = 1000
#: The last three digits of a number that has more, and numbers that have no more.
_DIGITS: Final = [b"%03d" % low for low in range(_AT_ONCE)]
_SMALL: Final = [b"%d" % low for low in range(_AT_ONCE)]
_PIECES: Final = 4
_OBJECT: Final = frozenset(b"{")
#: How bodies end that have nothing behind data or meta, but where the last of these is a number or a list: all that is
#: stored for others than readers ends in a digit or a bracket, and the brace.
_SURE_ENDS: Final = frozenset(b'"}el')


def rows(found: Stretch) -> bytes | None:
    """The records as JSON objects, separated by commas; None where a body may not be shown as it is stored."""
    if not (found.column(0) <= _OBJECT and found.column(-2) <= _SURE_ENDS):
        return None
    pieces = [b""] * (_PIECES * len(found))
    _number(pieces, found.seqs)
    pieces[2::_PIECES] = _times(found.stamps())
    pieces[3::_PIECES] = found.bodies(front=1)
    pieces[0] = pieces[0][1:]
    return b"".join(pieces)


def _number(pieces: list[bytes], seqs: range) -> None:
    """Fill in the seqs: what they have in common, and their last digits."""
    fronts: list[bytes] = []
    digits: list[bytes] = []
    seq = seqs.start
    while seq < seqs.stop:
        thousands, low = divmod(seq, _AT_ONCE)
        count = min(_AT_ONCE - low, seqs.stop - seq)
        fronts += [b',{"$seq":%d' % thousands if thousands else b',{"$seq":'] * count
        digits += (_DIGITS if thousands else _SMALL)[low : low + count]
        seq += count
    pieces[0::_PIECES] = fronts
    pieces[1::_PIECES] = digits


def _times(stamps: Sequence[int]) -> list[bytes]:
    """How the times are said."""
    texts = {ts: b',"$ts":%d,' % ts for ts in {*stamps}}
    if len(texts) == 1:
        return [*texts.values()] * len(stamps)
    return [*map(texts.__getitem__, stamps)]
