"""`cluster init`, `finalize`, and orders to nodes are cut at every request to the store: killed before or behind it, or
without its answer. The same command then does what it would have done, once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from broker.cluster import Plan, newest, order
from broker.gateway.ordering import finalize
from storage.bucket import (
    Candidate,
    Driver,
    GivenUp,
    Location,
    NoCluster,
    Unanswered,
    begin_cell,
    found,
    keys,
    newest_head,
    read_cluster,
)
from storage.cells.founding import FOUNDER, IMPORTER, cell_name, make_cluster
from storage.errors import OpenError
from storage.platform import SystemClock, new_format
from tests.support.cut_bucket import CutBucket, How
from tests.support.memory_bucket import MemoryBucket
from tests.support.sim_faults import SimCrash

HERE = Location("s3", "bucket", "one")
CELLS = 2

Command = Callable[[MemoryBucket], object]


def init(bucket: MemoryBucket, cells: int = CELLS, *, if_not_exists: bool = False) -> None:
    make_cluster(HERE, cells, if_not_exists=if_not_exists, open_store=lambda _: bucket)


def founded() -> MemoryBucket:
    """A cluster of the first format."""
    bucket = MemoryBucket()
    driver = Driver(bucket, SystemClock())
    driver.run(found(HERE, "a" * 32, CELLS))
    bucket.objects[keys.CLUSTER] = bucket.objects[keys.CLUSTER].replace(b'"format":2', b'"format":1')
    driver.close()
    return bucket


def finalized(bucket: MemoryBucket) -> None:
    driver = Driver(bucket, SystemClock())
    try:
        assert finalize(driver, HERE, 2).format == 2
    finally:
        driver.close()


def moves(bucket: MemoryBucket) -> None:
    order(bucket, Plan(), partial(Plan.moved, cell=1, node="b"))


def drains(bucket: MemoryBucket) -> None:
    order(bucket, Plan(), partial(Plan.draining, node="b", drain=True))


def is_one_cluster(bucket: MemoryBucket) -> None:
    driver = Driver(bucket, SystemClock())
    assert driver.run(read_cluster(HERE)).cells == CELLS
    for cell in map(cell_name, range(CELLS)):
        head = driver.run(newest_head(cell))
        assert head is not None
        assert head.number == 0
        assert keys.slot(cell, 0) in bucket.objects
    driver.close()


def is_of_the_newest_format(bucket: MemoryBucket) -> None:
    driver = Driver(bucket, SystemClock())
    cluster = driver.run(read_cluster(HERE))
    assert (cluster.format, cluster.revision) == (2, 1), "it is made once"
    driver.close()


def is_ordered(wanted: Plan, bucket: MemoryBucket) -> None:
    assert newest(bucket, Plan()) == wanted


@pytest.mark.parametrize(
    ("begin", "command", "again", "check"),
    [
        pytest.param(MemoryBucket, init, partial(init, if_not_exists=True), is_one_cluster, id="init"),
        pytest.param(founded, finalized, finalized, is_of_the_newest_format, id="finalize"),
        pytest.param(MemoryBucket, moves, moves, partial(is_ordered, Plan(number=1, cells={1: "b"})), id="move"),
        pytest.param(MemoryBucket, drains, drains, partial(is_ordered, Plan(number=1, drained=("b",))), id="drain"),
    ],
)
def test_a_command_that_was_cut_is_given_again(
    begin: Callable[[], MemoryBucket], command: Command, again: Command, check: Callable[[MemoryBucket], None]
) -> None:
    trace = CutBucket(begin().objects)
    command(trace)
    requests = [*trace.requests]
    check(trace)
    cuts = 0
    for number, request in enumerate(requests):
        for how in How if request.changes else (How.BEFORE, How.REFUSED):
            cut = CutBucket(begin().objects, number, how)
            try:
                command(cut)
            except (SimCrash, Unanswered, GivenUp):
                after = MemoryBucket()
                after.objects = cut.objects
                again(after)
            assert cut.cut
            after = MemoryBucket()
            after.objects = cut.objects
            check(after)
            cuts += 1
    assert cuts > 2


def test_a_cluster_is_not_made_of_cells_that_an_import_has_begun() -> None:
    bucket = MemoryBucket()
    driver = Driver(bucket, SystemClock())
    driver.run(begin_cell(cell_name(0), Candidate(IMPORTER, "0" * 32), new_format(shards=1)))
    for given in (1, 2):
        with pytest.raises(OpenError, match=r"an import that is under way or was interrupted.*delete everything"):
            init(bucket, given, if_not_exists=True)
    with pytest.raises(NoCluster):
        driver.run(read_cluster(HERE))
    driver.close()


def test_an_import_that_begins_meanwhile_is_found_before_the_cluster_is_made() -> None:
    class Late(MemoryBucket):
        """The import begins a cell when the command has looked."""

        def create(self, key: str, data: bytes) -> bool:
            if key.startswith("cell-00/begin/") and not self.objects.get("begun"):
                self.objects["begun"] = b"1"
                driver = Driver(self, SystemClock())
                driver.run(begin_cell(cell_name(0), Candidate(IMPORTER, "0" * 32), new_format(shards=1)))
                driver.close()
            return super().create(key, data)

    bucket = Late()
    with pytest.raises(OpenError, match="an import that is under way"):
        init(bucket)
    assert keys.CLUSTER not in bucket.objects


def test_the_first_process_is_the_one_that_a_cell_names() -> None:
    driver = Driver(MemoryBucket(), SystemClock())
    for nonce in ("0" * 32, "1" * 32):
        seal = driver.run(begin_cell("cell-00", Candidate(FOUNDER, nonce), new_format(shards=1)))
        assert seal.nonce == "0" * 32
    driver.close()
