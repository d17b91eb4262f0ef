"""Makes a cluster: `python -m storage cluster init URL --cells N`.

    probe the store → begin the cells → create the object `cluster`

The object is created last, so a run that was interrupted is completed by the same command, and nodes start only on a
cluster that is whole. Blocking.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from typing import Final

import msgspec

from storage.bucket import (
    Bucket,
    Candidate,
    Cluster,
    Driver,
    Location,
    NoCluster,
    Seal,
    Steps,
    begin_cell,
    begun_by,
    found,
    get_patiently,
    keys,
    open_location,
    probe,
    read_cluster,
)
from storage.errors import InvalidRequest, OpenError
from storage.platform import SystemClock, new_format
from storage.records import MAX_CELLS

#: What the first seals of cells call the process that made them: this command, and `cluster import`.
FOUNDER: Final = "init"
IMPORTER: Final = "import"


class MadeCluster(msgspec.Struct, frozen=True):
    """What was made."""

    url: str
    cluster_id: str
    cells: int
    #: It was there before.
    existed: bool = False


def cell_name(cell: int) -> str:
    """What a cell is called in the bucket."""
    return f"cell-{cell:02d}"


Progress = Callable[[str, int, int], None]


def make_cluster(
    location: Location,
    cells: int,
    progress: Progress = lambda what, done, total: None,
    *,
    if_not_exists: bool = False,
    open_store: Callable[[Location], Bucket] | None = None,
) -> MadeCluster:
    """Make a cluster of this many cells, with no data. `if_not_exists`: one that is there and has as many cells is
    left as it is; then several processes may do this at the same time.

    Raises OpenError if there is one, or if cells of one hold data; StoreRefused if the store does not do what is
    needed; InvalidRequest, Unanswered, GivenUp.
    """
    if not 1 <= cells <= MAX_CELLS:
        raise InvalidRequest(f"A cluster has 1 to {MAX_CELLS} cells.", field="cells")
    open_store = open_store or open_location
    nonce, driver = secrets.token_hex(16), Driver(open_store(location), SystemClock())
    try:
        progress("looking for an earlier cluster", 0, 1)
        if (there := driver.run(_look(location, cells))) is not None:
            return _existing(there, cells, accepted=if_not_exists)
        progress("checking the store", 0, 1)
        probe(lambda: open_store(location), "probe", nonce)
        for cell in range(cells):
            progress("making cells", cell, cells)
            begun = driver.run(begin_cell(cell_name(cell), Candidate(FOUNDER, nonce), new_format(shards=1)))
            _refuse_imported(location, cell_name(cell), begun)
        mine = uuid.uuid4().hex
        made = driver.run(found(location, mine, cells))
    finally:
        driver.close()
    if made.cluster_id != mine:
        return _existing(made, cells, accepted=if_not_exists)
    return MadeCluster(made.url, made.cluster_id, made.cells)


def _look(location: Location, cells: int) -> Steps[Cluster | None]:
    """The cluster at this place. None if there is none, and no cell was ever used."""
    try:
        return (yield from read_cluster(location))
    except NoCluster:
        pass
    for cell in map(cell_name, range(cells)):
        begun = yield from begun_by(cell)
        if begun is None:
            continue
        used = yield from get_patiently(keys.slot(cell, 1))
        if used is None and begun.node == FOUNDER:
            continue
        try:
            return (yield from read_cluster(location))  # made meanwhile, and used
        except NoCluster:
            _refuse_imported(location, cell, begun)
            raise OpenError(
                f"{location}/{cell} was in use, and the object `cluster` is missing. Bring it back, or use another "
                f"prefix. If nobody needs the data, delete everything below {location}, and run the command again."
            ) from None
    return None


def _refuse_imported(location: Location, cell: str, begun: Seal) -> None:
    """Raises OpenError if the cell was begun by an import: it has a part of the data, and more may come."""
    if begun.node == IMPORTER:
        raise OpenError(
            f"{location}/{cell} has objects of an import that is under way or was interrupted. Wait for it, or use "
            f"another prefix. If it was interrupted, delete everything below {location}, and run the command again."
        )


def _existing(cluster: Cluster, cells: int, *, accepted: bool) -> MadeCluster:
    if not accepted:
        raise OpenError(f"{cluster.url} is a cluster of {cluster.cells} cells already.")
    if cluster.cells != cells:
        raise OpenError(
            f"{cluster.url} is a cluster of {cluster.cells} cells, not of {cells}. The number never changes: "
            f"say --cells {cluster.cells}."
        )
    return MadeCluster(cluster.url, cluster.cluster_id, cluster.cells, existed=True)


def look_at_cluster(location: Location) -> Cluster:
    """The cluster at this place. Raises as `storage.bucket.cluster.read_cluster`."""
    driver = Driver(open_location(location), SystemClock())
    try:
        return driver.run(read_cluster(location))
    finally:
        driver.close()
