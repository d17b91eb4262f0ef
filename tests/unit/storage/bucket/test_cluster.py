"""What a cluster is, at its prefix and nowhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from storage.bucket import Driver, NoCluster, begin_cell, found, keys, parse_location, read_cluster
from storage.bucket.location import Location
from storage.bucket.takeover import Candidate
from storage.cells.founding import look_at_cluster, make_cluster
from storage.errors import MetadataLost, OpenError, UnsupportedFormat
from storage.platform import SystemClock, new_format
from tests.support.memory_bucket import MemoryBucket
from tests.unit.storage.cold.servers import BUCKET, credentials, s3_server

HERE = Location("s3", "bucket", "one")


def always(bucket: MemoryBucket) -> Callable[[object], MemoryBucket]:
    """Opens that bucket, whatever is asked for."""
    return lambda _: bucket


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def driver(bucket: MemoryBucket) -> Iterator[Driver]:
    driver = Driver(bucket, SystemClock())
    yield driver
    driver.close()


def test_the_first_process_makes_it_and_the_others_find_it(driver: Driver) -> None:
    made = driver.run(found(HERE, "a" * 32, 4))
    assert driver.run(found(HERE, "b" * 32, 8)) == made == driver.run(read_cluster(HERE))
    assert (made.cluster_id, made.cells, made.url) == ("a" * 32, 4, "s3://bucket/one")


def test_a_copied_prefix_is_refused(driver: Driver) -> None:
    driver.run(found(HERE, "a" * 32, 4))
    with pytest.raises(OpenError, match="copy of the cluster at s3://bucket/one"):
        driver.run(read_cluster(Location("s3", "bucket", "two")))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"{", MetadataLost),
        (b'{"format":3,"cluster_id":"a","url":"s3://bucket/one","cells":4}', UnsupportedFormat),
    ],
)
def test_an_object_that_cannot_be_read_is_refused(
    bucket: MemoryBucket, driver: Driver, content: bytes, error: type[Exception]
) -> None:
    bucket.objects[keys.CLUSTER] = content
    with pytest.raises(error):
        driver.run(read_cluster(HERE))


def test_an_address_is_never_repeated_in_an_error() -> None:
    for wrong in ("http://k3y@bucket/one", "s3://k3y@bucket/one", "s3://bucket/one?k3y=1", "s3://bucket/../k3y", "k3y"):
        with pytest.raises(ValueError, match=r".") as refused:
            parse_location(wrong)
        assert "k3y" not in str(refused.value)
    assert parse_location("s3://bucket/one/two/") == Location("s3", "bucket", "one/two")


def test_a_cluster_is_made_once_and_not_over_the_data_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location("s3", BUCKET, "clusters/made")
    with contextlib.ExitStack() as stack:
        credentials(monkeypatch, stack.enter_context(s3_server()))
        with pytest.raises(NoCluster, match="cluster init"):
            look_at_cluster(location)
        made = make_cluster(location, 2)
        assert look_at_cluster(location).cluster_id == made.cluster_id
        with pytest.raises(OpenError, match="a cluster of 2 cells already"):
            make_cluster(location, 3)


def test_cells_that_were_in_use_are_not_begun_anew(monkeypatch: pytest.MonkeyPatch, bucket: MemoryBucket) -> None:
    monkeypatch.setattr("storage.cells.founding.open_location", always(bucket))
    made = make_cluster(HERE, 2)
    bucket.objects[keys.slot("cell-01", 1)] = b"somebody owned it"
    del bucket.objects[keys.CLUSTER]
    with pytest.raises(OpenError, match="cell-01 was in use"):
        make_cluster(HERE, 2)
    del bucket.objects[keys.slot("cell-01", 1)]
    assert make_cluster(HERE, 2).cells == made.cells  # as after a run that was interrupted


def test_several_processes_may_make_it_if_it_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location("s3", BUCKET, "clusters/together")
    with contextlib.ExitStack() as stack:
        credentials(monkeypatch, stack.enter_context(s3_server()))
        with ThreadPoolExecutor(3) as pool:
            made = list(pool.map(lambda _: make_cluster(location, 2, if_not_exists=True), range(3)))
        assert len({each.cluster_id for each in made}) == 1
        assert [each.existed for each in made].count(False) == 1
        again = make_cluster(location, 2, if_not_exists=True)
        assert (again.cluster_id, again.existed) == (made[0].cluster_id, True)
        with pytest.raises(OpenError, match=r"of 2 cells, not of 3\. The number never changes: say --cells 2"):
            make_cluster(location, 3, if_not_exists=True)


def test_one_that_was_made_and_used_meanwhile_is_no_damage(
    monkeypatch: pytest.MonkeyPatch, bucket: MemoryBucket
) -> None:
    """Another process makes it, and a node seals a cell, between the first look at the two."""
    monkeypatch.setattr("storage.cells.founding.open_location", always(bucket))
    other = make_cluster(HERE, 2)
    bucket.objects[keys.slot("cell-00", 1)] = b"a node owns it"
    made, get = bucket.objects.pop(keys.CLUSTER), bucket.get

    def late(key: str) -> bytes | None:
        found = get(key)
        if key == keys.CLUSTER:
            bucket.objects[keys.CLUSTER] = made
        return found

    monkeypatch.setattr(bucket, "get", late)
    assert make_cluster(HERE, 2, if_not_exists=True) == msgspec.structs.replace(other, existed=True)


def test_every_cell_is_begun_when_there_is_a_cluster(monkeypatch: pytest.MonkeyPatch, bucket: MemoryBucket) -> None:
    monkeypatch.setattr("storage.cells.founding.open_location", always(bucket))
    make_cluster(HERE, 3)
    before = dict(bucket.objects)
    driver = Driver(bucket, SystemClock())
    for cell in range(3):
        driver.run(begin_cell(f"cell-{cell:02d}", Candidate("late", "00" * 16), new_format(shards=1)))
    driver.close()
    assert bucket.objects == before
