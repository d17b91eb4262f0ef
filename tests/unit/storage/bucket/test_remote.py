"""The protocol against a real S3 server, with several connections."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage.bucket.base import Manifest, put_base, put_object
from storage.bucket.driver import Driver, open_bucket
from storage.bucket.probe import probe
from storage.bucket.requests import Unanswered, some_names
from storage.bucket.slots import Fenced, Slots
from storage.bucket.takeover import Candidate, Taken, begin_cell, take_over
from storage.platform.clock import SystemClock
from tests.unit.storage.cold.servers import (
    BUCKET,
    SECRET,
    BrokenServer,
    EchoingServer,
    answering,
    credentials,
    s3_server,
    silent_server,
)

CELL = "cell-00"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty S3 server, named by the environment."""
    with s3_server() as endpoint:
        credentials(monkeypatch, endpoint)
        yield


@pytest.fixture
def driver(store: None) -> Iterator[Driver]:
    """A connection of one process to it."""
    made = Driver(open_bucket("s3", BUCKET, "clusters/one"), SystemClock())
    yield made
    made.close()


def process(number: int) -> Candidate:
    return Candidate(f"node-{number}", f"{number:032x}")


def owned(driver: Driver, number: int) -> Taken:
    taken = driver.run(take_over(CELL, process(number), ttl_s=0.1))
    assert taken is not None
    return taken


def test_a_cell_is_begun_and_what_its_owner_appends_is_read_by_the_next(driver: Driver) -> None:
    driver.run(begin_cell(CELL, process(0), b"format"))
    slots = Slots(CELL, owned(driver, 1).seal)
    bodies = [f"batch {number}".encode() for number in range(20)]
    for body in bodies:
        driver.run(slots.append(1, 0, body))
    following = owned(driver, 2)
    assert [slot.body for slot in following.log] == bodies
    with pytest.raises(Fenced):
        driver.run(slots.append(1, 0, b"too late"))
    with pytest.raises(Fenced):  # permanently
        driver.run(slots.append(1, 0, b"too late"))


def test_reading_begins_at_the_newest_base(driver: Driver) -> None:
    driver.run(begin_cell(CELL, process(0), b"format"))
    taken = owned(driver, 1)
    slots = Slots(CELL, taken.seal)
    for number in range(3):
        driver.run(slots.append(1, number, b"before"))
    named = driver.run(put_object(f"{CELL}/seg/one", b"state"))
    base = driver.run(put_base(CELL, slots.seal.nonce, 1, 1, slots.end, slots.seal, Manifest((named,), taken.seals)))
    driver.run(slots.append(1, 3, b"behind"))
    following = owned(driver, 2)
    assert following.base == base
    assert [slot.body for slot in following.log] == [b"behind"]


def test_of_processes_that_want_a_cell_at_the_same_time_one_gets_it(driver: Driver) -> None:
    driver.run(begin_cell(CELL, process(0), b"format"))

    def take(number: int) -> Taken | None:
        own = Driver(open_bucket("s3", BUCKET, "clusters/one"), SystemClock())
        try:
            return own.run(take_over(CELL, process(number), ttl_s=1.0))
        finally:
            own.close()

    with ThreadPoolExecutor(6) as pool:
        taken = [each for each in pool.map(take, range(1, 7)) if each is not None]
    # The others found its seal and waited for its signs of life, of which there are none here.
    assert len({each.seal.generation for each in taken}) == len(taken)
    assert sorted(each.seal.slot for each in taken) == list(range(1, len(taken) + 1))


def test_an_s3_server_passes_the_probe_and_nothing_is_left(driver: Driver) -> None:
    probe(lambda: open_bucket("s3", BUCKET, "clusters/one"), "probe", "aa" * 16)
    assert list(open_bucket("s3", BUCKET, "clusters/one").names("probe/")) == []


def test_a_listing_is_read_only_as_far_as_names_are_wanted(driver: Driver) -> None:
    wanted = [f"many/{number}-wanted" for number in range(6)]
    for key in (*wanted, *(f"many/{number}-other" for number in range(6))):
        driver.bucket.create(key, b"")
    asked: list[str] = []

    def is_wanted(key: str) -> bool:
        asked.append(key)
        return key.endswith("wanted")

    found = driver.run(some_names("many/", is_wanted, 2))
    assert set(found) < set(wanted)
    assert (len(found), len(asked) < 12) == (2, True)
    assert sorted(driver.run(some_names("many/", is_wanted, 100))) == wanted


@pytest.mark.parametrize("server", [EchoingServer, BrokenServer])
def test_an_error_of_the_store_is_unanswered_and_shows_no_credential(
    server: type[EchoingServer | BrokenServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(server) as endpoint:
        credentials(monkeypatch, endpoint)
        bucket = open_bucket("s3", BUCKET, None, timeout_s=5)
        for call in (lambda: bucket.create("a", b"x"), lambda: bucket.get("a"), lambda: list(bucket.names("a/"))):
            with pytest.raises(Unanswered) as caught:
                call()
            assert SECRET not in repr(caught.value)
            assert caught.value.__suppress_context__


def test_a_silent_store_is_given_up_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_server() as endpoint:
        credentials(monkeypatch, endpoint)
        with pytest.raises(Unanswered):
            open_bucket("s3", BUCKET, None, timeout_s=0.3).get("a")


def test_a_missing_bucket_is_not_a_missing_object(store: None) -> None:
    with pytest.raises(Unanswered):
        open_bucket("s3", "nothing-there", None).get("a")
