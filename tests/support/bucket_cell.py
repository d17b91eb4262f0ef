"""A cell in a bucket as a list of numbers. Several processes want to own it, and their answers are checked.

    cell = Cell(World(Random(7)))
    cell.live(seconds=120)
    assert cell.problems() == []

An owner appends numbers that nobody appended before, answers when their slot is created and its time is not over, and
answers reads from memory. A process that ends is followed by another one.

    lost         an answered number is not in the log that the last owner finds
    doubled      a number is there twice
    gone         a number of class disk is not there, although its own directory was used again
    back         a number of class disk is there again after an owner that did not have it
    disordered   a number is in front of one that was answered before it was sent
    undead       a number is there of which was said that it was not stored
    stale        an answered read lacks a number that was answered before it was asked for
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, TypeVar

from storage.bucket import keys
from storage.bucket.base import (
    BaseMissing,
    BaseTaken,
    Manifest,
    Trimmer,
    newest_head,
    put_base,
    put_object,
    read_base,
)
from storage.bucket.requests import Steps, Unanswered, get, now, wait
from storage.bucket.signs import OwnTime, forget_signs, show_signs
from storage.bucket.slot import ANYONE
from storage.bucket.slots import Fenced, GivenUp, Slots
from storage.bucket.takeover import Candidate, Taken, begin_cell, take_over
from tests.support.sim_bucket import Process, World

#: So many objects that nothing leads to are deleted at a time: few, so that some are left.
SWEEP_PAGE = 3

T = TypeVar("T")

NAME = "cell-00"
#: After this many slots behind the last base, the owner begins another one.
SLOTS_A_BASE = 4
GIVE_UP_S = 10.0


class Cell:
    """The history of one cell."""

    def __init__(self, world: World, processes: int = 3, *, without: str = "") -> None:
        """`without`: a rule that owners do not follow, to see that it is needed.

        silence     whoever hands the cell over answers nothing more
        time        an owner answers nothing when its time is over
        in front    a directory is used again only if its last seal is right in front of the new one
        own base    an owner looks for rubbish only when it has put a base
        outcome     an owner looks for rubbish only when it knows what became of the base that it has tried last
        """
        self.world = world
        self.without = without
        self.count = 0
        #: By number: when it was sent, and when it was answered.
        self.sent: dict[int, float] = {}
        self.answered: dict[int, float] = {}
        #: Numbers of class disk that were answered: when, and in which directory they are. Those that a later owner did
        #: not have.
        self.loose: dict[int, tuple[float, str]] = {}
        self.gone: set[int] = set()
        self.disks: dict[str, Disk] = {}
        #: Numbers that were reported as not stored.
        self.refused: set[int] = set()
        self.found: list[str] = []
        self.takeovers = self.bases = self.trimmed = self.reads = self.given = self.again = 0
        self.reused = self.swept = 0
        self.members: list[Member] = []
        self.open = True
        starter = Process(world, "init")

        def begin(_: None) -> None:
            for each in range(processes):
                self.join(f"node-{each}")

        starter.spawn(_begin(), then=begin)

    def join(self, node: str) -> None:
        if self.open:
            self.members.append(Member(self, node))

    def next_number(self) -> int:
        self.count += 1
        self.sent[self.count] = self.world.time
        return self.count

    def live(self, seconds: float, trouble_every_s: float = 4.0) -> None:
        """Let time pass, with faults."""
        rng, world = self.world.rng, self.world

        def trouble() -> None:
            running = [each for each in self.members if each.process.running]
            if running:
                each = rng.choice(running)
                match rng.randrange(5):
                    case 0:
                        each.end()
                    case 1:
                        each.process.sleep(rng.choice([0.3, 2.0, 6.0, 15.0, 40.0]))
                    case 2:
                        each.process.cut_off(rng.choice([0.5, 3.0, 8.0, 20.0]))
                    case 3:
                        each.successor = rng.choice([rng.choice(running).process.nonce, ANYONE])
                    case _:
                        each.process.sleep(rng.uniform(0, 12))
                        each.process.cut_off(rng.uniform(0, 12))
            world.after(rng.expovariate(1 / trouble_every_s), trouble)

        world.after(5.0, trouble)
        world.run(world.time + seconds)

    def problems(self) -> list[str]:
        """What was wrong, after everything has ended and one more owner has read the log."""
        self.open = False
        for each in self.members:
            each.process.stop()
        self.world.run(self.world.time + 60)
        self.world.faults = 0.0
        last = Member(self, "last", serve=False)
        self.world.run(self.world.time + 60)
        if last.numbers is None:
            return [*self.found, "nobody could take the cell over at the end"]
        there = last.numbers
        order = {number: index for index, number in enumerate(there)}
        found = list(self.found)
        found += [f"{each} is lost" for each in self.answered if each not in order]
        found += ["a number is there twice"] if len(order) != len(there) else []
        found += [f"{each} of class disk is there again" for each in self.gone if each in order]
        found += [f"{each} was said not to be stored" for each in self.refused if each in order]
        for number, index in order.items():
            before = max((order[each] for each, at in self.answered.items() if at < self.sent[number]), default=-1)
            if before > index:
                found.append(f"{number} is in front of what was answered before it was sent")
        return found


class Disk:
    """The local directory of a node. A process of the node has its lock, since the process before it has ended."""

    def __init__(self) -> None:
        self.id = ""
        #: All of the log that was written here.
        self.numbers: list[int] = []


class Member:
    """A process that wants to own the cell, and its work as owner."""

    def __init__(self, cell: Cell, node: str, *, serve: bool = True) -> None:
        self.cell = cell
        self.serve = serve
        self.process = Process(cell.world, node)
        self.node = node
        self.disk = cell.disks.setdefault(node, Disk())
        self.waits = cell.world.rng.random() < 0.5
        self.time = OwnTime()
        #: What it knows to be stored, as owner.
        self.numbers: list[int] | None = None
        self.slots: Slots | None = None
        self.successor = ""
        self.seals: set[int] = set()
        self.trimmer: Trimmer | None = None
        self.base_number = self.redo = self.attempt = 0
        #: A base is under way.
        self.at_base = False
        self.process.spawn(show_signs(node, self.process.nonce, [self.time]))
        self.process.spawn(self._own(), failed=self._failed)

    def end(self) -> None:
        if self.process.running:
            self.process.stop()
            self.cell.world.after(self.cell.world.rng.choice([0.1, 1.0, 8.0]), lambda: self.cell.join(self.node))

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, Unanswered | Fenced | GivenUp | BaseTaken):
            self.cell.found.append(f"{type(error).__name__}: {error}")
        self.end()

    def _own(self) -> Steps[None]:
        process, cell = self.process, self.cell
        disk = self.disk
        candidate = Candidate(process.node, process.nonce, directory=process.nonce)
        while True:
            try:
                taken = yield from take_over(
                    NAME, candidate, lambda directory: directory == disk.id, give_up_s=GIVE_UP_S, wait=self.waits
                )
            except Unanswered:
                taken = None
            if taken is not None:
                break
            yield from wait(0.5)
        cell.takeovers += 1
        numbers = yield from _read(taken)
        self.seals = set(taken.seals)
        self.time.sealed(taken.sealed_at)
        self.slots = Slots(NAME, taken.seal, GIVE_UP_S)
        if disk.id and (taken.seal.directory == disk.id or cell.without == "in front"):
            yield from self._use_again(numbers)
        else:
            disk.id = ""
            yield from wait(cell.world.rng.choice([0.0, 1.0]))
            disk.id, disk.numbers = process.nonce, [*numbers]
        sealed = cell.world.created[keys.slot(NAME, taken.seal.slot)]  # perhaps others have owned the cell since
        there = set(disk.numbers)
        cell.gone.update(each for each, (at, _) in cell.loose.items() if at < sealed and each not in there)
        cell.loose = {each: loose for each, loose in cell.loose.items() if each not in cell.gone}
        self.numbers = numbers
        if self.serve:
            process.spawn(forget_signs(taken.former), failed=lambda _: None)
            process.spawn(self._answer_reads(), failed=self._failed)
            self.base_number, self.redo = taken.base.head.number, taken.base.head.redo
            self.trimmer = Trimmer(NAME, taken.base)
            process.spawn(self._make_bases(), failed=self._failed)
            yield from self._append()

    def _use_again(self, numbers: list[int]) -> Steps[None]:
        """The end of the directory's log becomes the first slot."""
        cell, disk, slots = self.cell, self.disk, self.slots
        assert slots is not None
        if disk.numbers[: len(numbers)] != numbers and cell.without != "in front":
            cell.found.append(f"the directory of {self.node} differs from the slots")
        tail = disk.numbers[len(numbers) :]
        if tail:
            yield from slots.append(1, 0, json.dumps(tail).encode())
            numbers += tail
        cell.reused += 1
        lost = [
            each for each, (_, directory) in cell.loose.items() if directory == disk.id and each not in set(numbers)
        ]
        if lost:
            cell.found.append(f"{lost} of class disk are not in their directory")

    def _append(self) -> Steps[None]:
        cell, rng, slots, numbers = self.cell, self.cell.world.rng, self.slots, self.numbers
        assert slots is not None
        assert numbers is not None
        while True:
            yield from wait(rng.choice([0.0, 0.01, 0.1]))
            at = yield from now()
            if self.time.expired(at):
                sent_at = yield from slots.seal_again()
                self.seals.add(slots.seal.slot)
                self.time.sealed(sent_at)
                cell.again += 1
                continue
            if not self.time.is_open(at):
                continue
            if self.successor:
                yield from self._give_up_cell()
                if "silence" in cell.without:
                    return  # and it goes on to answer reads
                raise GivenUp("given to another")
            loose = [cell.next_number() for _ in range(rng.choice([0, 0, 2]))]
            self.disk.numbers += loose
            if loose and self.time.is_open((yield from now())):
                cell.loose.update(dict.fromkeys(loose, (cell.world.time, self.disk.id)))
                yield from wait(rng.choice([0.0, 0.5]))
            batch = [cell.next_number() for _ in range(rng.randint(1, 3))]
            waiting = [cell.next_number() for _ in range(rng.randint(0, 2))]
            self.disk.numbers += batch
            try:
                yield from slots.append(1, 0, json.dumps(loose + batch).encode())
            except Fenced:
                # The slot belongs to another process for ever, so these numbers are stored nowhere.
                cell.refused.update(batch)
                raise
            finally:
                cell.refused.update(waiting)
            numbers += loose + batch
            if self.time.is_open((yield from now())):
                cell.answered.update(dict.fromkeys(batch, cell.world.time))

    def _answer_reads(self) -> Steps[None]:
        cell, rng = self.cell, self.cell.world.rng
        while True:
            yield from wait(rng.uniform(0, 0.6))
            if self.numbers is None:
                continue
            asked_at, answer = cell.world.time, set(self.numbers)
            yield from wait(rng.choice([0.0, 0.0, 0.1]))
            if self.time.is_open((yield from now())) or cell.without == "time":
                cell.reads += 1
                stale = [each for each, at in cell.answered.items() if at < asked_at and each not in answer]
                if stale:
                    cell.found.append(f"{self.node} answered a read without {stale} at {cell.world.time:.3f}")

    def _make_bases(self) -> Steps[None]:
        cell, slots = self.cell, self.slots
        assert slots is not None
        assert self.trimmer is not None
        while not self.successor:
            yield from wait(0.1)
            if cell.without == "own base" and self.base_number and self.time.is_open((yield from now())):
                yield from self._sweep_before()
            often = 0.5 if self.trimmer.is_unsure else 0.02
            if cell.world.rng.random() < often and self.time.is_open((yield from now())):
                if cell.without == "outcome":
                    self.trimmer.is_unsure = False
                with contextlib.suppress(Unanswered):
                    yield from self._sweep()
            if self.numbers is None or slots.end - self.redo < SLOTS_A_BASE:
                continue
            if not self.time.is_open((yield from now())):
                continue
            self.at_base = True
            try:
                yield from self._put_base(self.numbers)
                cell.trimmed += yield from self.trimmer.trim(self.time.is_open)
                if cell.world.rng.random() < 0.3:
                    yield from self._sweep()
            except Unanswered:
                continue
            finally:
                self.at_base = False

    def _sweep(self) -> Steps[None]:
        assert self.trimmer is not None
        rubbish = yield from self.trimmer.rubbish(SWEEP_PAGE)
        self.cell.swept += yield from self.trimmer.sweep(rubbish, self.time.is_open)

    def _sweep_before(self) -> Steps[None]:
        """Against the rule."""
        assert self.trimmer is not None
        kept = self.trimmer._bases  # pyright: ignore[reportPrivateUsage]
        with contextlib.suppress(Unanswered):
            self.trimmer._bases = [kept[0], *kept]  # pyright: ignore[reportPrivateUsage]
            rubbish = yield from self.trimmer.rubbish(SWEEP_PAGE)
            self.trimmer._bases = kept  # pyright: ignore[reportPrivateUsage]
            yield from self.trimmer.sweep(rubbish, self.time.is_open)

    def _put_base(self, numbers: list[int]) -> Steps[None]:
        """Of what is stored now."""
        slots, nonce = self.slots, self.process.nonce
        assert slots is not None
        assert self.trimmer is not None
        self.attempt += 1
        redo, seal, body, seals = slots.end, slots.seal, json.dumps(numbers).encode(), tuple(sorted(self.seals))
        named = yield from put_object(f"{NAME}/seg/{nonce}.{self.attempt}", body)
        manifest = Manifest((named,), seals, trimmed=self.trimmer.log_from)
        self.trimmer.is_unsure = True
        until = (yield from now()) + self.cell.world.rng.choice([1.0, 30.0])
        steps = put_base(NAME, nonce, self.base_number + 1, self.attempt, redo, seal, manifest)
        try:
            base = yield from _until(until, steps)
        except BaseTaken:  # by an earlier attempt, or by another owner
            head = yield from newest_head(NAME, self.base_number)
            if head is None or head.maker != nonce:
                raise
            try:
                base = yield from read_base(NAME, head)
            except BaseMissing:  # others have put newer ones, or the next takeover finds it missing
                raise GivenUp("the base is gone") from None
        self.base_number, self.redo = base.head.number, base.head.redo
        self.trimmer.add(base)
        self.cell.bases += 1

    def _give_up_cell(self) -> Steps[None]:
        """Answer nothing more; the last data slot; a base of all; the last seal."""
        cell, slots, numbers = self.cell, self.slots, self.numbers
        assert slots is not None
        assert numbers is not None
        if "silence" not in cell.without:
            self.numbers = None
            self.time.close()
        rest = [cell.next_number()]
        self.disk.numbers += rest
        yield from slots.append(1, 0, json.dumps(rest).encode())
        numbers += rest
        while self.at_base:
            yield from wait(0.05)
        with contextlib.suppress(Unanswered):  # the log says it all
            yield from self._put_base(numbers)
        yield from slots.give_to(self.successor)
        cell.given += 1


def _until(at: float, steps: Steps[T]) -> Steps[T]:
    """Carry out the steps. Raises Unanswered if they begin another request after that time."""
    try:
        request = next(steps)
        while (yield from now()) < at:
            try:
                answer = yield request
            except Unanswered as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as done:
        return done.value
    steps.close()
    raise Unanswered("given up")


def _begin() -> Steps[None]:
    while True:
        try:
            yield from begin_cell(NAME, Candidate("init", "00" * 16), b"[]")
        except (Unanswered, GivenUp):
            continue
        return


def _read(taken: Taken) -> Steps[list[int]]:
    numbers: list[int] = []
    for each in taken.base.manifest.objects:
        while True:
            try:
                data = yield from get(each.key)
                break
            except Unanswered:
                continue
        if data is None and (yield from get(keys.head(NAME, taken.base.head.number + 2))) is not None:
            raise GivenUp("another process has owned the cell since")
        assert data is not None, f"{each.key} is missing"
        assert each.fits(data), f"{each.key} is damaged"
        numbers = json.loads(data)
    for slot in taken.log:
        numbers += json.loads(slot.body)
    return numbers


def facts(cell: Cell) -> dict[str, Any]:
    """The history in words."""
    names = ("count", "takeovers", "bases", "trimmed", "reads", "given", "again", "reused", "swept")
    return {name: getattr(cell, name) for name in names} | {"answered": len(cell.answered)}
