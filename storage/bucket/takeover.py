"""How a process becomes the owner of a cell in a bucket.

    1  Find the newest base m. Find the end of the log by a few of its slots. The last of them names the owner as of
       then, whose sign of life is looked at: the time of step 3 counts from there if that owner is still the last one.
    2  Read the slots from its redo slot up to the first that is absent. The last seal among them names the owner.
    3  May this process seal over that one? Its process shows no sign of life for TTL; or the seal hands over to this
       process or to anyone; or this process holds the lock of the very directory that the seal names, so the owner's
       has ended.
    4  Create a seal in the absent slot. If somebody has created it meanwhile: data is read, and the next slot is tried;
       a seal is judged anew, from 1.
    5  Is there a base m + 2? Then the absent slot may have been one that its owner had deleted, and the seal means
       nothing: from 1.
    6  If something is missing that the base or the log needs: from 1, and the second time the start is refused.

Only then does the process serve. No step needs a listing. Steps 1 to 3 may be repeated forever by a standby.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from storage.bucket import keys
from storage.bucket.base import (
    Base,
    BaseMissing,
    BaseTaken,
    Head,
    Manifest,
    decode_head,
    newest_head,
    put_base,
    put_object,
    read_base,
)
from storage.bucket.requests import Get, Steps, Unanswered, get, get_many, get_patiently, now, patiently, wait
from storage.bucket.signs import TTL_S, Look, is_gone, look_at
from storage.bucket.slot import ANYONE, DamagedSlot, Seal, Slot, decode, encode_seal
from storage.bucket.slots import FIRST_PAUSE_S, Fenced, create_slot

#: How many slots are requested at a time.
AT_ONCE: Final = 16
#: The end of a log is first looked for up to 2 ** this slots behind the redo slot. Bases are put more often than that.
_FAR: Final = 12


class CellMissing(Exception):
    """The cell cannot be taken over."""


class NeverBegun(CellMissing):
    """The cell has no slot 0: the cluster was not initialised with it, or the address is wrong."""


class MetadataLost(CellMissing):
    """The cell was begun, and its bases are gone. It must not be begun again."""


class Candidate(msgspec.Struct, frozen=True):
    """A process that wants to own the cell."""

    node: str
    nonce: str
    address: str = ""
    #: The id of the local directory that it makes if it does not go on with the one of the owner before.
    directory: str = ""
    #: How far its generation is above the one before.
    ahead: int = 1

    def seal(self, slot: int, generation: int) -> Seal:
        return Seal(slot, generation, self.nonce, self.node, self.address, self.directory)


class Taken(msgspec.Struct, frozen=True):
    """The cell belongs to this process."""

    seal: Seal
    #: The seal was not sent before this time of the process's clock. The process's own time counts from here.
    sealed_at: float
    base: Base
    #: The data slots from the base's redo slot on, in order.
    log: tuple[Slot, ...]
    #: All slots that are seals, including the process's own.
    seals: tuple[int, ...]
    #: The last seal in front of the base's redo slot, and those behind it, in order.
    recent_seals: tuple[Seal, ...]

    @property
    def former(self) -> set[str]:
        """The nonces of processes that have owned the cell before."""
        return {each.nonce for each in self.recent_seals} - {self.seal.nonce}


class Reading(msgspec.Struct, frozen=True):
    """What is in the bucket of a cell, as a process would find it that took the cell over now."""

    base: Base
    #: The data slots from the base's redo slot on, in order.
    log: tuple[Slot, ...]
    #: The last seal.
    owner: Seal
    #: The first slot that is missing.
    end: int


class Log(msgspec.Struct):
    """The part of a log that was read: up to `end`, the first missing slot."""

    end: int
    owner: Seal
    data: list[Slot]
    seals: list[Seal]


def begin_cell(cell: str, candidate: Candidate, format: bytes, give_up_s: float = 30.0) -> Steps[Seal]:
    """Make a new cell: a base with nothing but FORMAT, and the seal in slot 0. May be called again after an error, and
    by others at the same time; the first one counts. Returns the seal, which names the process that was the first.
    Raises BaseMissing, Unanswered, GivenUp."""
    begun = yield from begun_by(cell)
    if begun is None:
        try:
            named = yield from put_object(keys.format_file(cell, candidate.nonce), format)
            begun = candidate.seal(0, 1)
            yield from put_base(cell, candidate.nonce, 0, 0, 1, begun, Manifest((named,), (0,)))
        except BaseTaken:
            begun = yield from begun_by(cell)
            assert begun is not None  # heads are never deleted
    if (yield from get_patiently(keys.head(cell, 1))) is None:
        yield from create_slot(cell, 0, encode_seal(begun), give_up_s)
    return begun


def begun_by(cell: str) -> Steps[Seal | None]:
    """The seal of the process that has begun the cell; None: nobody has. Raises BaseMissing, Unanswered."""
    head = yield from get_patiently(keys.head(cell, 0))
    return None if head is None else decode_head(0, head).seal


def take_over(
    cell: str,
    candidate: Candidate,
    holds_lock_of: Callable[[str], bool] = lambda _: False,
    ttl_s: float = TTL_S,
    give_up_s: float = 30.0,
    *,
    wait: bool = False,
) -> Steps[Taken | None]:
    """Become the owner, or return None because the owner is alive. Nothing may be served before this returns.

    `holds_lock_of`: whether this process holds the lock of a local directory of that id. `wait`: go on while the owner
    is alive, and notice within LOOK_S when it gives the cell away.
    Raises NeverBegun, MetadataLost, BaseMissing, DamagedSlot; Unanswered and GivenUp, after which it may be called
    again.
    """
    missing = at_least = attempts = 0
    while True:
        attempts += 1
        try:
            found = yield from _attempt(
                cell, candidate, holds_lock_of, ttl_s, give_up_s, at_least, wait=wait, looks=attempts == 1
            )
        except (BaseMissing, DamagedSlot):
            missing += 1
            if missing > 1:
                raise
            continue
        if not isinstance(found, _Again):
            return found
        at_least = found.base


def read_cell(cell: str, give_up_s: float = 30.0) -> Steps[Reading]:
    """The newest base, and the data slots from its redo slot up to the first one that is absent: what a process would
    find that took the cell over now. The cell may have a living owner, who goes on.

    Raises NeverBegun, MetadataLost, BaseMissing, DamagedSlot; Unanswered if the store is silent for `give_up_s`.
    """
    missing = at_least = 0
    until = (yield from now()) + give_up_s
    while True:
        try:
            head, base = yield from _newest_base(cell, at_least)
            log = Log(head.redo, head.seal, [], [])
            yield from _read_on(cell, log, give_up_s)
        except (BaseMissing, DamagedSlot):
            missing += 1
            if missing > 1:
                raise
            continue
        except Unanswered:
            if (yield from now()) >= until:
                raise
            yield from wait(FIRST_PAUSE_S)
            continue
        until = (yield from now()) + give_up_s
        if (yield from patiently(Get(keys.head(cell, head.number + 2)), until)) is None:
            return Reading(base, tuple(log.data), log.owner, log.end)
        at_least = head.number + 2


def _newest_base(cell: str, at_least: int) -> Steps[tuple[Head, Base]]:
    while True:
        head = yield from newest_head(cell, at_least)
        if head is None:
            if (yield from get(keys.slot(cell, 0))) is None:
                raise NeverBegun(f"{cell} was not initialised")
            raise MetadataLost(f"{cell} has a log and no base")
        try:
            return head, (yield from read_base(cell, head))
        except BaseMissing:
            # An owner deletes a base when it has put the second one after it.
            if (yield from get(keys.head(cell, head.number + 2))) is None:
                raise
            at_least = head.number + 2


def _first_look(cell: str, head: Head) -> Steps[Look | None]:
    """A look at the sign of the owner that the last slot names. To read a long log takes a part of TTL, which passes
    meanwhile. Slots that are not answered count as missing: then an earlier owner is looked at, for nothing. None: a
    slot is damaged, which the reading of the log reports. Raises Unanswered."""
    generation, nonce = head.seal.generation, head.seal.nonce
    low = head.redo - 1  # is there, or was
    high = low + 2**_FAR + 1
    ahead = [low + 2**power for power in range(_FAR + 1)]
    while ahead:
        answers = yield from get_many([keys.slot(cell, each) for each in ahead])
        for number, data in zip(ahead, answers, strict=True):
            if not isinstance(data, bytes):
                high = number
                break
            try:
                slot = decode(number, data)
            except DamagedSlot:
                return None
            low, generation, nonce = number, slot.generation, slot.nonce
        step = max(1, (high - low) // AT_ONCE)
        ahead = list(range(low + step, high, step))
    return (yield from look_at(nonce, generation))


class _Again(msgspec.Struct, frozen=True):
    """There is a newer base: begin again, from that one on."""

    base: int


def _attempt(
    cell: str,
    candidate: Candidate,
    holds_lock_of: Callable[[str], bool],
    ttl_s: float,
    give_up_s: float,
    at_least: int,
    *,
    wait: bool,
    looks: bool,
) -> Steps[Taken | _Again | None]:
    head, base = yield from _newest_base(cell, at_least)
    look = (yield from _first_look(cell, head)) if looks else None
    log = Log(head.redo, head.seal, [], [])
    seal: Seal | None = None
    sealed_at = 0.0
    while seal is None:
        yield from _read_on(cell, log, give_up_s)
        judged = log.owner
        may_seal = yield from _may_seal(cell, log, candidate, holds_lock_of, ttl_s, look)
        look = None  # it was for one wait
        if not may_seal:
            if not wait:
                return None
            if (yield from get(keys.head(cell, head.number + 1))) is not None:
                return _Again(head.number + 1)  # less is to be read from that one on
            continue
        # An earlier attempt of this process may be carried out after this read of the log, and not before it.
        sealed_at = yield from now()
        while seal is None:
            yield from _read_on(cell, log, give_up_s)
            if log.owner != judged:
                break
            # The seal names the directory that the one in front names, if this process holds it: else it may be used
            # again later, although others have owned the cell since.
            directory = (
                judged.directory if judged.directory and holds_lock_of(judged.directory) else candidate.directory
            )
            next = msgspec.structs.replace(candidate, directory=directory).seal(
                log.end, judged.generation + candidate.ahead
            )
            try:
                yield from create_slot(cell, log.end, encode_seal(next), give_up_s)
            except Fenced:
                sealed_at = yield from now()
            else:
                seal = next
    until = (yield from now()) + give_up_s
    if (yield from patiently(Get(keys.head(cell, head.number + 2)), until)) is not None:
        return _Again(head.number + 2)
    recent = (head.seal, *log.seals, seal)
    seals = {*base.manifest.seals, *(each.slot for each in recent)}
    return Taken(seal, sealed_at, base, tuple(log.data), tuple(sorted(seals)), recent)


def _read_on(cell: str, log: Log, give_up_s: float) -> Steps[None]:
    """Up to the first missing slot. Raises Unanswered if a slot is not answered for so long."""
    until = (yield from now()) + give_up_s
    while True:
        begin = log.end
        numbers = range(begin, begin + AT_ONCE)
        answers = yield from get_many([keys.slot(cell, each) for each in numbers])
        for number, data in zip(numbers, answers, strict=True):
            if data is None:
                return  # those after it were requested later, and may exist
            if isinstance(data, Unanswered):
                break
            _add(log, decode(number, data))
        at = yield from now()
        if log.end > begin:
            until = at + give_up_s
        elif at >= until:
            raise Unanswered("the log could not be read")
        else:
            yield from wait(FIRST_PAUSE_S)


def _add(log: Log, slot: Slot) -> None:
    owner = log.owner
    if slot.seal is not None:
        if slot.generation <= owner.generation:
            raise DamagedSlot(f"slot {slot.number} is a seal of generation {slot.generation} behind {owner.generation}")
        log.owner = slot.seal
        log.seals.append(slot.seal)
    elif (slot.generation, slot.nonce) != (owner.generation, owner.nonce):
        raise DamagedSlot(f"slot {slot.number} is not of the owner that the last seal names")
    elif owner.successor:
        raise DamagedSlot(f"slot {slot.number} was made by an owner that had handed the cell over")
    else:
        log.data.append(slot)
    log.end = slot.number + 1


def _may_seal(
    cell: str,
    log: Log,
    candidate: Candidate,
    holds_lock_of: Callable[[str], bool],
    ttl_s: float,
    look: Look | None,
) -> Steps[bool]:
    """Whether this process may seal over the last seal of the log. Returns False early if there is another slot.
    `look`: at an owner, before the log was read."""
    owner, next_slot = log.owner, keys.slot(cell, log.end)
    if owner.successor:
        # The former owner answers nothing any more, and the successor nothing yet: it only goes first.
        goes_first = owner.successor in (candidate.nonce, ANYONE)
        return goes_first or (yield from is_gone(owner.successor, ttl_s, unless=next_slot))
    if owner.nonce == candidate.nonce or (owner.directory and holds_lock_of(owner.directory)):
        return True
    # A later seal of the same process gives it time anew.
    is_same = look is not None and (look.nonce, look.generation) == (owner.nonce, owner.generation)
    return (yield from is_gone(owner.nonce, ttl_s, unless=next_slot, since=look if is_same else None))
