"""Stops one of several cells at calls to its disk, in every way, while the others continue, and reports what was wrong.

A failure names what repeats it: `run_pair(body, seed, cell, point)`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol, TypeVar

from tests.support.cell_pair import CellPair
from tests.support.crash_run import CrashPoint, run
from tests.support.crash_sweep import MAX_FAILURES, Size
from tests.support.sim_disk import SimDisk, When
from tests.support.sim_faults import SimCrash

#: How many stops of each cell are tried at size SOME, and at FEW.
POINTS = {Size.SOME: 6, Size.FEW: 3}
#: How often a life gets more time to come to rest.
MOST_RESTS = 12


class Life(Protocol):
    """The steps of two cells, and what must hold afterwards."""

    @property
    def pair(self) -> CellPair: ...

    async def check(self) -> list[str]: ...


L = TypeVar("L", bound=Life)


def run_pair(
    make: Callable[[Random], L],
    body: Callable[[L], Awaitable[None]],
    seed: int,
    cell: int = 0,
    point: CrashPoint | None = None,
) -> tuple[list[str], list[SimDisk]]:
    """What is wrong when that cell stops there (None: neither stops), and the disks before the last power cut."""
    return run(_run(make, body, seed, cell, point))


async def _run(
    make: Callable[[Random], L],
    body: Callable[[L], Awaitable[None]],
    seed: int,
    cell: int,
    point: CrashPoint | None,
) -> tuple[list[str], list[SimDisk]]:
    rng = Random(seed)
    life = make(rng)
    pair = life.pair
    if point is not None:
        pair.stop_at(cell, point)
    await pair.start()
    await body(life)
    if point is not None and rng.randrange(3) == 0:
        pair.cut_power((cell + 1 + rng.randrange(pair.count - 1)) % pair.count)  # another one, too
    problems = await _at_rest(life)
    lived = [*pair.disks]
    pair.cut_power(rng.randrange(pair.count))
    problems += [f"stopped once more: {each}" for each in await _at_rest(life)]
    return problems, lived


async def _at_rest(life: Life) -> list[str]:
    """What is wrong when nothing changes any more. Failed calls are repeated half a minute later, and may fail again,
    so work that remains gets more time before it is reported."""
    problems: list[str] = []
    for _ in range(MOST_RESTS):
        await life.pair.rest()
        try:
            problems = await life.check()
        except SimCrash:
            problems = ["a cell stopped while it was looked at"]
        if not problems:
            break
    return problems


def sweep(make: Callable[[Random], L], body: Callable[[L], Awaitable[None]], size: Size) -> list[str]:
    """What was wrong, with the seed, the cell and the point that repeat it."""
    rng = Random(random.getrandbits(32))
    seed = rng.randrange(1 << 30)
    problems, disks = run_pair(make, body, seed)
    if problems:
        return [f"no crash, seed {seed}: {problems}"]
    found: list[str] = []
    for cell, disk in enumerate(disks):
        points = [CrashPoint(index, when) for index in disk.crash_points() for when in When]
        if size is not Size.ALL:
            points = rng.sample(points, min(max(1, POINTS[size] * 2 // len(disks)), len(points)))
        for point in points:
            seed = rng.randrange(1 << 30)
            problems, _ = run_pair(make, body, seed, cell, point)
            if problems:
                found.append(f"seed {seed}, cell {cell}, {point}: {problems}")
                if len(found) >= MAX_FAILURES:
                    return found
    return found
