"""Exports to tables that are killed by SIGKILL at any step, and two at once: no row is lost, and none is there twice.

A step is a change of a file, a commit of the library, or a change of the catalog. The killed runs are forks of a server
that has imported everything, so that a kill costs no start of an interpreter.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.export.maintenance import compact, widen
from pipeline.export.part_settings import TABLES, PartSettings
from pipeline.export.verification import Verification
from pipeline.values import Column, ValueShape
from tests.pipeline.exports import Exports
from tests.support.broker_process import PATIENCE_S, ROOT
from tests.support.small_segments import SmallSegments
from topics_client import NewRecord
from topics_client.column_types import Decimal, Scalar

#: What a killed run does.
RUNS = ("export", "compact")
_FILES = ("open", "os.link", "os.rename", "os.remove", "os.mkdir")


class Steps:
    """Counts the steps of this process, and kills it before the step `at`; 0: never."""

    def __init__(self, at: int, root: str) -> None:
        self._left = at
        self._root = root
        self.count = 0

    def install(self, *more: tuple[Any, str]) -> None:
        """Count from now on, also calls of `more`: a class and the name of a method each."""
        import pyiceberg.io.pyarrow as files
        from deltalake import DeltaTable
        from deltalake.table import TableAlterer
        from sqlalchemy.engine import Connection

        self.wrap(
            (DeltaTable, "create_write_transaction"),
            (TableAlterer, "add_columns"),
            (files.PyArrowFile, "create"),
            (Connection, "_commit_impl"),
            *more,
        )
        sys.addaudithook(self._hear)

    def wrap(self, *calls: tuple[Any, str]) -> None:
        """Count only these calls, before and after each."""
        for owner, name in calls:
            setattr(owner, name, self._around(getattr(owner, name)))

    def step(self) -> None:
        self.count += 1
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.step()
            found = call(*arguments, **options)
            self.step()
            return found

        return wrapped

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _FILES or not str(arguments[0]).startswith(self._root):
            return
        if event == "open" and (len(arguments) < 3 or not isinstance(arguments[2], int) or not arguments[2] & 0o3):
            return
        self.step()


def run(what: str, url: str, to: str, topic: str, kind: str, at: int, steps: Any, columns: int = 0) -> None:
    """In the child: an export with so many typed columns, a compaction, or a widening to so many digits, killed at a
    step. Tells the number of steps if it is not."""
    counted = Steps(at, to)
    counted.install()
    with Exports(url, to) as exports:
        if what == "export":
            exports.export(topic, parts=PartSettings(kind=kind), values=numbered(columns))
        elif what == "compact":
            compact(exports.store, topic, version="test")
        else:
            widen(exports.store, topic, amount(columns), lambda done, of: None)
    steps.put(counted.count)


def numbered(columns: int) -> ValueShape | None:
    """The typed columns n1, n2 and so on."""
    found = tuple(Column(f"n{at}", f"n{at}", Scalar("int")) for at in range(1, columns + 1))
    return ValueShape(found) if found else None


def amount(digits: int) -> ValueShape:
    """The typed column n, a decimal of so many digits."""
    return ValueShape((Column("n", "n", Decimal(digits, 0)),))


def processes() -> Any:
    """Processes whose modules are imported already."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["deltalake", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", __name__])
    return found


def killed_at(what: str, url: str, to: str, topic: str, kind: str, at: int, columns: int = 0) -> int | None:
    """None: the run was killed at that step; else the number of its steps."""
    fresh = processes()
    steps = fresh.SimpleQueue()
    process = fresh.Process(target=run, args=(what, url, to, topic, kind, at, steps, columns))
    process.start()
    process.join(2 * PATIENCE_S)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return None if process.exitcode else steps.get()


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    "points", [pytest.param(2), pytest.param(8, marks=pytest.mark.slow), pytest.param(0, marks=pytest.mark.soak)]
)
@pytest.mark.timeout(1800)
def test_killed_at_any_step_and_run_again(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, kind: str, points: int
) -> None:
    """At `points` steps spread over a run; 0: at every step, of exports and compactions."""
    monkeypatch.chdir(ROOT)
    topic = f"swept-{kind}-{points}"
    to, parts = exports.job.to, PartSettings(kind=kind)
    broker.append(topic, 40)
    total = killed_at("export", broker.url, to, topic, kind, 0)
    assert total is not None
    assert total >= 8
    count, kills = 40, 0
    for what in RUNS if points != 2 else RUNS[:1]:
        for at in range(1, total + 1, max(1, total // points) if points else 1):
            broker.append(topic, 5, first=count)
            count += 5
            if what == "compact":
                exports.export(topic, parts=parts)
            kills += killed_at(what, broker.url, to, topic, kind, at) is None
            assert seqs(exports, topic) in (list(range(1, count - 4)), list(range(1, count + 1)))
            exports.export(topic, parts=parts)
            assert seqs(exports, topic) == list(range(1, count + 1))
    numbers = exports.chain(topic).numbers()
    assert numbers == list(range(1, len(numbers) + 1))
    assert kills >= points
    print(f"{kind}: {total} steps, {kills} kills, {len(numbers)} manifests")


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    "points", [pytest.param(2), pytest.param(8, marks=pytest.mark.slow), pytest.param(0, marks=pytest.mark.soak)]
)
@pytest.mark.timeout(1800)
def test_killed_while_a_column_is_added_and_run_again(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, kind: str, points: int
) -> None:
    """Each run has one more column than the one before. `points`: as above."""
    from tests.pipeline.test_tables import read

    monkeypatch.chdir(ROOT)
    topic = f"evolved-{kind}-{points}"
    to, parts = exports.job.to, PartSettings(kind=kind)

    def append(first: int, columns: int) -> None:
        for n in range(first, first + 5):
            row = {f"n{at}": n for at in range(1, columns + 1)}
            broker.client.append(topic, [NewRecord(data=json.dumps(row).encode())])
        broker.append(topic, 0)

    append(0, 1)
    exports.export(topic, parts=parts)
    append(5, 1)
    total = killed_at("export", broker.url, to, topic, kind, 0, 1)
    assert total is not None
    assert total >= 8
    count = 10
    for columns, at in enumerate(range(1, total + 1, max(1, total // points) if points else 1), 2):
        append(count, columns)
        count += 5
        killed_at("export", broker.url, to, topic, kind, at, columns)
        assert seqs(exports, topic) in (list(range(1, count - 4)), list(range(1, count + 1)))
        exports.export(topic, parts=parts, values=numbered(columns))
        rows = read(exports, topic)
        assert [row["seq"] for row in rows] == list(range(1, count + 1))
        assert [row[f"n{columns}"] for row in rows] == [None] * (count - 5) + list(range(count - 5, count))
        assert [row["n1"] for row in rows] == [None] * 5 + list(range(5, count))
    numbers = exports.chain(topic).numbers()
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    "points", [pytest.param(2), pytest.param(8, marks=pytest.mark.slow), pytest.param(0, marks=pytest.mark.soak)]
)
@pytest.mark.timeout(1800)
def test_killed_while_a_column_is_widened_and_run_again(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, points: int
) -> None:
    """Each run has one more digit than the one before. `points`: as above."""
    from tests.pipeline.test_tables import read

    monkeypatch.chdir(ROOT)
    topic, parts = f"widened-{points}", PartSettings(kind="delta")
    for first in range(0, 30, 5):
        broker.append(topic, 5, first=first)
        exports.export(topic, parts=parts, values=amount(5))
    before = read(exports, topic)
    assert [row["n"] for row in before] == list(range(30))
    total = killed_at("widen", broker.url, exports.job.to, topic, "delta", 0, 6)
    assert total is not None
    assert total >= 8
    kills = 0
    for digits, at in enumerate(range(1, total + 1, max(1, total // points) if points else 1), 7):
        kills += killed_at("widen", broker.url, exports.job.to, topic, "delta", at, digits) is None
        assert read(exports, topic) == before
        widen(exports.store, topic, amount(digits), lambda done, of: None)
        assert read(exports, topic) == before
    assert kills >= points
    assert Verification(exports.store, topic).run(exports.origin).problems == []
    broker.append(topic, 10, first=30)
    assert exports.export(topic, parts=parts, values=amount(digits)).records == 10


def seqs(exports: Exports, topic: str) -> list[int]:
    """What the format's own reader finds."""
    from tests.pipeline.test_tables import read

    return [row["seq"] for row in read(exports, topic)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.timeout(900)
def test_two_processes_at_once(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(ROOT)
    topic = f"both-{kind}"
    fresh = processes()
    count = 0
    for _ in range(3):
        broker.append(topic, 50, first=count)
        count += 50
        steps = fresh.SimpleQueue()
        arguments = ("export", broker.url, exports.job.to, topic, kind, 0, steps)
        pair = [fresh.Process(target=run, args=arguments) for _ in range(2)]
        for each in pair:
            each.start()
        deadline = time.monotonic() + 4 * PATIENCE_S
        for each in pair:
            each.join(max(0, deadline - time.monotonic()))
            assert each.exitcode == 0
        assert seqs(exports, topic) == list(range(1, count + 1))


def test_steps_are_counted_and_kill(tmp_path: Path) -> None:
    """The harness itself: a change below the folder is a step, others are not."""
    steps = Steps(0, str(tmp_path))
    steps._hear("os.link", (str(tmp_path / "a"), "b"))  # pyright: ignore[reportPrivateUsage]
    steps._hear("os.link", ("/elsewhere", "b"))  # pyright: ignore[reportPrivateUsage]
    steps._hear("open", (str(tmp_path / "a"), "r", os.O_RDONLY))  # pyright: ignore[reportPrivateUsage]
    steps._hear("open", (str(tmp_path / "a"), "wb", os.O_WRONLY | os.O_CREAT))  # pyright: ignore[reportPrivateUsage]
    assert steps.count == 2
