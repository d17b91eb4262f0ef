"""Following with a consumer, without a broker: which call comes next."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from topics_client import consumer_calls
from topics_client.consuming import Consuming
from topics_client.errors import ConnectionFailed, InvalidRequest
from topics_client.retry import may_repeat
from topics_client.wire import Call, Replay, Reply


def body_of(call: Call[Any]) -> dict[str, Any]:
    assert call.request.body is not None
    return json.loads(call.request.body)


def answer(*seqs: int, next_seq: int, cursor: int, tombstone: Any = None, caught_up: bool = False) -> Reply:
    body = {
        "topic": "t",
        "records": [{"$seq": seq, "$ts": 1, "data": seq} for seq in seqs],
        "next_from_seq": next_seq,
        "head_seq": 9,
        "earliest_seq": 1,
        "caught_up": caught_up,
        "lag": 0,
        "tombstone": tombstone,
        "consumer": "c",
        "cursor_seq": cursor,
        "unread": 1,
    }
    return Reply(status=200, headers={}, body=msgspec.json.encode(body))


def state() -> Reply:
    return Reply(status=200, headers={}, body=b'{"topic":"t","consumer":"c"}')


def test_a_commit_follows_the_returned_records() -> None:
    consuming = Consuming("t", "c", {"limit": 2}, shared=False, now=lambda: 0.0)
    reading = consuming.call()
    fields = body_of(reading)
    assert (fields["checkpoint"], fields["limit"]) == (False, 2)
    assert fields["wait_ms"] > 0
    assert "attempt_key" not in fields
    assert len(reading.parse(answer(1, 2, next_seq=3, cursor=0))) == 2
    committing = consuming.call()
    assert (committing.request.target, body_of(committing)) == ("/v0/topics/t/consumers/c/commit", {"seq": 3})
    # Until it has succeeded, no other request is made.
    assert consuming.call().request.target == committing.request.target
    assert committing.parse(state()) == []
    assert consuming.call().request.target == "/v0/topics/t/consumers/c/read"


def test_no_commit_is_sent_without_scanned_records() -> None:
    consuming = Consuming("t", "c", {}, shared=False, now=lambda: 0.0)
    assert consuming.call().parse(answer(next_seq=4, cursor=4)) == []
    assert consuming.call().request.target.endswith("/read")


def test_skipped_records_are_committed() -> None:
    consuming = Consuming("t", "c", {}, shared=False, now=lambda: 0.0)
    assert consuming.call().parse(answer(next_seq=6, cursor=4)) == []
    assert body_of(consuming.call()) == {"seq": 6}


def test_following_ends_when_no_record_has_come_for_the_given_time() -> None:
    now_s = 0.0
    consuming = Consuming("t", "c", {"wait_ms": 40_000}, shared=True, now=lambda: now_s)
    waits: list[int] = []

    def take(seconds: float, *seqs: int, caught_up: bool = True) -> None:
        nonlocal now_s
        call = consuming.call()
        waits.append(body_of(call)["wait_ms"])
        now_s += seconds
        call.parse(answer(*seqs, next_seq=9, cursor=9, caught_up=caught_up))

    take(30, 1)  # no longer than a call may wait, and again after each record
    take(25)
    take(10)
    assert not consuming.is_over
    take(5, caught_up=False)  # others were skipped, and there are more
    assert not consuming.is_over
    take(1)
    assert consuming.is_over
    assert waits == [25_000, 25_000, 15_000, 5_000, 0]


def test_skipped_records_are_committed_before_following_ends() -> None:
    consuming = Consuming("t", "c", {"wait_ms": 0}, shared=False, now=lambda: 0.0)
    consuming.call().parse(answer(next_seq=6, cursor=4, caught_up=True))
    assert not consuming.is_over
    committing = consuming.call()
    assert body_of(committing) == {"seq": 6}
    committing.parse(state())
    consuming.call().parse(answer(next_seq=6, cursor=6, caught_up=True))
    assert consuming.is_over


def test_without_a_time_limit_following_never_ends() -> None:
    now_s = 0.0
    consuming = Consuming("t", "c", {"wait_ms": None}, shared=False, now=lambda: now_s)
    for _ in range(3):
        call = consuming.call()
        assert body_of(call)["wait_ms"] == 25_000
        now_s += 1e6
        call.parse(answer(next_seq=9, cursor=9, caught_up=True))
    assert not consuming.is_over


def test_shared_consumers_read_on_without_a_commit() -> None:
    consuming = Consuming("t", "c", {}, shared=True, now=lambda: 0.0)
    first = consuming.call()
    assert body_of(first)["checkpoint"] is True
    first.parse(answer(1, next_seq=1, cursor=1))
    second = consuming.call()
    assert second.request.target.endswith("/read")
    assert body_of(second)["attempt_key"] != body_of(first)["attempt_key"]


def test_a_read_is_repeated_and_a_seek_is_not() -> None:
    lost = ConnectionFailed("broken", outcome="unknown")
    assert may_repeat(consumer_calls.read("t", "c", {}).request, lost)
    assert may_repeat(consumer_calls.commit("t", "c", 1).request, lost)
    sought = consumer_calls.seek("t", "c", seq=None, ts=None, to="head").request
    assert sought.replay is Replay.IF_UNTOUCHED
    assert not may_repeat(sought, lost)
    assert not may_repeat(consumer_calls.delete("t", "c").request, lost)


def test_a_read_times_out_no_earlier_than_the_longest_wait_of_the_broker() -> None:
    assert consumer_calls.read("t", "c", {"wait_ms": 10_000}).request.wait_s == 10
    assert consumer_calls.read("t", "c", {"wait_ms": 90_000}).request.wait_s == 30


@pytest.mark.parametrize("name", ["", "a/b", "%a", "x" * 513, "a\n"])
def test_an_invalid_consumer_name_is_refused_before_a_request(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        consumer_calls.get("t", name)
    assert caught.value.detail["field"] == "consumer"
