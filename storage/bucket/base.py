"""Bases: what recovery of a cell needs besides the slots of its log after a certain one, the redo slot.

A base is a head, a manifest, and the objects that the manifest names with sizes and checksums. Heads are numbered from
0 without gaps, created once and never deleted, like seals. So the newest one is found by asking for names, not by a
listing, which may be late or incomplete. Objects are created first, then the manifest, then the head. The head says
that every slot below its redo slot exists. Redo slots grow with the numbers. An owner that was fenced can complete at
most one more head, after those it knew, and that head names a true beginning of the log.

The owner keeps the two newest bases. It deletes what only older ones need: objects, manifests, and the slots before the
older of the two, but never seals. So a reader of base m has missed nothing if there is no head m + 2 when it has
finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from storage.bucket import keys, limits
from storage.bucket.requests import (
    Create,
    Get,
    Steps,
    Unanswered,
    delete,
    get,
    get_many,
    get_patiently,
    get_range_patiently,
    now,
    patiently,
    some_names,
)
from storage.bucket.slot import Seal

#: How long one small object of a base is retried.
TRY_S: Final = 30.0
#: How many objects are deleted by one request.
PAGE: Final = 100
#: How many heads are requested at a time.
_AT_ONCE: Final = 16
#: How many bases are kept whole.
NEWEST: Final = 2


class Named(msgspec.Struct, frozen=True):
    """An object, and what it must contain."""

    key: str
    size: int
    checksum: int

    @classmethod
    def of(cls, key: str, data: bytes) -> Named:
        return cls(key, len(data), xxh3_64_intdigest(data))

    def fits(self, data: bytes | None) -> bool:
        return data is not None and len(data) == self.size and xxh3_64_intdigest(data) == self.checksum


class Head(msgspec.Struct, frozen=True):
    number: int
    #: Recovery reads the log from here on.
    redo: int
    #: The last seal before the redo slot.
    seal: Seal
    #: The nonce of the process that made the base.
    maker: str
    manifest: Named


class Manifest(msgspec.Struct, frozen=True):
    objects: tuple[Named, ...]
    #: Slots below the redo slot that are seals.
    seals: tuple[int, ...]
    #: File and offset of the log that recovery begins at, and those of the instant that the segments are as of.
    log_from: tuple[int, int] = (1, 0)
    instant: tuple[int, int] = (1, 0)
    #: Slots below it are gone, except for seals.
    trimmed: int = 0
    #: The base was put at a clean stop, and no frame of its owner follows.
    clean: bool = False


class Base(msgspec.Struct, frozen=True):
    head: Head
    manifest: Manifest


class BaseMissing(Exception):
    """An object that a base names does not exist, or has other bytes."""


class BaseTaken(Exception):
    """A head of this number exists already."""


def encode_head(head: Head) -> bytes:
    body = msgspec.json.encode(head)
    return b"%016x\n" % xxh3_64_intdigest(body) + body


def decode_head(number: int, data: bytes) -> Head:
    """Raises BaseMissing."""
    digest, _, body = data.partition(b"\n")
    try:
        head = msgspec.json.decode(body, type=Head)
    except msgspec.DecodeError:
        head = None
    if head is None or head.number != number or digest != b"%016x" % xxh3_64_intdigest(body):
        raise BaseMissing(f"head {number} is damaged")
    return head


def newest_head(cell: str, at_least: int = 0) -> Steps[Head | None]:
    """The newest head, or None if there is none. Every head up to `at_least` is known to exist. Takes a few round
    trips, however many heads there are. Raises Unanswered."""
    low, data, high = at_least, (yield from get(keys.head(cell, at_least))), 0
    if data is None:
        return None
    while high != low + 1:
        if high:  # is missing, and heads have no gaps
            step = max(1, (high - low) // _AT_ONCE)
            ahead = list(range(low + step, high, step))
        else:
            ahead = [low + 2**power for power in range(_AT_ONCE)]
        answers = yield from get_many([keys.head(cell, each) for each in ahead])
        before = low, high
        for number, found in zip(ahead, answers, strict=True):
            if isinstance(found, bytes):  # perhaps above one that was missing a moment before
                low, data, high = number, found, 0 if high < number else high
            elif found is None and (high <= low or number < high):
                high = number
        if (low, high) == before:
            raise Unanswered(f"the heads of {cell} are not answered")
    return decode_head(low, data)


def head_of(cell: str, number: int) -> Steps[Head]:
    """The head of a base. Raises BaseMissing, Unanswered."""
    data = yield from get(keys.head(cell, number))
    if data is None:
        raise BaseMissing(f"head {number} of {cell} is missing")
    return decode_head(number, data)


def read_base(cell: str, head: Head) -> Steps[Base]:
    """Raises BaseMissing, Unanswered."""
    data = yield from get(head.manifest.key)
    if data is None or not head.manifest.fits(data):
        raise BaseMissing(f"the manifest of base {head.number} of {cell} is missing or damaged")
    return Base(head, msgspec.json.decode(data, type=Manifest))


def put_object(key: str, data: bytes) -> Steps[Named]:
    """Create an object of a base, under a key that no process used before. Raises Unanswered."""
    yield from _create(key, data)
    return Named.of(key, data)


def get_piece(named: Named, offset: int) -> Steps[bytes | None]:
    """The bytes of the object from there on, a piece at most. None: it does not exist. Raises Unanswered."""
    size = min(limits.PIECE_BYTES, named.size - offset)
    if size == named.size:
        return (yield from get_patiently(named.key, limits.try_s(size)))
    return (yield from get_range_patiently(named.key, offset, size, limits.try_s(size)))


def get_object(named: Named) -> Steps[bytes | None]:
    """The bytes of the object, which may be others than it must contain. None: it does not exist. Raises Unanswered."""
    found = yield from get_piece(named, 0)
    if found is None or named.size <= limits.PIECE_BYTES:
        return found
    whole = bytearray(found)
    while found and len(whole) < named.size:
        found = yield from get_piece(named, len(whole))
        if found is None:
            return None
        whole += found
    return bytes(whole)


def put_base(
    cell: str, maker: str, number: int, attempt: int, redo: int, seal: Seal, manifest: Manifest
) -> Steps[Base]:
    """Create a base; its objects are there, and every slot below `redo` is known to exist. This process used the number
    of the attempt for no other base.

    Raises BaseTaken: there is another one of that number; perhaps one that this process has tried before. Unanswered:
    the base may be there, or be there later: the next try has the same number.
    """
    named = yield from put_object(keys.manifest(cell, number, maker, attempt), msgspec.json.encode(manifest))
    head = Head(number, redo, seal, maker, named)
    body = encode_head(head)
    if not (yield from _create(keys.head(cell, number), body)):
        # Perhaps an earlier attempt of this very request.
        found = yield from patiently(Get(keys.head(cell, number)), (yield from now()) + TRY_S)
        if found != body:
            raise BaseTaken(f"there is another base {number} of {cell}")
    return Base(head, manifest)


def _create(key: str, data: bytes) -> Steps[bool]:
    return (yield from patiently(Create(key, data), (yield from now()) + limits.try_s(len(data))))


class Trimmer:
    """Deletes what the two newest bases of a cell do not need. Only the cell's owner may do that, within its time.

    A deletion that is sent in time and carried out late does no harm: superseded objects stay superseded.
    """

    def __init__(self, cell: str, base: Base) -> None:
        """`base`: the newest one."""
        self.cell = cell
        self._bases = [base]
        #: Slots before it are gone, except for seals.
        self.log_from = base.manifest.trimmed
        #: A base was tried and not added: its head may exist, or exist later.
        self.is_unsure = False

    def add(self, base: Base) -> None:
        """There is a newer base."""
        self._bases.append(base)
        self.is_unsure = False

    def trim(self, may_delete: Callable[[float], bool]) -> Steps[int]:
        """Delete superseded objects, and return how many. `may_delete` gets the time, and is called before each
        request. Raises Unanswered: a later call deletes the rest."""
        deleted = 0
        while len(self._bases) > NEWEST:
            oldest = self._bases[0]
            needed = {each.key for base in self._bases[1:] for each in base.manifest.objects}
            unneeded = [each.key for each in oldest.manifest.objects if each.key not in needed]
            gone = [*unneeded, oldest.head.manifest.key]
            for begin in range(0, len(gone), PAGE):
                page = gone[begin : begin + PAGE]
                if not may_delete((yield from now())):
                    return deleted
                yield from delete(*page)
                deleted += len(page)
            self._bases.pop(0)
        if len(self._bases) < NEWEST:
            return deleted
        seals = set(self._bases[0].manifest.seals)
        while (begin := self.log_from) < (end := self._bases[0].head.redo):
            page = range(begin, min(end, begin + PAGE))
            data = [keys.slot(self.cell, each) for each in page if each not in seals]
            if data:
                if not may_delete((yield from now())):
                    return deleted
                yield from delete(*data)
                deleted += len(data)
            self.log_from = page.stop
        return deleted

    def rubbish(self, most: int) -> Steps[list[str]]:
        """At most so many objects that nothing leads to: of bases that were never completed. A listing may show some of
        them only; those above `most` are found once these are deleted. No base is under way in this process. Raises
        Unanswered.

        None before this process has put a base: until then a fenced owner may complete one of the number after the
        newest. It cannot later, and who owns the cell after this process uses other names. None either while the
        outcome of this process's last base is unknown: its objects would be deleted, and its head stay.
        """
        if len(self._bases) < NEWEST or self.is_unsure:
            return []
        needed = {each.key for base in self._bases for each in base.manifest.objects}
        needed |= {base.head.manifest.key for base in self._bases}
        stays = (keys.slot(self.cell, 0).rpartition("/")[0], keys.head(self.cell, 0).rpartition("/")[0])

        def is_rubbish(key: str) -> bool:
            return key not in needed and key.rpartition("/")[0] not in stays

        return (yield from some_names(f"{self.cell}/", is_rubbish, most))

    def sweep(self, rubbish: list[str], may_delete: Callable[[float], bool]) -> Steps[int]:
        """Delete these, and return how many are deleted. Raises Unanswered, as `trim`."""
        deleted = 0
        while deleted < len(rubbish) and may_delete((yield from now())):
            page = rubbish[deleted : deleted + PAGE]
            yield from delete(*page)
            deleted += len(page)
        return deleted
