"""The end of a cell's log in a bucket, where its owner creates one slot after the other.

A slot keeps the same bytes until its outcome is known. So a request without an answer is repeated, and a process that
finds the slot taken checks by whom:

    its own nonce       an earlier attempt of this process: created
    another's nonce     another process owns the cell: `Fenced`, for good
    no object           the attempt before was not carried out after all: again

Only one slot is in progress at a time, so slots have no gaps. When the process is fenced, bytes that were in no created
slot are stored nowhere. The next owner finds out whether the slot in progress exists.
"""

from __future__ import annotations

from storage.bucket import keys
from storage.bucket.requests import Steps, Unanswered, create, get, now, wait
from storage.bucket.slot import Seal, Slot, decode, encode_data, encode_seal

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0


class Fenced(Exception):
    """Another process owns the cell. This process answers nothing any more, and ends."""

    def __init__(self, found: Slot) -> None:
        super().__init__(f"slot {found.number} was created by another process")
        self.found = found


class GivenUp(Exception):
    """The store has left the outcome of a slot open for too long. The log stops, as after a failed sync."""


class Slots:
    """Creates the slots of an owner, from the one after its seal on."""

    def __init__(self, cell: str, seal: Seal, give_up_s: float = 30.0) -> None:
        self.cell = cell
        self.seal = seal
        #: The slot that is created next.
        self.end = seal.slot + 1
        self._give_up_s = give_up_s
        self._busy = False
        #: Set permanently by the first error.
        self.stopped: Exception | None = None

    def append(self, file: int, offset: int, body: bytes) -> Steps[int]:
        """Create the next data slot; returns its number. Raises Fenced or GivenUp, once and for all."""
        return self._next(encode_data(self.end, self.seal, file, offset, body))

    def seal_again(self) -> Steps[float]:
        """Begin a new generation: for an owner whose time has run out, and that nobody has succeeded. Returns when the
        seal was first sent. Raises like `append`; Fenced means that there is a successor."""
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
        """The last slot of this owner: that process, or ANYONE, may seal at once. Before this begins, the owner must
        have stopped answering. Raises like `append`."""
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
    """Return when the slot is known to have these bytes. Raises Fenced, GivenUp, DamagedSlot."""
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
