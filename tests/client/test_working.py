"""A stream of jobs over its connections: what its events mean, and when there is another connection."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import (
    BrokerFault,
    ConnectionFailed,
    InvalidRequest,
    NotReady,
    StorageFull,
    TopicNotFound,
    TopicsError,
    Unavailable,
    UnexpectedAnswer,
)
from client.retry import RetryPolicy
from client.values import Job
from client.working import EventParser, Working

FIRST = b'event: job\nid: 1\ndata: {"topic":"q","$seq":1,"lease_id":"lease_1","deadline":9,"$ts":5,"deliveries":2,'
JOB = FIRST + '"$node":"p","$tag":"t","data":"é: x","meta":[ 1]}\n\n'.encode()
BEGIN = b"retry: 2000\n\n"
BEAT = b": hb 1767225600000\n\n"
BROKEN = ConnectionFailed("The line broke.", outcome="unknown")


def working(**policy: float) -> Working:
    return Working(
        "q",
        "w",
        max=3,
        lease_ms=None,
        policy=RetryPolicy(**policy),  # pyright: ignore[reportArgumentType]
        now=Clock(),
        draw=lambda: 1.0,
    )


class Clock:
    """A second passes at each look."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


def test_a_job_is_read_with_all_that_belongs_to_it() -> None:
    [job] = working().feed(BEGIN + BEAT + JOB)
    assert job == Job(
        seq=1,
        ts=5,
        node="p",
        tag="t",
        data_raw='"é: x"'.encode(),
        meta_raw=b"[ 1]",
        lease_id="lease_1",
        deadline=9,
        deliveries=2,
    )
    assert (job.data, job.meta) == ("é: x", [1])


@given(cuts=st.lists(st.integers(0, 400), max_size=8))
def test_wherever_the_pieces_are_cut_the_events_are_the_same(cuts: list[int]) -> None:
    whole = BEGIN + JOB + BEAT + JOB + b'event: error\ndata: {"code":503}\n\n'
    parser = EventParser()
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    events = [event for a, b in pairwise(places) for event in parser.feed(whole[a:b])]
    assert [event.name for event in events] == ["job", "job", "error"]
    assert events[2].data == '{"code":503}'


def test_the_end_of_a_broken_connection_is_not_part_of_the_next() -> None:
    stream = working()
    assert list(stream.feed(JOB[:-20])) == []
    stream.failed(BROKEN)
    assert [job.seq for job in stream.feed(JOB)] == [1]


def test_the_request_says_who_wants_how_much() -> None:
    stream = Working("q", "w 1", max=3, lease_ms=500, policy=RetryPolicy(), now=lambda: 0.0, draw=lambda: 0.0)
    assert stream.request.target == "/v0/topics/q/work?node=w+1&max=3&lease_ms=500"
    assert stream.request.headers["Accept"] == "text/event-stream"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"code":"server_shutting_down","error":"Bye."}', NotReady),
        (b'{"code":503,"error":"It failed.","reason":"storage_failed"}', Unavailable),
        (b'{"code":507,"error":"Full.","reason":"storage_full"}', StorageFull),
        (b'{"code":404,"error":"Gone.","reason":"topic_not_found"}', TopicNotFound),
        (b'{"code":500,"error":"Oh."}', BrokerFault),
        (b'{"error":"What?"}', BrokerFault),
    ],
)
def test_what_the_broker_says_at_the_end_is_raised(data: bytes, kind: type[TopicsError]) -> None:
    with pytest.raises(kind) as caught:
        list(working().feed(b"event: error\ndata: " + data + b"\n\n"))
    assert caught.value.message


def test_a_deleted_queue_is_not_found() -> None:
    stream = working()
    with pytest.raises(TopicNotFound) as caught:
        list(stream.feed(JOB + b'event: topic-deleted\ndata: {"topic":"q","head_seq":1,"reason":"deleted"}\n\n'))
    with pytest.raises(TopicNotFound):
        stream.failed(caught.value)


@pytest.mark.parametrize("frame", [b"event: job\ndata: {\n\n", b"event: error\ndata: x\n\n", b"event: job\n\n"])
def test_what_makes_no_sense_is_no_answer_of_a_broker(frame: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        list(working().feed(frame))


def test_a_broken_connection_is_made_again_after_a_while() -> None:
    stream = working(total_s=60, base_s=0.5, cap_s=10)
    assert [stream.failed(BROKEN).seconds for _ in range(4)] == [0.5, 1, 2, 4]


def test_when_it_takes_too_long_the_last_error_is_raised() -> None:
    stream = working(total_s=3, base_s=0.5)
    for _ in range(2):
        stream.failed(BROKEN)
    with pytest.raises(ConnectionFailed) as caught:
        stream.failed(BROKEN)
    assert (caught.value.tries, caught.value.tried_for_s) == (3, 2.0)


def test_whatever_comes_from_the_broker_starts_the_count_anew() -> None:
    stream = working(total_s=2, base_s=0.1)
    for _ in range(20):
        assert stream.failed(BROKEN).tries == 1
        assert list(stream.feed(BEAT)) == []


@pytest.mark.parametrize("error", [TopicNotFound("No."), InvalidRequest("No."), UnexpectedAnswer("No.")])
def test_what_would_not_pass_is_not_tried_again(error: TopicsError) -> None:
    with pytest.raises(type(error)):
        working().failed(error)


def test_without_retries_nothing_is_tried_again() -> None:
    with pytest.raises(ConnectionFailed):
        working(total_s=0).failed(BROKEN)
