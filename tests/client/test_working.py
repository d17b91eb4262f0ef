"""The worker's requests, their repetition, and the parsing of events that arrive in pieces."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics_client.errors import (
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
from topics_client.retry import RetryPolicy
from topics_client.values import Claimed
from topics_client.working import EventParser, Working, error_of

JOB = 'event: job\nid: 1\ndata: {"topic":"q","data":"é: x","meta":[ 1]}\n\n'.encode()
BEGIN = b"retry: 2000\n\n"
BEAT = b": hb 1767225600000\n\n"
BROKEN = ConnectionFailed("The line broke.", outcome="unknown")
NOTHING = Claimed(topic="q", jobs=[], ready=0)


def working(**policy: float) -> Working:
    return Working(
        "q",
        "w",
        lease_ms=500,
        policy=RetryPolicy(**policy),  # pyright: ignore[reportArgumentType]
        now=Clock(),
        draw=lambda: 1.0,
    )


class Clock:
    """A second passes each time the clock is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


@given(cuts=st.lists(st.integers(0, 400), max_size=8))
def test_events_are_the_same_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    whole = BEGIN + JOB + BEAT + JOB + b'event: error\ndata: {"code":503}\n\n'
    parser = EventParser()
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    events = [event for a, b in pairwise(places) for event in parser.feed(whole[a:b])]
    assert [event.name for event in events] == ["job", "job", "error"]
    assert events[2].data == '{"code":503}'


def test_a_claim_waits_for_exactly_one_job() -> None:
    request = working().call().request
    assert request.target == "/v0/topics/q/claim"
    fields = msgspec.json.decode(request.body or b"")
    assert len(fields.pop("attempt_key")) == 32
    assert fields == {"node": "w", "lease_ms": 500, "wait_ms": 30_000}


def test_an_unanswered_claim_is_repeated_unchanged() -> None:
    worker = working()
    first = worker.call().request
    worker.failed(BROKEN)
    assert worker.call().request == first
    worker.answered(NOTHING)
    assert worker.call().request != first


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ('{"code":"server_shutting_down","error":"Bye."}', NotReady),
        ('{"code":503,"error":"It failed.","reason":"storage_failed"}', Unavailable),
        ('{"code":507,"error":"Full.","reason":"storage_full"}', StorageFull),
        ('{"code":404,"error":"Gone.","reason":"topic_not_found"}', TopicNotFound),
        ('{"code":500,"error":"Oh."}', BrokerFault),
        ('{"error":"What?"}', BrokerFault),
    ],
)
def test_an_error_event_at_the_end_of_a_stream_is_raised_as_its_class(data: str, kind: type[TopicsError]) -> None:
    error = error_of(data)
    assert type(error) is kind
    assert error.message


def test_a_broken_connection_is_retried_after_a_pause() -> None:
    stream = working(total_s=60, base_s=0.5, cap_s=10)
    assert [stream.failed(BROKEN).seconds for _ in range(4)] == [0.5, 1, 2, 4]


def test_the_last_error_is_raised_after_total_s() -> None:
    stream = working(total_s=3, base_s=0.5)
    for _ in range(2):
        stream.failed(BROKEN)
    with pytest.raises(ConnectionFailed) as caught:
        stream.failed(BROKEN)
    assert (caught.value.tries, caught.value.tried_for_s) == (3, 2.0)


def test_any_answer_of_the_broker_resets_the_retries() -> None:
    stream = working(total_s=2, base_s=0.1)
    for _ in range(20):
        assert stream.failed(BROKEN).tries == 1
        assert stream.answered(NOTHING) == []


@pytest.mark.parametrize("error", [TopicNotFound("No."), InvalidRequest("No."), UnexpectedAnswer("No.")])
def test_a_permanent_error_is_not_retried(error: TopicsError) -> None:
    with pytest.raises(type(error)):
        working().failed(error)


def test_without_retries_the_first_error_is_raised() -> None:
    with pytest.raises(ConnectionFailed):
        working(total_s=0).failed(BROKEN)
