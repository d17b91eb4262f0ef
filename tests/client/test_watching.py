"""A watch over its sessions and connections: what its events mean, and where it continues."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from topics_client.errors import (
    BrokerFault,
    ConnectionFailed,
    NotFound,
    NotReady,
    TopicNotFound,
    Unavailable,
    UnexpectedAnswer,
)
from topics_client.retry import RetryPolicy
from topics_client.watching import Session, Watching, WatchTopics

RECORD = b'event: record\nid: abc\ndata: {"topic":"t","records":[{"$seq":6,"$ts":5,"data":[1]}],"from_seq":5,'
RECORD += b'"to_seq":7,"head_seq":9}\n\n'
GAP = b'event: tombstone\nid: gap\ndata: {"topic":"t","reason":"cap","gap_from":6,"gap_to":8,"earliest_seq":9,'
GAP += b'"head_seq":9}\n\n'
DELETED = b'event: topic-deleted\nid: del\ndata: {"topic":"t","head_seq":7,"reason":"deleted"}\n\n'
BROKEN = ConnectionFailed("The line broke.", outcome="unknown")
LOST = NotFound("There is no watch session of that id.", code="not_found", status=404)


def watching(topics: WatchTopics = ("t",), **options: Any) -> Watching:
    clock = count()
    return Watching(topics, options, policy=RetryPolicy(), now=lambda: float(next(clock)), draw=lambda: 1.0)  # type: ignore[arg-type]


def begun(topics: WatchTopics = ("t",), **options: Any) -> Watching:
    watch = watching(topics, **options)
    names = json.loads(watch.session().request.body or b"")["topics"]
    watch.begin(Session(stream_url="/v0/watch/wid_1", topics={name: {"from_seq": 5} for name in names}))
    return watch


def asked(watch: Watching) -> tuple[str, dict[str, Any]]:
    request = watch.session().request
    return request.target, json.loads(request.body or b"")


def test_the_session_request_has_the_given_options() -> None:
    assert asked(watching({"a": 3, "b": None}, node="me", limit=7)) == (
        "/v0/watch",
        {"topics": {"a": {"from_seq": 3}, "b": {}}, "node": "me", "limit": 7, "include_tags": True},
    )
    assert asked(watching("t"))[1]["topics"] == {"t": {}}


def test_a_partition_applies_to_each_topic() -> None:
    target, fields = asked(watching({"a": 3, "b": None}, partition=2))
    assert (target, fields["topics"]) == ("/v0/watch", {"a": {"from_seq": 3, "partition": 2}, "b": {"partition": 2}})
    assert "partition" not in fields


def test_events_are_complete_wherever_the_bytes_are_split() -> None:
    watch = begun()
    [event] = [event for byte in RECORD for event in watch.feed(bytes([byte]))]
    assert (event.topic, event.kind, event.to_seq, event.id) == ("t", "record", 7, "abc")
    assert [record.data for record in event.records] == [[1]]


def test_skipped_damaged_records_are_named_in_the_event() -> None:
    passed = RECORD.replace(b'"head_seq":9', b'"head_seq":9,"corrupt_seqs":[7]')
    assert [event.corrupt_seqs for event in begun(skip_corrupt=True).feed(RECORD + passed)] == [[], [7]]
    assert asked(watching(skip_corrupt=True))[1]["skip_corrupt"] is True


def test_after_a_broken_connection_the_watch_resumes_after_the_last_event() -> None:
    watch = begun()
    assert "Last-Event-ID" not in watch.stream().headers
    list(watch.feed(b"retry: 2000\n\n: hb 1\n\n" + RECORD + RECORD[:20]))
    watch.failed(BROKEN)
    assert (watch.stream().target, watch.stream().headers["Last-Event-ID"]) == ("/v0/watch/wid_1", "abc")
    [event] = watch.feed(GAP)  # the part of the event that was cut off does no harm
    assert event.tombstone is not None
    assert (event.tombstone.gap_to, event.tombstone.missed_estimate) == (8, 3)


def test_a_lost_session_is_replaced_at_the_position_of_the_reader() -> None:
    watch = begun({"t": None, "u": 2})
    list(watch.feed(RECORD))
    assert watch.failed(LOST).seconds == 0
    assert watch.request is None
    assert asked(watch) == (
        "/v0/watch?lenient=true",
        {"topics": {"t": {"from_seq": 7}, "u": {"from_seq": 5}}, "include_tags": True},
    )
    [gone] = watch.begin(Session(stream_url="/v0/watch/wid_2", topics={"t": {"from_seq": 7}}))
    assert (gone.topic, gone.kind) == ("u", "topic-deleted")
    assert (watch.stream().target, watch.stream().headers["Last-Event-ID"]) == ("/v0/watch/wid_2", "abc")


def test_a_refusal_of_the_first_session_is_raised() -> None:
    with pytest.raises(TopicNotFound):
        watching().failed(TopicNotFound("There is no topic named 't'.", status=404))


def test_a_watch_ends_when_all_topics_are_deleted() -> None:
    events = begun().feed(DELETED)
    assert next(events).kind == "topic-deleted"
    with pytest.raises(TopicNotFound):
        next(events)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"code": "server_shutting_down", "error": "x"}, NotReady),
        ({"code": 500, "error": "x", "reason": "segment_corrupt"}, BrokerFault),
    ],
)
def test_an_error_event_is_raised_as_its_error_class(data: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        list(begun().feed(b"event: error\ndata: %b\n\n" % json.dumps(data).encode()))


def trouble(topic: str, code: int, reason: str) -> bytes:
    data = {"code": code, "error": "x", "reason": reason, "topic": topic}
    return b"event: error\ndata: %b\n\n" % json.dumps(data).encode()


def test_an_error_of_one_topic_is_yielded_and_the_others_continue() -> None:
    watch = begun(("t", "u"))
    error, record = watch.feed(trouble("u", 500, "segment_corrupt") + RECORD)
    assert (error.topic, error.kind, type(error.error)) == ("u", "error", BrokerFault)
    assert record.topic == "t"
    for _ in range(20):  # reconnecting would not help
        list(watch.feed(b": hb 1\n\n"))
    with pytest.raises(BrokerFault):
        list(watch.feed(trouble("t", 500, "segment_corrupt")))


def test_an_error_of_the_only_topic_is_raised() -> None:
    with pytest.raises(BrokerFault):
        list(begun().feed(trouble("t", 500, "segment_corrupt")))


def test_a_topic_with_a_transient_error_is_tried_again_later() -> None:
    watch = begun(("t", "u"))
    told = [event.kind for event in watch.feed(trouble("u", 503, "storage_failed") + RECORD)]
    assert told == ["error", "record"]
    with pytest.raises(Unavailable) as again:
        told.extend(event.kind for _ in range(20) for event in watch.feed(RECORD))  # a second each
    assert len(told) > 2
    watch.failed(again.value)
    assert watch.stream().headers["Last-Event-ID"] == "abc"
    assert [event.kind for event in watch.feed(RECORD)] == ["record"]


def test_a_slow_notice_does_not_end_the_watch() -> None:
    watch = begun()
    with pytest.raises(Exception) as told:  # noqa: PT011
        list(watch.feed(b'event: error\ndata: {"code":429,"error":"x","reason":"slow_reader"}\n\n'))
    assert watch.failed(told.value).seconds > 0  # type: ignore[arg-type]


def test_an_unreadable_event_is_an_unexpected_answer() -> None:
    with pytest.raises(UnexpectedAnswer):
        list(begun().feed(b"event: record\ndata: {\n\n"))
