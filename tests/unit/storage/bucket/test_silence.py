"""The silence of an owner is counted while its log is read, and from the beginning for a seal that came later."""

from __future__ import annotations

from typing import Any

from storage.bucket import keys
from storage.bucket.requests import Create, Get, GetMany, Put, Request, Steps, Wait
from storage.bucket.signs import TTL_S
from storage.bucket.slot import Seal, encode_data, encode_seal
from storage.bucket.takeover import Candidate, Taken, begin_cell, take_over
from tests.support.bucket_steps import carry_out

CELL = "cell-00"
OWNER = Candidate("a", "1f" * 16)
TAKER = Candidate("b", "2f" * 16)
#: So many slots are read for longer than TTL.
SLOTS = 900
A_REQUEST_S = 0.12


class SlowStore:
    """A store that takes the same time for each request, however many objects that names."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.time = 0.0
        #: When each object was first in an answer.
        self.seen: dict[str, float] = {}
        #: Become objects when the owner's sign is looked at.
        self.after_first_look: dict[str, bytes] = {}

    def run(self, steps: Steps[Any]) -> Any:
        return carry_out(steps, self._answer)

    def _answer(self, request: Request) -> Any:
        if isinstance(request, Wait):
            self.time += request.seconds
            return self.time
        self.time += A_REQUEST_S
        match request:
            case Get(key):
                found = self._get(key)
                if key == keys.sign(OWNER.nonce):
                    self.objects |= self.after_first_look
                return found
            case GetMany(several):
                return [self._get(key) for key in several]
            case Create(key, data):
                return self.objects.setdefault(key, data) is data
            case Put(key, data):
                self.objects[key] = data
            case _:
                raise AssertionError(request)
        return None

    def _get(self, key: str) -> bytes | None:
        if key in self.objects:
            self.seen.setdefault(key, self.time)
        return self.objects.get(key)


def silent_owner() -> SlowStore:
    """A long log, and the sign of its owner, which has ended."""
    store = SlowStore()
    store.run(begin_cell(CELL, OWNER, b"format"))
    for slot in range(1, SLOTS):
        store.objects[keys.slot(CELL, slot)] = encode_data(slot, seal_of(0, 1), 1, slot, b"body")
    store.objects[keys.sign(OWNER.nonce)] = b"sign 1"
    store.time = 0.0
    return store


def seal_of(slot: int, generation: int) -> Seal:
    return OWNER.seal(slot, generation)


def test_the_time_that_the_log_takes_to_be_read_counts() -> None:
    store = silent_owner()
    taken = store.run(take_over(CELL, TAKER))
    assert isinstance(taken, Taken)
    assert (taken.seal.slot, taken.seal.generation, len(taken.log)) == (SLOTS, 2, SLOTS - 1)
    reading_s = SLOTS / 16 * A_REQUEST_S
    assert reading_s > TTL_S
    assert TTL_S < taken.sealed_at < reading_s + TTL_S / 2


def test_a_sign_that_changed_while_the_log_was_read_is_one_of_life() -> None:
    store = silent_owner()
    store.after_first_look = {keys.sign(OWNER.nonce): b"sign 2"}
    assert store.run(take_over(CELL, TAKER)) is None


def test_an_owner_that_sealed_again_meanwhile_has_its_whole_time() -> None:
    store = silent_owner()
    store.after_first_look = {keys.slot(CELL, SLOTS): encode_seal(seal_of(SLOTS, 2))}
    taken = store.run(take_over(CELL, TAKER))
    assert isinstance(taken, Taken)
    assert (taken.seal.slot, taken.seal.generation) == (SLOTS + 1, 3)
    assert taken.sealed_at >= store.seen[keys.slot(CELL, SLOTS)] + TTL_S
