"""The stores that are slow or fail on purpose do so when told to, and never otherwise."""

from __future__ import annotations

import pytest

from storage.segments.tiering.store import ColdStore, ColdUnavailable
from tests.support.slow_store import FailingStore, SlowStore
from tests.unit.storage.cold.conftest import Rig


def everything(store: ColdStore, local: str) -> list[object]:
    store.put("a/b", local)
    store.put_bytes("a/c", b"c")
    answers: list[object] = [store.get("a/b"), store.get_range("a/b", 1, 1), store.size("a/b"), store.list("a")]
    store.delete("a/b")
    return [*answers, store.list("a"), store.describe()]


CALLS = [
    ("put", "a/b"),
    ("put_bytes", "a/c"),
    ("get", "a/b"),
    ("get_range", "a/b"),
    ("size", "a/b"),
    ("list", "a"),
    ("delete", "a/b"),
    ("list", "a"),
]
ANSWERS = [b"123", b"2", 3, ["a/b", "a/c"], ["a/c"], "/mnt/cold"]


def test_every_request_is_delayed_and_answered(sim: Rig) -> None:
    slept: list[float] = []
    store = SlowStore(sim.store, 250, slept.append)
    assert everything(store, sim.local(b"123")) == ANSWERS
    assert slept == [0.25] * len(CALLS)
    assert store.calls == CALLS


def test_a_failing_store_without_faults_behaves_as_its_store(sim: Rig) -> None:
    store = FailingStore(sim.store)
    assert everything(store, sim.local(b"123")) == ANSWERS
    assert store.calls == CALLS


def test_the_chosen_requests_fail_and_do_not_happen(sim: Rig) -> None:
    store = FailingStore(sim.store)
    store.fail("put*", "*.data", nth=2, times=1)
    for key, fails in (("1.data", False), ("1.idx", False), ("2.data", True), ("3.data", False)):
        if fails:
            with pytest.raises(ColdUnavailable):
                store.put_bytes(key, b"1")
        else:
            store.put_bytes(key, b"1")
    assert store.list("") == ["1.data", "1.idx", "3.data"]


def test_a_request_with_a_lost_answer_takes_effect(sim: Rig) -> None:
    store = FailingStore(sim.store)
    store.fail("put_bytes", happened=True)
    with pytest.raises(ColdUnavailable):
        store.put_bytes("a", b"1")
    assert store.get("a") == b"1"


def test_a_permanent_fault_lasts_until_it_is_removed(sim: Rig) -> None:
    store = FailingStore(sim.store)
    store.fail(times=None)
    for _ in range(5):
        with pytest.raises(ColdUnavailable):
            store.list("")
    store.mend()
    assert store.list("") == []
