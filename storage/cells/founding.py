"""Makes a cluster: `python -m storage cluster init URL --cells N`.

    probe the store → begin the cells → create the object `cluster`

The object is created last, so a run that was interrupted is completed by the same command, and nodes start only on a
cluster that is whole. Blocking.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable

import msgspec

from storage.bucket import (
    Bucket,
    Candidate,
    Cluster,
    Driver,
    Location,
    NoCluster,
    Steps,
    begin_cell,
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


class MadeCluster(msgspec.Struct, frozen=True):
    """What was made."""

    url: str
    cluster_id: str
    cells: int


def cell_name(cell: int) -> str:
    """What a cell is called in the bucket."""
    return f"cell-{cell:02d}"


Progress = Callable[[str, int, int], None]


def make_cluster(
    location: Location,
    cells: int,
    progress: Progress = lambda what, done, total: None,
    *,
    open_store: Callable[[Location], Bucket] | None = None,
) -> MadeCluster:
    """Make a cluster of this many cells, with no data.

    Raises OpenError if there is one, or if cells of one hold data; StoreRefused if the store does not do what is
    needed; InvalidRequest, Unanswered, GivenUp.
    """
    if not 1 <= cells <= MAX_CELLS:
        raise InvalidRequest(f"A cluster has 1 to {MAX_CELLS} cells.", field="cells")
    open_store = open_store or open_location
    nonce, driver = secrets.token_hex(16), Driver(open_store(location), SystemClock())
    try:
        progress("looking for an earlier cluster", 0, 1)
        driver.run(_refuse_used(location, cells))
        progress("checking the store", 0, 1)
        probe(lambda: open_store(location), "probe", nonce)
        for cell in range(cells):
            progress("making cells", cell, cells)
            driver.run(begin_cell(cell_name(cell), Candidate("init", nonce), new_format(shards=1)))
        mine = uuid.uuid4().hex
        made = driver.run(found(location, mine, cells))
    finally:
        driver.close()
    if made.cluster_id != mine:
        raise _exists(made)
    return MadeCluster(made.url, made.cluster_id, made.cells)


def _refuse_used(location: Location, cells: int) -> Steps[None]:
    try:
        there = yield from read_cluster(location)
    except NoCluster:
        for cell in map(cell_name, range(cells)):
            if (yield from get_patiently(keys.slot(cell, 1))) is not None:
                raise OpenError(f"{location}/{cell} was in use, and the object `cluster` is missing.") from None
    else:
        raise _exists(there)


def _exists(cluster: Cluster) -> OpenError:
    return OpenError(f"{cluster.url} is a cluster of {cluster.cells} cells already.")


def look_at_cluster(location: Location) -> Cluster:
    """The cluster at this place. Raises as `storage.bucket.cluster.read_cluster`."""
    driver = Driver(open_location(location), SystemClock())
    try:
        return driver.run(read_cluster(location))
    finally:
        driver.close()
