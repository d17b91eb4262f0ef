"""A machine whose log goes into a bucket. A power cut takes the whole disk, so the next machine has the bucket
alone."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, cast

from storage import Engine
from storage.backup.bases import BaseTarget, lay_out_base, segments_of
from storage.backup.damage import Damage
from storage.bucket.base import Named
from storage.bucket.log_file import Body, SlotFileSystem
from storage.log import position, split
from storage.platform import File, FileSystem, layout
from storage.segments.tiering import ColdMissing, NamedObject, NamedTier
from tests.support.crash_session import ROOT
from tests.support.sim_disk import Loss, SimDisk

FORMAT = layout.join(ROOT, layout.FORMAT)
CELL = "cell-00"


class Base(NamedTuple):
    """The content of a head of a base and of its manifest."""

    slot: int
    redo: tuple[int, int]
    instant: tuple[int, int]
    named: tuple[Named, ...]


class BucketDisk(SimDisk):
    """The disk of an owner. Each object that it creates is one more call, at which the machine may stop, and which may
    fail. Unused objects are deleted after each base."""

    names = itertools.count()

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.slots: dict[int, Body] = {}
        self.end = 0
        self.objects: dict[str, bytes] = {}
        self.bases: list[Base] = []
        self.make_base = self._make_base
        self.make_tier = self._make_tier
        #: The base that the directory was made of.
        self.made_of: Base | None = None
        self._tier: NamedTier | None = None
        self._slotted = SlotFileSystem(cast(FileSystem, _Local(self)), ROOT, self)

    # -- the bucket --------------------------------------------------------------------------------------------------

    def append(self, body: Body) -> None:
        """See `storage.bucket.log_file.SlotSink`."""

        def put() -> None:
            self.slots[self.end] = body
            self.end += 1

        self.perform("create", f"/bucket/log/{self.end:016x}", (), put)

    def create(self, key: str, data: bytes) -> Named:
        """See `storage.backup.bases.Objects`."""
        assert key not in self.objects, f"{key} is used again"
        self.perform("create", f"/bucket/{key}", (), lambda: self.objects.update({key: data}))
        return Named.of(key, data)

    def get(self, named: Named) -> bytes:
        data = self.objects[named.key]
        assert named.fits(data), named
        return data

    def _make_tier(self, is_open: bool) -> NamedTier:
        """As an owner has it: for a directory that was made of a base, and for one that is used again."""
        self._tier = NamedTier(self._read, is_open=is_open)
        base = self.made_of or (self.bases[-1] if self.bases else None)
        if base is not None:
            found = segments_of(CELL, base.named, self)
            self._tier.name({id: NamedObject(named.key, named.size) for id, named, _ in found})
        return self._tier

    def _read(self, key: str, offset: int, size: int) -> bytes:
        if key not in self.objects:
            raise ColdMissing(key)
        return self.objects[key][offset : offset + size]

    async def _make_base(self, engine: Engine) -> None:
        known = [named for base in self.bases[-1:] for named in base.named]
        made: list[BaseTarget] = []

        def target(going: Any) -> BaseTarget:
            name = f"base-{next(self.names)}"
            made.append(BaseTarget(self, CELL, name, known, self, ROOT, going, chunk_bytes=256, on_damage=_no_damage))
            return made[0]

        [redo], [instant] = await engine.backups.take_base(target)
        behind = [number for number, body in self.slots.items() if position(body.file, body.offset) > redo]
        slot = max(0, min(behind, default=self.end) - 1)
        head = Base(slot, split(redo), split(instant), tuple(made[0].named.values()))
        self.perform("create", f"/bucket/base/{len(self.bases)}", (), lambda: self._complete(head))
        if self._tier is not None:
            self._tier.name(made[0].segments())

    def _complete(self, head: Base) -> None:
        self.bases.append(head)
        self.made_of = None
        del self.bases[:-2]
        if len(self.bases) == 2:
            needed = {named.key for base in self.bases for named in base.named}
            self.objects = {key: data for key, data in self.objects.items() if key in needed}
            self.slots = {number: body for number, body in self.slots.items() if number >= self.bases[0].slot}

    # -- the disk ----------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> File:
        return self._slotted.open(path, create=create, exclusive=exclusive, write=write)

    def rename(self, source: str, target: str) -> None:
        self._slotted.rename(source, target)

    def _restarted(self) -> SimDisk:
        found = super()._restarted()
        assert isinstance(found, BucketDisk)
        found.take_bucket(self)
        return found

    def take_bucket(self, other: BucketDisk) -> None:
        self.slots, self.end = dict(other.slots), other.end
        self.objects, self.bases = dict(other.objects), [*other.bases]
        self.made_of = other.made_of

    def power_cut(self, loss: Loss | str = Loss.TORN, seed: int = 0, *, entries: Loss | str | None = None) -> SimDisk:
        before = self._restarted()
        found = BucketDisk()
        found._boot = self._boot + 1
        found.take_bucket(self)
        if not found.slots:
            return found
        # Of the two bases that are there, either must do.
        base = found.bases[seed % len(found.bases)] if found.bases else Base(0, (1, 0), (1, 0), ())
        if not base.named:
            found.objects["FORMAT"] = before.read_file(FORMAT)
            base = base._replace(named=(Named.of("FORMAT", found.objects["FORMAT"]),))
        found.made_of = base
        log = [found.slots[number] for number in range(base.slot, found.end)]
        lay_out_base(
            cast(FileSystem, _Local(found)),
            ROOT,
            CELL,
            found,
            base.named,
            log,
            base.redo,
            base.instant,
            leave_cold=True,
        )
        found.calls.clear()
        return found


class _Local:
    """The disk without its bucket."""

    def __init__(self, disk: BucketDisk) -> None:
        self._disk = disk

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> File:
        return SimDisk.open(self._disk, path, create=create, exclusive=exclusive, write=write)

    def rename(self, source: str, target: str) -> None:
        SimDisk.rename(self._disk, source, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def _no_damage(damage: Damage) -> None:
    """The disk gives back what was written, unless a call failed: then the base fails, too."""
    assert not damage.seqs, f"{damage.id}: {damage}"
