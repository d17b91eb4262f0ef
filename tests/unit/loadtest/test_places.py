"""Counters show where records were read from. A figure is refused if it was another place."""

from __future__ import annotations

import pytest

from loadtest.own_broker import BrokerFailed
from loadtest.places import PLACES, misplaced, proof, written_for
from loadtest.scenario import Scenario

READS, LIMIT = 10, 100


def scenario(place: str) -> Scenario:
    return Scenario(kind="read", batch=LIMIT, preload=20_000, place=place)


def counted(place: str) -> dict[str, float]:
    """The counters of a broker that has the records there."""
    common = {"topics_cold_reads_total": 0.0, "topics_read_records_total": 0.0, "topics_live_bytes": 4e6}
    segments = (0.0, 0.0, 0.0) if place == "tail" else (40_000.0, 4.0, 4.0 if place == "cold" else 0.0)
    names = ("topics_flushed_records_total", "topics_segments_sealed_total", "topics_segments_cold")
    cached = {"topics_tail_cache_bytes": 4e6 if place == "tail" else 0.0}
    return common | cached | dict(zip(names, segments, strict=True))


def read(place: str) -> dict[str, float]:
    """The counters after the reads."""
    asked = {"topics_cold_reads_total": float(READS)} if place == "cold" else {}
    return counted(place) | {"topics_read_records_total": float(READS * LIMIT)} | asked


@pytest.mark.parametrize("place", PLACES)
def test_the_counters_prove_the_source_of_reads(place: str) -> None:
    assert misplaced(scenario(place), counted(place)) == ""
    assert proof(scenario(place), counted(place), read(place), READS)


@pytest.mark.parametrize("wanted", PLACES)
@pytest.mark.parametrize("found", PLACES)
def test_reads_from_another_source_are_refused(wanted: str, found: str) -> None:
    if wanted == found:
        return
    assert misplaced(scenario(wanted), counted(found))
    with pytest.raises(BrokerFailed, match=f"diff-{LIMIT}-{wanted}"):
        proof(scenario(wanted), counted(found), read(found), READS)


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("tail", "topics_tail_cache_bytes", 4e6 - 1),
        ("tail", "topics_flushed_records_total", 1.0),
        ("tail", "topics_live_bytes", 0.0),
        ("sealed", "topics_segments_sealed_total", 1.0),
        ("sealed", "topics_segments_cold", 1.0),
        ("sealed", "topics_tail_cache_bytes", 1.0),
        ("cold", "topics_segments_cold", 1.0),
    ],
)
def test_a_part_of_the_reads_from_another_source_is_refused(place: str, name: str, value: float) -> None:
    assert misplaced(scenario(place), counted(place) | {name: value})
    with pytest.raises(BrokerFailed):
        proof(scenario(place), counted(place), read(place) | {name: value}, READS)


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("tail", "topics_read_records_total", READS * LIMIT - 1.0),
        ("sealed", "topics_cold_reads_total", 1.0),
        ("cold", "topics_cold_reads_total", READS - 1.0),
    ],
)
def test_wrong_counters_are_refused(place: str, name: str, value: float) -> None:
    with pytest.raises(BrokerFailed):
        proof(scenario(place), counted(place), read(place) | {name: value}, READS)


def test_more_records_are_written_if_the_last_segments_are_unfinished() -> None:
    assert written_for(scenario("tail")) == written_for(scenario("")) == 20_000
    assert written_for(scenario("sealed")) == written_for(scenario("cold")) == 40_000
