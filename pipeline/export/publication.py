"""Makes files visible once they count, so that a plain reader of a topic's folder sees every record once.

Tasks write under names that nobody's glob finds (`_topics/<topic>/_staged/…`, with `.tmp` behind them).

    step                                       killed before the next one
    1  put the manifest                        its files count under their staged names; nobody's glob sees them yet
    2  remove what it replaces, a folder       a glob misses these records, and none is there twice
       at a time
    3  give that folder's files their names    as 1, for the rest of them
    4  the staged names go with it             a name is left that counts: the next run does steps 2 to 4 again

Every run begins by finishing what is staged and counts. Whoever does these steps, and how often, the outcome is one: a
file is moved once, since what was moved is no longer there under the staged name, and what is removed never counts
again. A Delta table is read by its log, so its files get their names before the commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from pipeline.export import names
from pipeline.export.manifest import Chain, FileEntry, Manifest
from pipeline.export.store import Store


def commit(chain: Chain, manifest: Manifest) -> bool:
    """Put a manifest and make visible what it says. False when another run was first: then nothing is visible.

    When it raises, the manifest may be there; the next run makes its files visible then.
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
    """Make visible what a run that was killed has put in a manifest."""
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
    """The key that a file which counts is found under now."""
    staged = names.staged(topic, file)
    return staged if store.size(file) is None and store.size(staged) is not None else file


def _show(chain: Chain, manifest: Manifest) -> None:
    steps = [(name.rsplit("/", 1)[0], 0, name) for name in manifest.removed]
    steps += [(entry.file.rsplit("/", 1)[0], 1, entry.file) for entry in manifest.added]
    for _, inside in groupby(sorted(steps), key=lambda step: step[0]):
        for _, is_added, name in inside:
            if is_added:
                chain.store.move(names.staged(chain.topic, name), name)
            else:
                chain.store.delete(name)


def _withdraw_replaced(chain: Chain, manifest: Manifest) -> None:
    # A bucket copies: a copy that took its time may have come after a compaction that another run made meanwhile.
    mine = {entry.file for entry in manifest.added}
    for number in chain.numbers()[manifest.number :]:
        for name in mine.intersection(chain.load(number).removed):
            chain.store.delete(name)


__all__ = ["commit", "finish", "whereabouts", "withdraw"]
