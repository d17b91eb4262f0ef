"""Makes files visible when they are valid, so that a plain reader of a topic's folder sees every record once.

Tasks write under names that no glob finds (`_topics/<topic>/_staged/…`, with the suffix `.tmp`).

    step                                       state if the run is killed after it
    1  put the manifest                        its files are valid under their staged names; globs do not find them yet
    2  remove replaced files, folder by        a glob misses these records, but finds none twice
       folder
    3  give the folder's files their names     as 1, for the other folders
    4  remove the staged names                 if one remains, the next run repeats steps 2 to 4

Every run begins by publishing staged files that are valid. The steps can be repeated, by any run: a file is moved only
once, because its staged name is then gone, and a removed file never becomes valid again. A table is read by its log,
so its files get their names before the commit, and replaced ones stay for readers of older versions until `vacuum`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from pipeline.export import names
from pipeline.export.manifest import Chain, FileEntry, Manifest
from pipeline.export.store import Store


def commit(chain: Chain, manifest: Manifest) -> bool:
    """Put a manifest and make its files visible. False: another run was first, and nothing is visible.

    If it raises, the manifest may exist; the next run then makes its files visible.
    """
    if chain.visible_first:
        _show(chain, manifest)
    if not chain.put(manifest):
        withdraw(chain, manifest.added)
        return False
    if not chain.visible_first:
        _show(chain, manifest)
        _withdraw_replaced(chain, manifest)
    return True


def withdraw(chain: Chain, entries: Iterable[FileEntry]) -> None:
    """Remove files that no manifest names."""
    for entry in entries:
        chain.store.delete(names.staged(chain.topic, entry.file))
        chain.store.delete(entry.file)


def finish(chain: Chain) -> None:
    """Make the files visible that are in the manifest of a run that was killed."""
    store = chain.store
    waiting = {key for key, _ in store.list(names.staging_folder(chain.topic))}
    if not waiting:
        return
    counting = chain.referenced()
    for manifest in chain.all():
        mine = {names.staged(chain.topic, entry.file): entry.file for entry in manifest.added}
        if mine.keys() & waiting:
            for key, file in mine.items():
                if file not in counting:
                    store.delete(key)
            _show(chain, manifest)
            if not chain.visible_first:
                _withdraw_replaced(chain, manifest)


def whereabouts(store: Store, topic: str, file: str) -> str:
    """The current key of a valid file."""
    staged = names.staged(topic, file)
    return staged if store.size(file) is None and store.size(staged) is not None else file


def _show(chain: Chain, manifest: Manifest) -> None:
    replaced = () if chain.visible_first else manifest.removed
    steps = [(name.rsplit("/", 1)[0], 0, name) for name in replaced]
    steps += [(entry.file.rsplit("/", 1)[0], 1, entry.file) for entry in manifest.added]
    for _, inside in groupby(sorted(steps), key=lambda step: step[0]):
        for _, is_added, name in inside:
            if is_added:
                chain.store.move(names.staged(chain.topic, name), name)
            else:
                chain.store.delete(name)


def _withdraw_replaced(chain: Chain, manifest: Manifest) -> None:
    # Buckets move by copying: a slow copy may have ended after another run's compaction.
    mine = {entry.file for entry in manifest.added}
    for number in chain.numbers()[manifest.number :]:
        for name in mine.intersection(chain.load(number).removed):
            chain.store.delete(name)


__all__ = ["commit", "finish", "whereabouts", "withdraw"]
