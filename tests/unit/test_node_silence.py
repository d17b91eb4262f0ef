"""When a node kills a process of a cell that is silent."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from broker.cells import PeerUnavailable
from broker.cluster import Address, Held, Member, Plan, Standing, write_standing
from broker.node import Node, Silence, Why, silence
from broker.node import node as module
from broker.settings import Settings
from broker.telemetry import Notifier
from storage.bucket import TTL_S


@pytest.mark.parametrize(("why", "limit_s"), silence.LIMITS_S.items())
def test_a_process_is_killed_after_its_limit(why: Why, limit_s: float) -> None:
    counted = Silence()
    assert not any(counted.add(0.5, why) for _ in range(int(limit_s * 2) - 1))
    assert counted.add(0.5, why)
    assert not counted.add(0.5, why), "it counts anew, and does not kill in each step"


def test_a_sign_of_life_ends_the_silence() -> None:
    counted = Silence()
    for _ in range(10):
        assert not counted.add(TTL_S, Why.SILENT)
        assert not counted.add(0.5, None)


def test_silence_of_one_kind_is_not_counted_as_another() -> None:
    counted = Silence()
    assert not counted.add(100, Why.NOT_STARTED)
    assert not counted.add(TTL_S, Why.SILENT)
    assert counted.add(TTL_S, Why.SILENT)


class Peer:
    """Stands in for the process of a cell: `answers` says how it takes a call."""

    def __init__(self, answers: str) -> None:
        self.answers = answers
        self.calls = 0

    async def call(self, cell: int, method: str, argument: object, timeout_s: float) -> dict[str, Any]:
        self.calls += 1
        if self.answers == "nothing":
            await asyncio.sleep(3600)
        if self.answers != "standing":
            raise PeerUnavailable(cell, "none" if self.answers == "refused" else "unknown")
        return {"nonce": "n", "generation": 7}


class Process:
    def __init__(self) -> None:
        self.killed = asyncio.Event()

    def kill(self) -> None:
        self.killed.set()


class Rig:
    """A node with one process of cell 0, which is looked at."""

    def __init__(self, folder: Path, answers: str, *, ready: bool = True) -> None:
        settings = Settings.model_validate({"data_dir": folder, "cluster_url": "s3://b/p", "node": "a"})
        self.node: Any = Node(settings, {}, Notifier.taken_from({}))
        self.node._role = module.Role(set_id="s", count=1, run=str(folder), parent=0, node="a")
        self.peer = self.node._peers = Peer(answers)
        self.process = Process()
        made: Any = self.process
        self.each = module.CellProcess(0, made, "n", 0.0, Silence())
        self.each.ready = ready
        self.looking = asyncio.create_task(self.node._look(self.each))

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        self.looking.cancel()
        await asyncio.gather(self.looking, return_exceptions=True)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a hundredth, and limits of a tenth of a second."""
    for name in ("STEP_S", "EVERY_S", "HURRIED_S"):
        monkeypatch.setattr(module, name, 0.01)
    for why in Why:
        monkeypatch.setitem(silence.LIMITS_S, why, 0.1)


@pytest.mark.usefixtures("quick")
async def test_a_process_that_answers_nothing_is_killed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "nothing")
    async with asyncio.timeout(20):
        await rig.process.killed.wait()
    assert not rig.each.stopping, "it is started again"
    await rig.end()


@pytest.mark.usefixtures("quick")
async def test_what_it_answers_is_known_and_it_is_not_killed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "standing", ready=False)
    await rig.until(lambda: rig.each.ready and rig.peer.calls > 30)
    assert (rig.each.generation, rig.node._counts.taken) == (7, 1)
    assert not rig.process.killed.is_set()
    await rig.end()


@pytest.mark.usefixtures("quick")
async def test_an_owner_that_may_not_answer_is_not_killed(tmp_path: Path) -> None:
    """It breaks off each call while the store does not answer it: so it runs, and goes on when the store does."""
    rig = Rig(tmp_path, "broken off")
    await rig.until(lambda: rig.peer.calls > 30)
    assert not rig.process.killed.is_set()
    await rig.end()


@pytest.mark.usefixtures("quick")
async def test_one_that_waits_for_a_living_owner_waits_for_ever(tmp_path: Path) -> None:
    write_standing(tmp_path, 0, Standing(nonce="n", state="waiting", since_ms=1))
    rig = Rig(tmp_path, "refused", ready=False)
    await rig.until(lambda: rig.peer.calls > 30)
    assert not rig.process.killed.is_set()
    await rig.end()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("ready", [False, True], ids=["never started", "does not end"])
async def test_one_that_nobody_can_call_and_that_says_nothing_is_killed(tmp_path: Path, ready: bool) -> None:
    rig = Rig(tmp_path, "refused", ready=ready)
    async with asyncio.timeout(20):
        await rig.process.killed.wait()
    await rig.end()


@pytest.mark.usefixtures("quick")
async def test_a_pause_of_the_node_is_not_silence_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(silence.LIMITS_S, Why.SILENT, 3600.0)
    rig = Rig(tmp_path, "nothing")
    await rig.until(lambda: rig.peer.calls)
    before = rig.each.silence._seconds  # pyright: ignore[reportPrivateUsage]
    time.sleep(0.5)  # noqa: ASYNC251 - the loop of the node stands still
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.each.silence._seconds - before <= 0.05  # pyright: ignore[reportPrivateUsage]
    await rig.end()


class Roll:
    """Stands in for the members' objects: counts how often this node writes its own."""

    is_anyone_late = False
    changed_at = planned_at = 0.0

    def __init__(self) -> None:
        self.members: dict[str, Any] = {}
        self.silent: dict[str, Any] = {}
        self.suspects: frozenset[str] = frozenset()
        self.plan = Plan()
        self.rounds = 0

    async def round(self, mine: Member, *, hurried: bool) -> None:
        self.rounds += 1

    def age_s(self, node: str) -> float:
        return 0.0


@pytest.mark.usefixtures("quick")
async def test_a_node_shows_signs_of_life_while_a_process_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_TAKE_S", 0.0)
    monkeypatch.setitem(silence.LIMITS_S, Why.SILENT, 3600.0)
    rig, roll = Rig(tmp_path, "nothing"), Roll()
    node = rig.node
    node._cells, node._ports, node._cluster, node._http = {0: rig.each}, {0: (None, None)}, Address("h", 1), None
    standing = Standing(nonce="w", state="waiting", since_ms=1)
    taker = Member(
        node="b", nonce="m", cluster=Address("h", 2), cells={0: Held(nonce="w", standing=standing)}, draining=False
    )
    roll.members = {"b": taker}
    roll.plan = Plan(number=1, cells={0: "b"})  # so it gives the cell, too
    working = asyncio.create_task(node._keep(roll, ""))
    await rig.until(lambda: roll.rounds > 20)
    assert rig.each.given_to == "w"
    node._hurry.set()
    node._stop.set()
    await working
    for task in [*node._watching]:
        task.cancel()
    await rig.end()
