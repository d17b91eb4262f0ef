"""Kafka Streams counts words, and restores its counts from the changelog."""

from __future__ import annotations

from tests.kafka.java.programs import Programs

COUNTS = "counts {again=1, all=1, hello=2, join=1, kafka=3, lead=1, streams=2, summit=1, to=1}"


def test_words_are_counted_over_a_restart_without_the_state(programs: Programs) -> None:
    topics, counts = programs.source("WordCount.java", programs.address, str(programs.folder)).splitlines()
    assert counts == COUNTS
    assert topics.count("-changelog") == topics.count("-repartition") == 1
