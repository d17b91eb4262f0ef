"""What a power cut takes: pure functions of the unsynced changes, a mode and a source of randomness."""

from __future__ import annotations

from enum import StrEnum
from random import Random

from tests.support.sim_nodes import SECTOR_BYTES, Change, DirNode, EntryChange, FileNode, Image, Resize, Write


class Loss(StrEnum):
    """How much of the unsynced data is gone after a power cut."""

    DROP = "drop"  # all of it
    KEEP = "keep"  # nothing: the page cache was written back in the last moment
    PREFIX = "prefix"  # everything after some byte in the order of the calls, file by file and directory by directory
    TORN = "torn"  # any set of 512-byte sectors of the files; of directories as PREFIX


def surviving_image(durable: Image, unsynced: list[Change], loss: Loss, rng: Random) -> Image:
    """The content of a file after the cut. `durable` is not changed."""
    image = durable.copy()
    match loss:
        case Loss.DROP:
            pass
        case Loss.KEEP:
            for change in unsynced:
                change.apply(image)
        case Loss.PREFIX:
            _keep_prefix(image, unsynced, rng)
        case Loss.TORN:
            _keep_sectors(image, unsynced, rng)
    return image


def _keep_prefix(image: Image, unsynced: list[Change], rng: Random) -> None:
    kept = rng.randint(0, len(unsynced))
    for change in unsynced[:kept]:
        change.apply(image)
    if kept < len(unsynced):
        torn = unsynced[kept]
        if isinstance(torn, Write):
            Write(torn.offset, torn.data[: rng.randint(0, len(torn.data))]).apply(image)


def _keep_sectors(image: Image, unsynced: list[Change], rng: Random) -> None:
    """Every sector has its old content, or that after any of the writes to it. The length is any that the file had.

    Within a sector the order holds (the device writes it as a whole, from a page that had the earlier bytes too).
    Lengths are metadata: the first few changes survived, independent of the bytes. A write beyond a truncation that was
    itself lost has no block, so it is lost too.
    """
    lengths_kept = rng.randint(0, len(unsynced))
    last_kept = _last_write_by_sector(unsynced, rng)
    length = image.length
    lost_cut = None
    for index, change in enumerate(unsynced):
        if isinstance(change, Write):
            _write_kept_sectors(image, index, change, last_kept, lost_cut)
            if index < lengths_kept:
                length = max(length, change.offset + len(change.data))
        elif index < lengths_kept:
            # The image may be longer than the file, because of kept sectors whose length was lost: they are cut off
            # below.
            change.apply(image)
            length = change.size if isinstance(change, Resize) else max(length, change.size)
        elif isinstance(change, Resize):
            lost_cut = change.size if lost_cut is None else min(lost_cut, change.size)
    image.resize(length)


def _last_write_by_sector(unsynced: list[Change], rng: Random) -> dict[int, int]:
    """For each sector, the index of the last change that reached it. Missing if there was none."""
    touching: dict[int, list[int]] = {}
    for index, change in enumerate(unsynced):
        if isinstance(change, Write) and change.data:
            for sector in _sectors(change):
                touching.setdefault(sector, []).append(index)
    # Cuts that lose nearly everything and nearly nothing are as likely as those that lose half.
    whole = rng.random()
    last: dict[int, int] = {}
    for sector, indexes in touching.items():
        count = len(indexes) if rng.random() < whole else rng.randrange(len(indexes))
        if count:
            last[sector] = indexes[count - 1]
    return last


def _sectors(write: Write) -> range:
    return range(write.offset // SECTOR_BYTES, (write.offset + len(write.data) - 1) // SECTOR_BYTES + 1)


def _write_kept_sectors(
    image: Image, index: int, write: Write, last_kept: dict[int, int], lost_cut: int | None
) -> None:
    if not write.data:
        return
    for sector in _sectors(write):
        if last_kept.get(sector, -1) < index or (lost_cut is not None and (sector + 1) * SECTOR_BYTES > lost_cut):
            continue
        start = max(sector * SECTOR_BYTES, write.offset)
        end = min((sector + 1) * SECTOR_BYTES, write.offset + len(write.data))
        image.write(start, write.data[start - write.offset : end - write.offset])


def surviving_entries(changes: list[EntryChange], loss: Loss, rng: Random) -> list[EntryChange]:
    """The unsynced changes of entries that survived: the first few of each directory."""
    if loss is Loss.DROP:
        return []
    if loss is Loss.KEEP:
        return changes
    per_directory: dict[int, int] = {}
    for change in changes:
        for key in change.directories():
            per_directory[key] = per_directory.get(key, 0) + 1
    budget = {key: rng.randint(0, count) for key, count in per_directory.items()}
    kept: list[EntryChange] = []
    for change in changes:
        # A change is kept only if all its directories allow it. Dropping it blocks them, so the order holds in each.
        if all(budget[key] > 0 for key in change.directories()):
            kept.append(change)
            for key in change.directories():
                budget[key] -= 1
        else:
            for key in change.directories():
                budget[key] = 0
    return kept


def cut_power(root: DirNode, changes: list[EntryChange], loss: Loss, entries: Loss, rng: Random) -> None:
    """Turn a tree into what is found when the power is back: one side only, and nothing pending."""
    for change in surviving_entries(changes, entries, rng):
        change.apply_durable()
    _settle(root, loss, rng, set())


def _settle(directory: DirNode, loss: Loss, rng: Random, seen: set[int]) -> None:
    directory.live = dict(directory.durable)
    for name in sorted(directory.live):
        node = directory.live[name]
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, FileNode):
            node.settle(surviving_image(node.durable, node.unsynced, loss, rng))
        else:
            _settle(node, loss, rng, seen)


def unsynced_before(directory: DirNode, changes: list[EntryChange]) -> list[EntryChange]:
    """The changes that become durable when `directory` is synced: its own, and those that they need in other
    directories.

    A rename between two directories happens as a whole, so syncing one of them makes earlier changes of the other
    durable.
    """
    involved = {id(directory)}
    needed: list[EntryChange] = []
    for change in reversed(changes):
        directories = change.directories()
        if not involved.isdisjoint(directories):
            involved.update(directories)
            needed.append(change)
    needed.reverse()
    return needed
