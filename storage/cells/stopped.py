"""Reads the cells of a cluster on which nothing runs, and finds what is missing there.

Nothing is changed, and no cell gets an owner. Blocking.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import msgspec

from storage.bucket import (
    BaseMissing,
    CellMissing,
    DamagedSlot,
    Driver,
    Named,
    Reading,
    Unanswered,
    get_object,
    keys,
    names_patiently,
    read_cell,
    signs_of_life,
    stat_patiently,
)
from storage.cells.founding import Progress, cell_name
from storage.errors import OpenError


class ClusterInUse(OpenError):
    """Something runs on the cluster, or writes to its objects."""


class ClusterDamaged(OpenError):
    """Objects are missing or damaged."""


class Stopped(msgspec.Struct, frozen=True):
    """A cell without a living owner."""

    cell: int
    reading: Reading

    @property
    def is_clean(self) -> bool:
        """Whether its owner stopped cleanly, so that nothing of it is elsewhere; or it never had one."""
        return bool(self.reading.owner.successor) or self.reading.owner.slot == 0


def read_stopped(driver: Driver, cells: int, ttl_s: float, progress: Progress) -> list[Stopped]:
    """All cells. Raises ClusterInUse, ClusterDamaged with everything that is wrong, Unanswered."""
    found: list[Stopped] = []
    wrong: list[str] = []
    for cell in range(cells):
        progress("reading logs", cell, cells)
        name = cell_name(cell)
        try:
            reading = driver.run(read_cell(name))
        except (CellMissing, BaseMissing, DamagedSlot) as error:
            wrong.append(f"{name}: {error}")
            continue
        wrong += [f"{name}: {each}" for each in _missing(driver, name, reading)]
        found.append(Stopped(cell, reading))
    progress("waiting for signs of life", 0, 1)
    if busy := driver.run(signs_of_life((each.reading.owner.nonce for each in found), ttl_s)):
        raise ClusterInUse(
            f"Something runs on the cluster, or objects are still copied: {', '.join(busy[:5])} changed within "
            f"{ttl_s:g} s. Stop all nodes, and what copies objects; then run the command again."
        )
    if wrong:
        more = f" And {len(wrong) - 10} more." if len(wrong) > 10 else ""
        raise ClusterDamaged(f"The objects are not complete: {'; '.join(wrong[:10])}.{more}")
    return found


def _missing(driver: Driver, name: str, reading: Reading) -> list[str]:
    """Objects of the base, and slots behind the end."""
    objects = reading.base.manifest.objects
    found = [f"{each.key} is missing" for each in objects if driver.run(stat_patiently(each.key)) is None]
    end = keys.slot(name, reading.end)
    behind = [key for key in driver.run(names_patiently(f"{end.rpartition('/')[0]}/")) if key > end]
    if behind:
        found.append(f"{end} is missing, and {len(behind)} slots behind it exist")
    return found


class StoppedObjects:
    """The objects of a cell, as `storage.backup.bases.Readable`."""

    def __init__(self, driver: Driver, on: Callable[[int], None] = lambda size: None) -> None:
        self._driver = driver
        self._on = on

    def get(self, named: Named) -> bytes:
        try:
            data = self._driver.run(get_object(named))
        except Unanswered as error:
            raise OSError(errno.EIO, f"{named.key}: the store did not answer") from error
        if data is None or not named.fits(data):
            raise OSError(errno.EIO, f"{named.key} is missing or damaged")
        self._on(len(data))
        return data
