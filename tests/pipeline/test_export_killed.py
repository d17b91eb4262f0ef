"""An export that is killed at any call to the store and run again: no row is lost, no row is there twice."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import IO, Any

import pytest

from pipeline.export.store import Store
from tests.pipeline.exports import Exports, Overtaken, ended_pid
from tests.support.small_segments import SmallSegments


class Killed(BaseException):
    """Replaces SIGKILL: no code handles it."""


class KillingStore:
    """A store whose process is killed at its `at`-th change, before or after the change is made."""

    def __init__(self, store: Store, at: int, after: bool) -> None:
        self._store = store
        self._left = at
        self._after = after
        self.dead = False

    def _change(self, make: Any) -> Any:
        if self.dead:
            raise Killed
        self._left -= 1
        self.dead = self._left == 0
        if self.dead and not self._after:
            raise Killed
        found = make()
        if self.dead:
            raise Killed
        return found

    def create(self, key: str, data: bytes) -> bool:
        return self._change(lambda: self._store.create(key, data))

    def replace(self, key: str, data: bytes) -> None:
        self._change(lambda: self._store.replace(key, data))

    def delete(self, key: str) -> None:
        self._change(lambda: self._store.delete(key))

    def move(self, source: str, target: str) -> None:
        self._change(lambda: self._store.move(source, target))

    @contextlib.contextmanager
    def writing(self, key: str) -> Generator[IO[bytes]]:
        with self._store.writing(key) as file:
            self._change(lambda: None)
            yield file
        self._change(lambda: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("after", [False, True])
def test_an_export_killed_at_any_change_loses_and_repeats_no_row(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    topic = f"killed-{after}"
    broker.append(topic, 1100)
    broker.await_sealed(topic, 1001)
    gone = ended_pid()
    count = 1100
    kills = 0
    for at in range(1, 12):
        store = KillingStore(exports.store, at, after)
        monkeypatch.setattr("pipeline.export.task.open_store", lambda _to, store=store: store)
        try:
            exports.exporter(store=store, pid=gone).export(topic)
        except (Killed, RuntimeError):
            kills += 1
        monkeypatch.undo()
        assert exports.seqs(topic) == list(range(1, len(exports.seqs(topic)) + 1))
        exports.export(topic)
        assert exports.seqs(topic) == list(range(1, count + 1))
        assert exports.chain(topic).numbers() == list(range(1, len(exports.chain(topic).numbers()) + 1))
        broker.append(topic, 10, first=count)
        count += 10
    assert kills >= 4


def test_second_manifest_with_the_same_number_is_refused(broker: SmallSegments, exports: Exports) -> None:
    broker.append("overtaken", 30)

    def overtake() -> None:
        # It takes the plan of the first run for that of a killed run.
        assert exports.export("overtaken").records == 30
        broker.append("overtaken", 5, first=30)

    outcome = exports.export("overtaken", engine=Overtaken(overtake), pid=ended_pid())
    assert (outcome.lost_races, outcome.records, outcome.manifests) == (1, 5, [2])
    assert exports.seqs("overtaken") == list(range(1, 36))
    assert len(exports.parts("overtaken")) == 2
    assert any("has put manifest 1" in each for each in exports.said)
