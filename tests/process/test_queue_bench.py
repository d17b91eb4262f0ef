"""The measurement of queues, in a short run: every job is claimed and acked once, one or many at a time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest import own_redis, queue


@pytest.mark.parametrize("with_redis", [False, True] if own_redis.is_there() else [False])
def test_queues_are_measured_with_one_and_many_jobs_a_call(
    with_redis: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "is_there", lambda: with_redis)
    path = tmp_path / "results" / "q.json"
    options = ["--connections", "2", "--batch", "1", "100", "--jobs", "1000", "--rounds", "1"]
    assert queue.main([*options, "--dir", str(tmp_path), "--json", str(path)]) == 0
    found = msgspec.convert(msgspec.json.decode(path.read_bytes())["results"], list[queue.Compared])
    sides = [*queue.BROKER_SIDES, *(queue.REDIS_SIDES if with_redis else ())]
    assert [each.batch for each in found] == [1, 100]
    for each in found:
        assert [leg.side for leg in each.legs] == sides
        assert all(leg.jobs_per_s == pytest.approx(leg.cycles_per_s * each.batch) for leg in each.legs)
        assert len(each.ratios) == (4 if with_redis else 0)


def test_small_batches_are_measured_with_fewer_jobs() -> None:
    assert queue.jobs_of(1) < queue.jobs_of(10) < queue.jobs_of(100) == queue.jobs_of(1000)
    assert all(queue.jobs_of(batch) % 1000 == 0 for batch in (1, 7, 16, 100))
