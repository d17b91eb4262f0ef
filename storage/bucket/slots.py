"""The end of a cell's log in a bucket: its owner creates one slot after the other there.

A slot is given the same bytes until it is known what became of it. So a request whose answer was lost is repeated, and
whoever finds the slot taken looks at who took it:

    its own nonce       an earlier attempt of this process: created
    another's nonce     another process owns the cell: `Fenced`, for good
    no object           the attempt before was not carried out after all: again

One slot is under way at a time: slots have no gaps. What was in no created slot when the process is fenced was stored
nowhere; what was in the slot under way is there or not, as the next owner finds out.
"""

from __future__ import annotations

from storage.bucket import keys
from storage.bucket.requests import Steps, Unanswered, create, get, now, wait
from storage.bucket.slot import Seal, Slot, decode, encode_data, encode_seal

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0


class Fenced(Exception):
    """Another process owns the cell. This one answers nothing any more and ends."""

    def __init__(self, found: Slot) -> None:
        super().__init__(f"slot {found.number} was created by another process")
        self.found = found


class GivenUp(Exception):
    """The store has not said for too long what became of a slot: as after a sync that failed, the log stops."""


class Slots:
    """Creates the slots of an owner, from the one behind its seal on."""

    def __init__(self, cell: str, seal: Seal, give_up_s: float = 30.0) -> None:
        self.cell = cell
        self.seal = seal
        #: The slot that is created next.
        self.end = seal.slot + 1
        self._give_up_s = give_up_s
        self._busy = False
        #: Set for good by the first error.
        self.stopped: Exception | None = None

    def append(self, file: int, offset: int, body: bytes) -> Steps[int]:
        """Create the next data slot; returns its number. Raises Fenced or GivenUp, once and for all."""
        return self._next(encode_data(self.end, self.seal, file, offset, body))

    def seal_again(self) -> Steps[float]:
        """Begin a new generation: for an owner whose time has run out, and whom nobody has followed. Returns when the
        seal was first sent. Raises as `append`; Fenced means that somebody has followed."""
        sent_at = yield from now()
        seal = Seal(
            self.end,
            self.seal.generation + 1,
            self.seal.nonce,
            self.seal.node,
            self.seal.address,
            self.seal.directory,
        )
        yield from self._next(encode_seal(seal))
        self.seal = seal
        return sent_at

    def give_to(self, successor: str) -> Steps[None]:
        """The last slot of this owner: that process may seal at once. Nothing may be answered any more before this is
        begun. Raises as `append`."""
        seal = self.seal
        last = Seal(
            self.end, seal.generation + 1, seal.nonce, seal.node, seal.address, seal.directory, successor=successor
        )
        yield from self._next(encode_seal(last))
        self.seal = last
        self.stopped = GivenUp("the cell was given to another process")

    def _next(self, data: bytes) -> Steps[int]:
        if self.stopped is not None:
            raise self.stopped
        if self._busy:
            raise RuntimeError("a slot is under way")
        self._busy = True
        try:
            yield from create_slot(self.cell, self.end, data, self._give_up_s)
        except (Fenced, GivenUp) as error:
            self.stopped = error
            raise
        finally:
            self._busy = False
        self.end += 1
        return self.end - 1


def create_slot(cell: str, number: int, data: bytes, give_up_s: float) -> Steps[None]:
    """Returns when the slot is known to have these bytes. Raises Fenced, GivenUp, DamagedSlot."""
    key = keys.slot(cell, number)
    until = (yield from now()) + give_up_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            if (yield from create(key, data)):
                return
            found = yield from get(key)
            if found is not None:
                return _judge(number, found, data)
        except Unanswered:
            pass
        if (yield from now()) >= until:
            raise GivenUp(f"slot {number} is not known to be created after {give_up_s:g} s")
        yield from wait(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _judge(number: int, found: bytes, data: bytes) -> None:
    if found == data:
        return
    raise Fenced(decode(number, found))
