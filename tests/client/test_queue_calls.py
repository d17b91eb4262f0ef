"""Requests of the queue calls, and which of them may be repeated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topics_client import queue_calls
from topics_client.errors import InvalidRequest
from topics_client.values import Job
from topics_client.wire import Call, Replay, Reply

LEASED = Job(seq=2, ts=0, lease_id="lease_00c0ffee00c0ffee", deadline=0, deliveries=1)


def sent(call: Call[Any]) -> dict[str, Any]:
    return json.loads(call.request.body or b"{}")


def test_each_claim_has_a_new_attempt_key() -> None:
    keys = {sent(queue_calls.claim("q", "w", {}))["attempt_key"] for _ in range(10)}
    assert len(keys) == 10
    assert all(0 < len(key) <= 128 for key in keys)


def test_the_repetition_of_a_claim_has_the_same_key() -> None:
    call = queue_calls.claim("q", "w", {"max": 5})
    assert call.request.replay is Replay.SAFE
    assert sent(call) == sent(call)


def test_a_given_attempt_key_is_used() -> None:
    fields = sent(queue_calls.claim("q", "w", {"attempt_key": "k", "max": 5, "lease_ms": None, "wait_ms": 7}))
    assert fields == {"node": "w", "attempt_key": "k", "max": 5, "wait_ms": 7}


@pytest.mark.parametrize(("wait_ms", "wait_s"), [(0, 0), (5000, 5), (90_000, 30)])
def test_a_claim_waits_at_most_the_longest_wait_of_the_broker(wait_ms: int, wait_s: float) -> None:
    assert queue_calls.claim("q", "w", {"wait_ms": wait_ms}).request.wait_s == wait_s


def test_claimed_jobs_are_settled_by_lease_id() -> None:
    assert sent(queue_calls.ack("q", "w", [LEASED, 3])) == {
        "node": "w",
        "seqs": [2, 3],
        "lease_ids": ["lease_00c0ffee00c0ffee", ""],
    }


def test_seqs_alone_are_settled_by_node() -> None:
    assert sent(queue_calls.ack("q", "w", iter([2, 3]))) == {"node": "w", "seqs": [2, 3]}


def test_a_nack_sends_the_given_options() -> None:
    call = queue_calls.nack("q", "w", [1], {"delay_ms": 0, "penalty": False, "reason": "r"})
    assert sent(call) == {"node": "w", "seqs": [1], "delay_ms": 0, "penalty": False, "reason": "r"}
    assert sent(queue_calls.nack("q", "w", [1], {"delay_ms": None, "reason": None})) == {"node": "w", "seqs": [1]}


@pytest.mark.parametrize("name", ["ack", "nack", "extend"])
def test_a_strict_call_is_not_repeated_blindly(name: str) -> None:
    """A repetition would find the leases already ended by the first attempt, and be refused."""
    calls = {
        "ack": lambda strict: queue_calls.ack("q", "w", [1], strict=strict),
        "nack": lambda strict: queue_calls.nack("q", "w", [1], {}, strict=strict),
        "extend": lambda strict: queue_calls.extend("q", "w", [1], 5, strict=strict),
    }
    loose, strict = calls[name](False).request, calls[name](True).request
    assert (loose.target, loose.replay) == (f"/v0/topics/q/{name}", Replay.SAFE)
    assert (strict.target, strict.replay) == (f"/v0/topics/q/{name}?strict=true", Replay.IF_UNTOUCHED)


def test_purge_and_redrive_are_repeated_only_if_untouched() -> None:
    assert queue_calls.purge("q", ["ready"], {}).request.replay is Replay.IF_UNTOUCHED
    assert queue_calls.purge("q", ["ready"], {"max": 5, "through_seq": 9}).request.replay is Replay.IF_UNTOUCHED
    assert queue_calls.redrive("q", {}).request.replay is Replay.IF_UNTOUCHED
    assert queue_calls.redrive("q", {"dry_run": True}).request.replay is Replay.SAFE


def test_a_purge_sends_only_the_limits_that_are_given() -> None:
    assert sent(queue_calls.purge("q", ["ready"], {})) == {"states": ["ready"]}
    assert sent(queue_calls.purge("q", ["ready"], {"max": None, "through_seq": 0})) == {
        "states": ["ready"],
        "through_seq": 0,
    }
    assert sent(queue_calls.purge("q", ["delayed"], {"max": 5})) == {"states": ["delayed"], "max": 5}


def test_a_redrive_sends_its_source_and_has_a_long_timeout() -> None:
    call = queue_calls.redrive("q", {"source": "dead", "max": 100, "rate_per_s": 4})
    assert sent(call) == {"from": "dead", "max": 100, "rate_per_s": 4}
    assert call.request.wait_s == 25
    assert queue_calls.redrive("q", {"rate_per_s": 4, "dry_run": True}).request.wait_s == 0


def test_the_count_is_read_under_each_field_name() -> None:
    body = b'{"topic":"q","%b":2,"skipped":[7],"ready":1,"in_flight":3,"deadlines":{"5":60},"more":1}'
    for name in (b"acked", b"nacked", b"extended"):
        settled = queue_calls.ack("q", "w", [5]).parse(Reply(status=200, headers={}, body=body % name))
        assert (settled.count, settled.skipped, settled.deadlines) == (2, [7], {5: 60})


def test_an_invalid_topic_name_is_not_sent() -> None:
    for make in (queue_calls.pause, queue_calls.resume, lambda t: queue_calls.claim(t, "w", {})):
        with pytest.raises(InvalidRequest):
            make("no/name")


def test_a_job_is_written_with_the_bytes_that_were_read() -> None:
    text = (
        b'{"$seq":1,"lease_id":"lease_1","deadline":9,"$ts":5,"$node":",\\"data\\":","$tag":"t","deliveries":2,'
        b'"data":{"data":1},"meta":[ 1]}'
    )
    body = b'{"topic":"q","claimed":[%b],"count":1,"ready":0}' % text
    [job] = queue_calls.claim("q", "w", {}).parse(Reply(status=200, headers={}, body=body)).jobs
    assert job.to_json() == text
