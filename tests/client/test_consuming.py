"""Following by a consumer: which call comes next, without a broker."""

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


def answer(*seqs: int, next_seq: int, cursor: int, tombstone: Any = None) -> Reply:
    body = {
        "topic": "t",
        "records": [{"$seq": seq, "$ts": 1, "data": seq} for seq in seqs],
        "next_from_seq": next_seq,
        "head_seq": 9,
        "earliest_seq": 1,
        "caught_up": False,
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
    consuming = Consuming("t", "c", {"limit": 2}, shared=False)
    reading = consuming.call()
    fields = body_of(reading)
    assert (fields["checkpoint"], fields["limit"]) == (False, 2)
    assert fields["wait_ms"] > 0
    assert "attempt_key" not in fields
    assert len(reading.parse(answer(1, 2, next_seq=3, cursor=0))) == 2
    committing = consuming.call()
    assert (committing.request.target, body_of(committing)) == ("/v0/topics/t/consumers/c/commit", {"seq": 3})
    # Until it has gone through, nothing else is asked for.
    assert consuming.call().request.target == committing.request.target
    assert committing.parse(state()) == []
    assert consuming.call().request.target == "/v0/topics/t/consumers/c/read"


def test_no_commit_is_sent_without_scanned_records() -> None:
    consuming = Consuming("t", "c", {}, shared=False)
    assert consuming.call().parse(answer(next_seq=4, cursor=4)) == []
    assert consuming.call().request.target.endswith("/read")


def test_skipped_records_are_committed() -> None:
    consuming = Consuming("t", "c", {}, shared=False)
    assert consuming.call().parse(answer(next_seq=6, cursor=4)) == []
    assert body_of(consuming.call()) == {"seq": 6}


def test_shared_consumers_read_on_without_a_commit() -> None:
    consuming = Consuming("t", "c", {}, shared=True)
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
